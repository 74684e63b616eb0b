"""A unit of work is atomic, returns after its commit, and does not affect other units."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gatepost.accounts import server_keys
from gatepost.core import ids
from gatepost.core.errors import Refusal, Unavailable
from gatepost.ledger import entry_rows, seal_rows
from gatepost.ledger.entries import Entry
from gatepost.ledger.record import append_entry
from gatepost.oauth import client_rows, scope_rows
from gatepost.store import work
from gatepost.store.interface import Store
from gatepost.store.pending import Again
from gatepost.store.transaction import APPEND_ONLY, Hints, Tx, Unit
from tests.contract import make, parallel

both_ways = pytest.mark.parametrize("records_only", [False, True], ids=["writing", "recording"])


class Failed(Exception):
    """What the units of these tests raise."""


def recording(account: str, subject: str) -> Unit[str]:
    return lambda tx: make.record(tx, account, subject).subject


def writing(account: str, name: str, then: Callable[[], None] = lambda: None) -> Unit[str]:
    """Writes a scope and an entry about it."""

    def unit(tx: Tx) -> str:
        make.scope(tx, account, name)
        make.record(tx, account, name)
        then()
        return name

    return unit


def fail() -> None:
    raise Failed


def written(store: Store, account: str) -> tuple[list[str], list[str]]:
    """The names of all scopes and the subjects of all entries."""
    return store.read_now(
        lambda tx: (
            [scope.name for scope in scope_rows.page(tx, account, "", 10_000)],
            sorted(make.subjects(tx, account)),
        )
    )


# --- whole


@both_ways
def test_what_a_unit_returned_is_in_the_database(
    store: Store, other: Store, account: str, *, records_only: bool
) -> None:
    [name] = parallel.run(store, [writing(account, "one")], hints=Hints(append_only=records_only))
    assert name == "one"
    assert written(other, account) == (["one"], ["one"])


def test_a_plain_thread_may_run_a_unit(store: Store, other: Store, account: str) -> None:
    assert store.run_now(writing(account, "one")) == "one"
    assert written(other, account) == (["one"], ["one"])


def test_a_refusal_is_a_value_and_commits(store: Store, other: Store, account: str) -> None:
    def unit(tx: Tx) -> Refusal:
        make.scope(tx, account, "alarm")
        make.record(tx, account, "alarm")
        return Refusal("invalid_grant", "the token was used before")

    [refused] = parallel.run(store, [unit])
    assert refused == Refusal("invalid_grant", "the token was used before")
    assert written(other, account) == (["alarm"], ["alarm"])


def test_entries_wait_for_their_seal(store: Store, account: str) -> None:
    parallel.run(store, [recording(account, str(number)) for number in range(50)], hints=APPEND_ONLY)
    waiting, counted = store.read_now(
        lambda tx: (seal_rows.unsealed(tx, [account], 100)[account], seal_rows.count_unsealed(tx, account))
    )
    assert len(set(waiting)) == counted == 50


# --- or nothing


@both_ways
def test_a_unit_that_raises_writes_nothing(store: Store, other: Store, account: str, *, records_only: bool) -> None:
    [failed] = parallel.run(store, [writing(account, "one", fail)], hints=Hints(append_only=records_only))
    assert isinstance(failed, Failed)
    with pytest.raises(Failed):
        store.run_now(writing(account, "one", fail))
    assert written(other, account) == ([], [])


@both_ways
def test_units_that_raise_leave_the_others_of_their_commit_alone(
    store: Store, account: str, *, records_only: bool
) -> None:
    names = [f"{number:03}" for number in range(200)]
    units = [writing(account, name, fail if number % 2 else lambda: None) for number, name in enumerate(names)]
    outcomes = parallel.run_in_one_batch(store, units, hints=Hints(append_only=records_only))
    assert [type(outcome) for outcome in outcomes] == [str, Failed] * 100
    assert written(store, account) == (names[::2], names[::2])


def test_units_that_only_record_and_raise_leave_no_entry(store: Store, account: str) -> None:
    def unit(tx: Tx) -> None:
        make.record(tx, account, "gone")
        raise Failed

    units = [unit if number % 2 else recording(account, str(number)) for number in range(100)]
    outcomes = parallel.run_in_one_batch(store, units, hints=APPEND_ONLY)
    assert len(parallel.failures(outcomes)) == 50
    assert "gone" not in written(store, account)[1]
    assert len(written(store, account)[1]) == 50


def _no_subject(tx: Tx, account: str) -> None:
    append_entry(tx, make.record(tx, account)._replace(id=ids.new_raw(), subject=None))  # type: ignore[arg-type]


def _same_id_twice(tx: Tx, account: str) -> None:
    append_entry(tx, make.record(tx, account)._replace(subject="twin"))


def _id_of_another(tx: Tx, account: str) -> None:
    make.record(tx, account, raw_id=entry_rows.oldest(tx, account, b"\0" * 16, b"\xff" * 16, 1)[0].id)


def _half_a_character(tx: Tx, account: str) -> None:
    make.record(tx, account, subject="\ud800", data=1)


def _lookup_of_half_a_character(tx: Tx, account: str) -> None:
    scope_rows.load(tx, account, "\ud800")


def _wrong_type(tx: Tx, account: str) -> None:
    server_keys.add(tx, "one", object())  # type: ignore[arg-type]


def _no_such_account(tx: Tx, _account: str) -> None:
    make.client(tx, ids.new("acc"))


@both_ways
@pytest.mark.parametrize(
    "bad",
    [
        _no_subject,
        _same_id_twice,
        _id_of_another,
        _half_a_character,
        _lookup_of_half_a_character,
        _wrong_type,
        _no_such_account,
    ],
)
def test_what_no_database_takes_is_the_trouble_of_its_unit_alone(
    store: Store, account: str, bad: Callable[[Tx, str], None], *, records_only: bool
) -> None:
    store.run_now(recording(account, "first"))
    units: list[Unit[Any]] = [recording(account, str(number)) for number in range(20)]
    units.insert(10, lambda tx: bad(tx, account))
    outcomes = parallel.run_in_one_batch(store, units, hints=Hints(append_only=records_only))
    assert outcomes[:10] + outcomes[11:] == [str(number) for number in range(20)]
    assert isinstance(outcomes[10], Exception)
    assert not isinstance(outcomes[10], Unavailable)  # it would fail again, so the caller should not retry
    assert sorted(written(store, account)[1]) == sorted(["first", *map(str, range(20))])


@both_ways
def test_two_units_that_record_the_same_id_share_a_commit(store: Store, account: str, *, records_only: bool) -> None:
    """The second runs again and sees what the first did: how a publisher's own event id is kept once."""
    raw_id = ids.new_raw()

    def unit(tx: Tx) -> str:
        if entry_rows.load(tx, account, raw_id):
            return "known"
        make.record(tx, account, "once", raw_id=raw_id)
        return "new"

    outcomes = parallel.run_in_one_batch(store, [unit] * 10, hints=Hints(append_only=records_only))
    assert sorted(outcomes) == ["known"] * 9 + ["new"]
    assert written(store, account)[1] == ["once"]


