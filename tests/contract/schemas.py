"""PostgreSQL schemas for tests: a new one, or one that is used again after everything in it has been deleted."""

import itertools
import os
from datetime import UTC, datetime
from typing import Any

import psycopg

from gatepost.store.postgres import PostgresStore
from gatepost.webhooks.fanout import create_deliveries
from tests import citus

_numbers = itertools.count()
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

# Everything of a schema that a test may have changed: tables, columns, indexes, permissions.
_SHAPE = """
SELECT oid, relname, relkind, relnatts, relchecks, relacl::text, CASE relkind WHEN 'S' THEN 0 ELSE relfilenode END
FROM pg_class WHERE relnamespace = %s::regnamespace ORDER BY oid
"""


class Schemas:
    """The schemas of one database."""

    def __init__(self, url: str, database: psycopg.Connection, *, distributed: bool = False) -> None:
        self._url = url
        self._distributed = distributed
        self._created: list[str] = []
        self._database = database
        self._migrated = ""
        self._shape: list[Any] = []
        self._reset = ""

    def url(self, name: str) -> str:
        return citus.url_of(name) if self._distributed else f"{self._url}&options=-csearch_path%3D{name}"

    def create(self) -> str:
        """Create an empty schema, which takes a tenth of the time of an empty database, and return its name."""
        name = f"test_{os.getpid()}_{next(_numbers)}"  # several test processes may share a Citus cluster
        self.execute(f"CREATE SCHEMA {name}")
        self._created.append(name)
        return name

    def drop(self, name: str) -> None:
        with citus.changing(self._database):
            self.execute(f"DROP SCHEMA {name} CASCADE")
        self._created.remove(name)

    def drop_all(self) -> None:
        for name in list(self._created):
            self.drop(name)

    def migrated(self) -> str:
        """Return a schema with only what the migrations put there: the previous one, unless a test has altered it."""
        if self._migrated and self._shape == self._read_shape():
            self.execute(self._reset)
        else:
            self._migrate()
        return self._migrated

    def _migrate(self) -> None:
        if self._migrated:
            self.drop(self._migrated)
        self._migrated = name = self.create()
        if self._distributed:
            with citus.changing(self._database):
                citus.migrate_and_distribute(self.url(name))
        else:
            # The migration makes partitions of that time. So rows of today are pruned by row, as on SQLite.
            store = PostgresStore(self.url(name), lambda: _LONG_AGO, create_deliveries)
            store.migrate()
            store.close()
        self._shape = self._read_shape()
        kept = self.create()
        tables = [f"{name}.{row[1]}" for row in self._shape if row[2] == "r"]
        steps = [f"DELETE FROM {table}" for table in reversed(tables)]  # newest first: they refer to older ones
        for number, table in enumerate(tables):
            if self._database.execute(f"SELECT 1 FROM {table} LIMIT 1".encode()).fetchall():
                self.execute(f"CREATE TABLE {kept}.kept_{number} AS TABLE {table}")
                steps.append(f"INSERT INTO {table} SELECT * FROM {kept}.kept_{number}")
        steps += [f"SELECT setval('{name}.{row[1]}', 1, false)" for row in self._shape if row[2] == "S"]
        self._reset = "; ".join(steps)

    def _read_shape(self) -> list[Any]:
        return self._database.execute(_SHAPE, [self._migrated]).fetchall()

    def execute(self, text: str) -> None:
        self._database.execute(text.encode())

    def tables(self, name: str) -> set[str]:
        """The tables of a schema."""
        rows = self._database.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [name])
        return {table for (table,) in rows}
