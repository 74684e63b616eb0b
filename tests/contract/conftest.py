"""Fixtures for tests that run on every store."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gatepost import accounts
from gatepost.store.interface import Store
from tests import citus, postgres
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
    yield from _schema_url(request, schemas)


@pytest.fixture(scope="session")
def citus_schemas() -> Iterator[Schemas]:
    with psycopg.connect(citus.URL, autocommit=True) as database:
        found = Schemas(citus.URL, database, distributed=True)
        yield found
        found.drop_all()


@pytest.fixture
def citus_url(request: pytest.FixtureRequest, citus_schemas: Schemas) -> Iterator[str]:
    """The same on Citus. For a test with a store, the schema is distributed."""
    yield from _schema_url(request, citus_schemas)


def _schema_url(request: pytest.FixtureRequest, schemas: Schemas) -> Iterator[str]:
    if "store" in request.fixturenames:
        yield schemas.url(schemas.migrated())
    else:
        name = schemas.create()
        yield schemas.url(name)
        schemas.drop(name)


@pytest.fixture(params=citus.STORES)
def backend(request: pytest.FixtureRequest, tmp_path: Path, watch: FakeClock) -> Iterator[Backend]:
    """An empty database."""
    if request.param == "sqlite":
        found: Sqlite | Postgres = Sqlite(tmp_path / "gatepost.db", watch)
    else:
        url = "citus_url" if request.param == "citus" else "schema_url"
        found = Postgres(request.getfixturevalue(url), watch)
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
