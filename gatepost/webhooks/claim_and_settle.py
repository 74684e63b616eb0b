"""What the worker does with deliveries: claim, settle, rescue, sweep; and what operators do: retry and cancel.

Every write is fenced by the attempt's number: whoever was overtaken changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting
from gatepost.ledger import entry_rows
from gatepost.ledger.entries import SERVICE, Origin
from gatepost.ledger.record import record
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks import decide, deliveries, delivery_rows, endpoint_health, endpoint_rows, queue_rows, tallies
from gatepost.webhooks.decide import Attempted, Decision, Delivered, Ended, Receiver, RetryAt
from gatepost.webhooks.deliveries import Attempt, AttemptDocument, Ending, Opened, Queued
from gatepost.webhooks.endpoint_health import Outcome, whose
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.queue_rows import Lane, NextDue
from gatepost.webhooks.summary import bucket

LEASE = timedelta(seconds=30)  # beyond the endpoint's own timeout
_SLICE = 100
_ORIGIN = Origin(SERVICE)
_DELIVERED = Delivered()
_encode = msgspec.json.Encoder().encode
_opened = msgspec.json.Decoder(Opened)


# --- claiming


class Pick(NamedTuple):
    """What the schedule wants: some of one lane, after a position."""

    lane: Lane
    limit: int
    after: tuple[int, bytes]
    waited_for: str


class Claim(NamedTuple):
    """A delivery that is ours until its lease ends: its attempt is open and on record."""

    queued: Queued  # as it was; the attempt's number is one more
    number: int
    opened: Opened
    account: str
    endpoint: Endpoint
    type: str
    at: int
    data: str | None
    key: Key
    to: Key  # the endpoint's
    account_name: str = ""


class Picked(NamedTuple):
    """What came of a pick; `next_due` is the first due time that is left in the lane.

    `not_before`: the endpoint asked for no attempts until then, so there were no claims; 0 if it did not.
    """

    lane: Lane
    endpoint: Endpoint
    claims: list[Claim]
    next_due: int | None
    not_before: int


class Claimed(NamedTuple):
    picked: list[Picked]  # but for endpoints that stand still
    interrupted: int = 0  # attempts whose lease ran out

    @property
    def claims(self) -> list[Claim]:
        return [claim for each in self.picked for claim in each.claims]


def claim(tx: Tx, worker: bytes, picks: Sequence[Pick]) -> Claimed:
    """Open attempts of what is due. One whose lease ran out is closed as interrupted first, and comes up again."""
    now = clock.milliseconds(tx.at)
    ready = _ready(tx, picks)
    pages = queue_rows.due(tx, ((pick.lane, pick.after, pick.limit) for pick, _, _ in ready))
    claimed: list[list[Claim]] = []
    rows: list[tuple[bytes, bytes, int, bytes, str]] = []
    expired: list[Queued] = []
    for (pick, account, endpoint), page in zip(ready, pages, strict=True):
        signed_with = [secret.id for secret in endpoint.secrets if secret.live(tx.at)]
        lease = now + (timedelta(seconds=endpoint.timeout) + LEASE) // timedelta(milliseconds=1)
        to = (pick.lane.account, pick.lane.endpoint)
        attempts: dict[int, tuple[Opened, str]] = {}  # what is planned for one moment waited for as long
        claims: list[Claim] = []
        for queued, type_, at, data, not_before in page:
            if queued.worker is not None:
                expired.append(queued)
                continue
            found = attempts.get(queued.planned_at)
            if found is None:
                opened = _open(queued, endpoint.url, signed_with, (pick.waited_for, not_before), now)
                found = attempts[queued.planned_at] = (opened, _encode(opened).decode())
            key = queued[:2]
            rows.append((*key, lease, worker, found[1]))
            claims.append(
                Claim(
                    queued, queued.number + 1, found[0], account.id, endpoint, type_, at, data, key, to, account.name
                )
            )  # fmt: skip
        claimed.append(claims)
    if rows:
        queue_rows.claim(tx, rows)
    interrupted = interrupt(tx, expired) if expired else 0
    more = NextDue(now, 0)
    full = {pick.lane: more for (pick, _, _), page in zip(ready, pages, strict=True) if len(page) == pick.limit}
    rest = [pick.lane for pick, _, _ in ready if pick.lane not in full]
    left = {**full, **dict(zip(rest, queue_rows.next_due(tx, rest), strict=True))}
    picked = [
        Picked(pick.lane, endpoint, claims, *left[pick.lane])
        for (pick, _, endpoint), claims in zip(ready, claimed, strict=True)
    ]
    return Claimed(picked, interrupted)


def _ready(tx: Tx, picks: Sequence[Pick]) -> list[tuple[Pick, Account, Endpoint]]:
    """Those whose endpoint and account are active."""
    ready: list[tuple[Pick, Account, Endpoint]] = []
    for pick in picks:
        account, endpoint = whose(tx, pick.lane.account, pick.lane.endpoint)
        if account is not None and endpoint is not None and account.active and endpoint.status == "active":
            ready.append((pick, account, endpoint))
    return ready


def _open(queued: Queued, url: str, signed_with: list[str], waited: tuple[str, int], now: int) -> Opened:
    """`waited` is what the schedule saw in its way, and the endpoint's last Retry-After."""
    blocked, not_before = waited
    waited_for = decide.waited_for(queued.planned_at, not_before, blocked, now)
    return Opened(now, url, signed_with, waited_for, max(0, now - queued.planned_at))


