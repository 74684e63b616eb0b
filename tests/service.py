"""A running Gatepost for tests: `gatepost serve` in its own process, and a client for its API and commands."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import requests

from gatepost.ledger import entries, search
from gatepost.oauth import account_admin
from gatepost.run import app
from gatepost.settings import load
from tests import inside
from tests.waiting import LIMIT


@dataclass(frozen=True)
class Client:
    """A client of an account, with its secret."""

    id: str
    secret: str

    @property
    def basic(self) -> str:
        return "Basic " + b64encode(f"{self.id}:{self.secret}".encode()).decode()


@dataclass
class Service:
    """A running Gatepost. `directory` holds its data; `database` is a PostgreSQL URL or empty."""

    url: str
    ops: str
    directory: Path
    database: str
    process: subprocess.Popen[str]
    environment: dict[str, str]
    first: Client | None
    session: requests.Session = field(default_factory=requests.Session)

    def cli(self, *arguments: str, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a gatepost command on the store of the running service."""
        return inside.run(arguments, self.environment, check=check, stdin=stdin)

    def cli_json(self, *arguments: str) -> Any:
        return json.loads(self.cli(*arguments, "--json").stdout)

    @cached_property
    def opened(self) -> app.Runtime:
        """The store of the service, opened in this process as a command opens it."""
        return app.open_for_use(load({}, self.environment))

    def account(self, name: str, *settings: str) -> tuple[str, Client]:
        """Create an account as `account create` does, without a process. Returns its id and its first client."""
        changes = dict(each.split("=", 1) for each in settings)
        store, service = self.opened.store, self.opened.service
        made = store.run_now(lambda tx: account_admin.create(tx, service, name, changes))
        assert made.secret is not None
        return made.account.id, Client(made.client, made.secret.reveal())

    def entries(self, account: str, limit: int = 100) -> list[dict[str, Any]]:
        """Return the newest ledger entries of the account, as `audit list --json` prints them."""
        return [entries.render(each) for each in search.newest(self.opened.store, account, search.EntryFilter(), limit)]

    def close(self) -> None:
        self.session.close()
        if "opened" in self.__dict__:
            self.opened.store.close()

    def token_answer(
        self, client: Client, scope: str | None, headers: Mapping[str, str] | None = None, **form: str
    ) -> requests.Response:
        body = {"grant_type": "client_credentials"} | ({"scope": scope} if scope is not None else {}) | form
        return self.session.post(
            f"{self.url}/oauth/tokens", data=body, headers={"Authorization": client.basic} | dict(headers or {})
        )

    def token(self, client: Client, scope: str, **form: str) -> str:
        answer = self.token_answer(client, scope, None, **form)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def post(self, path: str, token: str, body: Any, **headers: str) -> requests.Response:
        sent = {"Authorization": f"Bearer {token}"} | {name.replace("_", "-"): text for name, text in headers.items()}
        return self.session.post(f"{self.url}{path}", json=body, headers=sent)

    def define_client(self, token: str, **members: Any) -> Client:
        """Define a client for the client credentials grant, with a secret."""
        body = {"grant_types": ["client_credentials"]} | members
        answer = self.post("/oauth/clients", token, body)
        assert answer.status_code == 201, answer.text
        return Client(answer.json()["client_id"], answer.json().get("client_secret", ""))

    def web_processes(self) -> list[int]:
        """Return the ids of the web processes, as the kernel reports them."""
        return self._children("gatepost.run.web_process")

    def operations_processes(self) -> list[int]:
        return self._children("gatepost.run.operations_process")

    def delivery_processes(self) -> list[int]:
        return self._children("gatepost.run.delivery_process")

    def _children(self, module: str) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(each) for each in children if module.encode() in _command_line(each)]

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=LIMIT)


def _command_line(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the process has ended
        return b""


_PORTS = range(20_000, 32_000)  # below the range of ephemeral ports
_numbers = itertools.count(os.getpid() * 211)  # each test process starts at another port


def free_ports(count: int) -> list[int]:
    """Return free ports that no other process is likely to take before they are used."""
    return list(itertools.islice(filter(_is_free, (_PORTS[number % len(_PORTS)] for number in _numbers)), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def environment(directory: Path, database: str, **settings: str) -> dict[str, str]:
    """Return the environment of a command: these settings, without the GATEPOST_ variables of the machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEPOST_")}
    kept |= {"GATEPOST_DATA": str(directory), "PYTHONWARNINGS": "default"}
    if database:
        kept |= {"GATEPOST_DATABASE": database, "GATEPOST_MASTER_KEY": "q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k="}
    return kept | {f"GATEPOST_{name.upper()}": value for name, value in settings.items()}


def _first_account(variables: dict[str, str]) -> Client | None:
    """Create the account that the first start creates on SQLite, but not on PostgreSQL."""
    done = inside.run(("account", "create", "default", "--json"), variables, check=False)
    if done.returncode:
        return None
    made = json.loads(done.stdout)
    return Client(made["client_id"], made["client_secret"])


@contextmanager
def running(directory: Path, database: str = "", *, dev: bool = True, **settings: str) -> Iterator[Service]:
    """Start `gatepost serve`, yield when it reports that it is ready, and stop it at the end."""
    port, ops_port = free_ports(2)
    variables = environment(directory, database, **({"port": str(port), "ops_port": str(ops_port)} | settings))
    if dev:
        variables["GATEPOST_DEV"] = "true"
    log = (directory.parent / f"{directory.name}.log").open("a+")
    process = subprocess.Popen(
        [sys.executable, "-m", "gatepost", "serve"],
        env=variables, stdout=subprocess.PIPE, stderr=log, text=True,
    )  # fmt: skip
    output: list[str] = []
    try:
        assert process.stdout is not None
        deadline = time.monotonic() + 60
        while not any(line.startswith("ready ") for line in output):
            line = process.stdout.readline()
            if not line or time.monotonic() > deadline:
                log.seek(0)
                raise AssertionError(f"gatepost did not start: {output} {log.read()[-4000:]}")
            output.append(line.rstrip("\n"))
        words = {line.split()[0]: line.split()[1] for line in output if len(line.split()) == 2}
        first = Client(words["client_id"], words["client_secret"]) if "client_id" in words else None
        if first is None and database:
            first = _first_account(variables)
        service = Service(
            next(line.removeprefix("ready ") for line in output if line.startswith("ready ")),
            f"http://127.0.0.1:{ops_port}", directory, database, process, variables, first,
        )  # fmt: skip
        with closing(service):
            yield service
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout:
            process.stdout.close()
        log.close()
