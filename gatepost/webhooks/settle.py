"""Settles attempts: writes their results, with everything that follows from them, in one commit.

What does not depend on the store is computed before the commit, as soon as the attempt ends.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks import decide, deliveries, delivery_rows, endings, endpoint_health, queue_rows, recover, tallies
from gatepost.webhooks.claim import Claim
from gatepost.webhooks.decide import Attempted, Decision, Delivered, Receiver, Released, RetryAt
from gatepost.webhooks.deliveries import Attempt, AttemptDocument, StatusChange
from gatepost.webhooks.endpoint_health import EndpointAttempt
from gatepost.webhooks.summary import bucket

_encode = msgspec.json.Encoder().encode
_DELIVERED = Delivered()


class Result(msgspec.Struct, frozen=True, gc=False):
    """The result of the attempt of a claim."""

    claim: Claim
    ended_at: int
    code: int | None = None
    failure: str | None = None
    detail: str = ""
    retry_after: str | None = None
    timings: dict[str, float] = {}
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
        """Whether it tells anything about the endpoint.

        It does not if it was not sent, its event was lost, or it is repeated on a new connection.
        """
        return self.sent and not self.claim.is_lost and not (self.connection_closed and self.attempted().is_repeated)


class FinishedAttempt(msgspec.Struct, frozen=True, gc=False):
    """A result, with everything that can be computed before the commit."""

    result: Result
    row: Attempt
    succeeded: bool = False
    status_change: StatusChange | None = None  # of a success
    counted: tuple[str, ...] = ()  # of a success


def finish(result: Result, worker: str) -> FinishedAttempt:
    """Prepare the writes about an attempt. What a success leads to does not depend on the store."""
    if not result.sent:
        return FinishedAttempt(result, _attempt(result, "not_sent", worker))
    if not decide.succeeded(result.code, result.failure):
        return FinishedAttempt(result, _attempt(result, "failed", worker))
    row = _attempt(result, "succeeded", worker)
    return FinishedAttempt(
        result,
        row,
        succeeded=True,
        status_change=_status_change(result, _DELIVERED),
        counted=_counted(result, _DELIVERED),
    )


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
    """The response as text. PostgreSQL does not accept NUL characters in text."""
    return response.decode("utf-8", "replace").replace("\0", "�") if response else ""


class SettleBatch(NamedTuple):
    """Attempts to settle in one commit, by delivery."""

    succeeded: dict[Key, FinishedAttempt]
    failed: dict[Key, FinishedAttempt]  # or not sent
    health_changes: list[FinishedAttempt]  # those that may change the health of their endpoint
    superseded: list[Result]  # the batch has a later attempt of the same delivery
    healthy: frozenset[Key]


def batch(finished: Sequence[FinishedAttempt], healthy: frozenset[Key]) -> SettleBatch:
    """Group attempts by delivery. `healthy` are endpoints that are known to have no failures on record."""
    in_order = sorted(finished, key=lambda attempt: (attempt.result.claim.key, attempt.result.claim.number))
    latest = {attempt.result.claim.key: attempt for attempt in in_order}
    relevant = [attempt for attempt in latest.values() if attempt.result.concerns_health]
    changed = {
        attempt.result.claim.endpoint_key
        for attempt in relevant
        if not (attempt.succeeded and attempt.result.claim.endpoint_key in healthy)
    }
    return SettleBatch(
        {key: attempt for key, attempt in latest.items() if attempt.succeeded},
        {key: attempt for key, attempt in latest.items() if not attempt.succeeded},
        [attempt for attempt in relevant if attempt.result.claim.endpoint_key in changed],
        [attempt.result for attempt in finished if attempt is not latest[attempt.result.claim.key]],
        healthy,
    )


class Settled(NamedTuple):
    """What the worker learns from a commit that settled attempts."""

    retries: list[tuple[Key, int]]  # endpoints, and when a retry to each is due
    overtaken: list[Result]  # not written, because a later attempt of the delivery has begun
    not_before: dict[Key, int]  # endpoints that asked for no attempts for now, and until when


def settle(tx: Tx, batch: SettleBatch) -> Settled:
    """Write the results of attempts, and everything that follows from them."""
    fenced = ((*key, attempt.result.claim.number) for key, attempt in batch.succeeded.items())
    written = queue_rows.end_attempted(tx, fenced)
    succeeded = [attempt for key, attempt in batch.succeeded.items() if key in written]
    decided = _decide_failed(tx, batch.failed)
    if decided:
        written |= _update_queue(tx, decided)
        decided = [(attempt, decision) for attempt, decision in decided if attempt.result.claim.key in written]
    delivery_rows.add_attempts(tx, [attempt.row for attempt in succeeded] + [attempt.row for attempt, _ in decided])
    changes = [attempt.status_change for attempt in succeeded]
    changes += [_status_change(attempt.result, decision) for attempt, decision in decided]
    delivery_rows.write_statuses(tx, [change for change in changes if change is not None])
    counted = Counter([(attempt.result.claim.endpoint_key, attempt.counted) for attempt in succeeded])
    counted.update((attempt.result.claim.endpoint_key, _counted(attempt.result, to)) for attempt, to in decided)
    for (endpoint, names), count in counted.items():
        tallies.add(tx, endpoint, *names, count=count)
    retries: list[tuple[Key, int]] = []
    for attempt, decision in decided:
        result, claim = attempt.result, attempt.result.claim
        if isinstance(decision, RetryAt | Released):
            retries.append((claim.endpoint_key, decision.at))
        else:
            endings.record_failure(
                tx, claim.queued, claim.type, claim.number, decision.reason, result.code, result.failure
            )
    health_changes = [
        EndpointAttempt(attempt.result.claim.endpoint_key, attempt.result.attempted(), attempt.result.claim.type)
        for attempt in batch.health_changes
        if attempt.result.claim.key in written
    ]
    not_before = endpoint_health.update(tx, health_changes, batch.healthy)
    overtaken = [attempt.result for key, attempt in (batch.succeeded | batch.failed).items() if key not in written]
    return Settled(retries, batch.superseded + overtaken, not_before)


def _decide_failed(tx: Tx, failed: dict[Key, FinishedAttempt]) -> list[tuple[FinishedAttempt, Decision]]:
    receivers: dict[Key, Receiver] = {}
    decided: list[tuple[FinishedAttempt, Decision]] = []
    for attempt in failed.values():
        claim = attempt.result.claim
        if claim.endpoint_key not in receivers:
            receivers[claim.endpoint_key] = recover.receiver(tx, claim.queued)
        decided.append((attempt, decide.after_attempt(attempt.result.attempted(), receivers[claim.endpoint_key])))
    return decided


def _update_queue(tx: Tx, decided: list[tuple[FinishedAttempt, Decision]]) -> set[Key]:
    """Requeue or end deliveries. Returns those whose attempt was still the last one."""
    ended, requeued = [], []
    for attempt, decision in decided:
        claim = attempt.result.claim
        if isinstance(decision, RetryAt | Released):
            requeued.append(recover.requeued(*claim.key, claim.number, decision))
        else:
            ended.append((*claim.key, claim.number))
    return queue_rows.end_attempted(tx, ended) | queue_rows.requeue(tx, requeued)


def _status_change(result: Result, decision: Decision) -> StatusChange | None:
    if isinstance(decision, Released):
        return None
    if isinstance(decision, RetryAt):
        return StatusChange(*result.claim.key, "pending", None, None, result.code, result.failure)
    return deliveries.end(*result.claim.key, decision.reason, result.ended_at, result.code, result.failure)


def _counted(result: Result, decision: Decision) -> tuple[str, ...]:
    """The counts of the summary that an attempt adds to. Only an attempt with a response has a duration there.

    A code that is not valid, from 600 to 999, counts as 5xx (RFC 9110, section 15).
    """
    if isinstance(decision, Released):
        return ("attempt not_sent",)
    answered = result.code is not None and (result.failure is None or result.failure == "redirect")
    duration = bucket(result.duration_ms) if answered and result.duration_ms is not None else None
    reason = "" if isinstance(decision, RetryAt) else decision.reason
    return _counts((result.code or 0) // 100 if answered else 0, duration, reason)


@lru_cache(4096)
def _counts(code_class: int, duration: int | None, reason: str) -> tuple[str, ...]:
    return (
        f"attempt {min(code_class, 5)}xx" if code_class else "attempt none",
        *([] if duration is None else [f"ms {duration}"]),
        *([f"ended {reason}"] if reason else []),
    )
