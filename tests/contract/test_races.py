"""The write decides the race: between the units of one store, and between two stores on one database."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.ledger import entry_rows, idempotency, retention, seal, seal_rows, sealing, verification
from gatepost.oauth import client_rows, expiry, scope_rows, used_assertions
from gatepost.store.interface import Store
from gatepost.store.transaction import APPEND_ONLY, Tx, Unit
from tests.contract import make, parallel
from tests.contract.backends import FakeClock, Postgres, closing_stores

KEY = b"k" * 32


# --- single use


def test_an_assertion_is_used_once(store: Store, other: Store, account: str, watch: FakeClock) -> None:
    client = store.run_now(lambda tx: make.client(tx, account))
    expires = watch() + timedelta(minutes=5)
    outcomes = parallel.run(
        [store, other], [lambda tx: used_assertions.use(tx, client.id, "kind", "jti", expires)] * 50
    )
    assert sorted(outcomes) == [False] * 49 + [True]
    assert store.run_now(lambda tx: used_assertions.use(tx, client.id, "kind", "another", expires))


def test_an_id_of_one_kind_or_client_is_no_other(store: Store, account: str, watch: FakeClock) -> None:
    """The use of an id of one kind or client does not use the same id of another kind or client."""
    client, another = (store.run_now(lambda tx: make.client(tx, account)) for _ in range(2))
    expires = watch() + timedelta(minutes=5)
    uses = [
        (whose, kind, used)
        for whose in (client.id, another.id, account)
        for kind, used in (("kind", "jti"), ("kin", "djti"), ("", "kindjti"), ("kindjti", ""), ("kind", "JTI"))
    ]
    for expected in (True, False):
        outcomes = store.run_now(lambda tx: [used_assertions.use(tx, *use, expires) for use in uses])
        assert outcomes == [expected] * len(uses)


def test_an_assertion_is_forgotten_only_when_it_has_expired(store: Store, account: str, watch: FakeClock) -> None:
    client = store.run_now(lambda tx: make.client(tx, account))
    expires = watch() + timedelta(minutes=5)

    def use(tx: Tx) -> bool:
        return used_assertions.use(tx, client.id, "kind", "jti", expires)

    assert store.run_now(use)
    watch.forward(timedelta(minutes=5))
    store.run_now(expiry.delete_expired)
    assert not store.run_now(use)
    watch.forward(timedelta(milliseconds=1))
    store.run_now(expiry.delete_expired)
    assert store.run_now(use)


def test_a_resource_belongs_to_the_first(store: Store, other: Store, watch: FakeClock) -> None:
    ours, theirs = (accounts.new(name, watch()) for name in ("ours", "theirs"))
    store.run_now(lambda tx: [account_rows.add(tx, each) for each in (ours, theirs)])

    def claiming(account: str) -> Callable[[Tx], tuple[str, bool]]:
        return lambda tx: (account, scope_rows.claim_resource(tx, "https://api.example", account))

    outcomes = parallel.run([store, other], [claiming(each.id) for each in (ours, theirs)] * 20)
    owner = store.read_now(lambda tx: scope_rows.resource_owner(tx, "https://api.example"))
    assert owner in (ours.id, theirs.id)
    assert set(outcomes) == {(each.id, each.id == owner) for each in (ours, theirs)}


def test_a_name_is_given_once(store: Store, other: Store, watch: FakeClock) -> None:
    outcomes = parallel.run(
        [store, other], [lambda tx: account_rows.add(tx, accounts.new("acme", watch())) for _ in range(30)]
    )
    assert sorted(outcomes) == [False] * 29 + [True]
    assert len(store.read_now(lambda tx: account_rows.page(tx, "", 10))) == 1


def test_an_answer_is_kept_once(store: Store, other: Store, account: str, watch: FakeClock) -> None:
    def answering(number: int) -> Callable[[Tx], str]:
        def unit(tx: Tx) -> str:
            kept = idempotency.find(tx, account, "cli_1", "oauth.client", b"key")
            if kept is not None:
                return kept[2]
            make.record(tx, account, str(number))
            idempotency.keep(tx, account, "cli_1", "oauth.client", b"key", b"body", 201, str(number))
            return str(number)

        return unit

    outcomes = parallel.run([store, other], [answering(number) for number in range(30)])
    assert len(set(outcomes)) == 1
    assert store.read_now(lambda tx: make.subjects(tx, account)) == outcomes[:1]
    watch.forward(timedelta(hours=24))
    assert store.run_now(answering(99)) == "99"


def test_a_limit_holds(store: Store, other: Store, account: str) -> None:
    def unit(tx: Tx) -> bool:
        account_rows.lock(tx, account)
        if client_rows.count(tx, account) >= 5:
            return False
        make.client(tx, account)
        return True

    outcomes = parallel.run([store, other], [unit] * 30)
    assert sorted(outcomes) == [False] * 25 + [True] * 5


def test_the_last_use_of_a_secret_never_goes_back(store: Store, other: Store, account: str, watch: FakeClock) -> None:
    secret = ids.new("sec")
    times = [watch() + timedelta(minutes=number) for number in range(30)]
    units = [
        lambda tx, at=at: client_rows.mark_secret_used(tx, account, secret, at) for at in [*times[::2], *times[:0:-2]]
    ]
    assert parallel.failures(parallel.run([store, other], units)) == []
    found: Any = store.run_now(lambda tx: tx.one("secret_used", account=ids.raw(account), id=ids.raw(secret)))
    assert found[0] == int(times[-1].timestamp() * 1000)


# --- sealing and pruning


def test_several_sealers_make_one_chain(store: Store, other: Store, account: str) -> None:
    recording = [lambda tx, number=number: make.record(tx, account, str(number)) for number in range(1500)]

    sealed: list[int] = []

    def record() -> None:
        assert parallel.failures(parallel.run(store, recording, hints=APPEND_ONLY)) == []

    def adding(prepared: list[sealing.PreparedSeal]) -> Unit[int]:
        return lambda tx: sealing.add(tx, KEY, prepared)

    def keep_sealing(by: Store) -> None:
        while sum(sealed) < 1500:
            prepared = by.read_now(lambda tx: sealing.prepare(tx, KEY, [account])).seals
            if prepared:
                outcomes = parallel.run(by, [*[adding(prepared)] * 2, lambda tx: sealing.seal_batch(tx, KEY, account)])
                assert parallel.failures(outcomes) == []
                sealed.extend(outcomes)

    parallel.in_threads([record, lambda: keep_sealing(store), lambda: keep_sealing(other)])
    assert sum(sealed) == 1500
    seals = store.read_now(lambda tx: seal_rows.page(tx, account, 0, 10_000))
    assert [each.number for each in seals] == list(range(1, len(seals) + 1))
    leaves = [leaf.id for each in seals for leaf in seal.unpack(each.leaves)]
    assert len(leaves) == len(set(leaves)) == 1500
    verdict = verification.verify(store, KEY, account)
    assert (verdict.problem, verdict.entries, verdict.unsealed) == ("", 1500, 0)


def test_several_pruners_leave_a_whole_chain(store: Store, other: Store, account: str, watch: FakeClock) -> None:
    for number in range(40):
        store.run_now(lambda tx: [make.record(tx, account, keep_days=7) for _ in range(3)])
        store.run_now(lambda tx: sealing.seal_batch(tx, KEY, account))
        if number % 10 == 9:
            store.run_now(lambda tx: [make.record(tx, account, keep_days=90)])
    watch.forward(timedelta(days=8))
    for _ in range(12):
        outcomes = parallel.run([store, other], [lambda tx: retention.prune_batch(tx, KEY, account)] * 8)
        assert parallel.failures(outcomes) == []
        assert verification.verify(store, KEY, account).problem == ""
    assert store.read_now(lambda tx: entry_rows.count(tx, account)) == 4


def test_verifying_beside_a_service_at_work_finds_nothing_wrong(store: Store, account: str, watch: FakeClock) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            units = [lambda tx: make.record(tx, account, keep_days=7)] * 20
            parallel.run(store, units, hints=APPEND_ONLY)
            store.run_now(lambda tx: sealing.seal_batch(tx, KEY, account))
            while store.run_now(lambda tx: retention.prune_batch(tx, KEY, account)).examined:
                pass
            watch.forward(timedelta(hours=4))

    def verify() -> list[str]:
        try:
            return [verification.verify(store, KEY, account).problem for _ in range(20)]
        finally:
            stop.set()

    _, problems = parallel.in_threads([work, verify])
    assert set(problems or ()) == {""}


# --- on PostgreSQL, where transactions overlap, the worst moment is made to come


class Pause:
    """A place in a unit where the first to come there waits until others have been at work."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.over = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        self.over.wait(parallel.LONG)


