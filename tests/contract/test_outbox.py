"""The outbox, which PostgreSQL alone has: events in the caller's own transaction, moved once that is committed."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import psycopg
import pytest
from psycopg import sql

import gatepost
from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.core.metrics import OUTBOX_REFUSED
from gatepost.ledger import entries, entry_rows, outbox_rows
from gatepost.ledger.entries import MAX_DATA
from gatepost.ledger.outbox import grant_statements, revoke_statements
from gatepost.ledger.publishable import Event
from gatepost.store import notify
from gatepost.store.interface import Store
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import HIGHEST, LOWEST, Tx
from gatepost.webhooks import delivery_rows, endpoint_rows, publish, subscription_rows, worker_chores
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.fanout import create_deliveries
from gatepost.webhooks.publish import MAX_BODY, MAX_BYTES, SLICE, OutboxSlice
from gatepost.webhooks.subscriptions import Subscription
from tests.contract import parallel
from tests.contract.backends import FakeClock, Postgres, closing_stores
from tests.waiting import LIMIT

Database = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def backend(schema_url: str, watch: FakeClock) -> Iterator[Postgres]:
    with closing_stores(Postgres(schema_url, watch)) as found:
        yield cast(Postgres, found)


@pytest.fixture
def database(store: Store, schema_url: str) -> Iterator[Database]:
    """The caller's own connection: a transaction is open from the first statement on."""
    with psycopg.connect(schema_url) as found:
        yield found


def move(store: Store) -> OutboxSlice:
    return store.run_now(publish.from_outbox)


def move_all(store: Store) -> list[OutboxSlice]:
    done = [move(store)]
    while done[-1].published or done[-1].refused:
        done.append(move(store))
    return done


def recorded(store: Store, account: str) -> list[dict[str, Any]]:
    found = store.read_now(lambda tx: entry_rows.oldest(tx, account, LOWEST, HIGHEST, 1000))
    return [entries.render(each) for each in found]


def waiting(backend: Postgres) -> list[tuple[Any, ...]]:
    return backend.execute("SELECT account, type, id, refused FROM gatepost_outbox ORDER BY seq")


def subscribe(store: Store, account: str) -> None:
    def unit(tx: Tx) -> None:
        endpoint = Endpoint(ids.new("ep"), account, "https://receiver.example/hooks", tx.at, tx.at)
        endpoint_rows.add(tx, endpoint)
        subscription_rows.add(tx, Subscription(ids.new("sub"), account, endpoint.id, ["*"], tx.at, tx.at))

    store.run_now(unit)


# --- by a role that is restricted to an account


@pytest.fixture
def role(store: Store, account: str, schema_url: str, database: Database) -> Iterator[Database]:
    """A connection of a role that may publish for the account, and for no other."""
    name = f'outbox "{account[-8:]}'
    quoted = sql.Identifier(name)
    [(schema,)] = database.execute("SELECT current_schema()").fetchall()
    database.execute(sql.SQL("CREATE ROLE {} LOGIN").format(quoted))
    database.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), quoted))
    for statement in grant_statements(name, ["acme", account]):
        database.execute(statement.encode())
    database.commit()
    try:
        with psycopg.connect(schema_url, user=name) as found:
            yield found
    finally:
        database.rollback()
        for statement in revoke_statements(name):
            database.execute(statement.encode())
        database.execute(sql.SQL("DROP OWNED BY {}").format(quoted))
        database.execute(sql.SQL("DROP ROLE {}").format(quoted))
        database.commit()


