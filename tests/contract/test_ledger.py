"""The ledger in the store: its order, its pages, its retention, and what verification makes of all that."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.ledger import entries, entry_rows, retention, seal, seal_rows, sealing, search, verification
from gatepost.ledger.entries import MAX_DATA, Entry
from gatepost.ledger.seal import Head
from gatepost.ledger.search import EntryFilter
from gatepost.oauth import client_rows, scope_rows
from gatepost.store.interface import Store
from gatepost.store.transaction import HIGHEST, LOWEST, Hints, Tx
from tests.contract import make, parallel
from tests.contract.backends import Backend, FakeClock

KEY = b"k" * 32


def seal_all(store: Store, account: str) -> None:
    while store.run_now(lambda tx: sealing.seal_batch(tx, KEY, account)):
        pass


def prune_all(store: Store, account: str) -> None:
    while store.run_now(lambda tx: retention.prune_batch(tx, KEY, account)).examined:
        pass


def record(store: Store, account: str, count: int, keep_days: int = 30) -> list[Entry]:
    return store.run_now(
        lambda tx: [make.record(tx, account, str(number), keep_days=keep_days) for number in range(count)]
    )


def left(store: Store, account: str) -> list[Entry]:
    return store.read_now(lambda tx: entry_rows.oldest(tx, account, LOWEST, HIGHEST, 10_000))


# --- what is kept


def test_an_entry_comes_back_as_it_was(store: Store, account: str) -> None:
    text = 'a "quoted" \\ line\nwith ünïcödé, 雪 and 🜁'

    def unit(tx: Tx) -> Entry:
        return make.record(tx, account, text, one=text, none=None, number=-(2**63), half=0.5, deep=[{"a": []}])

    made = store.run_now(unit)
    found = store.read_now(lambda tx: entry_rows.load(tx, account, made.id))
    assert found == made
    assert entries.render(made)["data"]["one"] == text


@pytest.mark.parametrize("records_only", [False, True], ids=["writing", "recording"])
def test_data_may_be_large(store: Store, account: str, *, records_only: bool) -> None:
    large = "x" * (MAX_DATA - len('{"large":""}'))
    units = [lambda tx, number=number: make.record(tx, account, str(number), large=large) for number in range(20)]
    made = parallel.run(store, units, hints=Hints(append_only=records_only))
    assert [len(entry.data or "") for entry in left(store, account)] == [MAX_DATA] * 20
    assert {entry.id for entry in left(store, account)} == {entry.id for entry in made}
    seal_all(store, account)
    assert verification.verify(store, KEY, account).problem == ""


def test_entries_of_another_account_do_not_exist(store: Store, account: str, watch: FakeClock) -> None:
    other = accounts.new("other", watch())
    store.run_now(lambda tx: account_rows.add(tx, other))
    [made] = record(store, account, 1)
    assert store.read_now(lambda tx: entry_rows.load(tx, other.id, made.id)) is None
    assert list(search.oldest(store, other.id, EntryFilter())) == []
    assert store.read_now(seal_rows.unsealed_accounts) == [account]
    record(store, other.id, 1)
    assert store.read_now(seal_rows.unsealed_accounts) == sorted([account, other.id])


# --- order and pages


def test_ids_sort_by_time_as_bytes_and_as_text(store: Store, account: str) -> None:
    made = [record(store, account, 3) for _ in range(50)]
    names = [entry.name for batch in made for entry in batch]
    assert names == sorted(names)
    assert [entry.name for entry in left(store, account)] == names


def test_reading_goes_page_by_page_from_either_end(store: Store, account: str) -> None:
    names = [entry.name for _ in range(12) for entry in record(store, account, 100)]
    assert [entry.name for entry in search.oldest(store, account, EntryFilter())] == names
    assert [entry.name for entry in search.newest(store, account, EntryFilter(), 2000)] == names[::-1]
    assert [entry.name for entry in search.newest(store, account, EntryFilter(), 700)] == names[:-701:-1]
    assert [entry.name for entry in search.newest(store, account, EntryFilter(subject="7"), 3)] == names[-93::-100][:3]
    assert list(search.newest(store, account, EntryFilter(types=("invoice.*",), actor="nobody"), 10)) == []
    assert len(list(search.oldest(store, account, EntryFilter(types=("invoice.*",))))) == 1200


@pytest.mark.parametrize("skew", [timedelta(0), timedelta(minutes=-10), timedelta(minutes=10)], ids=str)
def test_reading_has_a_beginning_and_an_end(store: Store, account: str, watch: FakeClock, skew: timedelta) -> None:
    """Entries are selected by their time, even if the clock of the machine that created the ids was wrong."""
    instants = [watch() + timedelta(seconds=number) for number in range(10)]

    def recorded(tx: Tx) -> None:
        for number, at in enumerate(instants):
            raw_id = ids.lowest_at(clock.milliseconds(at + skew))[:6] + ids.new_raw()[6:]
            make.record(tx, account, str(number), raw_id=raw_id)
            rows = tx.pending.appended["insert_entries"]
            rows[-1] = (*rows[-1][:3], clock.milliseconds(at), *rows[-1][4:])

    store.run_now(recorded)
    wanted = EntryFilter(since=instants[3], until=instants[6])
    assert [entry.subject for entry in search.oldest(store, account, wanted)] == ["3", "4", "5"]
    assert [entry.subject for entry in search.newest(store, account, wanted, 10)] == ["5", "4", "3"]


@pytest.mark.parametrize("wanted", [EntryFilter(since=datetime.min.replace(tzinfo=UTC)),
                                    EntryFilter(until=datetime.max.replace(tzinfo=UTC))])  # fmt: skip
def test_reading_from_one_end_of_the_calendar(store: Store, account: str, wanted: EntryFilter) -> None:
    [made] = record(store, account, 1)
    assert list(search.oldest(store, account, wanted)) == list(search.newest(store, account, wanted, 2)) == [made]


def test_lists_go_page_by_page(store: Store, account: str, watch: FakeClock) -> None:
    names = sorted(f"a{number}" for number in range(25))
    store.run_now(lambda tx: [account_rows.add(tx, accounts.new(name, watch())) for name in names])
    store.run_now(lambda tx: [make.scope(tx, account, name) for name in names])
    clients = sorted(store.run_now(lambda tx: [make.client(tx, account).id for _ in names]))

    def pages(page: Callable[[Tx, str], list[str]]) -> list[str]:
        found: list[str] = []
        while part := store.read_now(lambda tx, after=found[-1] if found else "": page(tx, after)):  # type: ignore[misc]
            assert len(part) <= 10
            found += part
        return found

    assert pages(lambda tx, after: [each.name for each in account_rows.page(tx, after, 10)]) == sorted([*names, "acme"])
    assert pages(lambda tx, after: [each.name for each in scope_rows.page(tx, account, after, 10)]) == names
    assert (
        pages(
            lambda tx, after: [each.id for each in client_rows.page(tx, account, ids.raw(after) if after else b"", 10)]
        )
        == clients
    )
    assert store.read_now(lambda tx: (scope_rows.count(tx, account), client_rows.count(tx, account))) == (25, 25)


# --- retention


def test_entries_go_when_their_time_is_over_and_not_before(store: Store, account: str, watch: FakeClock) -> None:
    made = {days: record(store, account, 5, days) for days in (7, 30, 90, 400, 2555)}
    seal_all(store, account)
    for days, those in made.items():
        watch.at = ids.made_at(those[0].id) + timedelta(days=days, milliseconds=-1)
        prune_all(store, account)
        assert set(those) <= set(left(store, account))
        assert verification.verify(store, KEY, account).problem == ""
        watch.at = ids.made_at(those[-1].id) + timedelta(days=days, milliseconds=1)
        prune_all(store, account)
        expected = [entry for longer, others in made.items() if longer > days for entry in others]
        assert left(store, account) == expected
        verdict = verification.verify(store, KEY, account)
        assert verdict.problem == ""
        assert verdict.entries == len(expected)
    assert store.read_now(lambda tx: seal_rows.page(tx, account, 0, 10)) == []


def test_seals_go_only_from_the_start_and_leave_an_anchor(store: Store, account: str, watch: FakeClock) -> None:
    for days in (7, 7, 400, 7):
        record(store, account, 5, days)
        seal_all(store, account)
    third = store.read_now(lambda tx: seal_rows.page(tx, account, 2, 1))[0]
    watch.forward(timedelta(days=8))
    prune_all(store, account)
    seals, anchor = store.read_now(lambda tx: (seal_rows.page(tx, account, 0, 10), seal_rows.anchor(tx, account)))
    assert [each.number for each in seals] == [3, 4]
    assert seals[0] == third
    assert anchor == seal.anchor(KEY, account, anchor) if anchor else False
    assert anchor is not None
    assert anchor.number == 2
    verdict = verification.verify(store, KEY, account)
    assert (verdict.problem, verdict.seals, verdict.entries, verdict.pruned) == ("", 2, 5, 5)


def test_the_chain_goes_on_after_everything_was_pruned(store: Store, account: str, watch: FakeClock) -> None:
    record(store, account, 450, 7)
    seal_all(store, account)
    head = verification.verify(store, KEY, account).head
    watch.forward(timedelta(days=8))
    prune_all(store, account)
    verdict = verification.verify(store, KEY, account, head)
    assert (verdict.problem, verdict.seals, verdict.head) == ("", 0, head)
    record(store, account, 5, 30)
    seal_all(store, account)
    verdict = verification.verify(store, KEY, account, head)
    assert (verdict.problem, verdict.seals, verdict.head.number) == ("", 1, head.number + 1)
    assert "rewritten" in verification.verify(store, KEY, account, Head(head.number, b"x" * 32)).problem


def test_pruning_goes_in_slices(store: Store, account: str, watch: FakeClock) -> None:
    for _ in range(3):
        record(store, account, 150, 7)
        seal_all(store, account)
    assert not store.read_now(lambda tx: retention.is_due(tx, KEY, account))
    watch.forward(timedelta(days=8))
    slices = []
    while store.read_now(lambda tx: retention.is_due(tx, KEY, account)):
        slices.append(store.run_now(lambda tx: retention.prune_batch(tx, KEY, account)).examined)
        assert verification.verify(store, KEY, account).problem == ""
    assert slices == [200, 200, 50, 1, 1, 1]
    assert store.run_now(lambda tx: retention.prune_batch(tx, KEY, account)).examined == 0


def test_what_was_pruned_before_any_sealer_came_is_not_missed(store: Store, account: str, watch: FakeClock) -> None:
    """The service was down for longer than its shortest retention."""
    record(store, account, 5, 7)
    [kept] = record(store, account, 1, 30)
    watch.forward(timedelta(days=8))
    prune_all(store, account)
    assert left(store, account) == [kept]
    assert store.read_now(lambda tx: seal_rows.count_unsealed(tx, account)) == 1
    assert verification.verify(store, KEY, account).problem == ""
    seal_all(store, account)
    assert store.read_now(seal_rows.oldest_unsealed) is None
    assert verification.verify(store, KEY, account).problem == ""


def test_an_entry_with_an_old_id_goes_at_the_latest_with_its_seal(store: Store, account: str, watch: FakeClock) -> None:
    """A machine whose clock was wrong for a moment."""
    record(store, account, 5, 7)
    seal_all(store, account)
    watch.forward(timedelta(days=8))
    prune_all(store, account)
    old = bytes(6) + ids.new_raw()[6:]
    store.run_now(lambda tx: make.record(tx, account, "old", keep_days=7, raw_id=old))
    seal_all(store, account)
    prune_all(store, account)
    assert left(store, account) == []
    assert verification.verify(store, KEY, account).problem == ""


# --- erasing


def test_erased_data_is_reported(store: Store, backend: Backend, account: str) -> None:
    """The chain stays valid, so a later release can erase data. No release does so yet."""
    made = record(store, account, 10)
    erased, unsealed = made[3], record(store, account, 1)[0]
    for entry in (erased, unsealed):
        make.erase_data(backend, entry, entries.data_hash(entry))
        seal_all(store, account)
    found = store.read_now(lambda tx: entry_rows.load(tx, account, erased.id))
    assert found is not None
    assert (found.data, found.data_hash) == (None, hashlib.sha256((erased.data or "").encode()).digest())
    verdict = verification.verify(store, KEY, account)
    assert verdict.entries == 11
    assert verdict.problem == f"data was erased, but not by the service: {erased.name}, {unsealed.name}"


def test_data_erased_with_a_false_hash_does_not_verify(store: Store, backend: Backend, account: str) -> None:
    made = record(store, account, 10)
    seal_all(store, account)
    make.erase_data(backend, made[3], hashlib.sha256(b"other").digest())
    assert made[3].name in verification.verify(store, KEY, account).problem


def test_documents_keep_their_types(store: Store, account: str, watch: FakeClock) -> None:
    """What is stored as JSON comes back equal: instants, bytes, lists."""
    made = store.run_now(lambda tx: make.client(tx, account, metadata={"a": "b"}, redirect_uris=["https://a.example"]))
    assert store.read_now(lambda tx: client_rows.load(tx, made.id)) == made
    scope = store.run_now(lambda tx: make.scope(tx, account, "read", claims=["email"]))
    assert store.read_now(lambda tx: scope_rows.load(tx, account, "read")) == scope
    changed = msgspec.structs.replace(made, updated_at=watch() + timedelta(milliseconds=1))
    store.run_now(lambda tx: client_rows.update(tx, changed))
    assert store.read_now(lambda tx: client_rows.load(tx, made.id)) == changed