# --- settling


class Result(NamedTuple):
    """What became of a claim. Without `ended_at` it was never opened."""

    claim: Claim
    ended_at: int | None
    code: int | None = None
    failure: str | None = None
    detail: str = ""
    retry_after: str | None = None
    timings: dict[str, float] = {}  # noqa: RUF012 (never changed)
    duration_ms: float | None = None
    remote_ip: str | None = None
    response: bytes = b""
    connection_closed: bool = False
    shortage: str = ""  # what the service ran out of, if that is why it was never sent

    @property
    def is_made_again(self) -> bool:
        """On a new connection: this one says nothing about the endpoint."""
        return self.connection_closed and self.attempted().is_made_again

    @property
    def well(self) -> bool:
        return decide.succeeded(self.code, self.failure)

    def attempted(self) -> Attempted:
        queued = self.claim.queued
        return Attempted(
            queued.id, self.claim.number, queued.used, queued.interrupted, self.claim.opened.url, self.code,
            self.failure, self.retry_after, clock.from_milliseconds(self.ended_at or 0), queued.because,
            self.connection_closed,
        )  # fmt: skip


class Settled(NamedTuple):
    retries: list[tuple[Key, int]]  # endpoint, and when its next retry is due
    overtaken: list[Result]  # settled by nobody here: another worker took the delivery meanwhile
    not_before: dict[Key, int]  # of endpoints that failed: until when they asked for no attempts, as stored


class Over(NamedTuple):
    """A result, with what is to be written of it as far as that depends on nothing in the store."""

    result: Result
    attempt: Attempt
    ending: Ending | None  # where the attempt went well
    counted: tuple[str, ...]  # the same


def over(result: Result, worker: str) -> Over:
    """Worked out as soon as the attempt is over, while nobody waits for our commit."""
    made = attempt(result, worker)
    if made.outcome != "succeeded":
        return Over(result, made, None, ())
    return Over(result, made, _ending(result, _DELIVERED), _counted(result, _DELIVERED))


class Ready(NamedTuple):
    """Results, sorted out before the commit."""

    well: dict[Key, Over]
    others: dict[Key, Over]
    of_note: list[Result]  # those that may say something new about how their endpoint is
    doubled: list[Result]  # their delivery has a later one here
    healthy: frozenset[Key]


