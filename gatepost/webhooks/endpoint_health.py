"""The health of endpoints: consecutive failures, the last Retry-After, and the decision to disable an endpoint.

A Retry-After is stored once, in the row of `health`. Claims and the API read it there.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gatepost.accounts import Account, account_rows
from gatepost.core import clock
from gatepost.ledger.entries import SERVICE, Origin
from gatepost.ledger.record import record
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks import decide, endpoint_rows, endpoints, health_rows
from gatepost.webhooks.decide import Attempted
from gatepost.webhooks.endpoints import Endpoint, Health, Reason

_ORIGIN = Origin(SERVICE)


class EndpointAttempt(NamedTuple):
    """An attempt that was sent, its endpoint, and the type of its event."""

    endpoint_key: Key
    attempted: Attempted
    event_type: str

    @property
    def succeeded(self) -> bool:
        return decide.succeeded(self.attempted.code, self.attempted.failure)


class _Concern(NamedTuple):
    """What the attempts of one commit say about an endpoint, other than that it is healthy."""

    failures: list[EndpointAttempt]  # since the last success
    gone: list[EndpointAttempt]  # answered with 410, even if a later attempt succeeded
    not_before: int  # 0 if no response had a Retry-After


def update(tx: Tx, attempts: Iterable[EndpointAttempt], healthy: frozenset[Key]) -> dict[Key, int]:
    """Write the health of endpoints where it changes, and disable those that are gone or have failed for too long.

    `healthy` are the endpoints that are known to have no failures on record. Returns the endpoints that asked for no
    attempts for now, each with the time until which it asked for none.
    """
    by_endpoint: dict[Key, list[EndpointAttempt]] = {}
    for attempt in attempts:
        by_endpoint.setdefault(attempt.endpoint_key, []).append(attempt)
    recovered: list[Key] = []
    concerns: dict[Key, _Concern] = {}
    for key, ended in sorted(by_endpoint.items()):
        ended.sort(key=lambda attempt: attempt.attempted.ended_at)
        successes = [number for number, attempt in enumerate(ended, 1) if attempt.succeeded]
        if successes and key not in healthy:
            recovered.append(key)
        failures = ended[successes[-1] :] if successes else ended
        gone = [attempt for attempt in ended if attempt.attempted.code == 410]
        until = _asked_not_before(tx, key, ended)
        if failures or gone or until:
            concerns[key] = _Concern(failures, gone, until)
    if recovered:
        health_rows.mark_healthy(tx, recovered)
    not_before: dict[Key, int] = {}
    for key, concern in concerns.items():
        health = _write(tx, key, concern)
        if health.not_before is not None and health.not_before > tx.at:
            not_before[key] = clock.milliseconds(health.not_before)
    return not_before


def _asked_not_before(tx: Tx, key: Key, attempts: Iterable[EndpointAttempt]) -> int:
    """The latest time that any response asked for, even if a later attempt succeeded; 0 if none did."""
    asking = [attempt.attempted for attempt in attempts if attempt.attempted.retry_after is not None]
    _, endpoint = endpoint_rows.load_with_account(tx, key) if asking else (None, None)
    return max(decide.asked_not_before(attempted, endpoint) or 0 for attempted in asking) if endpoint else 0


def _write(tx: Tx, key: Key, concern: _Concern) -> Health:
    """Write the failures and the Retry-After, and disable the endpoint if it is gone or has failed for too long."""
    failures = concern.failures
    since = failures[0].attempted.ended_at if failures else None
    health = health_rows.add_failures(tx, key, len(failures), since, concern.not_before)
    account, endpoint = endpoint_rows.load_with_account(tx, key)
    if account and endpoint and _reason_to_disable(tx, endpoint, health, concern):
        account_rows.lock(tx, account.id)  # the endpoint may have been redefined since this unit began
        stored = endpoint_rows.load_uncached(tx, account.id, endpoint.id)
        cause = _reason_to_disable(tx, stored, health, concern) if stored else None
        if stored and cause:
            _disable(tx, account, stored, *cause)
    return health


def _reason_to_disable(
    tx: Tx, endpoint: Endpoint, health: Health, concern: _Concern
) -> tuple[Reason, EndpointAttempt] | None:
    """The reason to disable the endpoint, with the attempt that gave it. None if there is none."""
    if endpoint.status != "active":
        return None
    for attempt in concern.gone:
        if decide.gone(attempt.attempted, endpoint):
            return "gone", attempt
    disabled_at = endpoints.will_be_disabled_at(endpoint, health)
    if not concern.failures or disabled_at is None or disabled_at > tx.at:
        return None
    return "failing", concern.failures[-1]


def _disable(tx: Tx, account: Account, endpoint: Endpoint, reason: Reason, attempt: EndpointAttempt) -> None:
    endpoint_rows.update(tx, endpoints.disabled(endpoint, reason, tx.at))
    code = attempt.attempted.code
    data = {"reason": reason, "url": endpoint.url, "event_type": attempt.event_type, "response_code": code}
    record(tx, account, "webhook.endpoint.disabled", _ORIGIN, endpoint.id, data)
