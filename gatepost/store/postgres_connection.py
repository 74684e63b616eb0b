"""One connection to PostgreSQL: how it is opened, and how it runs the statements of the `.sql` files."""

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_attempts, conninfo_to_dict, timeout_from_conninfo

from gatepost.core.errors import BadSetting, Unavailable
from gatepost.store import combined_statement, dead_rows, postgres_arrays, sql_loader
from gatepost.store.cache import Cache
from gatepost.store.combined_statement import CombinedStatement
from gatepost.store.pending import Again, PendingWrites, Row
from gatepost.store.transaction import READ_ONLY
from gatepost.store.work import PATIENCE

Database = psycopg.Connection[tuple[Any, ...]]

# Unless the URL says otherwise. A server that vanished is noticed while callers still wait. Two attempts to reach it,
# of one connection or of the next, are at most two seconds apart (TCP repeats a SYN after 1 and 3 s). A standby, which
# cannot write, is never used: after a failover it may be the server that was the primary.
_OPTIONS: dict[str, str | int] = {
    "application_name": "gatepost", "connect_timeout": 4, "target_session_attrs": "read-write",
    "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2, "tcp_user_timeout": 9000,
}  # fmt: skip
# Seconds for each of several servers, so that one that vanished does not hide the primary for long.
_TIMEOUT_OF_EACH = 2
# Of a statement, by the mode of the connection. A shared commit that waits for a standby is cancelled and repeated so
# early that callers learn the outcome, and that refresh tokens are in their grace period when callers try again.
_TIMEOUTS = {"read": "0", "write": "8s", "append": "4s"}
_ENCODING = "UTF8"
_FORMATS = {"bytea_output": "hex", "DateStyle": "ISO, MDY", "standard_conforming_strings": "on"}
_ALWAYS = {"client_encoding": _ENCODING}  # even if the URL, the environment or the role names another encoding
# PostgreSQL tells with a warning that a commit was cancelled before a standby had it, so warnings must be sent.
# A lock that is never released, by us or another program, must not hold up others for longer than a caller waits.
# A plan for the pages of any endpoint is bad for most of them, so each page is planned. Without bitmap scans and sorts
# it is read in the order of an index, whatever the statistics say. A statement that writes looks up every key in an
# index, whatever the keys are, and to plan it takes longer than to run it. So its plan is used for a while. Joins find
# rows by their keys too: what they need is in memory, so PostgreSQL should not read a whole table to save a few
# look-ups. A plan that does so for want of an index then seems so expensive that it would be compiled, which takes
# longer than to run it.
_SETTINGS = """
SELECT set_config('idle_in_transaction_session_timeout', '10s', %(local)s), set_config('lock_timeout', '5s', %(local)s),
  set_config('statement_timeout', %(statement_timeout)s, %(local)s), set_config('enable_bitmapscan', 'off', %(local)s),
  set_config('plan_cache_mode', %(plans)s, %(local)s), set_config('enable_seqscan', %(scans)s, %(local)s),
  set_config('enable_hashjoin', 'off', %(local)s), set_config('enable_mergejoin', 'off', %(local)s),
  set_config('enable_sort', %(sorts)s, %(local)s), set_config('jit', 'off', %(local)s),
  set_config('client_min_messages', 'warning', %(local)s),
  set_config('random_page_cost', coalesce(%(page_cost)s, current_setting('random_page_cost')), %(local)s),
  pg_is_in_recovery(), pg_postmaster_start_time()
"""
# The catalogue is read as of the snapshot, but the function looks at what exists now.
_DROPPED = """
SELECT 1 FROM pg_class p JOIN pg_inherits i ON i.inhparent = p.oid
  WHERE p.relkind = 'p' AND p.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('migrations'))
    AND pg_table_is_visible(i.inhrelid) IS NULL LIMIT 1
"""
# Likewise, the snapshot has the old file of a table that was truncated later, and the function returns the new one.
_TRUNCATABLE = re.compile(rf"\b({'|'.join(dead_rows.TABLES)})\b")
_TRUNCATED = f"""
SELECT 1 FROM pg_class WHERE oid IN ({", ".join(f"to_regclass('{table}')" for table in dead_rows.TABLES)})
  AND relfilenode <> pg_relation_filenode(oid)
"""
# A plan for any rows would be about all partitions, unless the statement names the days of the rows.
_IN_PARTITIONS = re.compile(r"\b(?:FROM|JOIN) (?:entries|deliveries|attempts)\w*\b")
_PLAN_EACH = "SET LOCAL plan_cache_mode = force_custom_plan"
# Of a table that was empty, a plan may use any index, even one that cannot find a key among many rows.
_PLANS_FOR = 1.0  # seconds
_STATE = "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"
DISCARD_PLANS = b"DISCARD PLANS"


