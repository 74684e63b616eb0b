"""Fixtures for tests that run on every store."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gatepost import accounts
from gatepost.store.interface import Store
from tests import postgres
from tests.contract import make
from tests.contract.backends import Backend, FakeClock, Postgres, Sqlite, closing_stores
from tests.contract.schemas import Schemas


@pytest.fixture
def watch() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def shared_database(postgres_server: postgres.Server) -> str:
    return postgres_server.create_database("contract")


@pytest.fixture(scope="session")
def schemas(shared_database: str) -> Iterator[Schemas]:
    with psycopg.connect(shared_database, autocommit=True) as database:
        yield Schemas(shared_database, database)


@pytest.fixture
def schema_url(request: pytest.FixtureRequest, schemas: Schemas) -> Iterator[str]:
    """An empty schema. For a test with a store, a migrated schema without rows, because migrations take long."""
    if "store" in request.fixturenames:
        yield schemas.url(schemas.migrated())
    else:
        name = schemas.create()
        yield schemas.url(name)
        schemas.drop(name)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, watch: FakeClock) -> Iterator[Backend]:
    """An empty database."""
    if request.param == "sqlite":
        found: Sqlite | Postgres = Sqlite(tmp_path / "gatepost.db", watch)
    else:
        found = Postgres(request.getfixturevalue("schema_url"), watch)
    with closing_stores(found):
        yield found


@pytest.fixture
def store(backend: Backend) -> Store:
    opened = backend.open()
    opened.migrate()
    return opened


@pytest.fixture
def other(store: Store, backend: Backend) -> Store:
    """A second store object on the same database, as another process has."""
    return backend.open()


@pytest.fixture
def account(store: Store, watch: FakeClock) -> str:
    made = accounts.new("acme", watch())
    assert store.run_now(lambda tx: make.account(tx, made))
    return made.id
