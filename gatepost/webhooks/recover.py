"""Recovers open attempts: of workers that are gone, and of claims whose commit was reported as failed."""

from collections.abc import Iterable, Mapping, Sequence

from gatepost.core import ids
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks import decide, delivery_rows, endings, endpoint_rows, queue_rows
from gatepost.webhooks.decide import Receiver, Released, RetryAt
from gatepost.webhooks.deliveries import Queued, StatusChange
from gatepost.webhooks.plan import retry_schedule


def receiver(tx: Tx, queued: Queued) -> Receiver:
    """The endpoint of a delivery as it is now."""
    account, endpoint = endpoint_rows.load_with_account(tx, (queued.account, queued.endpoint))
    if account is None or endpoint is None:
        raise LookupError(queued.endpoint.hex())
    return Receiver(endpoint.url, endpoint.status, retry_schedule(account, endpoint), endpoint.max_retry_after)


def interrupt(tx: Tx, open_: Sequence[Queued]) -> int:
    """Record attempts as interrupted, and plan the next ones. Returns how many were still open."""
    retries, ends = [], []
    for queued in open_:
        decision = decide.after_interruption(
            queued.id, queued.number, queued.used, queued.interrupted, tx.now, receiver(tx, queued)
        )
        if isinstance(decision, RetryAt):
            retries.append(requeued(*queued.key, queued.number, decision))
        else:
            ends.append((queued, decision.reason))
    closed = queue_rows.requeue(tx, retries)
    closed |= queue_rows.end_attempted(tx, ((*queued.key, queued.number) for queued, _ in ends))
    endings.close_attempts(tx, [queued for queued in open_ if queued.key in closed], "interrupted", endings.INTERRUPTED)
    endings.end(tx, [(queued, reason) for queued, reason in ends if queued.key in closed])
    delivery_rows.write_statuses(tx, [_without_result(*row[:2]) for row in retries if row[:2] in closed])
    return len(closed)


def _without_result(account: bytes, raw_id: bytes) -> StatusChange:
    """The delivery stays pending. Its last attempt has neither a code nor a failure."""
    return StatusChange(account, raw_id, "pending", None, None, None, None)


def requeued(
    account: bytes, raw_id: bytes, number: int, decision: RetryAt | Released
) -> tuple[bytes, bytes, int, int, int, str, int, int]:
    """The row for `queue_rows.requeue`."""
    return (
        account, raw_id, number, decision.at, decision.planned_at, decision.because, decision.used,
        decision.interrupted,
    )  # fmt: skip


def rescue(tx: Tx, worker: bytes, keys: Iterable[Key]) -> int:
    """Interrupt open attempts of a dead worker. Returns how many were still open.

    Finding them means reading the whole queue, so the caller does that first, in a unit that only reads.
    """
    return interrupt(tx, _locked(tx, worker, keys))


def release(tx: Tx, worker: bytes, numbers: Mapping[Key, int]) -> int:
    """Return deliveries to the queue that a worker claimed in a commit whose result was lost. None of them was sent.

    `numbers` has the number of the attempt of each: a later attempt of the same worker is left alone.
    """
    claimed = [queued for queued in _locked(tx, worker, numbers) if queued.number == numbers[queued.key]]
    decisions = (decide.release(queued.used, queued.interrupted, tx.now) for queued in claimed)
    rows = (requeued(*queued.key, queued.number, to) for queued, to in zip(claimed, decisions, strict=True))
    closed = queue_rows.requeue(tx, rows)
    released = [queued for queued in claimed if queued.key in closed]
    endings.close_attempts(tx, released, "not_sent", "never sent: the worker did not learn that its claim succeeded")
    return len(released)


def _locked(tx: Tx, worker: bytes, keys: Iterable[Key]) -> list[Queued]:
    """Lock the attempts that are still open. All workers lock in the same order, so each sees what another closed."""
    rows = (queue_rows.lock(tx, ids.text("acc", account), raw_id) for account, raw_id in sorted(keys))
    return [queued for queued in rows if queued is not None and queued.worker == worker]
