"""The databases under test: each opens as many stores as a test wants, and can be spoken to past them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg

from gatepost.core import clock
from gatepost.store.interface import Store
from gatepost.store.postgres import PostgresStore
from gatepost.store.sqlite import SqliteStore
from gatepost.webhooks.fanout import create_deliveries
from tests.waiting import LIMIT_MS


class Watch:
    """A clock that goes only when it is set forward."""

    def __init__(self) -> None:
        self.at = clock.now()

    def __call__(self) -> datetime:
        return self.at

    def forward(self, duration: timedelta) -> None:
        self.at += duration


class Backend(Protocol):
    """One database. `execute` is the hand of somebody else: an intruder, an operator, another release."""

    def open(self) -> Store: ...
    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]: ...


@dataclass
class Sqlite:
    path: Path
    watch: Watch
    opened: list[Store] = field(default_factory=list)

    def open(self, **options: Any) -> Store:
        self.opened.append(SqliteStore(self.path, self.watch, create_deliveries, **options))
        return self.opened[-1]

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as database:
            return list(database.execute(statement, parameters))

    def connect(self) -> apsw.Connection:
        """By the same library as the store's: two copies of SQLite in one process break each other's locks."""
        database = apsw.Connection(str(self.path))
        database.set_busy_timeout(LIMIT_MS)
        return database


@dataclass
class Postgres:
    url: str
    watch: Watch
    opened: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        self.opened.append(PostgresStore(self.url, self.watch, create_deliveries))
        return self.opened[-1]

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as database:
            cursor = database.execute(statement.replace("?", "%s").encode(), parameters)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def closed_in_the_end(backend: Sqlite | Postgres) -> Iterator[Sqlite | Postgres]:
    try:
        yield backend
    finally:
        for store in backend.opened:
            store.close()