# --- again


@both_ways
def test_a_unit_runs_again_when_another_was_first(store: Store, account: str, *, records_only: bool) -> None:
    runs: list[Any] = []

    def unit(tx: Tx) -> int:
        runs.append(make.record(tx, account, str(len(runs))))
        make.scope(tx, account, "once")
        if len(runs) < 3:
            raise Again("not yet")
        return len(runs)

    outcomes = parallel.run_in_one_batch(store, [recording(account, "a"), unit], hints=Hints(append_only=records_only))
    assert outcomes == ["a", len(runs)]
    assert written(store, account) == (["once"], [str(len(runs) - 1), "a"])


@both_ways
def test_a_unit_that_always_asks_to_run_again_gets_an_error(store: Store, account: str, *, records_only: bool) -> None:
    def unit(tx: Tx) -> None:
        make.record(tx, account, "never")
        raise Again("for ever")

    outcomes = parallel.run_in_one_batch(store, [recording(account, "a"), unit], hints=Hints(append_only=records_only))
    assert outcomes[0] == "a"
    assert isinstance(outcomes[1], Again)
    assert written(store, account)[1] == ["a"]


# --- reading


def _writes(tx: Tx, account: str) -> None:
    make.scope(tx, account, "one")


def _records(tx: Tx, account: str) -> None:
    make.record(tx, account, "one")


