"""A real Citus cluster for tests: GATEPOST_TEST_CITUS is the URL of a database on its coordinator.

The tests make schemas in this database and drop them. Without the variable, the tests on Citus are left out.
`python -m tests.citus` starts a cluster, if the PostgreSQL of `pg_config` has Citus, and prints this URL.
"""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from gatepost.core import clock
from gatepost.store import distribute
from gatepost.store.postgres import PostgresStore
from gatepost.webhooks.fanout import create_deliveries
from tests import postgres
from tests.postgres import Server
from tests.service import free_ports

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


class Cluster(NamedTuple):
    """The URL of a database on the coordinator, and the other nodes by their names."""

    url: str
    nodes: dict[str, Server]


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A new cluster of a coordinator and two nodes, discarded at the end. Skips the test if there is no Citus."""
    programs = _with_citus()
    if programs is None:
        pytest.skip("the PostgreSQL of pg_config has no Citus")
    ports = free_ports(3)
    with ExitStack() as stack:
        servers = [stack.enter_context(postgres.running(_settings(port), programs=programs)) for port in ports]
        for server in servers:
            with psycopg.connect(server.create_database("gatepost"), autocommit=True) as database:
                database.execute("CREATE EXTENSION citus")
        url = servers[0].url("gatepost")
        with psycopg.connect(url, autocommit=True) as database:
            database.execute("SELECT citus_set_coordinator_host('127.0.0.1', %s)", [ports[0]])
            for port in ports[1:]:
                database.execute("SELECT citus_add_node('127.0.0.1', %s)", [port])
        names = [f"127.0.0.1:{port}" for port in ports[1:]]
        yield Cluster(url, dict(zip(names, servers[1:], strict=True)))


def _settings(port: int) -> dict[str, str]:
    return {
        "listen_addresses": "127.0.0.1", "port": str(port), "shared_preload_libraries": "citus",
        "citus.node_conninfo": "sslmode=prefer",
    }  # fmt: skip


def _with_citus() -> Path | None:
    """The programs of a PostgreSQL that has Citus."""
    pg_config = shutil.which("pg_config")
    if pg_config is None:
        return None
    folders = [
        Path(subprocess.run([pg_config, option], capture_output=True, text=True, check=True).stdout.strip())
        for option in ("--bindir", "--pkglibdir")
    ]
    return folders[0] if (folders[1] / "citus.so").exists() else None


if __name__ == "__main__":
    if _with_citus() is None:
        sys.exit("the PostgreSQL of pg_config has no Citus")
    with suppress(KeyboardInterrupt, EOFError), cluster() as found:
        print(found.url, flush=True)
        input("Enter stops it. ")
