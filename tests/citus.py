"""A real Citus cluster for tests: GATEPOST_TEST_CITUS is the URL of a database on its coordinator.

The tests make schemas in this database and drop them. Without the variable, the tests on Citus are left out.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from gatepost.core import clock
from gatepost.store import distribute
from gatepost.store.postgres import PostgresStore
from gatepost.webhooks.fanout import create_deliveries

URL = os.environ.get("GATEPOST_TEST_CITUS", "")
STORES = ["sqlite", "postgres", *(["citus"] if URL else [])]
SHARDS = 4  # of each table: more take longer to create

_numbers = itertools.count()


def url_of(schema: str) -> str:
    """The URL of the database with a schema of it, and with few shards for the tables that are distributed there."""
    options = f"-csearch_path%3D{schema}%20-ccitus.shard_count%3D{SHARDS}"
    return f"{URL}{'&' if '?' in URL else '?'}options={options}"


def migrate_and_distribute(url: str) -> None:
    """Make a schema a distributed store."""
    store = PostgresStore(url, clock.now, create_deliveries)
    store.migrate()
    store.close()
    with psycopg.connect(url, autocommit=True) as database:
        distribute.apply(database, distribute.plan(database))


@contextmanager
def changing(database: psycopg.Connection) -> Iterator[None]:
    """Let one test process at a time create and drop tables: the locks of two of them would cause a deadlock."""
    database.execute("SELECT pg_advisory_lock(6)")
    try:
        yield
    finally:
        database.execute("SELECT pg_advisory_unlock(6)")


@contextmanager
def schema() -> Iterator[str]:
    """The URL of an empty schema, which is dropped at the end. Several test processes share the database."""
    name = f"flow_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(URL, autocommit=True) as database:
        database.execute(f"CREATE SCHEMA {name}".encode())
        try:
            yield url_of(name)
        finally:
            with changing(database):
                database.execute(f"DROP SCHEMA {name} CASCADE".encode())