def ready(results: Sequence[Over], healthy: frozenset[Key]) -> Ready:
    """`healthy` are endpoints that are known to have no bad health on record."""
    in_order = sorted(results, key=lambda each: (each.result.claim.key, each.result.claim.number))
    latest = {each.result.claim.key: each for each in in_order}
    noted = {each.result.claim.to for each in latest.values() if _may_be_of_note(each, healthy)}
    return Ready(
        {key: each for key, each in latest.items() if each.ending is not None},
        {key: each for key, each in latest.items() if each.ending is None},
        [each.result for each in latest.values() if each.result.claim.to in noted and each.result.ended_at is not None],
        [each.result for each in results if each is not latest[each.result.claim.key]],
        healthy,
    )


def _may_be_of_note(each: Over, healthy: frozenset[Key]) -> bool:
    if each.result.ended_at is None or each.result.is_made_again:
        return False
    return each.ending is None or each.result.claim.to not in healthy


def settle(tx: Tx, ready: Ready) -> Settled:
    """Write what became of attempts, each with everything that follows from it, in one commit."""
    ours = queue_rows.end_attempted(tx, ((*key, each.result.claim.number) for key, each in ready.well.items()))
    well = [each for key, each in ready.well.items() if key in ours]
    receivers: dict[Key, Receiver] = {}
    decided = [(each.result, _decide(tx, each.result, receivers)) for each in ready.others.values()]
    if decided:
        ours |= queue_rows.end_attempted(
            tx,
            ((*each.claim.key, each.claim.number) for each, decision in decided if not isinstance(decision, RetryAt)),
        )
        ours |= queue_rows.requeue(
            tx,
            (
                _requeued(each.claim.key, each.claim.number, decision)
                for each, decision in decided
                if isinstance(decision, RetryAt)
            ),
        )
    valid = [(each, decision) for each, decision in decided if each.claim.key in ours]
    attempts = [each.attempt for each in well]
    delivery_rows.add_attempts(tx, attempts + [each.attempt for key, each in ready.others.items() if key in ours])
    endings = [each.ending for each in well if each.ending is not None]
    endings += [_ending(each, decision) for each, decision in valid if each.ended_at is not None]
    delivery_rows.write_statuses(tx, endings)
    counted = Counter([(each.result.claim.account, each.counted) for each in well])
    counted.update((each.claim.account, _counted(each, decision)) for each, decision in valid)
    _tally(tx, counted)
    for each, decision in valid:
        if isinstance(decision, Ended):
            _tell_end(tx, each.claim, decision.reason, each)
    outcomes = [Outcome(each.claim.to, each.attempted(), each.claim.type) for each in ready.of_note
                if each.claim.key in ours and not each.is_made_again]  # fmt: skip
    not_before = endpoint_health.keep(tx, outcomes, ready.healthy)
    overtaken = [each.result for key, each in {**ready.well, **ready.others}.items() if key not in ours]
    return Settled(
        [(each.claim.to, decision.at) for each, decision in valid if isinstance(decision, RetryAt)],
        ready.doubled + overtaken,
        not_before,
    )


def _requeued(key: Key, number: int, to: RetryAt) -> tuple[bytes, bytes, int, int, int, str, int, int]:
    return (*key, number, to.at, to.planned_at, to.because, to.used, to.interrupted)


def _tally(tx: Tx, counted: Counter[tuple[str, tuple[str, ...]]]) -> None:
    """Most attempts end alike: they are counted as they ended, and only then by what is counted of each."""
    totals: Counter[tuple[str, str]] = Counter()
    for (account, several), count in counted.items():
        for what in several:
            totals[account, what] += count
    for (account, what), count in totals.items():
        tallies.add(tx, account, what, count)


def _decide(tx: Tx, result: Result, receivers: dict[Key, Receiver]) -> Decision:
    queued = result.claim.queued
    if result.ended_at is None:
        now = clock.milliseconds(tx.at)
        if result.shortage:
            return decide.after_shortage(result.claim.number, queued.used, queued.interrupted, now)
        return RetryAt(now, "released", queued.used, queued.interrupted)
    receiver = receivers.get(result.claim.to)
    if receiver is None:
        receiver = receivers[result.claim.to] = _receiver(tx, queued)
    return decide.after_attempt(result.attempted(), receiver)


