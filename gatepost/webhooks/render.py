"""Renders a delivery for GET /webhooks/deliveries: the record, its attempts, and the planned ones. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gatepost.core import clock, ids
from gatepost.ledger.entries import Entry
from gatepost.webhooks import deliveries, message, plan
from gatepost.webhooks.deliveries import Attempt, AttemptDocument, Delivery, OpenAttempt, Queued
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.message import EventMessage
from gatepost.webhooks.plan import Planned

Json = dict[str, Any]

INCLUDES = ("payload", "responses")

_open_attempts = msgspec.json.Decoder(OpenAttempt)
_documents = msgspec.json.Decoder(AttemptDocument)


def render_delivery(
    delivery: Delivery, queued: Queued | None, attempts: Sequence[Attempt], *, endpoint: Endpoint,
    schedule: Sequence[int], entry_at: int | None, at: int, inactive: bool = False, not_before: int | None = None,
    include: frozenset[str] = frozenset(), entry: Entry | None = None,
) -> Json:  # fmt: skip
    """The delivery as the API returns it at the time `at`.

    `inactive` tells whether the endpoint or the account is not active, and `not_before` is the endpoint's Retry-After.
    `entry_at` is None if the event is no longer retained. `entry` is needed only to include the payload.
    """
    status = delivery.status if queued is None else deliveries.unfinished_status(queued, inactive=inactive)
    rendered = [_ended_attempt(attempt, include) for attempt in attempts]
    if queued is not None and queued.opened is not None:
        rendered.append(_open_attempt(queued, include))
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
        "attempts": rendered,
        "retries": _retries(rendered, _planned(queued, schedule, at, not_before), waits=status == "pending"),
    }
    if "payload" in include:
        record["payload"] = None if entry is None else render_payload(entry, endpoint.format)
    return record


def render_payload(entry: Entry, format_: str) -> Any:
    """The body that is sent for the event, as JSON."""
    event = EventMessage(entry.account, entry.name, entry.type, entry.at, entry.data)
    return msgspec.json.decode(message.body(event, format_))


# --- attempts


def _ended_attempt(attempt: Attempt, include: frozenset[str]) -> Json:
    document = _documents.decode(attempt.document)
    because = document.because or ("event" if attempt.number == 1 else None)
    return _attempt(attempt.number, because, attempt.outcome, document, include)


def _open_attempt(queued: Queued, include: frozenset[str]) -> Json:
    attempt = _open_attempts.decode(queued.opened or "")
    document = AttemptDocument(
        queued.planned_at, attempt.started_at, 0, attempt.url, attempt.signed_with, attempt.waited_for,
        attempt.waited_ms, ids.text("wrk", queued.worker or b""),
    )  # fmt: skip
    return _attempt(queued.number, queued.planned_because, None, document, include)


def _attempt(
    number: int, because: str | None, outcome: str | None, document: AttemptDocument, include: frozenset[str]
) -> Json:
    """An attempt; one without an outcome has not ended."""
    rendered: Json = {
        "number": number,
        "because": because,
        "planned_at": _time(document.planned_at),
        "started_at": _time(document.started_at),
        "ended_at": None if outcome is None else _time(document.ended_at),
        "duration_ms": document.duration_ms,
        "outcome": outcome,
        "response_code": document.response_code,
        "failure": document.failure,
        "detail": document.detail,
        "timings": document.timings,
        "url": document.url,
        "remote_ip": document.remote_ip,
        "signed_with": document.signed_with,
        "waited": {"for": document.waited_for, "ms": document.waited_ms},
        "worker": document.worker,
    }
    if document.retry_after is not None:
        rendered["retry_after"] = document.retry_after
    if "responses" in include:
        rendered["response"] = document.response
    return rendered


# --- retries


def _planned(queued: Queued | None, schedule: Sequence[int], at: int, not_before: int | None) -> list[Planned]:
    """The planned attempts. While an attempt is in flight, the plan assumes that it fails now."""
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
    """Every attempt that is sent after the first one is a retry. Only a pending delivery has a time for the next."""
    sent = sum(attempt["outcome"] != "not_sent" for attempt in attempts)
    return {
        "made": max(0, sent - 1),
        "remaining": len(planned) if sent else max(0, len(planned) - 1),
        "next_at": _time(planned[0].at) if waits and planned else None,
        "plan": [{"number": number, "at": _time(at), "because": because} for number, at, because in planned],
    }


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else clock.rfc3339(clock.from_milliseconds(milliseconds))