def test_a_role_publishes_for_its_account_alone(store: Store, account: str, backend: Postgres, role: Database) -> None:
    other = store.run_now(_another)
    gatepost.publish(role, account="acme", type="invoice.paid", data=1, id="a")
    gatepost.publish(role, account=account, type="invoice.paid", data=2)
    role.commit()
    for name in (other.name, other.id, "nobody", "ACME", "acme "):
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as raised:
            gatepost.publish(role, account=name, type="invoice.paid", data=3)
        role.rollback()
        assert re.fullmatch(
            'new row violates row-level security policy .* for table "gatepost_outbox"', str(raised.value)
        )
    assert move(store) == OutboxSlice(2, [])
    assert [each["data"] for each in recorded(store, account)[-2:]] == [1, 2]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT seq FROM gatepost_outbox", "SELECT count(*) FROM gatepost_outbox",
        "INSERT INTO gatepost_outbox (account, type, data) VALUES ('acme', 'a.b', '1') RETURNING seq",
        "INSERT INTO gatepost_outbox (seq, account, type, data) OVERRIDING SYSTEM VALUE VALUES (1, 'acme', 'a.b', '1')",
        "INSERT INTO gatepost_outbox (account, type, data, refused) VALUES ('acme', 'a.b', '1', 'x')",
        "INSERT INTO gatepost_outbox (account, type, data) VALUES ('acme', 'a.b', '1') ON CONFLICT (seq) DO NOTHING",
        "UPDATE gatepost_outbox SET account = 'acme'", "DELETE FROM gatepost_outbox", "TRUNCATE gatepost_outbox",
        "SELECT document FROM accounts", "SELECT id FROM entries", "SELECT key FROM gatepost_notification_key",
        "SELECT last_value FROM gatepost_outbox_seq_seq", "SELECT lastval()",
        "ALTER TABLE gatepost_outbox DISABLE ROW LEVEL SECURITY", "DROP POLICY gatepost_any_account ON gatepost_outbox",
        "CREATE POLICY mine ON gatepost_outbox USING (true)",
    ],
)  # fmt: skip
def test_a_role_can_do_nothing_else(store: Store, account: str, role: Database, statement: str) -> None:
    gatepost.publish(role, account="acme", type="a.b", data=1)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        role.execute(statement.encode())


def test_a_role_that_may_read_sees_its_own_account_only(account: str, role: Database, database: Database) -> None:
    """Whatever else it is granted."""
    name = sql.Identifier(role.info.user)
    database.execute(sql.SQL("GRANT ALL ON gatepost_outbox TO {}").format(name))
    for each in ("acme", account, "other"):
        gatepost.publish(database, account=each, type="a.b", data=1)
    database.commit()
    found = role.execute("SELECT account FROM gatepost_outbox ORDER BY seq").fetchall()
    assert found == [("acme",), (account,)]
    assert role.execute("DELETE FROM gatepost_outbox").rowcount == 2


def test_a_role_that_listens_learns_no_ids(store: Store, account: str, role: Database, database: Database) -> None:
    role.autocommit = True
    role.execute(f"LISTEN {notify.CHANNEL}")
    subscribe(store, account)
    gatepost.publish(database, account="acme", type="a.b", data=1)
    database.commit()
    move(store)
    heard = next(role.notifies(timeout=LIMIT))
    assert ids.raw(account).hex() not in heard.payload
    assert len(heard.payload) > 64


def test_a_wakeup_does_not_wait_for_the_disk(account: str, database: Database) -> None:
    def setting() -> Any:
        return database.execute("SHOW synchronous_commit").fetchall()

    database.execute(notify.NOTIFY, (notify.CHANNEL, "00"))
    assert setting() == [("off",)]
    database.commit()
    assert setting() == [("on",)]


def test_other_roles_are_not_restricted(store: Store, account: str, role: Database, database: Database) -> None:
    """What was granted before there were policies goes on."""
    name = sql.Identifier(f"plain {account[-8:]}")
    [(schema,)] = database.execute("SELECT current_schema()").fetchall()
    database.execute(sql.SQL("CREATE ROLE {}").format(name))
    database.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), name))
    database.execute(sql.SQL("GRANT INSERT ON gatepost_outbox TO {}").format(name))
    database.execute(sql.SQL("SET ROLE {}").format(name))
    gatepost.publish(database, account="acme", type="a.b", data=1)
    gatepost.publish(database, account="another", type="a.b", data=1)
    database.rollback()


@pytest.mark.parametrize("name", ["", "public", "PUBLIC", "gatepost_any_account", "a" * 64, "a\0b"])
def test_what_is_no_role(name: str) -> None:
    for statements in (revoke_statements, lambda name: grant_statements(name, ["acme"])):
        with pytest.raises(BadSetting):
            statements(name)


def _another(tx: Tx) -> accounts.Account:
    made = accounts.new("another", tx.at)
    account_rows.add(tx, made)
    return made


# --- with the caller's transaction


