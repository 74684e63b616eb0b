"""Token quotas: what counts towards them, and when they refuse a request."""

import threading
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gatepost import accounts
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.oauth.clients import Client
from gatepost.oauth.quotas import QuotaMeter, Quotas, QuotaUse, RefusedRequests, quotas_of

AT = datetime(2026, 11, 15, 12, 0, 20, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ACCOUNT = accounts.new("acme", AT)


def client(**members: object) -> Client:
    return msgspec.structs.replace(Client(ids.new("cli"), ACCOUNT.id, AT, AT), **members)


def quotas(tokens: int | None = None, requests: int | None = None, **settings: str) -> Quotas:
    account = accounts.change(ACCOUNT, settings, dev=False)
    return quotas_of(account, client(max_tokens_per_minute=tokens, max_concurrent_token_requests=requests))


class Requests:
    """Requests that are sent to one process."""

    def __init__(self) -> None:
        self.meter = QuotaMeter()
        self.at = AT

    def begin(self, of: Quotas) -> QuotaUse | str:
        """A request in progress, or the rule that refuses it."""
        use = QuotaUse(self.meter)
        refusal = use.begin(of, self.at)
        return refusal.rule if refusal else use

    def end(self, use: QuotaUse | str, *, issued: bool = True) -> None:
        assert isinstance(use, QuotaUse)
        use.end(lambda: self.at, issued=issued)

    def obtain(self, of: Quotas) -> str:
        begun = self.begin(of)
        if isinstance(begun, str):
            return begun
        self.end(begun)
        return ""


@pytest.fixture
def sent() -> Requests:
    return Requests()


def test_without_a_quota_nothing_is_counted(sent: Requests) -> None:
    assert quotas().limits == ()
    assert [sent.obtain(quotas()) for _ in range(100)] == [""] * 100
    assert sent.meter.take_refused() == []


def test_tokens_of_a_minute(sent: Requests) -> None:
    own = quotas(tokens=3)
    assert [sent.obtain(own) for _ in range(5)] == ["", "", "", *["client_max_tokens_per_minute"] * 2]
    sent.at += timedelta(seconds=39.999)
    assert sent.obtain(own)
    sent.at += timedelta(milliseconds=1)
    assert [sent.obtain(own) for _ in range(4)] == ["", "", "", "client_max_tokens_per_minute"]


@pytest.mark.parametrize("back", [2 * MINUTE, 60 * MINUTE])
def test_a_clock_that_is_set_back_begins_another_minute(sent: Requests, back: timedelta) -> None:
    """Without this, the tokens would be used up until the clock has caught up."""
    own = quotas(tokens=2)
    assert [sent.obtain(own) for _ in range(3)] == ["", "", "client_max_tokens_per_minute"]
    sent.at -= back
    assert [sent.obtain(own) for _ in range(3)] == ["", "", "client_max_tokens_per_minute"]
    refusal = sent.meter.begin(own, sent.at)
    assert refusal is not None
    assert refusal.retry_after == 40


def test_a_request_of_the_previous_minute_does_not_begin_it_again(sent: Requests) -> None:
    """Its unit began before the end of the minute, and is counted after those of the next one."""
    own = quotas(tokens=2)
    sent.at += MINUTE
    assert sent.obtain(own) == ""
    sent.at -= MINUTE
    assert sent.obtain(own) == ""
    sent.at += MINUTE
    assert sent.obtain(own) == "client_max_tokens_per_minute"


@pytest.mark.parametrize(("second", "wait"), [(0.0, 60), (20.0, 40), (20.5, 40), (59.0, 1), (59.999, 1)])
def test_a_client_is_told_to_wait_for_the_next_minute(sent: Requests, second: float, wait: int) -> None:
    sent.at = AT.replace(second=0) + timedelta(seconds=second)
    own = quotas(tokens=1)
    sent.obtain(own)
    refusal = sent.meter.begin(own, sent.at)
    assert refusal is not None
    assert (refusal.code, refusal.status, refusal.retry_after) == ("quota_exceeded", 429, wait)


def test_only_issued_tokens_count_but_requests_in_progress_may_become_tokens(sent: Requests) -> None:
    own = quotas(tokens=2)
    for _ in range(5):
        sent.end(sent.begin(own), issued=False)
    first, second = sent.begin(own), sent.begin(own)
    assert sent.begin(own) == "client_max_tokens_per_minute"
    sent.end(first, issued=False)
    sent.end(second)
    assert [sent.obtain(own) for _ in range(2)] == ["", "client_max_tokens_per_minute"]


def test_requests_in_progress(sent: Requests) -> None:
    own = quotas(requests=2)
    begun = [sent.begin(own) for _ in range(2)]
    assert sent.begin(own) == "client_max_concurrent_token_requests"
    sent.at += MINUTE
    assert sent.begin(own) == "client_max_concurrent_token_requests", "whatever the minute"
    sent.end(begun[0])
    assert not isinstance(sent.begin(own), str)
    assert isinstance(sent.begin(own), str)


def test_the_account_limits_its_clients_together_and_no_other_account(sent: Requests) -> None:
    one, other = (quotas(max_tokens_per_minute="3") for _ in range(2))
    assert [sent.obtain(each) for each in (one, other, one, other)] == ["", "", "", "account_max_tokens_per_minute"]
    elsewhere = accounts.change(accounts.new("other", AT), {"max_tokens_per_minute": "3"}, dev=False)
    assert sent.obtain(quotas_of(elsewhere, client())) == ""


def test_a_client_beyond_its_quota_uses_nothing_of_the_account(sent: Requests) -> None:
    greedy, other = (quotas(tokens, max_tokens_per_minute="2") for tokens in (1, None))
    assert [sent.obtain(greedy) for _ in range(5)] == ["", *["client_max_tokens_per_minute"] * 4]
    assert [sent.obtain(other) for _ in range(2)] == ["", "account_max_tokens_per_minute"]


def test_requests_in_the_name_of_a_public_client_do_not_count(sent: Requests) -> None:
    limited = accounts.change(ACCOUNT, {"max_concurrent_token_requests": "1", "max_tokens_per_minute": "2"}, dev=False)
    public = quotas_of(limited, client(token_endpoint_auth_method="none"))
    begun = [sent.begin(public) for _ in range(10)]
    assert sent.obtain(quotas_of(limited, client())) == ""
    sent.end(begun[0], issued=True)
    assert sent.obtain(quotas_of(limited, client())) == "account_max_tokens_per_minute", "but its tokens do"


def test_a_request_is_decided_once(sent: Requests) -> None:
    own = quotas(tokens=1)
    use = QuotaUse(sent.meter)
    assert [use.begin(own, sent.at) for _ in range(3)] == [None] * 3
    refused = QuotaUse(sent.meter)
    assert refused.begin(own, sent.at) is refused.begin(own, sent.at) is not None
    refused.end(lambda: sent.at, issued=False)
    use.end(lambda: sent.at, issued=True)
    assert [each.count for each in sent.meter.take_refused()] == [1]


def test_a_unit_that_runs_after_its_request_timed_out_counts_nothing(sent: Requests) -> None:
    own = quotas(tokens=1, requests=1)
    late = QuotaUse(sent.meter)
    late.end(lambda: sent.at, issued=False)
    assert late.begin(own, sent.at) is None
    assert [sent.obtain(own) for _ in range(2)] == ["", "client_max_tokens_per_minute"]


def test_a_request_that_times_out_while_its_unit_begins_is_not_left_in_progress(sent: Requests) -> None:
    own = quotas(requests=1)

    class SlowMeter(QuotaMeter):
        """The request ends as soon as it is counted, unless it has to wait for the unit."""

        def begin(self, quotas: Quotas, at: datetime) -> Refusal | None:
            refusal = super().begin(quotas, at)
            ending.start()
            ending.join(0.2)
            return refusal

    sent.meter = SlowMeter()
    use = QuotaUse(sent.meter)
    ending = threading.Thread(target=lambda: use.end(lambda: sent.at, issued=False))
    use.begin(own, sent.at)
    ending.join()
    assert QuotaMeter.begin(sent.meter, own, sent.at) is None


def test_refused_requests_are_taken_once(sent: Requests) -> None:
    own = quotas(tokens=1, requests=1)
    sent.begin(own)
    for _ in range(3):
        sent.begin(own)
    refused = [RefusedRequests(own.account, own.client, 3, "client_max_concurrent_token_requests")]
    assert sent.meter.take_refused() == refused
    assert sent.meter.take_refused() == []
    sent.begin(own)
    sent.meter.give_back(refused)
    assert [each.count for each in sent.meter.take_refused()] == [4]
