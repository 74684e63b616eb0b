"""Text and values on PostgreSQL are written in one way, whatever the settings are. Other encodings are refused."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from gatepost.core import clock
from gatepost.core.errors import BadSetting
from gatepost.ledger import entries, entry_rows
from gatepost.store.interface import Store
from gatepost.store.postgres import PostgresStore
from gatepost.store.postgres_server import PostgresServer
from gatepost.store.transaction import HIGHEST, LOWEST
from gatepost.webhooks.fanout import create_deliveries
from tests import postgres
from tests.contract import make
from tests.contract.backends import FakeClock, Postgres, closing_stores

TEXT = "é 日本"


SETTINGS = {
    "client_encoding": "LATIN1",
    "bytea_output": "escape",
    "DateStyle": "SQL, DMY",
    "standard_conforming_strings": "off",
}


@pytest.fixture
def backend(schema_url: str, watch: FakeClock) -> Iterator[Postgres]:
    """A database whose clients write text and values in other ways by default."""
    with pytest.MonkeyPatch.context() as patch, psycopg.connect(schema_url, autocommit=True) as database:
        patch.setenv("PGCLIENTENCODING", "LATIN1")
        name = sql.Identifier(database.info.dbname)
        for setting, value in SETTINGS.items():
            change = sql.SQL("ALTER DATABASE {} SET {} = {}").format(name, sql.Identifier(setting), value)
            database.execute(change)
        try:
            with closing_stores(Postgres(f"{schema_url}&client_encoding=LATIN1", watch)) as found:
                assert isinstance(found, Postgres)
                yield found
        finally:
            for setting in SETTINGS:
                database.execute(sql.SQL("ALTER DATABASE {} RESET {}").format(name, sql.Identifier(setting)))


def test_the_encoding_of_the_client_changes_nothing(store: Store, account: str) -> None:
    store.run_now(lambda tx: make.record(tx, account, TEXT))
    [found] = store.read_now(lambda tx: entry_rows.oldest(tx, account, LOWEST, HIGHEST, 10))
    assert TEXT in str(entries.render(found))


def test_partitions_are_maintained(backend: Postgres, store: Store) -> None:
    with psycopg.connect(backend.url) as database:
        assert database.execute("SHOW bytea_output").fetchall() == [("escape",)], "the settings of others stay"
    assert store.info().engine.startswith("PostgreSQL")
    store.maintain_partitions()


def test_connections_for_listen_use_utf_8(backend: Postgres) -> None:
    for listen_url in ("", backend.url):
        database = PostgresServer(backend.url, clock.now, listen_url).open_for_listen()
        assert database is not None
        with database:
            assert database.execute("SHOW client_encoding").fetchall() == [("UTF8",)]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_with_another_encoding_is_refused(postgres_server: postgres.Server, encoding: str) -> None:
    name = f"encoded_{encoding.lower()}"
    with psycopg.connect(postgres_server.url(), autocommit=True) as database:
        statement = f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        database.execute(statement.encode())
    url = postgres_server.url(name)
    store = PostgresStore(url, clock.now, create_deliveries)
    try:
        for use in (store.migrate, store.applied, store.info):
            with pytest.raises(BadSetting, match=f"encoding {encoding}.*ENCODING 'UTF8'"):
                use()
        with psycopg.connect(url) as database:
            tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            assert database.execute(tables).fetchall() == []
    finally:
        store.close()
        postgres_server.drop_database(name)
