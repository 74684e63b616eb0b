"""Every test here runs on every store."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gatepost import accounts
from gatepost.store.interface import Store
from tests import postgres
from tests.contract import things
from tests.contract.backends import Backend, Postgres, Sqlite, Watch, closed_in_the_end
from tests.contract.schemas import Schemas


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture(scope="session")
def shared_database(postgres_server: postgres.Server) -> str:
    return postgres_server.create_database("contract")


@pytest.fixture(scope="session")
def schemas(shared_database: str) -> Iterator[Schemas]:
    with psycopg.connect(shared_database, autocommit=True) as database:
        yield Schemas(shared_database, database)


@pytest.fixture
def schema_url(request: pytest.FixtureRequest, schemas: Schemas) -> Iterator[str]:
    """An empty schema; for a test that has a store, one without rows, since migrating each time takes long."""
    if "store" in request.fixturenames:
        yield schemas.url(schemas.migrated())
    else:
        name = schemas.create()
        yield schemas.url(name)
        schemas.drop(name)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, watch: Watch) -> Iterator[Backend]:
    """An empty database."""
    if request.param == "sqlite":
        found: Sqlite | Postgres = Sqlite(tmp_path / "gatepost.db", watch)
    else:
        found = Postgres(request.getfixturevalue("schema_url"), watch)
    with closed_in_the_end(found):
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
def account(store: Store, watch: Watch) -> str:
    made = accounts.new("acme", watch())
    assert store.run_now(lambda tx: things.account(tx, made))
    return made.id
