"""The search path of PostgreSQL: migrations never create a second store in silence, and ignore foreign tables."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from gatepost.core.errors import BadSetting
from gatepost.store.postgres import PostgresStore
from gatepost.webhooks.fanout import create_deliveries
from tests.contract.backends import FakeClock
from tests.contract.schemas import Schemas

FOREIGN = "CREATE TABLE {}.migrations (id integer, migration text, batch integer)"


class SearchPath:
    """Two schemas. Stores are opened with the search path that a test names."""

    def __init__(self, schemas: Schemas, watch: FakeClock) -> None:
        self.schemas, self.watch = schemas, watch
        self.first, self.second = schemas.create(), schemas.create()

    def open(self, *names: str) -> PostgresStore:
        return PostgresStore(self.schemas.url("%2C".join(names)), self.watch, create_deliveries)

    def migrate(self, *names: str) -> list[str]:
        with closing(self.open(*names)) as store:
            return store.migrate()

    def applied(self, *names: str) -> dict[int, str]:
        with closing(self.open(*names)) as store:
            return store.applied()

    def execute(self, text: str) -> None:
        self.schemas.execute(text)

    def tables(self, name: str) -> set[str]:
        return self.schemas.tables(name)


@pytest.fixture
def path(schemas: Schemas, watch: FakeClock) -> Iterator[SearchPath]:
    made = SearchPath(schemas, watch)
    yield made
    schemas.drop(made.first)
    schemas.drop(made.second)


def test_a_schema_that_appears_before_that_of_the_store_is_refused(path: SearchPath) -> None:
    """It would get all migrations, and running nodes would use its empty tables."""
    assert path.migrate(path.second)
    with pytest.raises(BadSetting) as refused:
        path.migrate(path.first, path.second)
    assert str(refused.value).startswith(
        f"database: the store is in the schema {path.second}, but the search path has {path.first} before it"
    )
    assert f"to use that store, run: ALTER ROLE gatepost IN DATABASE contract SET search_path = {path.second};" in str(
        refused.value
    )
    assert path.tables(path.first) == set()
    assert path.applied(path.first, path.second) == path.applied(path.second), "children of a running node restart"
    assert path.migrate(path.first), "with a search path of its own, it is another store"
    assert path.migrate(path.first, path.second) == []


def test_partitions_are_made_in_the_schema_of_the_store(path: SearchPath, watch: FakeClock) -> None:
    """A node that runs while another schema appears continues to maintain them."""
    path.migrate(path.second)
    before = path.tables(path.second)
    watch.forward(timedelta(days=40))
    with closing(path.open(path.first, path.second)) as store:
        made = store.maintain_partitions().made
    assert made
    assert path.tables(path.second) - before == set(made)
    assert path.tables(path.first) == set()


def test_a_foreign_table_in_a_later_schema_does_not_matter(path: SearchPath) -> None:
    path.execute(FOREIGN.format(path.second))
    path.execute(f"CREATE TABLE {path.second}.accounts (id integer)")
    with closing(path.open(path.first, path.second)) as store:
        assert store.applied() == {}
        assert store.info().missing_privileges == ()
        assert store.migrate()
        assert store.applied()
    assert path.tables(path.second) == {"migrations", "accounts"}


def test_a_foreign_table_in_the_own_schema_is_refused(path: SearchPath) -> None:
    path.execute(FOREIGN.format(path.first))
    text = f"the table {path.first}.migrations belongs to another program; give Gatepost a schema of its own"
    for names in ((path.first,), (path.first, path.second)):
        with pytest.raises(BadSetting, match=text):
            path.migrate(*names)
        with pytest.raises(BadSetting, match=text):
            path.applied(*names)
    assert path.migrate(path.second)
    with pytest.raises(BadSetting, match=f"the store is in the schema {path.second}"):
        path.applied(path.first, path.second)
    assert path.tables(path.first) == {"migrations"}


def test_a_search_path_without_a_schema_is_refused(path: SearchPath) -> None:
    text = r"no schema of the search path \(nowhere\) exists that the role gatepost may use"
    with pytest.raises(BadSetting, match=text):
        path.applied("nowhere")
    with pytest.raises(BadSetting, match=text):
        path.migrate("nowhere")
