"""Migrations are applied once, whole, by one of those who come at once; and never to a store that is not ours."""

import hashlib

import pytest

from gatepost.app import Store
from gatepost.errors import BadSetting, Unavailable
from gatepost.store import text
from gatepost.store.text import Migration
from tests.contract import things, together
from tests.contract.backends import Backend

KNOWN = [migration.name for migration in text.migrations("sqlite")]


def add(monkeypatch: pytest.MonkeyPatch, statements: str) -> Migration:
    """One more migration, as the next release will bring."""
    known = {dialect: text.migrations(dialect) for dialect in ("sqlite", "postgres")}
    last = Migration(9998, "next", statements, hashlib.sha256(statements.encode()).hexdigest())
    monkeypatch.setattr(text, "migrations", lambda dialect: [*known[dialect], last])
    return last


def test_the_second_time_there_is_nothing_to_do(backend: Backend, store: Store, account: str) -> None:
    assert store.migrate() == []
    assert backend.open().migrate() == []
    assert store.read_now(lambda tx: tx.account(account)) is not None


def test_of_many_at_once_one_does_it(backend: Backend) -> None:
    stores = [backend.open() for _ in range(8)]
    applied = together.in_threads([store.migrate for store in stores])
    assert sorted(applied) == [[]] * 7 + [KNOWN]
    assert together.in_threads([stores[0].migrate for _ in range(4)]) == [[]] * 4
    for store in stores:
        assert store.read_now(lambda tx: tx.accounts("", 1)) == []


def test_beside_units_at_work(store: Store, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, "CREATE TABLE later (id integer)")

    def work() -> list[str]:
        units = [lambda tx, number=number: things.record(tx, account, str(number)) for number in range(300)]
        return [repr(outcome) for outcome in together.failures(together.run(store, units, records_only=True))]

    assert together.in_threads([work, store.migrate, work]) == [[], ["next"], []]
    assert store.read_now(lambda tx: tx.count_entries(account)) == 600


def test_one_that_was_changed_is_refused(backend: Backend, store: Store) -> None:
    backend.execute("UPDATE migrations SET checksum = ? WHERE number = 1", "0" * 64)
    with pytest.raises(BadSetting, match="migration 1 was changed after it was applied"):
        store.migrate()


def test_a_newer_store_is_refused_and_left_alone(
    backend: Backend, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.execute("INSERT INTO migrations VALUES (9999, 'future', 'x', 0)")
    with pytest.raises(BadSetting, match="newer than this release knows"):
        store.migrate()
    add(monkeypatch, "CREATE TABLE later (id integer)")
    with pytest.raises(BadSetting, match=r"at schema 9999, newer than this release knows \(9998\)"):
        store.migrate()
    with pytest.raises(Exception, match="later"):
        backend.execute("SELECT * FROM later")


def test_one_that_fails_leaves_nothing(backend: Backend, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, "CREATE TABLE later (id integer); INSERT INTO nowhere VALUES (1)")
    with pytest.raises(Unavailable, match="nowhere"):
        store.migrate()
    with pytest.raises(Exception, match="later"):
        backend.execute("SELECT * FROM later")
    monkeypatch.undo()
    add(monkeypatch, "CREATE TABLE later (id integer)")
    assert store.migrate() == ["next"]
    assert backend.execute("SELECT * FROM later") == []


def test_this_release_runs_on_the_next_schema(
    backend: Backend, store: Store, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expand, then contract: a column that the next release adds does not disturb this one."""
    with monkeypatch.context() as context:
        add(
            context,
            "ALTER TABLE entries ADD COLUMN later text; ALTER TABLE unsealed ADD COLUMN later text; "
            "ALTER TABLE seals ADD COLUMN later text; ALTER TABLE anchors ADD COLUMN later text",
        )
        backend.open().migrate()
    store.run_now(lambda tx: things.record(tx, account, "one"))
    assert together.run(store, [lambda tx: things.record(tx, account, "two").subject], records_only=True) == ["two"]
    assert backend.open().read_now(lambda tx: things.subjects(tx, account)) == ["one", "two"]


def test_a_store_without_tables_is_unavailable(backend: Backend, store: Store) -> None:
    """Somebody is about to restore it, or pointed us at the wrong one: nothing to answer 500 for."""
    for table in ("counters", "changes"):
        backend.execute(f"DROP TABLE {table}")
    with pytest.raises(Unavailable):
        store.run_now(lambda tx: tx.accounts("", 1))
    with pytest.raises(Unavailable):
        store.read_now(lambda tx: tx.accounts("", 1))
