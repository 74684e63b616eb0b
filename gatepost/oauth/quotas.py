"""Token quotas: tokens in a minute and requests in progress, of an account and of a client. No I/O.

Each web process counts in its memory, so that no row is updated by every request. Minutes are those of the clock.
"""

import math
import threading
from collections import Counter
from datetime import datetime
from typing import NamedTuple

from gatepost.accounts import Account
from gatepost.core import clock
from gatepost.core.clock import Clock
from gatepost.core.errors import Refusal
from gatepost.oauth.clients import Client

TOKENS, REQUESTS = "max_tokens_per_minute", "max_concurrent_token_requests"


class Limits(NamedTuple):
    """The limits of an account or a client. None: no limit."""

    owner: str
    kind: str
    tokens: int | None
    requests: int | None


class Quotas(NamedTuple):
    """What limits the tokens of a client. `limits` is empty unless a quota is set."""

    account: str = ""
    client: str = ""
    limits: tuple[Limits, ...] = ()
    public: bool = False


def quotas_of(account: Account, client: Client) -> Quotas:
    """The quotas of a client and its account."""
    own = Limits(client.id, "client", client.max_tokens_per_minute, client.max_concurrent_token_requests)
    shared = Limits(account.id, "account", account[TOKENS], account[REQUESTS])
    limits = tuple(each for each in (own, shared) if (each.tokens, each.requests) != (None, None))
    return Quotas(account.id, client.id, limits, client.public)


class RefusedRequests(NamedTuple):
    """How many requests of a client were refused because of a quota, and the quota of the latest."""

    account: str
    client: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    rule: str


class QuotaMeter:
    """The counts of one process. Units run in several threads, so it has a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minute = 0
        self._tokens: Counter[str] = Counter()  # issued in this minute
        self._requests: Counter[str] = Counter()  # in progress, of clients that have authenticated
        self._refused: dict[tuple[str, str], RefusedRequests] = {}

    def begin(self, quotas: Quotas, at: datetime) -> Refusal | None:
        """Count a request in progress, or refuse it. Every request in progress is expected to obtain a token.

        Anyone can send requests in the name of a public client, so its requests do not count, only its tokens.
        """
        with self._lock:
            self._to_minute(at)
            for limits in quotas.limits:
                refusal = self._check(limits, at)
                if refusal is not None:
                    self._count_refused(quotas, 1, refusal.rule)
                    return refusal
            if not quotas.public:
                self._requests.update(limits.owner for limits in quotas.limits)
            return None

    def end(self, quotas: Quotas, at: datetime, *, issued: bool) -> None:
        """The request that was counted has its response."""
        with self._lock:
            self._to_minute(at)
            for limits in quotas.limits:
                if issued:
                    self._tokens[limits.owner] += 1
                if not quotas.public:
                    self._requests[limits.owner] -= 1
                    if not self._requests[limits.owner]:
                        del self._requests[limits.owner]

    def take_refused(self) -> list[RefusedRequests]:
        """The requests refused since the last call."""
        with self._lock:
            refused, self._refused = self._refused, {}
            return list(refused.values())

    def give_back(self, refused: list[RefusedRequests]) -> None:
        """Return what could not be recorded."""
        with self._lock:
            for each in refused:
                self._count_refused(Quotas(each.account, each.client), each.count, each.rule)

    def _to_minute(self, at: datetime) -> None:
        """Start at zero in another minute, also in an earlier one if the clock was set back.

        A request that began before the end of a minute can be counted after it. It belongs to the new one.
        """
        minute = clock.seconds(at) // 60
        if minute not in (self._minute, self._minute - 1):
            self._minute = minute
            self._tokens.clear()

    def _check(self, limits: Limits, at: datetime) -> Refusal | None:
        requests, tokens = self._requests[limits.owner], self._tokens[limits.owner]
        if limits.requests is not None and requests >= limits.requests:
            detail = f"{requests} token requests of the {limits.kind} are in progress, which is its limit"
            return Refusal("quota_exceeded", detail, retry_after=1, rule=f"{limits.kind}_{REQUESTS}")
        if limits.tokens is not None and tokens + requests >= limits.tokens:
            wait = max(1, math.ceil((self._minute + 1) * 60 - at.timestamp()))
            detail = f"the {limits.kind} has used up its {limits.tokens} tokens of this minute"
            return Refusal("quota_exceeded", detail, retry_after=wait, rule=f"{limits.kind}_{TOKENS}")
        return None

    def _count_refused(self, quotas: Quotas, count: int, rule: str) -> None:
        key = quotas.account, quotas.client
        before = self._refused.get(key)
        self._refused[key] = RefusedRequests(*key, count + (before.count if before else 0), rule)


class QuotaUse:
    """The use of quotas by one request. It is decided once, although a unit may run several times.

    A unit can even run after its request timed out. Such a run counts nothing, because nothing would end its use.
    """

    __slots__ = ("_ended", "_lock", "_meter", "_quotas", "_refusal")

    def __init__(self, meter: QuotaMeter) -> None:
        self._meter = meter
        self._lock = threading.Lock()  # units run in other threads than the one that ends the request
        self._ended = False
        self._quotas: Quotas | None = None
        self._refusal: Refusal | None = None

    def begin(self, quotas: Quotas, at: datetime) -> Refusal | None:
        """Count the request when its client has authenticated, or refuse it."""
        if not quotas.limits:
            return None
        with self._lock:
            if self._quotas is None and not self._ended:
                self._quotas, self._refusal = quotas, self._meter.begin(quotas, at)
            return self._refusal

    def end(self, now: Clock, *, issued: bool) -> None:
        """The request has its response."""
        with self._lock:
            self._ended = True
            if self._quotas is not None and self._refusal is None:
                self._meter.end(self._quotas, now(), issued=issued)
