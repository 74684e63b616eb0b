"""Programs of the machine that tests run beside the service: PgBouncer, Patroni and etcd, as Debian packages them.

Where one is missing the tests are skipped, unless `FAILOVER_TESTS=required` says that it must be there.
"""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.waiting import wait_until

# Prints the process id, and waits for the end of the pipe, so that kill -9 of the tests ends the program too, and the
# PostgreSQL that it keeps.
_SHELL = (
    'log=$1; data=$2; shift 2; "$@" > "$log" 2>&1 & echo $!; read -r _; '
    'kill -9 $! $(head -n 1 "$data/postmaster.pid" 2> /dev/null); wait'
)


def find(name: str) -> str:
    """Return the path of a program. Skips the test if there is none."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if path is None:
        if os.environ.get("FAILOVER_TESTS") == "required":
            pytest.fail(f"there is no {name} on this machine, and FAILOVER_TESTS says that there must be one")
        pytest.skip(f"there is no {name} on this machine; Debian has a package")
    return path


class Program:
    """A program that runs as the account of a PostgreSQL server, in its directory."""

    def __init__(self, server: Server, log: str, *command: str, data: str = "") -> None:
        """If the program keeps a PostgreSQL, `data` is its data directory."""
        self._server = server
        self._arguments = [str(server.directory / log), data, *command]
        self._shell: subprocess.Popen[str] | None = None
        self.pid = 0

    def start(self) -> None:
        self._shell = self._server.spawn("/bin/sh", "-c", _SHELL, "sh", *self._arguments, output=subprocess.PIPE)
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it as kill -9 does, and return when it is gone."""
        if self._shell is not None:
            self.signal(signal.SIGCONT)
            self._shell.communicate("\n")
            self._shell = None
            wait_until(lambda: not Path(f"/proc/{self.pid}").exists(), f"the end of {self._arguments[2]}")
