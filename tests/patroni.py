"""A PostgreSQL cluster of three instances on loopback, which Patroni keeps with etcd, as Debian packages them.

Replication is synchronous and strict: a commit waits until a standby has it, whatever happens.
"""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pwd import getpwnam, struct_passwd

import psycopg
import requests

from tests import postgres, programs
from tests.postgres import OWNER, Server
from tests.service import free_ports
from tests.waiting import LIMIT, wait_until

_DYNAMIC = {
    "ttl": 5, "loop_wait": 1, "retry_timeout": 2, "maximum_lag_on_failover": 1048576,
    "synchronous_mode": True, "synchronous_mode_strict": True,
    "postgresql": {"use_pg_rewind": True, "use_slots": True},
}  # fmt: skip
_PARAMETERS = {"max_connections": 100, "shared_buffers": "32MB", "wal_sender_timeout": "3s", "wal_keep_size": "128MB"}
_HBA = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]


class Instance:
    """One PostgreSQL instance and the Patroni that keeps it."""

    def __init__(self, name: str, server: Server, etcd_port: int, api_port: int) -> None:
        self.name, self.server = name, server
        self.api = f"http://127.0.0.1:{api_port}"
        self._data = server.directory / "data"
        settings = {
            "scope": "gatepost", "name": name, "restapi": {"listen": f"127.0.0.1:{api_port}"},
            "etcd3": {"host": f"127.0.0.1:{etcd_port}"},
            "bootstrap": {"dcs": _DYNAMIC, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}]},
            "postgresql": {
                "listen": f"127.0.0.1:{server.port}", "data_dir": str(self._data), "bin_dir": str(server.programs),
                "pgpass": str(server.directory / "pgpass"), "pg_hba": _HBA,
                "authentication": {
                    "superuser": {"username": OWNER, "password": "-"},
                    "replication": {"username": "standby", "password": "-"},
                },
                "parameters": _PARAMETERS | {"unix_socket_directories": str(server.directory)},
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
            },
        }  # fmt: skip
        file = server.directory / "patroni.yml"
        file.write_text(json.dumps(settings))  # JSON is YAML
        self._program = programs.Program(
            server, "patroni.log", programs.find("patroni"), str(file), data=str(self._data)
        )

    def start(self) -> None:
        self._program.start()

    def kill(self) -> None:
        """Kill Patroni and PostgreSQL as kill -9 does."""
        for number in (signal.SIGCONT, signal.SIGKILL):
            self.signal(number)
        self._program.kill()

    def signal(self, number: int) -> None:
        """Send a signal to Patroni and to all processes of PostgreSQL."""
        self._program.signal(number)
        for pid in self._postgres():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _postgres(self) -> list[int]:
        try:
            postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        except (OSError, IndexError, ValueError):
            return []
        return [postmaster, *map(int, children)]


class Cluster:
    """Three instances. The roles are those that Patroni reports: leader, sync_standby and replica."""

    def __init__(self, instances: list[Instance]) -> None:
        self.instances = instances

    def url(self, database: str) -> str:
        hosts = ",".join(f"127.0.0.1:{instance.server.port}" for instance in self.instances)
        return f"postgresql://{OWNER}@{hosts}/{database}?target_session_attrs=read-write"

    def roles(self) -> dict[str, str]:
        """The role of each instance that runs, as the first Patroni that answers sees it."""
        for instance in self.instances:
            with suppress(requests.RequestException, ValueError):
                members = requests.get(f"{instance.api}/cluster", timeout=2).json()["members"]
                return {each["name"]: each["role"] for each in members if each["state"] in ("running", "streaming")}
        return {}

    def in_role(self, role: str) -> Instance | None:
        names = [name for name, found in self.roles().items() if found == role]
        return next((instance for instance in self.instances if instance.name in names), None)

    def wait_for(self, role: str) -> Instance:
        """Wait until an instance has the role."""
        found: list[Instance] = []

        def is_there() -> bool:
            instance = self.in_role(role)
            found[:] = [] if instance is None else [instance]
            return bool(found)

        wait_until(is_there, f"a {role}")
        return found[0]

    def wait_until_complete(self) -> None:
        wait_until(
            lambda: sorted(self.roles().values()) == ["leader", "replica", "sync_standby"], "all instances to replicate"
        )

    def switch_over(self) -> None:
        """Make the synchronous standby the leader. Patroni may refuse it for a moment."""

        def is_done() -> bool:
            leader, candidate = self.wait_for("leader"), self.wait_for("sync_standby")
            names = {"leader": leader.name, "candidate": candidate.name}
            return requests.post(f"{leader.api}/switchover", json=names, timeout=LIMIT).status_code == 200

        wait_until(is_done, "a switchover")

    def wait_for_commit(self) -> None:
        """Wait until a client that connects again and again has committed something."""

        def is_committed() -> bool:
            try:
                with psycopg.connect(self.url("postgres"), connect_timeout=2, autocommit=True) as connection:
                    connection.execute("CREATE TABLE IF NOT EXISTS probes (at timestamptz)")
                    connection.execute("INSERT INTO probes VALUES (now())")
            except psycopg.Error:
                return False
            return True

        wait_until(is_committed, "a commit")

    def create_database(self, name: str) -> str:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)


@contextmanager
def running() -> Iterator[Cluster]:
    """A new cluster, discarded at the end."""
    for name in ("etcd", "patroni"):
        programs.find(name)
    account = getpwnam("nobody") if os.geteuid() == 0 else None
    directory = Path(tempfile.mkdtemp(prefix="pg-", dir=postgres._base(account)))
    etcd_port, peer_port, *ports = free_ports(8)
    started: list[Instance | programs.Program] = []
    try:
        binaries = postgres._programs(directory, account)
        servers = [
            Server(binaries, _made(directory / f"n{number}", account), str(ports[number]), account)
            for number in range(3)
        ]
        _made(directory, account)
        etcd = programs.Program(
            servers[0], "etcd.log", *_etcd(_made(directory / "etcd", account), etcd_port, peer_port)
        )
        etcd.start()
        started.append(etcd)
        instances = []
        for number, server in enumerate(servers):
            instance = Instance(f"n{number}", server, etcd_port, ports[3 + number])
            instance.start()
            started.append(instance)
            instances.append(instance)
        cluster = Cluster(instances)
        cluster.wait_until_complete()
        yield cluster
    finally:
        for program in reversed(started):
            program.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _made(directory: Path, account: struct_passwd | None) -> Path:
    directory.mkdir(mode=0o700, exist_ok=True)
    if account:
        os.chown(directory, account.pw_uid, account.pw_gid)
    return directory


def _etcd(directory: Path, port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        programs.find("etcd"), "--data-dir", str(directory / "data"), "--name", "etcd", "--unsafe-no-fsync",
        "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"etcd={peer}",
    ]  # fmt: skip