@pytest.mark.parametrize("forbidden", [_writes, _records])
def test_a_reading_unit_writes_nothing(store: Store, account: str, forbidden: Callable[[Tx, str], None]) -> None:
    with pytest.raises(TypeError, match="must not write"):
        store.read_now(lambda tx: forbidden(tx, account))
    with pytest.raises(TypeError, match="must not write"):
        asyncio.run(store.read(lambda tx: forbidden(tx, account)))
    assert written(store, account) == ([], [])


def test_a_reading_unit_sees_one_instant(store: Store, other: Store, account: str) -> None:
    def unit(tx: Tx) -> tuple[int, int]:
        before = entry_rows.count(tx, account)
        parallel.in_threads([lambda: other.run_now(recording(account, "meanwhile"))])
        return before, entry_rows.count(tx, account)

    assert store.read_now(unit) == (0, 0)
    assert store.read_now(lambda tx: entry_rows.count(tx, account)) == 1


# --- callers


@both_ways
def test_every_caller_gets_a_result_if_one_unit_raises(store: Store, account: str, *, records_only: bool) -> None:
    """A future takes no StopIteration; the callers that share its commit must not wait for ever because of it."""

    def unit(tx: Tx) -> None:
        next(iter(client_rows.page(tx, account, b"", 1)))

    def leave(tx: Tx) -> None:
        entry_rows.count(tx, account)
        raise SystemExit

    units: list[Unit[Any]] = [unit, leave, *[recording(account, str(number)) for number in range(10)]]
    outcomes = parallel.run_in_one_batch(store, units, hints=Hints(append_only=records_only))
    assert outcomes[2:] == [str(number) for number in range(10)]
    assert all(isinstance(outcome, RuntimeError) for outcome in outcomes[:2])


@both_ways
def test_an_early_result_is_used_once_and_a_failure_does_not_count(
    store: Store, other: Store, account: str, *, records_only: bool
) -> None:
    parallel.run(store, [recording(account, "before")], APPEND_ONLY)  # so that the cache has what a unit needs
    seen = []

    def fail_after_looking(subject: str) -> None:
        seen.append(subject)
        raise Failed

    hints = Hints(append_only=records_only, on_early_result=fail_after_looking)
    assert parallel.run(store, [recording(account, "one")], hints) == ["one"]
    assert seen == (["one"] if records_only or store.dialect == "sqlite" else [])
    assert written(other, account) == ([], ["before", "one"])


@pytest.mark.parametrize("change", [lambda tx: tx.change("a definition"), Tx.end], ids=["changed", "ended"])
def test_a_precomputed_result_does_not_count_after_a_change(
    store: Store, other: Store, account: str, change: Unit[None]
) -> None:
    [before] = parallel.run(store, [lambda tx: make.record(tx, account, "before")], APPEND_ONLY)
    made: list[Entry] = []

    def unit(tx: Tx) -> Entry:
        made.append(make.record(tx, account, "one"))
        if len(made) == 1:
            other.run_now(change)
        return made[-1]

    [entry] = parallel.run(store, [unit], APPEND_ONLY)
    assert len(made) == 2
    assert made[0].id != entry.id
    stored = store.read_now(lambda tx: entry_rows.oldest(tx, account, b"\0" * 16, b"\xff" * 16, 10))
    assert [each.id for each in stored] == [before.id, entry.id]


@both_ways
def test_a_unit_without_a_waiting_caller_is_not_run(store: Store, account: str, *, records_only: bool) -> None:
    async def story() -> None:
        busy = [parallel.Busy() for _ in range(4)]
        at_work = [asyncio.ensure_future(store.run(each)) for each in busy]
        for each in busy:
            await asyncio.to_thread(each.started.wait, 0.2)  # as many as the store has threads for
        stayed = asyncio.ensure_future(store.run(writing(account, "stayed"), hints=Hints(append_only=records_only)))
        left = asyncio.ensure_future(store.run(writing(account, "left"), hints=Hints(append_only=records_only)))
        await asyncio.sleep(0.05)  # so that it was handed over; were it later, the test would prove less
        left.cancel()
        await asyncio.sleep(0)
        for each in busy:
            each.release.set()
        await asyncio.gather(stayed, *at_work)
        assert await store.run(writing(account, "next"), hints=Hints(append_only=records_only)) == "next"

    asyncio.run(asyncio.wait_for(story(), parallel.LONG))
    assert written(store, account) == (["next", "stayed"], ["next", "stayed"])


