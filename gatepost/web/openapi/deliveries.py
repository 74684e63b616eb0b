"""Schemas of GET /webhooks/deliveries: its parameters, a page of deliveries, and its two other views."""

from itertools import permutations
from typing import get_args

from gatepost.core.json_schema import (
    DATE_TIME,
    Json,
    array,
    count,
    identifier,
    integer,
    nullable,
    one_of,
    ref,
    response_object,
    string,
)
from gatepost.ledger.entries import PLATFORM_TYPE
from gatepost.web.deliveries import VIEWS
from gatepost.webhooks.deliveries import BECAUSE, ENDS, FAILURES, Outcome, Status
from gatepost.webhooks.listing import DEFAULT_LIMIT, MAX_LIMIT
from gatepost.webhooks.render import INCLUDES
from gatepost.webhooks.summary import CLASSES, SECONDS

_STATUS = list(get_args(Status))
_MILLISECONDS: Json = {"type": "number", "minimum": 0}

# parameter → its schema and its description.
QUERY: dict[str, tuple[Json, str]] = {
    "id": (identifier("dlv"), ""),
    "endpoint_id": (identifier("ep"), ""),
    "subscription_id": (identifier("sub"), ""),
    "event_id": (identifier("evt"), ""),
    "event_type": (string(1, 256, pattern=f"^{PLATFORM_TYPE.pattern}$", examples=["invoice.paid"]), ""),
    "status": (one_of(_STATUS), ""),
    "response_code": (
        {"type": "string", "pattern": "^[1-5](?:[0-9]{2}|xx)$", "examples": ["503", "5xx"]},
        "The response code of the last attempt: a code, or a class of codes.",
    ),
    "failure": (one_of(FAILURES), "The phase in which the last attempt failed."),
    "created_after": (DATE_TIME, "Deliveries created at this time or later."),
    "created_before": (DATE_TIME, "Deliveries created before this time."),
    "due_before": (DATE_TIME, "Only unfinished deliveries, in the order in which they are due."),
    "limit": (
        integer(1, MAX_LIMIT),
        f"Default: {DEFAULT_LIMIT}. A page may have fewer items, even none. Only the last page has a null next_cursor.",
    ),
    "cursor": (string(1, 128), "The next_cursor of the previous page, with the same filters and order."),
    "order": (one_of(["newest", "oldest"]), "Default: newest; with due_before, oldest."),
    "include": (
        one_of(",".join(names) for size in (1, 2) for names in permutations(INCLUDES, size)),
        "Adds the body that is sent, or the start of the response body of each attempt.",
    ),
    "view": (
        one_of(name for name in VIEWS if name != "deliveries"),
        "Returns a summary or the endpoints instead of deliveries. "
        + " ".join(f"{name} accepts only {', '.join(VIEWS[name])}." for name in ("summary", "endpoints")),
    ),
    "interval": (one_of(SECONDS), "The interval of a summary. Default: hour."),
}


def _attempt() -> Json:
    phases = dict.fromkeys(("dns_ms", "connect_ms", "tls_ms", "first_byte_ms"), _MILLISECONDS)
    members = {
        "number": {"type": "integer", "minimum": 1},
        "because": nullable(one_of(BECAUSE, description="Why the attempt was made. Null in old records.")),
        "planned_at": DATE_TIME,
        "started_at": DATE_TIME,
        "ended_at": nullable(DATE_TIME),
        "duration_ms": nullable(_MILLISECONDS),
        "outcome": nullable(one_of(get_args(Outcome), description="Null while the attempt is in progress.")),
        "response_code": nullable({"type": "integer"}),
        "failure": nullable(one_of(FAILURES, description="The phase in which the attempt failed.")),
        "detail": {"type": "string", "description": "What happened, for people."},
        "retry_after": {"type": "string", "description": "The header as the receiver sent it."},
        "timings": response_object(phases, *phases, description="Time since the start, for each phase reached."),
        "url": {"type": "string"},
        "remote_ip": nullable({"type": "string"}),
        "signed_with": array(identifier("sk")),
        "waited": response_object(
            {"for": one_of(["plan", "rate_limit", "retry_after", "window", "turn"]), "ms": count()}
        ),
        "worker": identifier("wrk"),
        "response": {"type": "string", "description": "The start of the response body, with include=responses."},
    }
    return response_object(members, "retry_after", "response")


def _delivery() -> Json:
    planned = {"number": {"type": "integer", "minimum": 1}, "at": DATE_TIME, "because": one_of(BECAUSE)}
    retries = {
        "made": count(),
        "remaining": count(),
        "next_at": nullable(DATE_TIME | {"description": "The exact time of the next attempt."}),
        "plan": array(
            response_object(planned),
            description="The first attempt is exact. The later ones assume that each attempt fails at once.",
        ),
    }
    members = {
        "id": identifier("dlv"),
        "account": identifier("acc"),
        "endpoint": response_object({"id": identifier("ep"), "url": {"type": "string"}}),
        "subscription_id": identifier("sub"),
        "event": response_object({"id": identifier("evt"), "type": {"type": "string"}, "at": DATE_TIME}),
        "status": one_of(_STATUS),
        "created_at": DATE_TIME,
        "ended_at": nullable(DATE_TIME),
        "ended_reason": nullable(one_of(ENDS)),
        "trigger": one_of(["event", "replay", "retry"]),
        "attempts": array(_attempt()),
        "retries": response_object(retries),
        "payload": {"description": "The body that is sent, with include=payload."},
    }
    return response_object(
        members, "payload", description="One event for one subscription, with every attempt to deliver it."
    )


def _tally() -> dict[str, Json]:
    return {
        "deliveries": response_object({"made": count(), "ended": response_object(dict.fromkeys(ENDS, count()))}),
        "attempts": response_object(dict.fromkeys(CLASSES, count()), description="Attempts by class of response."),
        "success_ratio": nullable({"type": "number", "minimum": 0, "maximum": 1}),
        "duration_ms": response_object(dict.fromkeys(("p50", "p95", "p99"), nullable(_MILLISECONDS))),
    }


def _paged(items: Json) -> Json:
    return response_object({"data": array(items), "next_cursor": nullable({"type": "string"})})


def schemas() -> dict[str, Json]:
    """The components of the operation."""
    now = dict.fromkeys(("pending", "held", "in_flight"), count())
    now |= {
        "counted_to": count(description="Counts are exact up to this number."),
        "oldest_pending_at": nullable(DATE_TIME),
    }
    subscribed = {"allOf": [ref("Endpoint"), response_object({"subscriptions": array(ref("Subscription"))})]}
    return {
        "Deliveries": {"anyOf": [ref("DeliveryPage"), ref("DeliverySummary"), ref("EndpointPage")]},
        "DeliveryPage": _paged(ref("Delivery")),
        "Delivery": _delivery(),
        "DeliverySummary": response_object(
            {
                "data": array(response_object({"start": DATE_TIME} | _tally())),
                "total": response_object(_tally()),
                "now": response_object(now),
            }
        ),
        "EndpointPage": _paged(subscribed),
    }
