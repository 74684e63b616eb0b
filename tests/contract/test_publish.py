"""Publishing on every store: an id is published once, with all deliveries or not at all."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.ledger import entry_rows, retention
from gatepost.ledger import publishable as rules
from gatepost.ledger.entries import Origin
from gatepost.ledger.publishable import Event
from gatepost.store.interface import Store
from gatepost.store.transaction import APPEND_ONLY, HIGHEST, LOWEST, NO_HINTS, Hints, Tx
from gatepost.webhooks import deliveries as model
from gatepost.webhooks import delivery_rows, endpoint_rows, publish, queue_rows, subscription_rows
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.publish import Published
from gatepost.webhooks.subscriptions import Subscription
from tests.contract import parallel
from tests.contract.backends import Backend, FakeClock

ORIGIN = Origin("operator")


def an_event(type_: str = "invoice.paid", data: Any = None, given_id: str | None = None, **more: str) -> Event:
    made = rules.event(type_, {"amount": 1} if data is None else data, given_id, **more)
    assert isinstance(made, Event)
    return made


def publishing(account: str, event: Event) -> Callable[[Tx], Published | Refusal]:
    def unit(tx: Tx) -> Published | Refusal:
        found = account_rows.load(tx, account)
        assert found is not None
        return publish.publish_event(tx, found, event, ORIGIN)

    return unit


def published(store: Store, account: str, event: Event) -> Published:
    outcome = store.run_now(publishing(account, event))
    assert isinstance(outcome, Published)
    return outcome


def subscribe(store: Store, account: str, *events: str, **members: Any) -> str:
    """A subscription to an endpoint of its own."""

    def unit(tx: Tx) -> str:
        endpoint = Endpoint(ids.new("ep"), account, "https://receiver.example/hooks", tx.at, tx.at)
        made = Subscription(ids.new("sub"), account, endpoint.id, list(events), tx.at, tx.at, **members)
        endpoint_rows.add(tx, endpoint)
        subscription_rows.add(tx, made)
        return made.id

    return store.run_now(unit)


def recorded(store: Store, account: str) -> list[str]:
    found = store.read_now(lambda tx: entry_rows.oldest(tx, account, LOWEST, HIGHEST, 1000))
    return [entry.name for entry in found]


def deliveries(store: Store, account: str, event: str) -> list[str]:
    found = store.read_now(lambda tx: delivery_rows.of_event(tx, account, ids.raw(event), 1000))
    return [ids.text("dlv", each) for each in found]


# --- once


def test_without_an_id_each_is_an_event_of_its_own(store: Store, account: str) -> None:
    made = [published(store, account, an_event()) for _ in range(3)]
    assert [each.again for each in made] == [False] * 3
    assert recorded(store, account) == [each.entry.name for each in made]


def test_the_same_id_again_is_the_same_event(store: Store, account: str) -> None:
    subscribe(store, account, "invoice.*")
    first = published(store, account, an_event(given_id="a"))
    again = published(store, account, an_event(given_id="a"))
    assert (first.again, again.again) == (False, True)
    assert (again.entry, again.deliveries) == (first.entry, first.deliveries)
    assert recorded(store, account) == [first.entry.name]
    assert deliveries(store, account, first.entry.name) == first.deliveries


def test_a_repeated_answer_names_no_delivery_that_was_made_later(store: Store, account: str) -> None:
    """One that a replay or an operator made of the same event."""
    subscription = subscribe(store, account, "invoice.*")
    first = published(store, account, an_event(given_id="a"))

    def send_again(tx: Tx) -> None:
        found = subscription_rows.load(tx, account, subscription)
        assert found is not None
        for origin in ("replay", "retry"):
            to = ids.raw(subscription), ids.raw(found.endpoint)
            entry = first.entry
            made = model.new_delivery(ids.raw(account), ids.new_raw(), *to, entry.id, entry.type, 30, origin)
            delivery_rows.create(tx, [made])

    store.run_now(send_again)
    assert published(store, account, an_event(given_id="a")).deliveries == first.deliveries


@pytest.mark.parametrize(
    "other",
    [
        an_event(data={"amount": 2}, given_id="a"),
        an_event("invoice.sent", given_id="a"),
        an_event(given_id="a", subject="another"),
    ],
    ids=["data", "type", "subject"],
)
def test_the_same_id_for_something_else_is_a_conflict(store: Store, account: str, other: Event) -> None:
    first = published(store, account, an_event(given_id="a"))
    refusal = store.run_now(publishing(account, other))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.pointer) == ("conflict", "/id")
    assert recorded(store, account) == [first.entry.name]


def test_an_id_is_its_publishers_own(store: Store, account: str, watch: FakeClock) -> None:
    """Another source, or another account, may use the same."""
    other = accounts.new("other", watch())
    store.run_now(lambda tx: account_rows.add(tx, other))
    assert not published(store, account, an_event(given_id="a")).again
    assert not published(store, account, an_event(given_id="a", source="/billing", data=2)).again
    assert not published(store, other.id, an_event(given_id="a", data=3)).again
    assert published(store, account, an_event(given_id="a", source="/billing", data=2)).again


def test_an_id_lasts_as_long_as_its_entry(store: Store, account: str, watch: FakeClock) -> None:
    def prune() -> None:
        while store.run_now(lambda tx: retention.prune_batch(tx, b"k" * 32, account)).examined:
            pass

    published(store, account, an_event(given_id="a"))
    watch.forward(timedelta(days=29))
    prune()
    assert published(store, account, an_event(given_id="a")).again
    watch.forward(timedelta(days=2))
    prune()
    assert recorded(store, account) == []
    assert not published(store, account, an_event(data=2, given_id="a")).again


# --- at once


alone_or_shared = pytest.mark.parametrize("hints", [NO_HINTS, APPEND_ONLY], ids=["alone", "shared"])


def fill_cache(store: Store, account: str) -> list[str]:
    """Publish an event, so that later ones can be decided before their commit. Returns what is recorded."""
    outcome = parallel.run(store, [publishing(account, an_event(given_id="first"))], APPEND_ONLY)
    assert parallel.failures(outcome) == []
    return recorded(store, account)


@alone_or_shared
@pytest.mark.parametrize("run", [parallel.run, parallel.run_in_one_batch], ids=["at once", "in one commit"])
def test_many_with_one_id_make_one_event(
    store: Store, account: str, run: Callable[..., list[Any]], hints: Hints
) -> None:
    subscribe(store, account, "invoice.*")
    before = fill_cache(store, account)
    found = run(store, [publishing(account, an_event(given_id="a")) for _ in range(20)], hints)
    assert parallel.failures(found) == []
    assert len({each.entry.name for each in found}) == 1
    assert sorted(each.again for each in found) == [False] + [True] * 19
    assert recorded(store, account) == [*before, found[0].entry.name]
    assert len(deliveries(store, account, found[0].entry.name)) == 1
    assert {each.entry.matched for each in found} == {1}


@alone_or_shared
def test_two_processes_with_one_id_make_one_event(store: Store, other: Store, account: str, hints: Hints) -> None:
    before = fill_cache(store, account)
    found = parallel.run([store, other], [publishing(account, an_event(given_id="a")) for _ in range(20)], hints)
    assert parallel.failures(found) == []
    assert sorted(each.again for each in found) == [False] + [True] * 19
    assert recorded(store, account) == [*before, found[0].entry.name]


@alone_or_shared
def test_of_many_that_differ_under_one_id_one_is_accepted(
    store: Store, other: Store, account: str, hints: Hints
) -> None:
    before = fill_cache(store, account)
    events = [an_event(data={"amount": number}, given_id="a") for number in range(20)]
    found = parallel.run([store, other], [publishing(account, each) for each in events], hints)
    assert parallel.failures(found) == []
    accepted = [each for each in found if isinstance(each, Published)]
    assert len(accepted) == 1
    assert {each.code for each in found if isinstance(each, Refusal)} == {"conflict"}
    assert recorded(store, account) == [*before, accepted[0].entry.name]


@alone_or_shared
def test_repeated_events_do_not_affect_others_of_the_same_commit(store: Store, account: str, hints: Hints) -> None:
    subscribe(store, account, "invoice.*")
    before = fill_cache(store, account)
    names = [str(number) if number % 3 else "first" for number in range(30)]
    found = parallel.run_in_one_batch(store, [publishing(account, an_event(given_id=name)) for name in names], hints)
    assert parallel.failures(found) == []
    assert [each.again for each in found] == [name == "first" for name in names]
    assert {each.entry.name for each in found if each.again} == set(before)
    fresh = [each.entry.name for each in found if not each.again]
    assert len(fresh) == 20
    assert sorted(recorded(store, account)) == sorted([*before, *fresh])
    assert all(deliveries(store, account, each.entry.name) == each.deliveries != [] for each in found)


@alone_or_shared
@pytest.mark.parametrize("run", [parallel.run, parallel.run_in_one_batch], ids=["at once", "in one commit"])
def test_the_id_of_an_event_that_is_missing_in_the_ledger_is_a_conflict(
    store: Store, account: str, backend: Backend, run: Callable[..., list[Any]], hints: Hints
) -> None:
    """Nothing in the service deletes an entry without its id. Events that are published beside it are not affected."""
    published(store, account, an_event(given_id="a"))
    backend.execute("DELETE FROM entries")
    before = fill_cache(store, account)
    found = run(store, [publishing(account, an_event(given_id=name)) for name in ("b", "a", "b", "a", "c")], hints)
    assert parallel.failures(found) == []
    refusal = Refusal("conflict", "id: the event of this id is no longer in the ledger", "/id")
    assert [found[1], found[3]] == [refusal, refusal]
    assert sorted(each.again for each in (found[0], found[2], found[4])) == [False, False, True]
    fresh = {found[0].entry.name, found[2].entry.name, found[4].entry.name}
    assert sorted(recorded(store, account)) == sorted({*before, *fresh})


# --- several


def several(store: Store, account: str, *events: Event) -> list[Published] | tuple[int, Refusal]:
    def unit(tx: Tx) -> list[Published] | tuple[int, Refusal]:
        found: Account | None = account_rows.load(tx, account)
        assert found is not None
        return publish.publish_events(tx, found, list(events), ORIGIN)

    return store.run_now(unit)


def test_several_may_name_the_same_event(store: Store, account: str) -> None:
    subscribe(store, account, "*")
    found = several(store, account, an_event(given_id="a"), an_event(given_id="b"), an_event(given_id="a"))
    assert isinstance(found, list)
    assert [each.again for each in found] == [False, False, True]
    assert found[2].entry == found[0].entry
    assert len(recorded(store, account)) == 2


def test_the_first_that_is_refused_is_named_by_its_place(store: Store, account: str) -> None:
    published(store, account, an_event(given_id="b"))
    found = several(store, account, an_event(given_id="a"), an_event(data=2, given_id="b"), an_event(given_id="c"))
    assert isinstance(found, tuple)
    assert found[0] == 1
    assert found[1].code == "conflict"


def test_several_create_only_so_many_deliveries(store: Store, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are one commit. A single event may have as many as there are subscriptions."""
    monkeypatch.setattr(publish, "MAX_BATCH_DELIVERIES", 4)
    for _ in range(2):
        subscribe(store, account, "*")
    assert isinstance(several(store, account, an_event(), an_event()), list)
    found = several(store, account, an_event(), an_event(), an_event(), an_event())
    assert isinstance(found, tuple)
    assert (found[0], found[1].code) == (2, "request_too_large")
    again = several(store, account, *[an_event(given_id="a")] * 10)
    assert isinstance(again, list), "what was published before creates none"
    for _ in range(3):
        subscribe(store, account, "*")
    assert isinstance(several(store, account, an_event()), list)


