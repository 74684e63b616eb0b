"""Migrations are applied once and completely, also by concurrent processes, and never to a foreign store."""

import hashlib
from collections.abc import Callable

import msgspec
import pytest

from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.ledger import entry_rows
from gatepost.oauth import client_rows
from gatepost.oauth.clients import Client
from gatepost.store import sql_loader
from gatepost.store.interface import Store
from gatepost.store.sql_loader import Migration
from gatepost.store.transaction import APPEND_ONLY
from tests.contract import make, parallel
from tests.contract.backends import Backend

KNOWN = [migration.name for migration in sql_loader.migrations("sqlite")]


def add(monkeypatch: pytest.MonkeyPatch, statements: str) -> Migration:
    """One more migration, as the next release will bring."""
    known = {dialect: sql_loader.migrations(dialect) for dialect in ("sqlite", "postgres")}
    last = Migration(9998, "next", statements, hashlib.sha256(statements.encode()).hexdigest())
    monkeypatch.setattr(sql_loader, "migrations", lambda dialect: [*known[dialect], last])
    return last


def test_the_second_time_there_is_nothing_to_do(backend: Backend, store: Store, account: str) -> None:
    assert store.migrate() == []
    assert backend.open().migrate() == []
    assert store.read_now(lambda tx: account_rows.load(tx, account)) is not None


def test_many_at_once_apply_each_once(backend: Backend) -> None:
    stores = [backend.open() for _ in range(8)]
    applied = parallel.in_threads([store.migrate for store in stores])
    assert sorted(name for names in applied for name in names) == sorted(KNOWN)
    assert parallel.in_threads([stores[0].migrate for _ in range(4)]) == [[]] * 4
    for store in stores:
        assert store.read_now(lambda tx: account_rows.page(tx, "", 1)) == []


def test_beside_units_at_work(store: Store, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, "CREATE TABLE later (id integer)")

    def work() -> list[str]:
        units = [lambda tx, number=number: make.record(tx, account, str(number)) for number in range(300)]
        return [repr(outcome) for outcome in parallel.failures(parallel.run(store, units, hints=APPEND_ONLY))]

    assert parallel.in_threads([work, store.migrate, work]) == [[], ["next"], []]
    assert store.read_now(lambda tx: entry_rows.count(tx, account)) == 600


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
    store.run_now(lambda tx: make.record(tx, account, "one"))
    assert parallel.run(store, [lambda tx: make.record(tx, account, "two").subject], hints=APPEND_ONLY) == ["two"]
    assert backend.open().read_now(lambda tx: make.subjects(tx, account)) == ["one", "two"]


def test_clients_that_exist_keep_scope_claims_in_their_id_tokens(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the previous release, which knows nothing of it, neither loses it nor stands in the way."""
    insert = "INSERT INTO clients (account, id, document) VALUES (?, ?, ?)"
    update = "UPDATE clients SET document = ? WHERE account = ? AND id = ?"
    store = backend.open()
    with monkeypatch.context() as context:
        context.setattr(sql_loader, "migrations", without(7))
        store.migrate()
    account = ids.new("acc")
    store.run_now(lambda tx: account_rows.add(tx, Account(account, "acme", tx.at)))
    before = Client(ids.new("cli"), account, clock.EPOCH, clock.EPOCH)
    backend.execute(insert, *row(before))
    assert store.migrate() == ["claims"]
    during = Client(ids.new("cli"), account, clock.EPOCH, clock.EPOCH)
    backend.execute(insert, *row(during))
    after = store.run_now(lambda tx: make.client(tx, account))

    def claims() -> list[bool]:
        stored = backend.open().read_now(lambda tx: [client_rows.load(tx, each.id) for each in (before, during, after)])
        listed = backend.open().read_now(lambda tx: {each.id: each for each in client_rows.page(tx, account, b"", 10)})
        assert [listed[each.id] for each in (before, during, after)] == stored
        return [each.id_token_claims for each in stored if each is not None]

    assert claims() == [True, True, False]
    for client in (before, during, after):
        backend.execute(update, row(client)[2], *row(client)[:2])
    assert claims() == [True, True, False]
    store.run_now(lambda tx: client_rows.update(tx, msgspec.structs.replace(before, id_token_claims=False)))
    store.run_now(lambda tx: client_rows.update(tx, msgspec.structs.replace(after, id_token_claims=True)))
    assert claims() == [False, True, True]
    documents = backend.execute("SELECT document FROM clients")
    assert not [document for (document,) in documents if "id_token_claims" in document], "it is stored once"


def without(number: int) -> Callable[[sql_loader.Dialect], list[Migration]]:
    known = {dialect: sql_loader.migrations(dialect) for dialect in ("sqlite", "postgres")}
    return lambda dialect: [migration for migration in known[dialect] if migration.number != number]


def row(client: Client) -> tuple[bytes, bytes, str]:
    return ids.raw(client.account), ids.raw(client.id), msgspec.json.encode(client).decode()


def test_a_store_without_tables_is_unavailable(backend: Backend, store: Store) -> None:
    """Somebody is about to restore it, or pointed us at the wrong one: nothing to answer 500 for."""
    for table in ("counters", "changes"):
        backend.execute(f"DROP TABLE {table}")
    with pytest.raises(Unavailable):
        store.run_now(lambda tx: account_rows.page(tx, "", 1))
    with pytest.raises(Unavailable):
        store.read_now(lambda tx: account_rows.page(tx, "", 1))