def test_what_was_committed_is_moved_whole(store: Store, account: str, backend: Postgres, database: Database) -> None:
    subscribe(store, account)
    data = {"text": "ünïcödé 雪", "number": 0.1, "deep": [{"a": None}]}
    gatepost.publish(database, account="acme", type="invoice.paid", data=data, id="a")
    gatepost.publish(database, account=account, type="invoice.sent", data=None)
    assert move(store) == OutboxSlice(0, [])
    database.commit()
    assert move(store) == OutboxSlice(2, [])
    assert waiting(backend) == []
    found = recorded(store, account)
    assert [(each["type"], each["data"], each["matched"], each["actor"]) for each in found] == [
        ("invoice.paid", data, 1, "outbox"),
        ("invoice.sent", None, 1, "outbox"),
    ]
    events = [ids.raw(each["id"]) for each in found]
    assert store.read_now(lambda tx: delivery_rows.count_of_events(tx, account, events)) == dict.fromkeys(events, 1)


def test_what_was_rolled_back_is_never_moved(store: Store, account: str, backend: Postgres, database: Database) -> None:
    gatepost.publish(database, account="acme", type="invoice.paid", data={}, id="a")
    database.rollback()
    gatepost.publish(database, account="acme", type="invoice.paid", data={}, id="b")
    with pytest.raises(psycopg.errors.DivisionByZero):
        database.execute("SELECT 1 / 0")
    database.rollback()
    assert move_all(store) == [OutboxSlice(0, [])]
    assert (recorded(store, account), waiting(backend)) == ([], [])


def test_an_open_transaction_blocks_no_other_caller(
    store: Store, account: str, database: Database, schema_url: str
) -> None:
    gatepost.publish(database, account="acme", type="invoice.paid", data=1)
    with psycopg.connect(schema_url) as other:
        gatepost.publish(other, account="acme", type="invoice.paid", data=2)
    assert move(store) == OutboxSlice(1, [])
    database.commit()
    assert move(store) == OutboxSlice(1, [])
    assert [each["data"] for each in recorded(store, account)] == [2, 1]


def test_any_way_to_insert_is_good(store: Store, account: str, database: Database) -> None:
    """From a cursor, from a connection as PEP 249 has it, and from a language that has no library of ours."""

    class Plain:
        cursor = database.cursor

    with database.cursor() as cursor:
        gatepost.publish(cursor, account="acme", type="invoice.paid", data=1)
    gatepost.publish(Plain, account="acme", type="invoice.paid", data=2)
    database.execute("INSERT INTO gatepost_outbox (account, type, data, id) VALUES ('acme', 'invoice.paid', '3', 'x')")
    database.commit()
    assert move(store) == OutboxSlice(3, [])
    assert [each["data"] for each in recorded(store, account)] == [1, 2, 3]


def test_an_asynchronous_connection_is_not_passed_over_in_silence(store: Store, schema_url: str) -> None:
    async def publish_there() -> None:
        async with await psycopg.AsyncConnection.connect(schema_url) as database:
            gatepost.publish(database, account="acme", type="invoice.paid", data=1)

    with pytest.raises(TypeError, match="asynchronous"):
        asyncio.run(publish_there())


# --- who may


def test_a_role_needs_no_more_than_insert(store: Store, account: str, backend: Postgres, schema_url: str) -> None:
    [(schema,)] = backend.execute("SELECT current_schema()")
    role = f"publisher_{schema}"
    backend.execute(f"CREATE ROLE {role} LOGIN")
    try:
        backend.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        backend.execute(f"GRANT INSERT ON gatepost_outbox TO {role}")
        with psycopg.connect(schema_url, user=role) as database:
            gatepost.publish(database, account="acme", type="invoice.paid", data={}, id="a")
        for forbidden in ("SELECT * FROM gatepost_outbox", "DELETE FROM gatepost_outbox", "SELECT * FROM entries"):
            with psycopg.connect(schema_url, user=role) as database:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    database.execute(forbidden.encode())
                database.rollback()
        assert move(store) == OutboxSlice(1, [])
        assert len(recorded(store, account)) == 1
    finally:
        backend.execute(f"DROP OWNED BY {role}")
        backend.execute(f"DROP ROLE {role}")


# --- once


