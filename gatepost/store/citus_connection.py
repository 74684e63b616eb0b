"""One connection to a store that Citus distributes. Every statement about an account goes to its shard alone.

Statements about rows of several accounts run once for each account, and inserts once for each shard. Statements about
all accounts leave out those on nodes that are down.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any

import psycopg

from gatepost.store import sql_loader
from gatepost.store.cache import Cache
from gatepost.store.node_watch import CONNECT_TIMEOUT
from gatepost.store.pending import PendingWrites, Row
from gatepost.store.postgres_arrays import columns_of
from gatepost.store.postgres_connection import PostgresConnection, possible_keys
from gatepost.store.shards import BY_ACCOUNT, TWO_PHASE_TABLE, Shards
from gatepost.store.transaction import READ_ONLY

_MOST_VALUES = 20_000  # of one insert: the protocol allows 65,535 parameters
_SLOW = 1.0  # seconds after which a commit checks its deadline
# Citus finds the shard of a statement when it is planned, so a plan is for one account.
_SETTINGS = """
SELECT set_config('citus.node_connection_timeout', %(timeout)s, %(local)s),
  set_config('plan_cache_mode', 'force_custom_plan', %(local)s)
"""
_TWO_PHASE = f"DELETE FROM {TWO_PHASE_TABLE} WHERE number = 0"
_WRITTEN = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")
_USED = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|USING) (\w+)")


class CitusConnection:
    """A connection as `Tx` uses it. What is about the session is in the plain connection that it is made of."""

    def __init__(self, plain: PostgresConnection, shards: Shards) -> None:
        self._plain = plain
        self._statements = sql_loader.statements("citus")
        self.shards = shards
        self.database = plain.database
        self.mode = plain.mode
        self.pooled = plain.pooled
        self._places_written: set[bool] = set()  # by this transaction: True for shards, False for the coordinator
        if not self.pooled:
            self._set(local=False)

    @property
    def server_start(self) -> datetime | None:
        return self._plain.server_start

    def shut_down(self) -> None:
        self._plain.shut_down()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction, which commits on the coordinator and the nodes together."""
        with self._plain.transaction():
            if self.pooled:
                self._set(local=True)
            self._places_written.clear()
            yield
            if len(self._places_written) == 2:
                self.database.execute(_TWO_PHASE)

    def _set(self, *, local: bool) -> None:
        self.database.execute(_SETTINGS, {"timeout": CONNECT_TIMEOUT, "local": local})

    # --- statements

    def rows(self, statement: str, parameters: dict[str, Any]) -> list[Row]:
        text = self._statements[statement]
        return self._run(text, self._routed(text, parameters))

    def select(self, text: str, parameters: dict[str, Any]) -> list[Row]:
        return self.database.execute(sql_loader.placed(text), self._routed(text, parameters)).fetchall()

    def write(self, statement: str, parameters: dict[str, Any]) -> list[Row]:
        self._plain.check_mode()
        self._places_written.add(_writes_shards(self._statements[statement]))
        return self.rows(statement, parameters)

    def rows_each(self, statement: str, parameters: list[dict[str, Any]]) -> list[list[Row]]:
        return [self.rows(statement, values) for values in parameters]

    def rows_given(self, statement: str, rows: list[Row]) -> list[Row]:
        text = self._statements[statement]
        if "%(account)b" not in text:
            return self._run(text, columns_of(text, rows)) if rows else []
        if sql_loader.inserts_given(text):
            return self._insert(text, rows)
        returned: list[Row] = []
        for account, of_account in _grouped(rows, lambda row: row[0]).items():
            parameters = columns_of(text, of_account) | {"account": account}
            returned += self._run(text, self._routed(text, parameters))
        return returned

    def check_snapshot(self) -> None:
        """On Citus, the tables have no partitions."""

    def write_given(self, statement: str, rows: list[Row]) -> list[Row]:
        self._plain.check_mode()
        return self._write_given(statement, rows)

    def _write_given(self, statement: str, rows: list[Row]) -> list[Row]:
        if rows:
            self._places_written.add(_writes_shards(self._statements[statement]))
        return self.rows_given(statement, rows)

    def _insert(self, text: str, rows: list[Row]) -> list[Row]:
        returned: list[Row] = []
        for of_shard in _grouped(rows, lambda row: self.shards.shard(row[0])).values():
            self.shards.require(of_shard[0][0])
            most = _MOST_VALUES // len(of_shard[0])
            for start in range(0, len(of_shard), most):
                some = of_shard[start : start + most]
                returned += self._run(sql_loader.with_values(text, len(some)), [value for row in some for value in row])
        return returned

    def _run(self, text: str, parameters: dict[str, Any] | list[Any]) -> list[Row]:
        cursor = self.database.execute(text, parameters, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _routed(self, text: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a statement, which names the accounts that can be reached if it is about all of them."""
        if "%(reachable)" in text:
            return parameters | {"reachable": self._reachable()}
        if self.shards.down and "account" in parameters and _uses_shards(text):
            self.shards.require(parameters["account"])
        return parameters

    def _reachable(self) -> list[bytes] | None:
        if not self.shards.down:
            return None
        accounts = self.database.execute("SELECT id FROM accounts", binary=True).fetchall()
        return [account for (account,) in accounts if self.shards.is_reachable(account)]

    # --- pending writes

    def write_pending(
        self, pending: PendingWrites, *, unless_changed: Cache | None = None, deadline: int | None = None
    ) -> bool:  # fmt: skip
        """Make all pending writes. False if a conditional write failed: then the transaction must be undone.

        With `unless_changed`, in a transaction of its own, which does nothing if the store has changed since the cache
        was refreshed, or if the deadline has passed, in milliseconds of the coordinator's time.
        """
        if not pending:
            return True
        if self.mode == "read":
            raise TypeError(READ_ONLY)
        if unless_changed is None:
            return pending.write(self._write_given)
        written, began = False, time.monotonic()
        with self.transaction():
            if self.rows("version", {}) == [(unless_changed.changes, unless_changed.ends)]:
                written = pending.write(self._write_given)
            if not written or (time.monotonic() - began > _SLOW and self._is_after(deadline)):
                written = False
                raise psycopg.Rollback
        return written

    def _is_after(self, deadline: int | None) -> bool:
        found = self.database.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000 > %s", [deadline]).fetchall()
        return bool(found[0][0])

    def possible_keys(self, pending: list[PendingWrites]) -> set[Row] | None:
        return possible_keys(self.rows_given, pending)


def _grouped(rows: list[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


@cache
def _writes_shards(text: str) -> bool:
    return any(table in BY_ACCOUNT for table in _WRITTEN.findall(text))


@cache
def _uses_shards(text: str) -> bool:
    return any(table.removesuffix("_pruned_by_row") in BY_ACCOUNT for table in _USED.findall(text))  # a view of it