@both_ways
def test_no_caller_waits_longer_than_patience(
    store: Store, account: str, monkeypatch: pytest.MonkeyPatch, *, records_only: bool
) -> None:
    monkeypatch.setattr(work, "PATIENCE", 0.3)
    busy = [parallel.Busy() for _ in range(4)]

    async def story() -> None:
        at_work = [asyncio.ensure_future(store.run(each, hints=Hints(append_only=records_only))) for each in busy]
        await asyncio.to_thread(busy[0].started.wait, parallel.LONG)
        for _ in range(2):  # the second comes when the store is known to be slow
            with pytest.raises(Unavailable):
                await store.run(writing(account, "impatient"), hints=Hints(append_only=records_only))
        for each in busy:
            each.release.set()
        await asyncio.gather(*at_work, return_exceptions=True)
        monkeypatch.undo()
        assert await store.run(writing(account, "next"), hints=Hints(append_only=records_only)) == "next"

    asyncio.run(asyncio.wait_for(story(), parallel.LONG))
    assert written(store, account) == (["next"], ["next"])


def test_a_plain_thread_does_not_wait_longer_either(
    store: Store, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = [parallel.Busy() for _ in range(4)]
    threads = [threading.Thread(target=store.run_now, args=(each,)) for each in busy]
    for thread in threads:
        thread.start()
    busy[0].started.wait(parallel.LONG)
    monkeypatch.setattr(work, "PATIENCE", 0.3)
    with pytest.raises(Unavailable):
        store.run_now(writing(account, "impatient"))
    monkeypatch.undo()
    for each in busy:
        each.release.set()
    for thread in threads:
        thread.join(parallel.LONG)
    assert store.run_now(writing(account, "next")) == "next"
    assert written(store, account) == (["next"], ["next"])


@both_ways
def test_a_loop_that_ends_with_units_under_way_leaves_the_store_to_the_next(
    store: Store, account: str, *, records_only: bool
) -> None:
    busy = parallel.Busy()

    async def leave() -> None:
        task = asyncio.ensure_future(store.run(busy, hints=Hints(append_only=records_only)))
        await asyncio.to_thread(busy.started.wait, parallel.LONG)
        task.cancel()

    asyncio.run(leave())
    busy.release.set()
    units = [recording(account, str(number)) for number in range(10)]
    assert parallel.run(store, units, hints=Hints(append_only=records_only)) == [str(number) for number in range(10)]


@both_ways
def test_several_loops_may_share_a_store(store: Store, account: str, *, records_only: bool) -> None:
    def one_loop(name: str) -> list[Any]:
        units = [recording(account, f"{name}{number}") for number in range(100)]
        return parallel.run(store, units, hints=Hints(append_only=records_only))

    outcomes = parallel.in_threads([lambda name=name: one_loop(name) for name in "abc"])  # type: ignore[misc]
    expected = [[f"{name}{number}" for number in range(100)] for name in "abc"]
    assert outcomes == expected
    assert sorted(written(store, account)[1]) == sorted(subject for names in expected for subject in names)


@both_ways
def test_closing_finishes_what_waits(store: Store, other: Store, account: str, *, records_only: bool) -> None:
    async def story() -> list[Any]:
        busy = parallel.Busy()
        units: list[Unit[Any]] = [busy, *[writing(account, name) for name in names]]
        given = [asyncio.ensure_future(store.run(unit, hints=Hints(append_only=records_only))) for unit in units]
        await asyncio.to_thread(busy.started.wait, parallel.LONG)
        closing = asyncio.ensure_future(asyncio.to_thread(store.close))
        await asyncio.sleep(0.05)  # so that it is closing while they wait; were it later, the test would prove less
        busy.release.set()
        await closing
        return (await asyncio.gather(*given, return_exceptions=True))[1:]

    names = [f"{number:02}" for number in range(20)]
    assert asyncio.run(asyncio.wait_for(story(), parallel.LONG)) == names
    assert written(other, account) == (names, names)
