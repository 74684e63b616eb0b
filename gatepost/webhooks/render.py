"""A delivery as GET /webhooks/deliveries shows it: the record, every attempt, and the plan for those to come. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gatepost.core import clock, ids
from gatepost.ledger.entries import Entry
from gatepost.webhooks import deliveries, message, plan
from gatepost.webhooks.deliveries import Attempt, AttemptDocument, Delivery, Opened, Queued
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.message import Told
from gatepost.webhooks.plan import Planned

Json = dict[str, Any]

INCLUDES = ("payload", "responses")

_opened = msgspec.json.Decoder(Opened)
_document = msgspec.json.Decoder(AttemptDocument)


def shown(
    delivery: Delivery, queued: Queued | None, attempts: Sequence[Attempt], *, endpoint: Endpoint,
    schedule: Sequence[int], entry_at: int | None, at: int, still: bool = False, not_before: int | None = None,
    include: frozenset[str] = frozenset(), entry: Entry | None = None,
) -> Json:  # fmt: skip
    """`still`: its endpoint or account stands still; `not_before`: the endpoint's own Retry-After; `at`: now.

    `entry_at` is None when the event is no longer kept. `entry` is needed only to include the payload.
    """
    status = delivery.status if queued is None else deliveries.shown_status(queued, still=still)
    made = [_attempt(each, include) for each in attempts]
    if queued is not None and queued.opened is not None:
        made.append(_open_attempt(queued, include))
    record: Json = {
        "id": ids.text("dlv", delivery.id),
        "account": ids.text("acc", delivery.account),
        "endpoint": {"id": endpoint.id, "url": endpoint.url},
        "subscription_id": ids.text("sub", delivery.subscription),
        "event": {
            "id": ids.text("evt", delivery.event),
            "type": delivery.event_type,
            "at": _time(entry_at) if entry_at is not None else clock.rfc3339(ids.made_at(delivery.event)),
        },
        "status": status,
        "created_at": clock.rfc3339(ids.made_at(delivery.id)),
        "ended_at": _time(delivery.ended_at),
        "ended_reason": delivery.ended_reason,
        "trigger": delivery.origin,
        "attempts": made,
        "retries": _retries(made, _planned(queued, schedule, at, not_before), waits=status == "pending"),
    }
    if "payload" in include:
        record["payload"] = None if entry is None else payload(entry, endpoint.format)
    return record


def payload(entry: Entry, format_: str) -> Any:
    """The body that is sent of the event, as JSON."""
    return msgspec.json.decode(message.body(Told(entry.account, entry.name, entry.type, entry.at, entry.data), format_))


# --- attempts


def _attempt(attempt: Attempt, include: frozenset[str]) -> Json:
    found = _document.decode(attempt.document)
    because = found.because or ("event" if attempt.number == 1 else None)
    told = _told(attempt.number, because, found.planned_at, found, found.worker) | {
        "ended_at": _time(found.ended_at),
        "duration_ms": found.duration_ms,
        "outcome": attempt.outcome,
        "response_code": found.response_code,
        "failure": found.failure,
        "detail": found.detail,
        "timings": found.timings,
        "remote_ip": found.remote_ip,
    }
    if found.retry_after is not None:
        told["retry_after"] = found.retry_after
    if "responses" in include:
        told["response"] = found.response
    return told


def _open_attempt(queued: Queued, include: frozenset[str]) -> Json:
    """The one that is under way, as it was written before its socket was opened."""
    found = _opened.decode(queued.opened or "")
    because = "retry_after" if queued.planned_at > queued.due else queued.because
    told = _told(queued.number, because, queued.planned_at, found, ids.text("wrk", queued.worker or b""))
    return told | ({"response": ""} if "responses" in include else {})


def _told(number: int, because: str | None, planned_at: int, found: Opened | AttemptDocument, worker: str) -> Json:
    return {
        "number": number,
        "because": because,
        "planned_at": _time(planned_at),
        "started_at": _time(found.started_at),
        "ended_at": None,
        "duration_ms": None,
        "outcome": None,
        "response_code": None,
        "failure": None,
        "detail": "",
        "timings": {},
        "url": found.url,
        "remote_ip": None,
        "signed_with": found.signed_with,
        "waited": {"for": found.waited_for, "ms": found.waited_ms},
        "worker": worker,
    }


# --- retries


def _planned(queued: Queued | None, schedule: Sequence[int], at: int, not_before: int | None) -> list[Planned]:
    """The attempts to come. While one is under way they assume that it fails now."""
    if queued is None:
        return []
    if queued.worker is None:
        used, next_ = queued.used, Planned(queued.number + 1, queued.due, queued.because)
    else:
        used = queued.used + 1
        wait = plan.delay(schedule, used, queued.id, queued.number + 1)
        if wait is None:
            return []
        next_ = Planned(queued.number + 1, at + wait, "schedule")
    return plan.remaining(schedule, used, queued.id, plan.postponed(next_, not_before))


def _retries(attempts: Sequence[Json], planned: Sequence[Planned], *, waits: bool) -> Json:
    """A retry is every attempt after the first that was made. Only what waits for its time has a next one."""
    made = sum(each["outcome"] != "not_sent" for each in attempts)
    return {
        "made": max(0, made - 1),
        "remaining": len(planned) if made else max(0, len(planned) - 1),
        "next_at": _time(planned[0].at) if waits and planned else None,
        "plan": [{"number": each.number, "at": _time(each.at), "because": each.because} for each in planned],
    }


def _time(stored: int | None) -> str | None:
    return None if stored is None else clock.rfc3339(clock.from_milliseconds(stored))