def _meanwhile(store: Store, unit: Callable[[Tx], Any], pause: Pause, work: Callable[[], Any]) -> Any:
    """The outcome of the unit, with the work done while it pauses."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(store.run_now(unit)))
    thread.start()
    assert pause.reached.wait(parallel.LONG)
    work()
    pause.over.set()
    thread.join(parallel.LONG)
    return result[0]


@pytest.fixture
def pair(schema_url: str, watch: FakeClock) -> Any:
    with closing_stores(Postgres(schema_url, watch)) as backend:
        stores = [backend.open(), backend.open()]
        stores[0].migrate()
        yield stores


def _account(store: Store, watch: FakeClock, name: str = "acme") -> str:
    made = accounts.new(name, watch())
    store.run_now(lambda tx: make.account(tx, made))
    return made.id


def test_a_sealer_that_was_overtaken_seals_nothing_twice(pair: list[Store], watch: FakeClock) -> None:
    account = _account(pair[0], watch)
    pair[0].run_now(lambda tx: [make.record(tx, account, str(number)) for number in range(10)])
    pause = Pause()

    def slow(tx: Tx) -> int:
        prepared = sealing.prepare(tx, KEY, [account])
        pause()
        return sealing.add(tx, KEY, prepared.seals)

    sealed = _meanwhile(pair[0], slow, pause, lambda: pair[1].run_now(lambda tx: sealing.seal_batch(tx, KEY, account)))
    assert sealed == 0
    assert [each.number for each in pair[0].read_now(lambda tx: seal_rows.page(tx, account, 0, 10))] == [1]


def test_a_pruner_that_was_overtaken_does_not_take_the_anchor_back(pair: list[Store], watch: FakeClock) -> None:
    account = _account(pair[0], watch)
    for number in range(4):
        pair[0].run_now(lambda tx, number=number: make.record(tx, account, str(number), keep_days=7))  # type: ignore[misc]
        pair[0].run_now(lambda tx: sealing.seal_batch(tx, KEY, account))
    watch.forward(timedelta(days=8))
    assert pair[0].run_now(lambda tx: retention.prune_batch(tx, KEY, account)).examined == 4
    pause = Pause()

    def slow(tx: Tx) -> None:
        [oldest] = seal_rows.page(tx, account, 0, 1)
        pause()
        assert not seal_rows.delete_oldest(tx, account, seal.anchor(KEY, account, oldest))

    def overtake() -> None:
        for _ in range(3):
            pair[1].run_now(lambda tx: retention.prune_batch(tx, KEY, account))

    _meanwhile(pair[0], slow, pause, overtake)
    anchor = pair[0].read_now(lambda tx: seal_rows.anchor(tx, account))
    assert anchor is not None
    assert anchor.number == 3
    assert verification.verify(pair[0], KEY, account).problem == ""


def test_deadlocked_units_both_succeed(pair: list[Store], watch: FakeClock) -> None:
    one, two = _account(pair[0], watch, "one"), _account(pair[0], watch, "two")
    both, runs = threading.Barrier(2), []

    def locking(first: str, second: str) -> Callable[[Tx], str]:
        def unit(tx: Tx) -> str:
            account_rows.lock(tx, first)
            runs.append(first)
            if runs.count(first) == 1:
                both.wait(parallel.LONG)
            account_rows.lock(tx, second)
            make.record(tx, first, "done")
            return "done"

        return unit

    assert parallel.run(pair, [locking(one, two), locking(two, one)]) == ["done", "done"]
    assert len(runs) > 2
    assert [pair[0].read_now(lambda tx, each=each: entry_rows.count(tx, each)) for each in (one, two)] == [1, 1]  # type: ignore[misc]