def _receiver(tx: Tx, queued: Queued) -> Receiver:
    account, endpoint = whose(tx, queued.account, queued.endpoint)
    if account is None or endpoint is None:
        raise LookupError(queued.endpoint.hex())
    return Receiver(endpoint.url, endpoint.status, schedule(account, endpoint), endpoint.max_retry_after)


def schedule(account: Account, endpoint: Endpoint) -> list[int]:
    """The endpoint's own, or the account's."""
    found: list[int] = account["retry_schedule"] if endpoint.retry_schedule is None else endpoint.retry_schedule
    return found


def attempt(result: Result, worker: str) -> Attempt:
    """The attempt as it will be on record."""
    claim, queued, opened, ended_at = result.claim, result.claim.queued, result.claim.opened, result.ended_at
    if ended_at is None:
        outcome, at = "not_sent", opened.started_at
    else:
        outcome, at = "succeeded" if result.well else "failed", ended_at
    document = AttemptDocument(
        queued.planned_at, opened.started_at, at, opened.url, opened.signed_with, opened.waited_for, opened.waited_ms,
        worker, result.duration_ms, result.code, result.failure, result.detail, result.retry_after, result.timings,
        result.remote_ip, _text(result.response), _because(queued),
    )  # fmt: skip
    return Attempt(queued.account, queued.id, claim.number, outcome, _encode(document).decode())


def _because(queued: Queued) -> str:
    if queued.planned_at > queued.due:
        return "retry_after"
    return "" if queued.because == "event" else queued.because


def _text(response: bytes) -> str:
    """No database takes NUL as text."""
    return response.decode("utf-8", "replace").replace("\0", "�") if response else ""


def _ending(result: Result, decision: Decision) -> Ending:
    if isinstance(decision, RetryAt):
        return Ending(*result.claim.key, "pending", None, None, result.code, result.failure)
    reason = decision.reason if isinstance(decision, Ended) else "delivered"
    return deliveries.ending(*result.claim.key, reason, result.ended_at or 0, result.code, result.failure)


