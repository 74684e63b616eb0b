"""Settles attempts: writes their results, with everything that follows from them, in one commit.

What does not depend on the store is computed before the commit, as soon as the attempt ends.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, assert_never

import msgspec

from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks import decide, deliveries, delivery_rows, endings, endpoint_health, queue_rows, recover, tallies
from gatepost.webhooks.claim import Claim
from gatepost.webhooks.decide import (
    Attempted,
    Decision,
    Delivered,
    Exhausted,
    Gone,
    Receiver,
    Released,
    Removed,
    RetryAt,
)
from gatepost.webhooks.deliveries import Attempt, AttemptDocument, StatusChange
from gatepost.webhooks.endpoint_health import EndpointAttempt
from gatepost.webhooks.summary import bucket

_encode = msgspec.json.Encoder().encode
_DELIVERED = Delivered()


class Result(NamedTuple):
    """How the attempt of a claim ended."""

    claim: Claim
    ended_at: int
    code: int | None = None
    failure: str | None = None
    detail: str = ""
    retry_after: str | None = None
    timings: dict[str, float] = {}  # noqa: RUF012 (never changed)
    duration_ms: float | None = None
    remote_ip: str | None = None
    response: bytes = b""
    connection_closed: bool = False
    shortage: str = ""  # the resource that the service lacked, if the attempt was not sent for that reason
    sent: bool = True

    def attempted(self) -> Attempted:
        queued = self.claim.queued
        return Attempted(
            queued.id, self.claim.number, queued.used, queued.interrupted, self.claim.attempt.url, self.code,
            self.failure, self.retry_after, self.ended_at, queued.because, self.connection_closed, self.sent,
            self.shortage,
        )  # fmt: skip

    @property
    def concerns_health(self) -> bool:
        """An attempt that was not sent, or is repeated on a new connection, says nothing about the endpoint."""
        return self.sent and not (self.connection_closed and self.attempted().is_repeated)


class FinishedAttempt(NamedTuple):
    """A result, with everything that can be computed before the commit."""

    result: Result
    row: Attempt
    status_change: StatusChange | None  # of a success
    counted: tuple[str, ...]  # of a success

    @property
    def succeeded(self) -> bool:
        return self.status_change is not None


def finish(result: Result, worker: str) -> FinishedAttempt:
    """Prepare the writes about an attempt. What a success leads to does not depend on the store."""
    if not result.sent:
        return FinishedAttempt(result, _attempt(result, "not_sent", worker), None, ())
    if not decide.succeeded(result.code, result.failure):
        return FinishedAttempt(result, _attempt(result, "failed", worker), None, ())
    row = _attempt(result, "succeeded", worker)
    return FinishedAttempt(result, row, _status_change(result, _DELIVERED), _counted(result, _DELIVERED))


def _attempt(result: Result, outcome: str, worker: str) -> Attempt:
    claim, queued, attempt = result.claim, result.claim.queued, result.claim.attempt
    document = AttemptDocument(
        queued.planned_at, attempt.started_at, result.ended_at if result.sent else attempt.started_at, attempt.url,
        attempt.signed_with, attempt.waited_for, attempt.waited_ms, worker, result.duration_ms, result.code,
        result.failure, result.detail, result.retry_after, result.timings, result.remote_ip, _text(result.response),
        queued.stored_because,
    )  # fmt: skip
    return Attempt(queued.account, queued.id, claim.number, outcome, _encode(document).decode())


def _text(response: bytes) -> str:
    """PostgreSQL does not accept NUL characters in text."""
    return response.decode("utf-8", "replace").replace("\0", "�") if response else ""


class SettleBatch(NamedTuple):
    """Attempts to settle in one commit, by delivery."""

    succeeded: dict[Key, FinishedAttempt]
    failed: dict[Key, FinishedAttempt]  # or not sent
    health_changes: list[FinishedAttempt]  # those that may change the health of their endpoint
    superseded: list[Result]  # the batch has a later attempt of the same delivery
    healthy: frozenset[Key]


def batch(finished: Sequence[FinishedAttempt], healthy: frozenset[Key]) -> SettleBatch:
    """`healthy` are endpoints that are known to have no failures on record."""
    in_order = sorted(finished, key=lambda each: (each.result.claim.key, each.result.claim.number))
    latest = {each.result.claim.key: each for each in in_order}
    changed = {
        each.result.claim.endpoint_key
        for each in latest.values()
        if each.result.concerns_health and not (each.succeeded and each.result.claim.endpoint_key in healthy)
    }
    return SettleBatch(
        {key: each for key, each in latest.items() if each.succeeded},
        {key: each for key, each in latest.items() if not each.succeeded},
        [each for each in latest.values() if each.result.claim.endpoint_key in changed and each.result.concerns_health],
        [each.result for each in finished if each is not latest[each.result.claim.key]],
        healthy,
    )


class Settled(NamedTuple):
    retries: list[tuple[Key, int]]  # endpoints, and when a retry to each is due
    overtaken: list[Result]  # not written, because a later attempt of the delivery was begun
    not_before: dict[Key, int]  # endpoints that asked for no attempts for now, and until when


def settle(tx: Tx, batch: SettleBatch) -> Settled:
    ours = queue_rows.end_attempted(tx, ((*key, each.result.claim.number) for key, each in batch.succeeded.items()))
    succeeded = [each for key, each in batch.succeeded.items() if key in ours]
    decided = _decide_failed(tx, batch.failed)
    if decided:
        ours |= _move(tx, decided)
        decided = [(each, decision) for each, decision in decided if each.result.claim.key in ours]
    delivery_rows.add_attempts(tx, [each.row for each in succeeded] + [each.row for each, _ in decided])
    changes = [each.status_change for each in succeeded] + [_status_change(each.result, to) for each, to in decided]
    delivery_rows.write_statuses(tx, [change for change in changes if change is not None])
    counted = Counter([(each.result.claim.account, each.counted) for each in succeeded])
    counted.update((each.result.claim.account, _counted(each.result, decision)) for each, decision in decided)
    _tally(tx, counted)
    for each, decision in decided:
        if not isinstance(decision, RetryAt | Released):
            result, claim = each.result, each.result.claim
            endings.record_failure(
                tx, claim.queued, claim.type, claim.number, decision.reason, result.code, result.failure
            )
    not_before = endpoint_health.update(
        tx,
        [
            EndpointAttempt(each.result.claim.endpoint_key, each.result.attempted(), each.result.claim.type)
            for each in batch.health_changes
            if each.result.claim.key in ours
        ],
        batch.healthy,
    )
    overtaken = [each.result for key, each in {**batch.succeeded, **batch.failed}.items() if key not in ours]
    retries = [
        (each.result.claim.endpoint_key, decision.at)
        for each, decision in decided
        if isinstance(decision, RetryAt | Released)
    ]
    return Settled(retries, batch.superseded + overtaken, not_before)


def _decide_failed(tx: Tx, failed: dict[Key, FinishedAttempt]) -> list[tuple[FinishedAttempt, Decision]]:
    receivers: dict[Key, Receiver] = {}
    decided: list[tuple[FinishedAttempt, Decision]] = []
    for each in failed.values():
        claim = each.result.claim
        if claim.endpoint_key not in receivers:
            receivers[claim.endpoint_key] = recover.receiver(tx, claim.queued)
        decided.append((each, decide.after_attempt(each.result.attempted(), receivers[claim.endpoint_key])))
    return decided


def _move(tx: Tx, decided: list[tuple[FinishedAttempt, Decision]]) -> set[Key]:
    """Change the queue. Returns the deliveries whose attempt was still the last one."""
    ended: list[tuple[bytes, bytes, int]] = []
    requeued = []
    for each, decision in decided:
        claim = each.result.claim
        match decision:
            case RetryAt() | Released():
                requeued.append(recover.requeued(*claim.key, claim.number, decision))
            case Delivered() | Exhausted() | Gone() | Removed():
                ended.append((*claim.key, claim.number))
            case _:
                assert_never(decision)
    return queue_rows.end_attempted(tx, ended) | queue_rows.requeue(tx, requeued)


def _status_change(result: Result, decision: Decision) -> StatusChange | None:
    match decision:
        case Released():
            return None
        case RetryAt():
            return StatusChange(*result.claim.key, "pending", None, None, result.code, result.failure)
        case Delivered() | Exhausted() | Gone() | Removed():
            return deliveries.end(*result.claim.key, decision.reason, result.ended_at, result.code, result.failure)
        case _:
            assert_never(decision)


def _counted(result: Result, decision: Decision) -> tuple[str, ...]:
    """What the summary counts."""
    if isinstance(decision, Released):
        return ("attempt not_sent",)
    answered = result.code is not None and result.failure is None
    duration = None if result.duration_ms is None else bucket(result.duration_ms)
    reason = "" if isinstance(decision, RetryAt) else decision.reason
    return _counts((result.code or 0) // 100 if answered else 0, duration, reason)


@lru_cache(4096)
def _counts(code_class: int, duration: int | None, reason: str) -> tuple[str, ...]:
    return (
        f"attempt {code_class}xx" if code_class else "attempt none",
        *([] if duration is None else [f"ms {duration}"]),
        *([f"ended {reason}"] if reason else []),
    )


def _tally(tx: Tx, counted: Counter[tuple[str, tuple[str, ...]]]) -> None:
    """Most attempts have the same counts, so equal ones are added up first."""
    totals: Counter[tuple[str, str]] = Counter()
    for (account, several), count in counted.items():
        for what in several:
            totals[account, what] += count
    for (account, what), count in totals.items():
        tallies.add(tx, account, what, count)
