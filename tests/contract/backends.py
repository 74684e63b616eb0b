"""The databases under test. Each can open several stores, and can execute statements without them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg
import pytest

from gatepost.core import clock
from gatepost.store.interface import Store
from gatepost.store.postgres import PostgresStore
from gatepost.store.sqlite import SqliteStore
from gatepost.webhooks.fanout import create_deliveries
from tests.waiting import LIMIT_MS


class FakeClock:
    """A clock that stands still until a test sets it."""

    def __init__(self) -> None:
        self.at = clock.now()

    def __call__(self) -> datetime:
        return self.at

    def forward(self, duration: timedelta) -> None:
        self.at += duration


class Backend(Protocol):
    """One database. `execute` bypasses the store, as an intruder, an operator or another release would."""

    def open(self) -> Store: ...
    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]: ...


@dataclass
class Sqlite:
    path: Path
    watch: FakeClock
    opened: list[Store] = field(default_factory=list)

    def open(self, **options: Any) -> Store:
        self.opened.append(SqliteStore(self.path, self.watch, create_deliveries, **options))
        return self.opened[-1]

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as database:
            return list(database.execute(statement, parameters))

    def connect(self) -> apsw.Connection:
        """Connect with the library of the store: two copies of SQLite in one process break their locks."""
        database = apsw.Connection(str(self.path))
        database.set_busy_timeout(LIMIT_MS)
        return database


@dataclass
class Postgres:
    url: str
    watch: FakeClock
    opened: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        self.opened.append(PostgresStore(self.url, self.watch, create_deliveries))
        return self.opened[-1]

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as database:
            try:
                cursor = database.execute(statement.replace("?", "%s").encode(), parameters)
            except psycopg.errors.FeatureNotSupported as error:  # only raised by Citus
                pytest.skip(f"nobody can do this on Citus: {error}")
            return cursor.fetchall() if cursor.description else []


@contextmanager
def closing_stores(backend: Sqlite | Postgres) -> Iterator[Sqlite | Postgres]:
    try:
        yield backend
    finally:
        for store in backend.opened:
            store.close()
