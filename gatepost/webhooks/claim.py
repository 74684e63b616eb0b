"""Claims deliveries that are due: their attempts are recorded as open, and are the worker's until the lease ends.

Later writes about an attempt name its number: if a later attempt has begun, they change nothing.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks import decide, delivery_rows, endpoint_rows, queue_rows, recover
from gatepost.webhooks.deliveries import OpenAttempt, Queued
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.queue_rows import Lane, NextDue
from gatepost.webhooks.schedule import Turn

LEASE = timedelta(seconds=30)  # in addition to the endpoint's timeout
_encode = msgspec.json.Encoder().encode


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A delivery with the attempt that the worker is to make. The attempt is recorded as open."""

    queued: Queued  # as it was before; the attempt's number is one more
    number: int
    attempt: OpenAttempt
    delivery_id: str
    event_id: str
    account: str
    endpoint: Endpoint
    type: str
    at: int
    data: str | None
    key: Key
    endpoint_key: Key
    account_name: str = ""
    is_lost: bool = False  # the event is not in the ledger: the attempt fails, and says nothing about the endpoint


class LaneClaims(NamedTuple):
    """The claims from one lane, and the first due time that is left after the position of the turn.

    `not_before`: the endpoint asked for no attempts until then, so there are no claims; 0 if it did not.
    """

    lane: Lane
    endpoint: Endpoint
    claims: list[Claim]
    next_due: int | None
    not_before: int


class Claimed(NamedTuple):
    """The result of a claim."""

    lanes: list[LaneClaims]  # without those of inactive endpoints
    interrupted: int = 0  # attempts whose lease had ended

    @property
    def claims(self) -> list[Claim]:
        return [claim for lane in self.lanes for claim in lane.claims]


def claim(tx: Tx, worker: bytes, turns: Sequence[Turn]) -> Claimed:
    """Open attempts for deliveries that are due. An attempt whose lease has ended is interrupted first."""
    now = tx.now
    active = _active(tx, turns)
    pages = queue_rows.due(tx, ((turn.lane, turn.after, turn.limit) for turn, _, _ in active))
    lost = delivery_rows.load_many(tx, [each.queued.key for page in pages for each in page if each.type is None])
    claims_by_turn: list[list[Claim]] = []
    rows: list[tuple[bytes, bytes, int, bytes, str]] = []
    expired: list[Queued] = []
    for (turn, account, endpoint), page in zip(active, pages, strict=True):
        signed_with = [secret.id for secret in endpoint.secrets if secret.is_active(tx.at)]
        lease = now + (timedelta(seconds=endpoint.timeout) + LEASE) // timedelta(milliseconds=1)
        endpoint_key = turn.lane[:2]
        resumed_at = max(clock.milliseconds(at) if at else 0 for at in (endpoint.resumed_at, account.resumed_at))
        attempts: dict[int, tuple[OpenAttempt, str]] = {}  # deliveries planned for the same time have equal ones
        claims: list[Claim] = []
        delivery_ids = ids.texts("dlv", [due.queued.id for due in page])
        event_ids = ids.texts("evt", [due.queued.event for due in page])
        for (queued, type_, at, data, not_before), delivery_id, event_id in zip(
            page, delivery_ids, event_ids, strict=True
        ):
            if queued.worker is not None:
                expired.append(queued)
                continue
            attempt = attempts.get(queued.planned_at)
            if attempt is None:
                waited_for = decide.waited_for(queued.planned_at, not_before, resumed_at, turn.waited_for, now)
                waited_ms = max(0, now - queued.planned_at)
                opened = OpenAttempt(now, endpoint.url, signed_with, waited_for, waited_ms)
                attempt = attempts[queued.planned_at] = (opened, _encode(opened).decode())
            key = queued[:2]
            rows.append((*key, lease, worker, attempt[1]))
            claims.append(
                Claim(
                    queued, queued.number + 1, attempt[0], delivery_id, event_id, account.id, endpoint,
                    type_ or lost[key].event_type, at, data, key, endpoint_key, account.name, key in lost,
                )
            )  # fmt: skip
        claims_by_turn.append(claims)
    if rows:
        queue_rows.claim(tx, rows)
    interrupted = recover.interrupt(tx, expired) if expired else 0
    more = NextDue(now, 0)
    full = {turn.lane: more for (turn, _, _), page in zip(active, pages, strict=True) if len(page) == turn.limit}
    others = {turn.lane: turn.after for turn, _, _ in active if turn.lane not in full}
    next_due = {**full, **dict(zip(others, queue_rows.next_due(tx, others.items()), strict=True))}
    lanes = [
        LaneClaims(turn.lane, endpoint, claims, *next_due[turn.lane])
        for (turn, _, endpoint), claims in zip(active, claims_by_turn, strict=True)
    ]
    return Claimed(lanes, interrupted)


def _active(tx: Tx, turns: Sequence[Turn]) -> list[tuple[Turn, Account, Endpoint]]:
    """The turns of active endpoints in active accounts."""
    active: list[tuple[Turn, Account, Endpoint]] = []
    for turn in turns:
        account, endpoint = endpoint_rows.load_with_account(tx, turn.lane[:2])
        if account is not None and endpoint is not None and account.active and endpoint.status == "active":
            active.append((turn, account, endpoint))
    return active
