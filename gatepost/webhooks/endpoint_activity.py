"""What happens at endpoints now, for view=endpoints: recent counts, the queue, the last delivery, and the condition."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.store.transaction import Tx
from gatepost.webhooks import delivery_rows, summary, tallies
from gatepost.webhooks.deliveries import Delivery

RECENT = timedelta(minutes=5)
LAST_DELIVERY = timedelta(days=7)
MAX_WAITING = 1000  # waiting deliveries of one endpoint are counted up to this number
DEGRADED = 0.95  # of attempts, below which an endpoint is degraded

Condition = Literal["healthy", "degraded", "failing", "disabled"]


def load(tx: Tx, account: Account, endpoints: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What to add to each of some rendered endpoints of an account."""
    since = clock.seconds(tx.at - RECENT) // tallies.MINUTE * tallies.MINUTE
    keys = [ids.raw(endpoint["id"]) for endpoint in endpoints]
    counts = tallies.load_of_endpoints(tx, account.id, keys, since, tx.now // 1000 + 1, tallies.MINUTE)
    queues = _queues(tx, account, endpoints)
    newest = [(ids.raw(account.id), queue.newest) for queue in queues.values() if queue.newest is not None]
    deliveries = {key[1]: delivery for key, delivery in delivery_rows.load_many(tx, newest).items()}
    tx.check_snapshot()
    added = []
    for key, endpoint in zip(keys, endpoints, strict=True):
        recent, queue = summary.total(counts[key]), queues[endpoint["id"]]
        sent = sum(recent["attempts"].values()) - recent["attempts"]["not_sent"]
        rate = round(sent / (tx.now / 1000 - since), 3)
        added.append(
            {
                "condition": condition(endpoint, recent["attempt_success_ratio"]),
                "recent": {"since": _time(since * 1000), "attempts_per_second": rate} | recent,
                "waiting": queue.waiting,
                "oldest_due_at": _postponed(queue.due, endpoint["health"]["retry_after_until"]),
                "last_delivery": _last(deliveries.get(queue.newest or b"")),
            }
        )
    return added


def condition(endpoint: Mapping[str, Any], success_ratio: float | None) -> Condition:
    """The condition of an endpoint, by the share of its recent attempts that succeeded.

    A failing endpoint has failures since its last success, which is not recent. A degraded one has successes too.
    """
    if endpoint["status"] != "active":
        return "disabled"
    if not success_ratio and endpoint["health"]["consecutive_failures"]:
        return "failing"
    return "degraded" if success_ratio is not None and success_ratio < DEGRADED else "healthy"


class _Queue(NamedTuple):
    """The unfinished deliveries of an endpoint, and its newest delivery."""

    waiting: int
    due: int | None
    newest: bytes | None


def _queues(tx: Tx, account: Account, endpoints: Sequence[Mapping[str, Any]]) -> dict[str, _Queue]:
    since = ids.lowest_at(clock.milliseconds(tx.at - LAST_DELIVERY))
    given = [(ids.raw(account.id), ids.raw(endpoint["id"]), since) for endpoint in endpoints]
    return {
        ids.text("ep", raw): _Queue(waiting, min((due for due in dues if due is not None), default=None), newest)
        for raw, waiting, newest, *dues in tx.rows_given("endpoint_queues_given", given)
    }


def _postponed(due: int | None, until: str | None) -> str | None:
    """When the first delivery is due. A Retry-After postpones all deliveries of the endpoint."""
    return _time(due) if due is None or until is None else max(clock.rfc3339(clock.from_milliseconds(due)), until)


def _last(delivery: Delivery | None) -> dict[str, Any] | None:
    if delivery is None:
        return None
    return {
        "id": ids.text("dlv", delivery.id),
        "created_at": clock.rfc3339(ids.made_at(delivery.id)),
        "ended_at": _time(delivery.ended_at),
        "ended_reason": delivery.ended_reason,
        "response_code": delivery.last_code,
        "failure": delivery.last_failure,
    }


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else clock.rfc3339(clock.from_milliseconds(milliseconds))
