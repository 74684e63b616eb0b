"""A PostgreSQL database: how it is reached, migrated, maintained and examined."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Lock
from typing import TypeVar, cast

import psycopg

from gatepost.core.clock import Clock, milliseconds
from gatepost.core.errors import Unavailable
from gatepost.store import (
    dead_rows,
    lock_retries,
    partition_drops,
    postgres_migrations,
    privileges,
    search_path,
    sql_loader,
    threads,
)
from gatepost.store.node_watch import not_distributed
from gatepost.store.partition_drops import Progress
from gatepost.store.postgres_connection import (
    Database,
    PostgresConnection,
    is_pooled,
    open_database,
    shut_down,
    unavailable,
)
from gatepost.store.schema_check import Maintenance, StoreInfo, Wakeups

T = TypeVar("T")

_INDEXES = """
SELECT i.indexrelid::regclass::text, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
  WHERE c.relkind IN ('r', 't', 'm')
    AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('migrations'))
"""


class PostgresServer:
    """A database: how it is reached, migrated and examined."""

    def __init__(self, url: str, clock: Clock, listen_url: str = "") -> None:
        """With `listen_url`, connections for LISTEN are opened with this URL."""
        self._url = url
        self._listen_url = listen_url
        self._clock = clock
        self.statements = sql_loader.statements("postgres")
        self._maintaining = Lock()
        self._maintained: Database | None = None  # the connection of the maintenance under way
        self._progress = Progress()

    def open(self) -> Database:
        return open_database(self._url)

    def open_for_listen(self) -> Database | None:
        """A connection for LISTEN. None through a pooler, where a session does not last, unless a URL is set for it."""
        if self._listen_url:
            return open_database(self._listen_url, "database_listen")
        database = self.open()
        if is_pooled(database):
            database.close()
            return None
        return database

    def primary_start(self) -> datetime:
        """When the server that is now the primary was started."""
        with self.open() as database:
            [(start,)] = database.execute("SELECT pg_postmaster_start_time()").fetchall()
        return cast(datetime, start)

    def connect(self, mode: str) -> PostgresConnection:
        """A connection for units."""
        database = self.open()
        try:
            return PostgresConnection(database, self.statements, mode)
        except psycopg.Error:
            database.close()
            raise

    @contextmanager
    def _examined(self) -> Iterator[Database]:
        """A connection in a transaction that cannot write, and that waits only briefly for locked tables."""
        with self.open() as database:
            database.read_only = True
            try:
                with database.transaction():
                    lock_retries.set_lock_timeout(database)
                    yield database
            except psycopg.Error as error:
                raise unavailable(error) from error

    def migrate(self) -> list[str]:
        """Apply the missing migrations, one process at a time, and return their names."""
        try:
            with self.open() as database:
                return postgres_migrations.migrate(database, milliseconds(self._clock()))
        except psycopg.Error as error:
            raise unavailable(error) from error

    def maintain_partitions(self, classes: Collection[int]) -> Maintenance:
        """Make partitions ahead, also for these retention classes, and drop those whose retention has ended."""
        now = milliseconds(self._clock())
        done = self._maintain(lambda database: partition_drops.maintain(database, now, self._progress, classes))
        return done or Maintenance([], [], {})

    def remove_dead_rows(self) -> list[str]:
        """Remove dead rows that VACUUM has to leave. Returns the tables.

        Does nothing while partitions are being maintained, which can take long.
        """
        return self._maintain(dead_rows.remove, wait=False) or []

    def _maintain(self, work: Callable[[Database], T], *, wait: bool = True) -> T | None:
        if not self._maintaining.acquire(blocking=wait):
            return None
        try:
            with self.open() as database:
                self._maintained = database
                return work(database)
        except psycopg.Error as error:
            raise unavailable(error) from error
        finally:
            self._maintained = None
            self._maintaining.release()

    def close(self) -> None:
        """Let maintenance that is under way finish. If it takes too long, break its connection."""
        if self._maintaining.acquire(timeout=threads.END_FOR):
            self._maintaining.release()
        elif (database := self._maintained) is not None:
            with suppress(psycopg.Error, OSError):
                shut_down(database)

    def applied(self) -> dict[int, str]:
        """The applied migrations: number → checksum."""
        with self._examined() as database:
            return postgres_migrations.applied(database)

    def info(self) -> StoreInfo:
        with self._examined() as database:
            rows = database.execute(
                "SELECT clock_timestamp(), current_setting('server_version'), "
                "pg_is_in_recovery(), current_setting('default_transaction_read_only'), "
                "(SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'), "
                "current_setting('fsync'), "
                "current_setting('full_page_writes'), current_setting('synchronous_commit')"
            ).fetchall()
            pooled = is_pooled(database)
            missing = not_distributed(database)
            missing_privileges = privileges.missing(database)
            search_path_problem = search_path.problem(database)
        at, version, standby, read_only, standbys, synchronous, *switches = rows[0]
        names = ("fsync", "full_page_writes", "synchronous_commit")
        off = tuple(f"{name} is off" for name, switch in zip(names, switches, strict=True) if switch == "off")
        risk = _replication_risk(standbys, synchronous, switches[-1])
        return StoreInfo(
            f"PostgreSQL {version}", at, off,
            read_only=_read_only_reason(read_only, standby=standby),
            replication=risk,
            pooled=pooled,
            not_distributed=missing,
            wakeups=self._wakeups(pooled=pooled),
            missing_privileges=missing_privileges,
            search_path_problem=search_path_problem,
        )  # fmt: skip

    def _wakeups(self, *, pooled: bool) -> Wakeups:
        if not self._listen_url:
            return "poll" if pooled else "listen"
        try:
            with open_database(self._listen_url, "database_listen") as database:
                return "pooled" if is_pooled(database) else "listen"
        except Unavailable:
            return "unreachable"

    def integrity(self) -> list[str]:
        """The problems that PostgreSQL reports. With the extension amcheck, every index is checked too."""
        with self._examined() as database:
            [(corrupt,)] = database.execute(
                "SELECT coalesce(checksum_failures, 0) FROM pg_stat_database WHERE datname = current_database()"
            ).fetchall()
            problems = [f"{corrupt} pages failed their checksum"] if corrupt else []
            indexes = database.execute(_INDEXES).fetchall()
            problems += [f"index {name} is not valid" for name, valid in indexes if not valid]
            if database.execute("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'").fetchall():
                problems += [problem for name, _ in indexes if (problem := _check_index(database, name))]
        return problems


def _read_only_reason(default_transaction_read_only: str, *, standby: bool) -> str:
    """Why transactions cannot write. Empty if they can. Unless the URL overrides it, such a server is not used."""
    if standby:
        return "the server is a standby"
    return "default_transaction_read_only is on" if default_transaction_read_only == "on" else ""


def _replication_risk(standbys: int, synchronous_standby_names: str, synchronous_commit: str) -> str:
    """Why a failover could lose a commit that was acknowledged. Empty if it could not."""
    if standbys and not synchronous_standby_names:
        count = f"{standbys} standby{'s' if standbys > 1 else ''}"
        return f"replication is asynchronous: {count}, but synchronous_standby_names is empty"
    if synchronous_commit == "local" and (standbys or synchronous_standby_names):
        return "synchronous_commit is local, so commits do not wait for standbys"
    return ""


def _check_index(database: Database, index: str) -> str:
    try:
        with database.transaction():  # a savepoint
            database.execute("SELECT bt_index_check(%s::regclass, true)", (index,))
    except psycopg.errors.InsufficientPrivilege:
        return ""
    except psycopg.errors.LockNotAvailable:  # the index may be in order
        raise
    except psycopg.DatabaseError as error:
        return f"index {index}: {str(error).strip()}"
    return ""
