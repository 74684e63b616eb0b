"""Migrations on PostgreSQL wait only briefly for tables that others use, are tried again, and say when they give up."""

from collections.abc import Iterator

import psycopg
import pytest

from gatepost.core.errors import Unavailable
from gatepost.store import postgres_migrations
from tests.contract.backends import FakeClock, Postgres, closing_stores
from tests.contract.schemas import Schemas
from tests.contract.test_migrations import add


@pytest.fixture
def backend(schemas: Schemas, watch: FakeClock) -> Iterator[Postgres]:
    """A database in which a migration is missing that changes a table."""
    name = schemas.create()
    found = Postgres(schemas.url(name), watch)
    with closing_stores(found):
        found.open().migrate()
        yield found
    schemas.drop(name)


@pytest.fixture(autouse=True)
def next_release(backend: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, "ALTER TABLE accounts ADD COLUMN later text")
    monkeypatch.setattr(postgres_migrations, "_LOCK_TIMEOUT", "20ms")


def test_a_migration_gives_up_on_a_table_that_stays_locked(backend: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_migrations, "_TRIES", 2)
    with psycopg.connect(backend.url) as reader:
        reader.execute("SELECT count(*) FROM accounts")
        with pytest.raises(Unavailable, match="tried 2 times, but other transactions use its tables"):
            backend.open().migrate()
    assert backend.open().migrate() == ["next"]


def test_a_migration_is_tried_again_until_the_table_is_free(backend: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(backend.url) as reader:
        reader.execute("SELECT count(*) FROM accounts")
        monkeypatch.setattr(postgres_migrations, "sleep", lambda _seconds: reader.rollback())
        assert backend.open().migrate() == ["next"]


def test_others_read_the_table_between_two_tries(backend: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would wait behind a migration that waits."""
    monkeypatch.setattr(postgres_migrations, "_TRIES", 2)
    counts = []
    with psycopg.connect(backend.url) as reader:
        reader.execute("SELECT count(*) FROM accounts")
        read = lambda _seconds: counts.append(backend.execute("SELECT count(*) FROM accounts"))  # noqa: E731
        monkeypatch.setattr(postgres_migrations, "sleep", read)
        with pytest.raises(Unavailable):
            backend.open().migrate()
    assert counts == [[(0,)], [(0,)]]