def _counted(result: Result, decision: Decision) -> tuple[str, ...]:
    """What the summary counts."""
    if result.ended_at is None:
        return ("attempt not_sent",)
    answered = result.code is not None and result.failure is None
    took = None if result.duration_ms is None else bucket(result.duration_ms)
    ended = "" if isinstance(decision, RetryAt) else decision.reason if isinstance(decision, Ended) else "delivered"
    return _counts((result.code or 0) // 100 if answered else 0, took, ended)


@lru_cache(4096)
def _counts(answer: int, took: int | None, ended: str) -> tuple[str, ...]:
    """Few are ever different: they are put together once."""
    return (
        f"attempt {answer}xx" if answer else "attempt none",
        *([] if took is None else [f"ms {took}"]),
        *([f"ended {ended}"] if ended else []),
    )


def _tell_end(tx: Tx, claim: Claim, reason: str, result: Result) -> None:
    if deliveries.ENDS[reason][0] == "failed":
        last = {"response_code": result.code, "failure": result.failure}
        _tell_failure(tx, claim.queued, claim.type, claim.number, reason, last)


def _tell_failure(tx: Tx, queued: Queued, type_: str, attempts: int, reason: str, last: dict[str, Any]) -> None:
    account = account_rows.load(tx, ids.text("acc", queued.account))
    if account is None:
        raise LookupError(queued.account.hex())
    data = {
        "endpoint": ids.text("ep", queued.endpoint),
        "event": ids.text("evt", queued.event),
        "event_type": type_,
        "ended_reason": reason,
        "attempts": attempts,
        **last,
    }
    record(tx, account, "webhook.delivery.failed", _ORIGIN, ids.text("dlv", queued.id), data)


# --- rescue


def interrupt(tx: Tx, found: Sequence[Queued]) -> int:
    """Close attempts whose worker is gone: on record as interrupted, and the deliveries go on. How many."""
    now = clock.milliseconds(tx.at)
    decided = [
        (each, decide.after_interruption(each.id, each.number, each.used, each.interrupted, now, _receiver(tx, each)))
        for each in found
    ]
    ours = queue_rows.requeue(
        tx, (_requeued((each.account, each.id), each.number, to) for each, to in decided if isinstance(to, RetryAt))
    )
    ended = [(each, to.reason) for each, to in decided if isinstance(to, Ended)]
    ours |= queue_rows.end_attempted(tx, ((each.account, each.id, each.number) for each, _ in ended))
    closed = [each for each in found if (each.account, each.id) in ours]  # the others were settled meanwhile
    delivery_rows.add_attempts(tx, (_interrupted(each, now) for each in closed))
    _end_all(tx, [(each, reason) for each, reason in ended if each in closed])
    for each in closed:
        tallies.add(tx, ids.text("acc", each.account), "attempt interrupted")
    return len(closed)


def _interrupted(queued: Queued, now: int) -> Attempt:
    return _unanswered(queued, now, "interrupted", "nobody knows what became of it: its worker is gone")


def _unanswered(queued: Queued, now: int, outcome: str, detail: str) -> Attempt:
    if queued.opened is None or queued.worker is None:
        raise ValueError("no attempt is open")
    opened = _opened.decode(queued.opened)
    document = AttemptDocument(
        queued.planned_at, opened.started_at, now, opened.url, opened.signed_with, opened.waited_for,
        opened.waited_ms, ids.text("wrk", queued.worker), detail=detail, because=_because(queued),
    )  # fmt: skip
    return Attempt(queued.account, queued.id, queued.number, outcome, _encode(document).decode())


def _end_all(tx: Tx, ended: Sequence[tuple[Queued, str]]) -> None:
    """The records of deliveries that end without an attempt of their own; their rows in the queue are gone by now."""
    now = clock.milliseconds(tx.at)
    known = delivery_rows.load_many(tx, ((each.account, each.id) for each, _ in ended))
    endings = []
    for each, reason in ended:
        delivery = known[each.account, each.id]
        code, failure = delivery.last_code, delivery.last_failure
        endings.append(deliveries.ending(each.account, each.id, reason, now, code, failure))
        tallies.add(tx, ids.text("acc", each.account), f"ended {reason}")
        if deliveries.ENDS[reason][0] == "failed":
            last = {"response_code": code, "failure": failure}
            _tell_failure(tx, each, delivery.event_type, each.number, reason, last)
    delivery_rows.write_statuses(tx, endings)


def rescue(tx: Tx, worker: bytes, keys: Iterable[Key] | None = None) -> int:
    """Close open attempts of a dead worker: those named, or some that are found. How many were closed.

    Finding them means reading the whole queue, so who rescues does that in a reading unit first.
    """
    found: Iterable[Queued | None] = queue_rows.open_attempts(tx, worker, _SLICE) if keys is None else _locked(tx, keys)
    return interrupt(tx, [each for each in found if each is not None and each.worker == worker])


def release(tx: Tx, worker: bytes, keys: Iterable[Key]) -> int:
    """Give back what a worker claimed without hearing of it: the store's answer was lost. None of it was ever sent."""
    now = clock.milliseconds(tx.at)
    found = [each for each in _locked(tx, keys) if each is not None and each.worker == worker]
    ours = queue_rows.requeue(
        tx,
        (
            _requeued((each.account, each.id), each.number, RetryAt(now, "released", each.used, each.interrupted))
            for each in found
        ),
    )
    detail = "never sent: the worker did not hear that it was its own"
    delivery_rows.add_attempts(
        tx, (_unanswered(each, now, "not_sent", detail) for each in found if (each.account, each.id) in ours)
    )
    for account, _ in ours:
        tallies.add(tx, ids.text("acc", account), "attempt not_sent")
    return len(ours)


def _locked(tx: Tx, keys: Iterable[Key]) -> list[Queued | None]:
    """Every live worker may be at it: one after the other, so that what one closed the next finds closed."""
    return [queue_rows.lock(tx, ids.text("acc", account), raw_id) for account, raw_id in sorted(keys)]


# --- sweeping: what ends because its endpoint or account stood still for too long, or is gone


def to_sweep(tx: Tx, keys: Iterable[Key]) -> list[Key]:
    """Those of these endpoints for which something waits that has to end."""
    return [key for key in keys if (found := _overdue(tx, key)) and queue_rows.has_older(tx, key, found[0])]


def sweep(tx: Tx, key: Key) -> int:
    """End a slice of what waits for one endpoint that stands still, if it has to end. How many were ended."""
    found = _overdue(tx, key)
    return _sweep_some(tx, key, *found) if found else 0


def _overdue(tx: Tx, key: Key) -> tuple[bytes, str] | None:
    """Which deliveries for the endpoint are not waited for any longer, those made before this id, and why."""
    account, endpoint = whose(tx, *key)
    if account is None or endpoint is None:
        return None
    if endpoint.status == "removed":
        return b"\xff" * 16, "endpoint_removed"
    since = min((at for at in (endpoint.disabled_at, account.suspended_at) if at is not None), default=None)
    limit = tx.at - timedelta(seconds=account.seconds("hold_limit"))
    if since is None or since > limit:
        return None
    return ids.lowest_at(clock.milliseconds(limit)), "held_too_long"


def _sweep_some(tx: Tx, key: Key, before: bytes, reason: str) -> int:
    found = queue_rows.of_endpoint(tx, key, before, _SLICE)
    dropped = queue_rows.end_unclaimed(tx, ((each.account, each.id, each.number) for each in found))
    ended = [each for each in found if (each.account, each.id) in dropped]
    _close_open(tx, ended)
    _end_all(tx, [(each, reason) for each in ended])
    return len(found)


def _close_open(tx: Tx, ended: Iterable[Queued]) -> None:
    """An attempt that is still open when its delivery ends stays on record as interrupted."""
    still_open = [each for each in ended if each.worker is not None]
    delivery_rows.add_attempts(tx, (_interrupted(each, clock.milliseconds(tx.at)) for each in still_open))
    for each in still_open:
        tallies.add(tx, ids.text("acc", each.account), "attempt interrupted")


# --- operators


def cancel(tx: Tx, account: Account, delivery: str) -> None:
    """End a delivery by hand."""
    queued = _unfinished(tx, account, delivery)
    queue_rows.end_unclaimed(tx, [(queued.account, queued.id, queued.number)])
    _close_open(tx, [queued])
    _end_all(tx, [(queued, "cancelled_by_operator")])


def retry(tx: Tx, account: Account, delivery: str) -> str:
    """Make the next attempt now; of a delivery that ended, make a new one. The id of the delivery that is tried."""
    found = delivery_rows.load(tx, account.id, delivery)
    if found is None:
        raise BadSetting(f"there is no delivery {delivery} in {account.name}; `gatepost delivery list` shows them")
    now = clock.milliseconds(tx.at)
    if found.status == "pending":
        queued = _unfinished(tx, account, delivery)
        if not queue_rows.set_due(tx, queued, now):
            raise BadSetting(f"{delivery} is being attempted right now; look again in a moment")
        tx.pending.wakeups.add((queued.account, queued.endpoint))
        return delivery
    if entry_rows.load(tx, account.id, found.event) is None:
        raise BadSetting(f"the event of {delivery} is no longer kept")
    endpoint = endpoint_rows.load(tx, account.id, ids.text("ep", found.endpoint))
    if endpoint is None or endpoint.status == "removed":
        raise BadSetting(f"the endpoint of {delivery} is removed, which is final")
    made = deliveries.born(
        found.account, ids.fresh(), found.subscription, found.endpoint, found.event, found.event_type,
        account.seconds("retention") // 86400, "retry",
    )  # fmt: skip
    delivery_rows.create(tx, [made], "operator")
    tallies.add(tx, account.id, "made")
    return ids.text("dlv", made.id)


def _unfinished(tx: Tx, account: Account, delivery: str) -> Queued:
    raw = ids.parse("dlv", delivery)
    queued = queue_rows.lock(tx, account.id, raw) if raw else None
    if queued is None:
        raise BadSetting(f"{delivery} is not an unfinished delivery of {account.name}")
    return queued