# --- what it made


def test_an_entry_says_how_many_deliveries_it_made(store: Store, account: str) -> None:
    for patterns, members in (
        (["invoice.paid"], {}),
        (["invoice.*"], {}),
        (["*"], {"filter": {"/amount": 1}}),
        (["*"], {"filter": {"/amount": 2}}),
        (["*"], {"status": "disabled"}),
        (["customer.*"], {}),
    ):
        subscribe(store, account, *patterns, **members)
    made = published(store, account, an_event())
    assert made.entry.matched == len(made.deliveries) == 3
    found = store.read_now(lambda tx: entry_rows.load(tx, account, made.entry.id))
    assert found == made.entry
    assert deliveries(store, account, made.entry.name) == made.deliveries
    unmatched = published(store, account, an_event("nothing.happened", data={}))
    assert (unmatched.entry.matched, unmatched.deliveries) == (0, [])
    assert recorded(store, account)[-1] == unmatched.entry.name


def test_all_of_its_deliveries_are_waiting(store: Store, account: str) -> None:
    subscribe(store, account, "*")
    made = published(store, account, an_event())
    keys = [(ids.raw(account), ids.raw(each)) for each in made.deliveries]
    queued, records = store.read_now(lambda tx: (queue_rows.load_many(tx, keys), delivery_rows.load_many(tx, keys)))
    assert set(queued) == set(records) == set(keys)
    assert {each.event for each in records.values()} == {made.entry.id}
    assert {(each.origin, each.status) for each in records.values()} == {("event", "pending")}
