"""Changes of tables on PostgreSQL wait only briefly for others, are tried again, and say when they give up."""

from collections.abc import Iterator

import psycopg
import pytest

from gatepost.core.errors import Unavailable
from gatepost.run import app
from gatepost.store import lock_retries, postgres_migrations
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
    monkeypatch.setattr(lock_retries, "LOCK_TIMEOUT", "20ms")


def test_a_migration_gives_up_on_a_table_that_stays_locked(backend: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_retries, "TRIES", 2)
    with psycopg.connect(backend.url) as reader:
        reader.execute("SELECT count(*) FROM accounts")
        with pytest.raises(Unavailable, match="tried 2 times, but other transactions use its tables"):
            backend.open().migrate()
    assert backend.open().migrate() == ["next"]


def test_a_migration_is_tried_again_until_the_table_is_free(backend: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(backend.url) as reader:
        reader.execute("SELECT count(*) FROM accounts")
        monkeypatch.setattr(lock_retries, "sleep", lambda _seconds: reader.rollback())
        assert backend.open().migrate() == ["next"]


def test_others_read_the_table_between_two_tries(backend: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would wait behind a migration that waits."""
    monkeypatch.setattr(lock_retries, "TRIES", 2)
    counts = []
    with psycopg.connect(backend.url) as reader:
        reader.execute("SELECT count(*) FROM accounts")
        read = lambda _seconds: counts.append(backend.execute("SELECT count(*) FROM accounts"))  # noqa: E731
        monkeypatch.setattr(lock_retries, "sleep", read)
        with pytest.raises(Unavailable):
            backend.open().migrate()
    assert counts == [[(0,)], [(0,)]]


def test_a_migration_gives_up_on_another_process_that_migrates(
    backend: Postgres, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says once why it waits."""
    monkeypatch.setattr(lock_retries, "TRIES", 3)
    monkeypatch.setattr(lock_retries, "is_configured", lambda: False)  # other tests may have configured the log
    with psycopg.connect(backend.url) as another:
        another.execute("SELECT pg_advisory_xact_lock(%s)", (postgres_migrations.LOCK,))
        with pytest.raises(Unavailable, match="tried 3 times, but another process applies migrations"):
            backend.open().migrate()
    assert capsys.readouterr().err == "gatepost: a migration has to wait, because another process applies migrations\n"
    assert backend.open().migrate() == ["next"]


def test_a_store_is_not_examined_for_ever(backend: Postgres) -> None:
    with psycopg.connect(backend.url) as another:
        another.execute("LOCK TABLE migrations")
        with pytest.raises(Unavailable, match="lock timeout"):
            backend.open().applied()
    assert backend.open().applied()


def test_applications_use_the_outbox_while_an_operator_changes_it(
    backend: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would wait behind a change that waits."""
    monkeypatch.setattr(lock_retries, "TRIES", 2)
    insert = "INSERT INTO gatepost_outbox (account, type, data) VALUES ('acme', 'a.b', '1')"
    monkeypatch.setattr(lock_retries, "sleep", lambda _seconds: backend.execute(insert))
    change = ["ALTER TABLE gatepost_outbox ENABLE ROW LEVEL SECURITY"]
    with psycopg.connect(backend.url) as application:
        application.execute(insert)
        with pytest.raises(Unavailable, match="the change was tried 2 times, but other transactions use its tables"):
            app.run_statements(backend.url, change)
    assert backend.execute("SELECT count(*) FROM gatepost_outbox") == [(3,)]
    app.run_statements(backend.url, change)


def test_a_role_that_may_not_create_tables_can_start_on_the_newest_schema(
    backend: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(schema,)] = backend.execute("SELECT current_schema()")
    monkeypatch.undo()
    role = f"user_{schema}"
    backend.execute(f"CREATE ROLE {role} LOGIN")
    try:
        backend.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        backend.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
        assert Postgres(f"{backend.url}&user={role}", backend.watch, backend.opened).open().migrate() == []
    finally:
        backend.execute(f"DROP OWNED BY {role}")
        backend.execute(f"DROP ROLE {role}")
