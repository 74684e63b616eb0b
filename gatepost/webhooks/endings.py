"""Ends deliveries: the status of the record, the counts of the summary, and the event about a failure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.ledger.entries import SERVICE, Origin
from gatepost.ledger.record import record
from gatepost.store.transaction import Tx
from gatepost.webhooks import deliveries, delivery_rows, queue_rows, tallies
from gatepost.webhooks.deliveries import Attempt, AttemptDocument, OpenAttempt, Queued

_ORIGIN = Origin(SERVICE)
_encode = msgspec.json.Encoder().encode
_open_attempt = msgspec.json.Decoder(OpenAttempt)

# The details of attempts that are recorded as interrupted.
INTERRUPTED = "the result is unknown: the worker that made the attempt is gone"
CANCELLED = "the result is unknown: the delivery was cancelled while the attempt was in flight"


def end_unclaimed(tx: Tx, page: Sequence[Queued], reason: str, detail: str = INTERRUPTED) -> None:
    """End deliveries that no worker has claimed since they were read. Open attempts are recorded as interrupted."""
    deleted = queue_rows.end_unclaimed(tx, ((*queued.key, queued.number) for queued in page))
    ended = [queued for queued in page if queued.key in deleted]
    close_attempts(tx, [queued for queued in ended if queued.worker is not None], "interrupted", detail)
    end(tx, [(queued, reason) for queued in ended])


def end(tx: Tx, ended: Sequence[tuple[Queued, str]]) -> None:
    """End deliveries without a response, each with its reason. The caller has deleted their rows from the queue.

    The last attempt of a delivery that a worker had claimed was interrupted, so it has neither a code nor a failure.
    """
    records = delivery_rows.load_many(tx, (queued.key for queued, _ in ended))
    changes = []
    for queued, reason in ended:
        delivery = records[queued.key]
        code, failure = (delivery.last_code, delivery.last_failure) if queued.worker is None else (None, None)
        changes.append(deliveries.end(*queued.key, reason, tx.now, code, failure))
        tallies.add(tx, (queued.account, queued.endpoint), f"ended {reason}")
        record_failure(tx, queued, delivery.event_type, queued.number, reason, code, failure)
    delivery_rows.write_statuses(tx, changes)


def record_failure(
    tx: Tx, queued: Queued, event_type: str, attempts: int, reason: str, code: int | None, failure: str | None
) -> None:
    """Record the event about a delivery that failed. A delivery that ended in another way has none."""
    if deliveries.ENDS[reason][0] != "failed":
        return
    account = account_rows.load(tx, ids.text("acc", queued.account))
    if account is None:
        raise LookupError(queued.account.hex())
    data: dict[str, Any] = {
        "endpoint": ids.text("ep", queued.endpoint),
        "event": ids.text("evt", queued.event),
        "event_type": event_type,
        "ended_reason": reason,
        "attempts": attempts,
        "response_code": code,
        "failure": failure,
    }
    record(tx, account, "webhook.delivery.failed", _ORIGIN, ids.text("dlv", queued.id), data)


def close_attempts(tx: Tx, open_: Sequence[Queued], outcome: str, detail: str) -> None:
    """Record open attempts whose result is unknown (`interrupted`), or that were never sent (`not_sent`)."""
    closed = [_attempt(queued, tx.now, outcome, detail) for queued in open_]
    delivery_rows.add_attempts(tx, closed)
    for queued in open_:
        tallies.add(tx, (queued.account, queued.endpoint), f"attempt {outcome}")


def _attempt(queued: Queued, now: int, outcome: str, detail: str) -> Attempt:
    if queued.opened is None or queued.worker is None:
        raise ValueError("no attempt is open")
    attempt = _open_attempt.decode(queued.opened)
    document = AttemptDocument(
        queued.planned_at, attempt.started_at, now, attempt.url, attempt.signed_with, attempt.waited_for,
        attempt.waited_ms, ids.text("wrk", queued.worker), detail=detail, because=queued.stored_because,
    )  # fmt: skip
    return Attempt(queued.account, queued.id, queued.number, outcome, _encode(document).decode())
