"""Runs the commands of a page in a directory where a service was just started."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jwt

from tests.docs import idle
from tests.docs.pages import DEFAULT_OPS, DEFAULT_URL, blocks, named
from tests.receiver import Receiver
from tests.service import Client, Service

DASH = "dash" if shutil.which("dash") else "bash"  # a shell without the extensions of bash
RECEIVER = "8787"  # the port that receivers have in the pages
_OPERATIONS = "gatepost:endpoints gatepost:subscriptions gatepost:deliveries"


class Prepared(NamedTuple):
    """An account with an endpoint and one delivery, and the shell variables that a page uses for them."""

    account: str
    account_id: str
    endpoint: dict[str, Any]
    subscription: str
    event: str
    delivery: str
    variables: str


class Reader:
    def __init__(self, directory: Path, running: Service) -> None:
        self.directory = directory
        self.service = running
        (directory / ".venv").symlink_to(sys.prefix)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEPOST_")}
        ports = {"GATEPOST_PORT": urlsplit(running.url).port, "GATEPOST_OPS_PORT": urlsplit(running.ops).port}
        self.environment = kept | {name: str(port) for name, port in ports.items()}

    def run(
        self,
        page: Path,
        before: str = "",
        replaced: Mapping[str, str] | None = None,
        *,
        wait_for_deliveries: bool = False,
        shell: str = DASH,
    ) -> str:
        """Run the shell blocks of a page in order in one shell, and return the output.

        With `wait_for_deliveries`, each block is followed by a wait until everything due has been sent.
        """
        typed = [
            text
            for text in blocks(page, "sh")
            if not all(line.startswith("make ") for line in text.split("\n") if line)
        ]
        assert typed
        pause = shlex.join([sys.executable, idle.__file__, str(self.service.directory / "gatepost.db")])
        if wait_for_deliveries:
            typed = [f"{text}\n{pause}" for text in typed]
        script = "\n".join([before, *typed])
        script = script.replace(DEFAULT_URL, self.service.url).replace(DEFAULT_OPS, self.service.ops)
        for old, new in (replaced or {}).items():
            assert old in script
            script = script.replace(old, new)
        done = self._run(shell, script)
        assert done.returncode == 0, f"{named(page)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _run(self, shell: str, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script in a session of its own and kill that session at the end: pages start background jobs."""
        command = [shell, "-eu", *(["-o", "pipefail"] if shell == "bash" else []), "-c", script]
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                command, cwd=self.directory, env=self.environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
            )  # fmt: skip
            try:
                process.wait(timeout=240)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(command, process.returncode, output.read(), errors.read())

    def prepare_client(self, name: str, first: Client) -> str:
        """Return the variables that a guide expects from the token tutorial, for a new client."""
        admin = self.service.token(first, "gatepost:clients gatepost:scopes")
        self.service.post("/oauth/scopes", admin, {"name": "read", "resource": f"https://{name}.example.com"})
        client = self.service.define_client(admin, client_name=name, scope="read")
        token = jwt.decode(self.service.token(client, "read"), options={"verify_signature": False})["jti"]
        return _variables(URL=self.service.url, ADMIN_TOKEN=admin, CLIENT_ID=client.id, TOKEN_ID=token)

    def prepare_delivery(self, name: str, to: Receiver, **members: Any) -> Prepared:
        """Create what a guide expects from the webhook tutorial: an account with one delivered event."""
        account, client = self.service.account(name)
        token = self.service.token(client, _OPERATIONS)
        endpoint = self.service.post("/webhooks/endpoints", token, {"url": to.url} | members).json()
        body = {"endpoint_id": endpoint["id"], "events": ["order.*"]}
        subscription = self.service.post("/webhooks/subscriptions", token, body).json()["id"]
        event = self.service.cli_json(
            "event", "publish", "--account", name, "--type", "order.shipped", "--data", '{"order": 1001}'
        )
        self.wait()
        [delivery] = event["deliveries"]
        variables = _variables(
            URL=self.service.url, TOKEN=token, ENDPOINT_ID=endpoint["id"], SUBSCRIPTION_ID=subscription,
            EVENT_ID=event["id"], DELIVERY_ID=delivery,
        )  # fmt: skip
        return Prepared(name, account, endpoint, subscription, event["id"], delivery, variables)

    def wait(self) -> None:
        idle.wait_until_idle(self.service.directory / "gatepost.db")


def _variables(**values: str) -> str:
    return "\n".join(f"{variable}={value}" for variable, value in values.items())
