"""Counts of refusals: every one counts, in one window of a minute, which is summed up once."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.ledger import entries, entry_rows
from gatepost.ledger.entries import Origin
from gatepost.oauth import client_rows, refusal_counts, refusals
from gatepost.oauth.quotas import RefusedRequests
from gatepost.oauth.refusal_counts import Counted, RefusalCount
from gatepost.store.interface import Store
from gatepost.store.transaction import HIGHEST, LOWEST, Tx
from tests.contract import make, parallel
from tests.contract.backends import FakeClock

MINUTE = timedelta(minutes=1)
TICK = timedelta(milliseconds=1)
PAIR = b"p" * 16
COUNTED = RefusalCount(PAIR, ids.new("acc"), "cli_1", "192.0.2.1", "oauth.token.refused", "invalid_grant")
KINDS: dict[str, Callable[[Tx], Counted]] = {
    "failed authentications": lambda tx: refusal_counts.count_failure(tx, COUNTED, MINUTE),
    "refusals": lambda tx: refusal_counts.count_refusal(tx, COUNTED, MINUTE),
}


@pytest.fixture(params=KINDS)
def count(request: pytest.FixtureRequest) -> Callable[[Tx], Counted]:
    return KINDS[request.param]


def test_every_one_counts(store: Store, other: Store, count: Callable[[Tx], Counted]) -> None:
    outcomes = parallel.run([store, other], [count] * 40)
    assert sorted(counted.number for counted in outcomes) == list(range(1, 41))


def test_a_window_starts_with_its_first(
    store: Store, other: Store, watch: FakeClock, count: Callable[[Tx], Counted]
) -> None:
    began = store.run_now(count).since
    watch.forward(MINUTE - TICK)
    assert other.run_now(count)[:2] == (2, began)
    watch.forward(TICK)
    number, since, ended = other.run_now(count)
    assert (number, since - began) == (1, MINUTE)
    assert [each.count for each in ended] == [2]


def test_a_window_that_ended_is_returned_once(
    store: Store, other: Store, watch: FakeClock, count: Callable[[Tx], Counted]
) -> None:
    for _ in range(12):
        store.run_now(count)
    watch.forward(MINUTE)
    outcomes = parallel.run([store, other], [count] * 10)
    assert sorted(counted.number for counted in outcomes) == list(range(1, 11))
    [ended] = [each for counted in outcomes for each in counted.ended]
    assert ended.count == 12
    assert [each.count for each in store.run_now(lambda tx: refusal_counts.end(tx, watch()))] == [10]
    assert store.run_now(lambda tx: refusal_counts.end(tx, watch())) == []


def test_failures_and_refusals_of_one_client_are_counted_apart(store: Store) -> None:
    assert [store.run_now(count).number for count in KINDS.values()] == [1, 1]


# --- what is ledgered


def refuse(store: Store, client: str, times: int, error: str = "invalid_grant", **origin: str) -> list[str | None]:
    def unit(tx: Tx) -> str | None:
        found = client_rows.load(tx, client)
        assert found is not None
        account = account_rows.load(tx, found.account)
        assert account is not None
        where = Origin(client, "req_1", origin.get("source", "192.0.2.1"))
        return refusals.record_refusal(tx, account, found, "oauth.token.refused", where, {"error": error})

    return [store.run_now(unit) for _ in range(times)]


def ledgered(store: Store, account: str) -> list[dict[str, Any]]:
    found = store.read_now(lambda tx: entry_rows.oldest(tx, account, LOWEST, HIGHEST, 1000))
    return [entries.render(each) for each in found]


def client(store: Store, account: str, method: str = "none") -> str:
    return store.run_now(lambda tx: make.client(tx, account, token_endpoint_auth_method=method)).id


def test_a_public_client_has_ten_entries_a_minute_and_one_that_counts_the_rest(
    store: Store, account: str, watch: FakeClock
) -> None:
    public = client(store, account)
    assert [event is not None for event in refuse(store, public, 12)] == [True] * 10 + [False] * 2
    assert refuse(store, public, 1, "invalid_scope") == [None]
    assert None not in refuse(store, public, 1, source="192.0.2.2"), "another address is counted by itself"
    assert None not in refuse(store, client(store, account), 1), "and so is another client"
    assert len(ledgered(store, account)) == 12
    watch.forward(MINUTE)

    def sum_up(tx: Tx) -> None:
        refusals.sum_up(tx, refusal_counts.end(tx, tx.at - refusals.WINDOW))

    store.run_now(sum_up)
    [summary] = ledgered(store, account)[12:]
    assert (summary["type"], summary["actor"], summary["subject"]) == ("oauth.token.refused", public, public)
    assert (summary["source"], summary["request"]) == ("192.0.2.1", None)
    assert summary["data"] == {"error": "invalid_scope", "rule": "throttled", "count": 3}
    assert None not in refuse(store, public, 10), "the next minute starts from zero"


def test_a_refusal_in_the_next_minute_sums_up_the_last(store: Store, account: str, watch: FakeClock) -> None:
    public = client(store, account)
    refuse(store, public, 15)
    watch.forward(MINUTE)
    assert refuse(store, public, 1) != [None]
    assert [each["data"].get("count") for each in ledgered(store, account)] == [None] * 10 + [5, None]


def test_every_refusal_of_a_client_that_authenticated_is_ledgered(store: Store, account: str) -> None:
    secret = client(store, account, "client_secret_basic")
    assert None not in refuse(store, secret, 30)
    assert len(ledgered(store, account)) == 30


def test_one_ipv6_network_is_one_caller(store: Store, account: str) -> None:
    public = client(store, account)
    events = [refuse(store, public, 1, source=f"2001:db8::{number}")[0] for number in range(1, 14)]
    assert events.count(None) == 3


def test_refusals_because_of_a_quota_have_one_entry_a_minute(
    store: Store, other: Store, account: str, watch: FakeClock
) -> None:
    limited = client(store, account, "client_secret_basic")

    def count(number: int, rule: str) -> Callable[[Tx], None]:
        refused = [RefusedRequests(account, limited, number, rule)]
        return lambda tx: refusals.count_beyond_quota(tx, refused)

    before = len(ledgered(store, account))
    parallel.run([store, other], [count(2, "client_max_tokens_per_minute")] * 10)
    store.run_now(count(1, "account_max_tokens_per_minute"))
    assert len(ledgered(store, account)) == before
    watch.forward(MINUTE)
    parallel.run([store, other], [count(3, "client_max_tokens_per_minute")] * 2)
    [summary] = ledgered(store, account)[before:]
    assert (summary["type"], summary["actor"], summary["subject"]) == ("oauth.token.refused", limited, limited)
    assert (summary["source"], summary["request"]) == (None, None)
    assert summary["data"] == {"error": "quota_exceeded", "rule": "account_max_tokens_per_minute", "count": 21}
    watch.forward(MINUTE)
    store.run_now(lambda tx: refusals.sum_up(tx, refusal_counts.end(tx, tx.at - refusals.WINDOW)))
    assert [entry["data"]["count"] for entry in ledgered(store, account)[before:]] == [21, 6]