class AppendOnly(Exception):
    """A unit in a shared transaction tried to write: it has to run in a transaction of its own."""


class Unreplicated(psycopg.OperationalError):
    """A commit is on the primary, and its standbys may not have it."""


def has_unknown_outcome(error: Exception) -> bool:
    """Whether a commit that failed with this error may have succeeded: the server did not say that it failed."""
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "57P01").startswith("57P")


class PostgresConnection:
    """A connection as `Tx` uses it.

    Its mode is "read", "write" or "append" (only pending writes are made).
    """

    shards = None

    def __init__(self, database: Database, statements: dict[str, str], mode: str) -> None:
        self.database = database
        self._statements = statements
        self.mode = mode
        self.pooled = is_pooled(database)
        self.server_start: datetime | None = None
        self._unreplicated = False
        self._truncatable = frozenset(name for name, text in statements.items() if _TRUNCATABLE.search(text))
        self._in_any_partition = frozenset(name for name, text in statements.items() if _is_in_any_partition(text))
        self._has_read_truncatable = False
        self._plans_each = False  # in this transaction
        self._plans_until = 0.0
        self.prepared: dict[str, bytes] = {}  # texts that `LoopCommits` prepared, and their names
        database.add_notice_handler(self._notice)
        if mode == "read":  # one snapshot for everything that a unit reads
            database.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            database.read_only = True
        if not self.pooled:
            self._set(local=False)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction. If this raises an `OperationalError` before its body runs, a new connection may work.

        A snapshot does not have the rows of a table that was truncated after it. Raises `Again` if one was read.
        """
        self._has_read_truncatable = self._plans_each = False
        try:
            with self.database.transaction():
                if self.pooled:
                    self._set(local=True)
                self._discard_plans()
                yield
                if self._has_read_truncatable and self.database.execute(_TRUNCATED).fetchall():
                    raise Again("a table was truncated")
        except BaseException:
            self.prepared.clear()  # after a rollback the driver deallocates all statements
            raise
        self.check_replicated()

    def _set(self, *, local: bool) -> None:
        """Set the session up, or only the transaction: a pooler may run the next one in another session.

        Behind the pooler, another server may have become the primary. Then what was cached of the first is not valid.
        """
        values = {
            "local": local,
            "statement_timeout": _TIMEOUTS[self.mode],
            "plans": "force_custom_plan" if self.mode == "read" or self.pooled else "force_generic_plan",
            "scans": "on" if self.mode == "read" else "off",
            "page_cost": None if self.mode == "read" else "0.1",
            "sorts": "off" if self.mode == "read" else "on",
        }
        [(*_, standby, start)] = self.database.execute(_SETTINGS, values).fetchall()
        if local and (standby or start != (self.server_start or start)):
            raise psycopg.OperationalError("the connection pooler leads to another server, or to a standby")
        self.server_start = start

    def _discard_plans(self) -> None:
        """Have statements planned again, if their plans have been used for long enough."""
        if self.must_discard_plans():
            self.database.execute(DISCARD_PLANS)

    def must_discard_plans(self) -> bool:
        """Whether plans have been used for long enough. The caller then discards them."""
        if self.mode == "read" or self.pooled or time.monotonic() < self._plans_until:
            return False
        self._plans_until = time.monotonic() + _PLANS_FOR
        return True

    def shut_down(self) -> None:
        shut_down(self.database)

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        """PostgreSQL only warns if a commit is cancelled while it waits for its standbys, and reports success."""
        self._unreplicated = self._unreplicated or notice.source_function == "SyncRepWaitForLSN"

    def check_replicated(self) -> None:
        """Raise `Unreplicated` if the last commit was cancelled while it waited for its standbys."""
        if self._unreplicated:
            self._unreplicated = False
            raise Unreplicated("a commit was cancelled before a standby had it")

    def rows(self, statement: str, parameters: dict[str, Any]) -> list[Row]:
        self._note(statement)
        cursor = self.database.execute(self._statements[statement], parameters, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _note(self, statement: str) -> None:
        if self.mode == "read":
            self._has_read_truncatable = self._has_read_truncatable or statement in self._truncatable
        elif statement in self._in_any_partition:
            self._plan_each()

    def _plan_each(self) -> None:
        """Have each statement of this transaction planned for its values."""
        if not self._plans_each and not self.pooled:
            self.database.execute(_PLAN_EACH)
            self._plans_each = True

    def select(self, text: str, parameters: dict[str, Any]) -> list[Row]:
        if self.mode == "read":
            self._has_read_truncatable = self._has_read_truncatable or bool(_TRUNCATABLE.search(text))
        elif _is_in_any_partition(text):
            self._plan_each()
        return self.database.execute(sql_loader.placed(text), parameters).fetchall()

    def write(self, statement: str, parameters: dict[str, Any]) -> list[Row]:
        self.check_mode()
        return self.rows(statement, parameters)

    def rows_each(self, statement: str, parameters: list[dict[str, Any]]) -> list[list[Row]]:
        self._note(statement)
        results: list[list[Row]] = [[] for _ in parameters]
        if parameters:
            text = self._statements[statement]
            columns = postgres_arrays.of_columns(
                text, {name: [values[name] for values in parameters] for name in parameters[0]}
            )
            for row in self.database.execute(text, columns, prepare=True, binary=True):
                results[row[0] - 1].append(row[1:])
        return results

    def rows_given(self, statement: str, rows: list[Row]) -> list[Row]:
        if not rows:
            return []
        self._note(statement)
        text, parameters = about(self._statements[statement], rows)
        prepare = None if sql_loader.is_about_days(self._statements[statement]) else True  # None: if used repeatedly
        cursor = self.database.execute(text, parameters, prepare=prepare, binary=True)
        return cursor.fetchall() if cursor.description else []

    def check_snapshot(self) -> None:
        """Raise `Again` if a partition that is in the snapshot no longer exists."""
        if self.mode == "read" and self.database.execute(_DROPPED).fetchall():
            raise Again("a partition was dropped")

    def write_given(self, statement: str, rows: list[Row]) -> list[Row]:
        self.check_mode()
        return self.rows_given(statement, rows)

    def write_pending(
        self, pending: PendingWrites, *, unless_changed: Cache | None = None, deadline: int | None = None
    ) -> bool:  # fmt: skip
        """Make all pending writes with one statement. False, and nothing is written, if a conditional write failed.

        With `unless_changed`, the same if the store has changed since the cache was refreshed. With a deadline, in
        milliseconds of the server's time, the same if the server begins later.
        """
        if not pending:
            return True
        if self.mode == "read":
            raise TypeError(READ_ONLY)
        if unless_changed is not None:
            self._discard_plans()
        statement = self.combined(pending, unless_changed, deadline)
        cursor = psycopg.RawCursor(self.database)
        cursor.execute(statement.text, statement.values, prepare=True, binary=True)
        [(written,)] = cursor.fetchall()
        self.check_replicated()  # without a transaction around it, the statement commits
        return bool(written)

    def combined(
        self, pending: PendingWrites, unless_changed: Cache | None, deadline: int | None = None
    ) -> CombinedStatement:  # fmt: skip
        """The one statement that makes all pending writes."""
        return combined_statement.combine(self._statements, pending, unless_changed, deadline)

    def possible_keys(self, pending: list[PendingWrites]) -> set[Row] | None:
        """The keys of the conditional writes that are possible now. None if there are no conditional writes."""
        return possible_keys(self.rows_given, pending)

    def check_mode(self) -> None:
        match self.mode:
            case "append":
                raise AppendOnly
            case "read":
                raise TypeError(READ_ONLY)


def _is_in_any_partition(text: str) -> bool:
    """Whether a statement reads tables that are partitioned, and does not name the days of the rows."""
    return _IN_PARTITIONS.search(text) is not None and not sql_loader.is_about_days(text)


def possible_keys(
    rows_given: Callable[[str, list[Row]], list[Row]], pending: list[PendingWrites]
) -> set[Row] | None:  # fmt: skip
    """The keys of the conditional writes that are possible now, from their checks. None if there are none."""
    checks: dict[str, list[Row]] = {}
    for each in pending:
        for (_, check), rows in each.conditional.items():
            checks.setdefault(check, []).extend(rows)
    if not checks:
        return None
    return {row[:2] for check, rows in checks.items() for row in rows_given(check, sorted(rows))}


def about(text: str, rows: list[Row]) -> tuple[str, dict[str, Any]]:
    """The text of a statement about these rows, and its parameters."""
    columns = postgres_arrays.by_name(text, rows)
    parameters = postgres_arrays.of_columns(text, columns)
    if sql_loader.is_about_days(text):
        text = sql_loader.in_days_of(text, columns.get("id") or columns["since"] + columns["until"])
    return text, parameters


def shut_down(database: Database) -> None:
    """Shut the socket down, so that the thread that waits for the server gets an error."""
    with socket.socket(fileno=os.dup(database.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


def open_database(url: str, setting: str = "database") -> Database:
    """Open a connection in autocommit mode, to the first server of the URL that works.

    Through a pooler it prepares no statements, which other sessions lack.
    """
    problems = []
    try:
        options = conninfo_to_dict(url)
        attempts = _attempts(options)
        for attempt in attempts:
            limit = PATIENCE if len(attempts) == 1 else timeout_from_conninfo(attempt)
            try:
                return _open(attempt, setting, limit)
            except psycopg.OperationalError as error:
                problems.append(str(error).strip())
    except psycopg.OperationalError as error:  # no name of a host has an address, or the lists of hosts do not match
        problems.append(str(error).strip())
    except psycopg.ProgrammingError:  # its text may contain the password
        raise BadSetting(f"{setting}: this is not a valid PostgreSQL URL") from None
    raise Unavailable(f"the store cannot answer: {'; '.join(problems)}")


def _attempts(options: dict[str, Any]) -> list[dict[str, Any]]:
    """The options for each address of each host, in the order in which the driver tries them."""
    attempts = conninfo_attempts(_OPTIONS | options | _ALWAYS)
    if len(attempts) > 1 and "connect_timeout" not in options:
        attempts = [attempt | {"connect_timeout": _TIMEOUT_OF_EACH} for attempt in attempts]
    return attempts


def _open(options: dict[str, Any], setting: str, limit: float) -> Database:
    """Open a connection to one server, and ask it for its state: a pooler announces the state of its first connection.

    If a service file names the hosts, the driver tries them in order. After `limit` seconds the connection is broken.
    """
    wanted = options.get("target_session_attrs", "any")  # the driver leaves it out if it prefers standbys
    asks = wanted in ("primary", "read-write") and (options.get("host") or options.get("hostaddr"))
    attrs = {"target_session_attrs": "any"} if asks else {}
    database: Database = psycopg.connect(autocommit=True, **(options | attrs))
    try:
        with _time_limit(database, limit):
            _prepare(database, wanted, setting)
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def _time_limit(database: Database, seconds: float) -> Iterator[None]:
    """Break the connection if a server that accepted it does not respond."""
    timer = threading.Timer(seconds, _break, [database])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _break(database: Database) -> None:
    with suppress(psycopg.Error, OSError):
        shut_down(database)


def _prepare(database: Database, wanted: str, setting: str) -> None:
    """Set the connection up, unless its server is not what is wanted."""
    _check_encoding(database, setting)
    database.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # whatever the default of the database is
    postgres_arrays.register(database)
    [(pid, is_standby, is_read_only)] = database.execute(_STATE).fetchall()
    if (is_standby and wanted == "primary") or (is_read_only and wanted == "read-write"):
        place = f"the server at {database.info.hostaddr or database.info.host}, port {database.info.port},"
        raise psycopg.OperationalError(f"{place} is {'a standby' if is_standby else 'read-only'}")
    pooled = bool(pid != database.info.backend_pid)
    if pooled:
        database.prepare_threshold = None
    _set_formats(database, setting, pooled=pooled)


def _check_encoding(database: Database, setting: str) -> None:
    encoding = database.info.parameter_status("server_encoding") or _ENCODING
    if encoding != _ENCODING:
        raise BadSetting(
            f"{setting}: the database has the encoding {encoding}, but must have {_ENCODING}; "
            f"create it with ENCODING '{_ENCODING}' TEMPLATE template0"
        )


def _set_formats(database: Database, setting: str, *, pooled: bool) -> None:
    """Set how values are written, which SQL texts and the reading of results depend on.

    Through a pooler they cannot be set for a session, so they are only checked.
    """
    if not pooled:
        sets = ", ".join("set_config(%s, %s, false)" for _ in _FORMATS)
        database.execute(f"SELECT {sets}".encode(), [text for pair in _FORMATS.items() for text in pair])
        return
    for name, value in _FORMATS.items():
        [(found,)] = database.execute("SELECT current_setting(%s)", (name,)).fetchall()
        if found.split(",")[0] != value.split(",")[0]:
            raise BadSetting(
                f"{setting}: {name} is {found}, but must be {value} for connections through a pooler; "
                f"change it for the role and the database, and reconnect the pooler"
            )


def is_pooled(database: Database) -> bool:
    """Whether a pooler such as PgBouncer is between: then the server's process is not the one that was announced."""
    [(pid,)] = database.execute("SELECT pg_backend_pid()").fetchall()
    return bool(pid != database.info.backend_pid)


def unavailable(error: BaseException) -> Unavailable:
    """The error that callers get when the server fails."""
    if isinstance(error, Unavailable):
        return Unavailable(str(error))
    return Unavailable(f"the store cannot answer: {type(error).__name__}: {str(error).strip()}")
