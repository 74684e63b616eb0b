"""Dead rows that VACUUM has to leave are removed from the queue. The deliveries that wait in it stay as they are."""

import psycopg
import pytest

from gatepost.store import dead_rows
from gatepost.store.interface import Store
from gatepost.webhooks.subscriptions import Subscription
from tests.contract.backends import FakeClock, Postgres
from tests.contract.test_partitions import backend, subscription
from tests.contract.test_pruning import deliver, end
from tests.waiting import wait_until

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
    wait_until(lambda: backend.execute(count) == [(3,)], "the statistics")
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
        monkeypatch.setattr(dead_rows, "_COUNT", f"SELECT 3, {estimate}, false WHERE '{{table}}' <> ''")
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
    """Otherwise rows are not found by their keys when there are many."""
    monkeypatch.setattr(dead_rows, "LEAST", 100)
    before = queue(backend)
    assert "queue" not in store.remove_dead_rows()
    backend.execute("ANALYZE queue")
    assert backend.execute("SELECT reltuples FROM pg_class WHERE oid = 'queue'::regclass") == [(2.0,)]
    assert "queue" in store.remove_dead_rows()
    assert backend.execute("SELECT reltuples FROM pg_class WHERE oid = 'queue'::regclass") == [(-1.0,)]
    assert queue(backend) == before