def test_the_same_id_is_one_event_however_it_comes(
    store: Store, account: str, backend: Postgres, database: Database
) -> None:
    for _ in range(3):
        gatepost.publish(database, account="acme", type="invoice.paid", data={"a": 1}, id="a")
    database.commit()
    move_all(store)
    gatepost.publish(database, account="acme", type="invoice.paid", data={"a": 1}, id="a")
    database.commit()
    move_all(store)
    assert len(recorded(store, account)) == 1
    assert waiting(backend) == []


def test_two_movers_move_each_row_once(store: Store, other: Store, account: str, database: Database) -> None:
    for number in range(3 * SLICE):
        gatepost.publish(database, account="acme", type="invoice.paid", data=number)
    database.commit()
    done = parallel.run([store, other], [publish.from_outbox] * 8)
    assert parallel.failures(done) == []
    move_all(store)
    assert sorted(each["data"] for each in recorded(store, account)) == list(range(3 * SLICE))


# --- how much at once


def insert_text(database: Database, text: str, type_: str = "invoice.paid") -> None:
    database.execute("INSERT INTO gatepost_outbox (account, type, data) VALUES ('acme', %s, %s)", (type_, text))


@pytest.mark.parametrize("kind", ["json", "jsonb"])
def test_data_beyond_the_limit_is_not_read(
    store: Store, account: str, backend: Postgres, database: Database, kind: str
) -> None:
    """Neither if its text is long, nor if it also takes long to decompress, nor if it cannot be compressed."""
    backend.execute(f"ALTER TABLE gatepost_outbox ALTER COLUMN data TYPE {kind}")
    insert_text(database, json.dumps(["a" * (MAX_BODY - 4)]))
    insert_text(database, json.dumps(["a" * (MAX_BODY - 3)]))
    database.execute(
        "INSERT INTO gatepost_outbox (account, type, data) VALUES ('acme', 'a.b', to_json(repeat('0', 40000000)))"
    )
    insert_text(database, json.dumps(token_hex(MAX_BODY)))
    insert_text(database, "1")
    database.commit()
    lengths: list[list[int | None]] = []
    while not lengths or lengths[-1] != [1]:
        rows = store.run_now(lambda tx: outbox_rows.lock_page(tx, SLICE, MAX_BODY, MAX_BYTES))
        lengths.append([len(row.data) if row.data is not None else None for row in rows])
        store.run_now(lambda tx, rows=rows: outbox_rows.finish(tx, [row.number for row in rows], []))  # type: ignore[misc]
    assert [length for page in lengths for length in page] == [MAX_BODY, None, None, None, 1]


def test_data_beyond_the_limit_is_refused(store: Store, account: str, backend: Postgres, database: Database) -> None:
    insert_text(database, json.dumps(token_hex(MAX_BODY)))
    insert_text(database, '"after"')
    database.commit()
    move_all(store)
    assert [each["data"] for each in recorded(store, account)] == ["after"]
    assert [row[3] for row in waiting(backend)] == [f"data: at most {MAX_BODY} bytes as it was written"]


