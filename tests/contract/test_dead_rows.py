"""Dead rows that VACUUM has to leave are removed from the queue. The deliveries that wait in it stay as they are."""

from threading import Event, Thread

import psycopg
import pytest

from gatepost.store import dead_rows, partition_drops, partitions
from gatepost.store.interface import Store
from gatepost.store.schema_check import Maintenance
from gatepost.store.transaction import Tx
from gatepost.webhooks.subscriptions import Subscription
from tests.contract.backends import FakeClock, Postgres
from tests.contract.test_partitions import backend, subscription
from tests.contract.test_pruning import deliver, end
from tests.waiting import LIMIT, wait_until

__all__ = ["backend", "subscription"]


@pytest.fixture
def waiting(
    backend: Postgres, store: Store, account: str, subscription: Subscription, watch: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> list[bytes]:  # fmt: skip
    """Two deliveries in a queue from which three others were deleted."""
    monkeypatch.setattr(dead_rows, "LEAST", 3)
    made = deliver(store, subscription, watch.at, count=5)
    end(store, account, made[:3])
    count = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'queue'::regclass"

    def are_counted() -> bool:
        store.run_now(lambda tx: tx.select("SELECT pg_stat_force_next_flush()", {}))  # otherwise after ten seconds
        return backend.execute(count) == [(3,)]

    wait_until(are_counted, "the statistics")
    return made[3:]


def queue(backend: Postgres) -> list[tuple[object, ...]]:
    return backend.execute("SELECT * FROM queue ORDER BY id")


def test_dead_rows_are_removed_that_an_open_transaction_could_see(
    backend: Postgres, store: Store, waiting: list[bytes]
) -> None:
    before = queue(backend)
    with psycopg.connect(backend.url) as database:
        database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        database.execute("SELECT count(*) FROM workers")
        file = backend.execute("SELECT pg_relation_filenode('queue')")
        assert "queue" in store.remove_dead_rows()
        assert backend.execute("SELECT pg_relation_filenode('queue')") != file
    assert queue(backend) == before
    assert [row[1] for row in before] == waiting


def test_few_dead_rows_are_left_to_vacuum(
    backend: Postgres, store: Store, waiting: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_rows, "LEAST", 4)
    assert "queue" not in store.remove_dead_rows()


def test_a_queue_with_many_deliveries_is_not_written_again(
    backend: Postgres, store: Store, waiting: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate of the rows may be wrong, so they are counted too."""
    before = queue(backend)
    for most, estimate in ((1, "2"), (1, "0")):
        monkeypatch.setattr(dead_rows, "MAX_KEPT", most)
        monkeypatch.setattr(dead_rows, "_COUNT", f"SELECT 3, {estimate}, false WHERE '{{table}}{{few}}' <> ''")
        assert "queue" not in store.remove_dead_rows()
    assert queue(backend) == before


def test_a_queue_that_another_transaction_reads_has_to_wait(
    backend: Postgres, store: Store, waiting: list[bytes]
) -> None:
    before = queue(backend)
    with psycopg.connect(backend.url) as database:
        database.execute("SELECT count(*) FROM queue")
        assert "queue" not in store.remove_dead_rows()
        assert queue(backend) == before
    assert "queue" in store.remove_dead_rows()


def test_a_table_that_vacuum_found_almost_empty_is_not_taken_for_empty(
    backend: Postgres, store: Store, waiting: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise rows are not found by their keys when there are many. Nothing is truncated for that."""
    monkeypatch.setattr(dead_rows, "LEAST", 100)
    before, file = queue(backend), backend.execute("SELECT pg_relation_filenode('queue')")
    expected = "SELECT reltuples FROM pg_class WHERE oid = 'queue'::regclass"
    backend.execute("ANALYZE queue")
    assert backend.execute(expected) == [(2.0,)]
    assert store.remove_dead_rows() == []
    assert backend.execute(expected) == [(2002.0,)]
    assert (queue(backend), backend.execute("SELECT pg_relation_filenode('queue')")) == (before, file)


def test_a_reader_whose_snapshot_is_older_than_the_truncation_reads_again(
    backend: Postgres, store: Store, waiting: list[bytes]
) -> None:
    """To its snapshot the table is empty."""
    results: list[list[bytes]] = []

    def read(tx: Tx) -> list[bytes]:
        if not results:
            tx.select("SELECT count(*) FROM workers", {})  # takes the snapshot
            assert "queue" in store.remove_dead_rows()
        results.append([row[0] for row in tx.select("SELECT id FROM queue ORDER BY id", {})])
        return results[-1]

    assert store.read_now(read) == waiting
    assert results == [[], waiting]


def test_nothing_is_lost_if_transactions_are_serializable_by_default(
    backend: Postgres, store: Store, waiting: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is kept that was committed while the truncation waited for its lock."""
    monkeypatch.setattr(partitions, "_BEGIN", partitions._BEGIN.replace("100ms", "60s").replace("'8s'", "'60s'"))
    name = backend.execute("SELECT current_database()")[0][0]
    backend.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    copied = b"copied"

    def truncate() -> None:
        assert "queue" in store.remove_dead_rows()

    with psycopg.connect(backend.url) as database:
        database.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        columns = "account, endpoint, event, lane, due, planned_at, because, number, used, interrupted"
        text = f"INSERT INTO queue (id, {columns}) SELECT %s, {columns} FROM queue WHERE id = %s"
        database.execute(text, (copied, waiting[0]))
        thread = Thread(target=truncate)
        thread.start()
        locks = "SELECT 1 FROM pg_locks WHERE relation = 'queue'::regclass AND NOT granted"
        wait_until(lambda: backend.execute(locks) != [] or not thread.is_alive(), "the lock")
        database.commit()
        thread.join()
    assert [row[1] for row in queue(backend)] == sorted([copied, *waiting])


def test_a_dump_is_not_disturbed(backend: Postgres, store: Store, waiting: list[bytes]) -> None:
    before = queue(backend)
    with psycopg.connect(backend.url, application_name="pg_dump") as dump:
        assert "queue" not in store.remove_dead_rows()
        assert dump.execute("SELECT * FROM queue ORDER BY id").fetchall() == before
    wait_until(lambda: "queue" in store.remove_dead_rows(), "the end of the dump's connection")
    assert queue(backend) == before


def test_a_role_that_may_not_create_temporary_tables(backend: Postgres, store: Store, waiting: list[bytes]) -> None:
    privileges = dead_rows._MAY_TRUNCATE
    assert backend.execute(privileges.format(table="queue")) == [(True,)]
    backend.execute("CREATE ROLE without_temporary_tables")
    try:
        text = privileges.replace("has_database_privilege(", "has_database_privilege('without_temporary_tables', ")
        name = backend.execute("SELECT current_database()")[0][0]
        backend.execute(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dead_rows, "_MAY_TRUNCATE", text)
            assert store.remove_dead_rows() == []
    finally:
        backend.execute("DROP ROLE without_temporary_tables")


def test_dead_rows_do_not_wait_for_the_maintenance_of_partitions(
    backend: Postgres, store: Store, waiting: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can take so long that the chore would count as stuck."""
    begun, end = Event(), Event()

    def maintain(*_: object) -> Maintenance:
        begun.set()
        assert end.wait(LIMIT)
        return Maintenance([], [], {})

    monkeypatch.setattr(partition_drops, "maintain", maintain)
    thread = Thread(target=store.maintain_partitions)
    thread.start()
    try:
        assert begun.wait(LIMIT)
        assert store.remove_dead_rows() == []
    finally:
        end.set()
        thread.join()
    assert "queue" in store.remove_dead_rows()