@pytest.mark.parametrize("character", ["я", "😀"])
def test_data_within_the_limit_may_be_written_with_escapes(
    store: Store, account: str, database: Database, character: str
) -> None:
    """As `json.dumps` writes it. Spaces and escapes do not count, because they are not kept."""
    text = character * ((MAX_DATA - 2) // len(character.encode()))
    insert_text(database, json.dumps(text))
    database.commit()
    assert move(store) == OutboxSlice(1, [])
    assert [each["data"] for each in recorded(store, account)] == [text]


def test_long_texts_of_a_row_are_not_read_whole(
    store: Store, account: str, backend: Postgres, database: Database
) -> None:
    """Nor is a long one written, as the reason of a refusal."""
    insert = "INSERT INTO gatepost_outbox (account, type, data, id) VALUES (%s, %s, '1', %s)"
    for row in (("a" * 10**6, "a.b", "c"), ("acme", "a.b" * 10**6, "c"), ("acme", "a.b", "c" * 10**6)):
        database.execute(insert, row)
    database.commit()
    rows = store.run_now(lambda tx: outbox_rows.lock_page(tx, SLICE, MAX_BODY, MAX_BYTES))
    assert max(len(str(value)) for row in rows for value in row) == 1000
    move_all(store)
    reasons = [row[3] for row in waiting(backend)]
    assert reasons[0] == f"there is no account {'a' * 64}"
    assert [reason.partition(":")[0] for reason in reasons[1:]] == ["type", "id"]


def test_a_slice_has_a_limited_size(
    store: Store, account: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "MAX_BYTES", 1000)
    for size in (400, 400, 400, 3000, 10, 10):
        insert_text(database, json.dumps(token_hex(size // 2)))
    database.commit()
    assert [done.published for done in move_all(store)] == [2, 1, 1, 2, 0]


def test_a_slice_has_a_limited_size_if_its_data_is_compressed(
    store: Store, account: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "MAX_BYTES", 10_000)
    for _ in range(5):
        insert_text(database, json.dumps("x" * 4_900))
    database.commit()
    assert [done.published for done in move_all(store)] == [2, 2, 1, 0]


def test_a_slice_ends_after_enough_deliveries(
    store: Store, account: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "MAX_NEW_DELIVERIES", 3)
    for _ in range(2):
        subscribe(store, account)
    for number in range(5):
        gatepost.publish(database, account="acme", type="invoice.paid", data=number)
    database.commit()
    assert [done.published for done in move_all(store)] == [2, 2, 1, 0]
    assert [each["data"] for each in recorded(store, account)] == list(range(5))


def test_the_worker_publishes_everything_however_short_the_slices_are(
    store: Store, account: str, backend: Postgres, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "MAX_NEW_DELIVERIES", 1)
    subscribe(store, account)
    for number in range(5):
        gatepost.publish(database, account="acme", type="invoice.paid", data=number)
    database.commit()
    asyncio.run(worker_chores.publish_outbox(store))
    assert waiting(backend) == []


def test_a_page_ends_where_the_slice_ends(store: Store, account: str, database: Database) -> None:
    """However well the data is compressed in the table. The first row is read even if it has more than that alone."""
    for size in (1_800, 400, 500, 98, 1, 900, 200):
        insert_text(database, json.dumps("x" * (size - 2) if size > 1 else 1))
    database.commit()
    sizes: list[list[int]] = []
    while not sizes or sizes[-1]:
        rows = store.run_now(lambda tx: outbox_rows.lock_page(tx, SLICE, MAX_BODY, 1000))
        sizes.append([len(row.data or "") for row in rows])
        store.run_now(lambda tx, rows=rows: outbox_rows.finish(tx, [row.number for row in rows], []))  # type: ignore[misc]
    assert sizes == [[1_800], [400, 500, 98, 1], [900], [200], []]


# --- internal errors


def failing_for(number: int, times: int) -> tuple[Callable[..., Any], list[str]]:
    """`publish_event` with a defect that concerns one event, the first few times, and the data of the failed tries."""
    publish_event, tries = publish.publish_event, list[str]()

    def failing(tx: Tx, account: Account, event: Event, *arguments: Any) -> Any:
        if event.data == str(number) and len(tries) < times:
            tries.append(event.data)
            raise LookupError("a defect")
        return publish_event(tx, account, event, *arguments)

    return failing, tries


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_chores, "RETRY_PAUSE", 0)


@pytest.mark.usefixtures("no_pauses")
def test_a_row_that_cannot_be_published_holds_no_other_up_and_is_refused(
    store: Store, account: str, backend: Postgres, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, tries = failing_for(3, times=1000)
    monkeypatch.setattr(publish, "publish_event", failing)
    for number in range(6):
        gatepost.publish(database, account="acme", type="invoice.paid", data=number)
    database.commit()
    asyncio.run(worker_chores.publish_outbox(store))
    assert [each["data"] for each in recorded(store, account)] == [0, 1, 2, 4, 5]
    assert waiting(backend) == [("acme", "invoice.paid", None, "internal error in each of 5 tries; see the log")]
    assert len(tries) == publish.MAX_TRIES + 1, "once together with others"


@pytest.mark.usefixtures("no_pauses")
def test_rows_that_follow_a_failing_one_are_still_published_in_slices(
    store: Store, account: str, backend: Postgres, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, tries = failing_for(0, times=1000)
    monkeypatch.setattr(publish, "publish_event", failing)
    monkeypatch.setattr(worker_chores, "SLICE", 3)
    for number in range(20):
        gatepost.publish(database, account="acme", type="invoice.paid", data=number)
    database.commit()
    asyncio.run(worker_chores.publish_outbox(store))
    assert [each["data"] for each in recorded(store, account)] == list(range(1, 20))
    assert len(tries) == publish.MAX_TRIES + 1, "slices leave it out"


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(("failures", "refused"), [(1, 0), (2, 3)])
def test_rows_are_published_if_a_later_try_succeeds_although_all_failed(
    store: Store, account: str, backend: Postgres, database: Database, monkeypatch: pytest.MonkeyPatch,
    failures: int, refused: int,
) -> None:  # fmt: skip
    """They are more rows than a slice has."""
    publish_event, alone = publish.publish_event, [0] * 3

    def failing(tx: Tx, account: Account, event: Event, *arguments: Any) -> Any:
        if alone[int(event.data)] < failures:
            raise LookupError("a defect")
        return publish_event(tx, account, event, *arguments)

    def row_from_outbox(tx: Tx, number: int) -> OutboxSlice:
        [row] = publish._lock_row(tx, number)
        try:
            return from_row(tx, number)
        finally:
            alone[int(row.data or "")] += 1

    from_row = publish.row_from_outbox
    monkeypatch.setattr(publish, "publish_event", failing)
    monkeypatch.setattr(publish, "row_from_outbox", row_from_outbox)
    monkeypatch.setattr(worker_chores, "SLICE", 2)
    monkeypatch.setattr(worker_chores, "MAX_TRIES", 2)
    for number in range(3):
        gatepost.publish(database, account="acme", type="invoice.paid", data=number)
    database.commit()
    asyncio.run(worker_chores.publish_outbox(store))
    assert (len(recorded(store, account)), len(waiting(backend))) == (3 - refused, refused)


def test_an_outage_of_the_store_refuses_no_row(
    store: Store, account: str, backend: Postgres, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object, **__: object) -> None:
        raise Unavailable("the store cannot answer")

    gatepost.publish(database, account="acme", type="invoice.paid", data=1)
    database.commit()
    with monkeypatch.context() as patched:
        patched.setattr(store, "run", unavailable)
        for _ in range(publish.MAX_TRIES + 1):
            with pytest.raises(Unavailable):
                asyncio.run(worker_chores.publish_outbox(store))
    asyncio.run(worker_chores.publish_outbox(store))
    assert (len(recorded(store, account)), waiting(backend)) == (1, [])


def test_the_id_of_an_event_that_is_missing_is_refused_and_others_are_published(
    store: Store, account: str, backend: Postgres, database: Database
) -> None:
    gatepost.publish(database, account="acme", type="invoice.paid", data=1, id="a")
    database.commit()
    move_all(store)
    backend.execute("DELETE FROM entries")
    for number in (1, 2):
        gatepost.publish(database, account="acme", type="invoice.paid", data=number, id="ab"[number - 1])
    database.commit()
    asyncio.run(worker_chores.publish_outbox(store))
    assert [each["data"] for each in recorded(store, account)] == [2]
    assert [row[2:] for row in waiting(backend)] == [("a", "id: the event of this id is no longer in the ledger")]


# --- what is wrong

BAD = {
    "account": ("nobody", "invoice.paid", "{}", None, "no account nobody"),
    "account's case": ("ACME", "invoice.paid", "{}", None, "no account ACME"),
    "type": ("acme", "Invoice", "{}", None, "type: must be"),
    "type of the service": ("acme", "oauth.token.issued", "{}", None, "is reserved"),
    "id": ("acme", "invoice.paid", "{}", "", "id: must be"),
    "NUL": ("acme", "invoice.paid", '{"a": "\\u0000"}', None, "data: "),
    "half a pair": ("acme", "invoice.paid", '"\\ud800"', None, "data: "),
    "twice": ("acme", "invoice.paid", '{"a": 1, "a": 2}', None, "repeated"),
    "number": ("acme", "invoice.paid", "1e999", None, "64 bits"),
    "digits": ("acme", "invoice.paid", "1" * 5000, None, "64 bits"),
    "deep": ("acme", "invoice.paid", "[" * 500 + "]" * 500, None, "deep"),
    "large": ("acme", "invoice.paid", json.dumps("x" * MAX_DATA), None, "at most"),
}


@pytest.mark.parametrize("row", BAD.values(), ids=BAD.keys())
def test_a_bad_row_is_marked_with_why_and_left_alone(
    store: Store, account: str, backend: Postgres, database: Database, row: tuple[str, str, str, str | None, str]
) -> None:
    gatepost.publish(database, account="acme", type="invoice.paid", data="before")
    database.execute("INSERT INTO gatepost_outbox (account, type, data, id) VALUES (%s, %s, %s, %s)", row[:4])
    gatepost.publish(database, account="acme", type="invoice.paid", data="after")
    database.commit()
    done = move_all(store)
    assert (sum(each.published for each in done), sum(len(each.refused) for each in done)) == (2, 1)
    assert [each["data"] for each in recorded(store, account)] == ["before", "after"]
    [(_, _, _, why)] = waiting(backend)
    assert row[4] in why


def test_refused_rows_are_counted(store: Store, account: str, database: Database) -> None:
    def count() -> float:
        return next(sample.value for family in OUTBOX_REFUSED.collect() for sample in family.samples)

    before = count()
    for name in ("nobody", "acme", "nobody"):
        gatepost.publish(database, account=name, type="invoice.paid", data=1)
    database.commit()
    asyncio.run(worker_chores.publish_outbox(store))
    assert count() - before == 2
    assert store.read_now(lambda tx: outbox_rows.count_refused(tx, 10)) == 2
    assert store.read_now(lambda tx: outbox_rows.count_refused(tx, 1)) == 1


def test_a_conflict_is_marked_and_the_first_stands(
    store: Store, account: str, backend: Postgres, database: Database
) -> None:
    gatepost.publish(database, account="acme", type="invoice.paid", data=1, id="a")
    gatepost.publish(database, account="acme", type="invoice.paid", data=2, id="a")
    database.commit()
    [first, last] = move_all(store)
    assert (first.published, len(first.refused), last) == (1, 1, OutboxSlice(0, []))
    assert [each["data"] for each in recorded(store, account)] == [1]
    assert "published before" in waiting(backend)[0][3]


def test_a_row_put_right_by_hand_is_moved(store: Store, account: str, backend: Postgres, database: Database) -> None:
    database.execute("INSERT INTO gatepost_outbox (account, type, data) VALUES ('nobody', 'invoice.paid', '1')")
    database.commit()
    move_all(store)
    backend.execute("UPDATE gatepost_outbox SET account = 'acme', refused = NULL")
    assert move(store) == OutboxSlice(1, [])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"account": ""}, "account"),
        ({"account": None}, "account"),
        ({"type": "Invoice"}, "type: must be"),
        ({"type": "webhook.delivery.failed"}, "is reserved"),
        ({"data": "a\0b"}, "data: "),
        ({"data": {"a": float("nan")}}, "data: must be representable as JSON"),
        ({"data": datetime(2026, 11, 15, tzinfo=UTC)}, "data: must be representable as JSON"),
        ({"id": ""}, "id: must be"),
        ({"data": 1 << 70}, "data: "),
        ({"data": {1, 2}}, "data: must be representable as JSON"),
        ({"data": "x" * MAX_DATA}, "data: at most"),
        ({"id": 7}, "id: must be"),
    ],
)
def test_a_mistake_shows_at_the_caller(database: Database, changes: dict[str, Any], words: str) -> None:
    """And leaves the caller's transaction as it was."""
    row: dict[str, Any] = {"account": "acme", "type": "invoice.paid", "data": {}, "id": None} | changes
    with pytest.raises(ValueError, match=words):
        gatepost.publish(database, **row)
    assert database.execute("SELECT count(*) FROM gatepost_outbox").fetchall() == [(0,)]


def test_sqlite_has_no_outbox_and_says_nothing_of_it(tmp_path: Path, watch: FakeClock) -> None:
    store = SqliteStore(tmp_path / "gatepost.db", watch, create_deliveries)
    try:
        store.migrate()
        store.run_now(lambda tx: account_rows.add(tx, accounts.new("acme", watch())))
        assert move(store) == OutboxSlice(0, [])
    finally:
        store.close()
