"""Schemas of GET /webhooks/deliveries: its parameters, a page of records, and its two other views."""

from itertools import permutations
from typing import get_args

from gatepost.ledger.entries import PLATFORM_TYPE
from gatepost.web.deliveries import VIEWS
from gatepost.web.openapi.parts import (
    INSTANT,
    Json,
    among,
    count,
    identifier,
    listed,
    or_null,
    ref,
    shown,
    text,
    whole,
)
from gatepost.webhooks.deliveries import BECAUSE, ENDS, FAILURES, Outcome, Status
from gatepost.webhooks.listing import LIMIT, MOST
from gatepost.webhooks.render import INCLUDES
from gatepost.webhooks.summary import CLASSES, SECONDS

_STATUS = list(get_args(Status))
_MILLISECONDS: Json = {"type": "number", "minimum": 0}

# parameter → its schema, and what it is for.
QUERY: dict[str, tuple[Json, str]] = {
    "id": (identifier("dlv"), ""),
    "endpoint_id": (identifier("ep"), ""),
    "subscription_id": (identifier("sub"), ""),
    "event_id": (identifier("evt"), ""),
    "event_type": (text(256, pattern=f"^{PLATFORM_TYPE.pattern}$", examples=["invoice.paid"]), ""),
    "status": (among(_STATUS), ""),
    "response_code": (
        {"type": "string", "pattern": "^[1-5](?:[0-9]{2}|xx)$", "examples": ["503", "5xx"]},
        "Of the last attempt: a code, or a class of codes.",
    ),
    "failure": (among(list(FAILURES)), "Of the last attempt: the phase in which it failed."),
    "created_after": (INSTANT, "From then on."),
    "created_before": (INSTANT, ""),
    "due_before": (INSTANT, "Unfinished deliveries only, in the order in which they are due."),
    "limit": (
        whole(1, MOST, f"The default is {LIMIT}."),
        "A page may have fewer, even none, and yet not be the last: only that has a null next_cursor.",
    ),
    "cursor": (text(128), "The next_cursor of the page before, with the same filters and order."),
    "order": (among(["newest", "oldest"]), "The default is newest; with due_before, oldest."),
    "include": (
        among([",".join(each) for size in (1, 2) for each in permutations(INCLUDES, size)]),
        "Also the body that is sent, and the start of what each attempt was answered.",
    ),
    "view": (
        among([name for name in VIEWS if name != "deliveries"]),
        "Instead of deliveries, the account's health or its endpoints. "
        + " ".join(f"{name} takes only {', '.join(VIEWS[name])}." for name in ("summary", "endpoints")),
    ),
    "interval": (among(list(SECONDS)), "Of a summary. The default is hour."),
}


def _attempt() -> Json:
    phases = dict.fromkeys(("dns_ms", "connect_ms", "tls_ms", "first_byte_ms"), _MILLISECONDS)
    members = {
        "number": {"type": "integer", "minimum": 1},
        "because": or_null(among(list(BECAUSE), "Why it was made. Null in old records.")),
        "planned_at": INSTANT,
        "started_at": INSTANT,
        "ended_at": or_null(INSTANT),
        "duration_ms": or_null(_MILLISECONDS),
        "outcome": or_null(among(list(get_args(Outcome)), "Null while it is under way.")),
        "response_code": or_null({"type": "integer"}),
        "failure": or_null(among(list(FAILURES), "The phase in which it failed.")),
        "detail": {"type": "string", "description": "What happened, in words."},
        "retry_after": {"type": "string", "description": "As the receiver sent it."},
        "timings": shown(phases, *phases, description="Since the start: phases that were reached."),
        "url": {"type": "string"},
        "remote_ip": or_null({"type": "string"}),
        "signed_with": listed(identifier("sk")),
        "waited": shown({"for": among(["plan", "rate_limit", "retry_after", "window", "turn"]), "ms": count()}),
        "worker": identifier("wrk"),
        "response": {"type": "string", "description": "The start of the body, with include=responses."},
    }
    return shown(members, "retry_after", "response")


def _delivery() -> Json:
    planned = {"number": {"type": "integer", "minimum": 1}, "at": INSTANT, "because": among(list(BECAUSE))}
    retries = {
        "made": count(),
        "remaining": count(),
        "next_at": or_null(INSTANT | {"description": "Exact."}),
        "plan": listed(shown(planned), "The first is exact; the later ones assume that each fails at once."),
    }
    members = {
        "id": identifier("dlv"),
        "account": identifier("acc"),
        "endpoint": shown({"id": identifier("ep"), "url": {"type": "string"}}),
        "subscription_id": identifier("sub"),
        "event": shown({"id": identifier("evt"), "type": {"type": "string"}, "at": INSTANT}),
        "status": among(_STATUS),
        "created_at": INSTANT,
        "ended_at": or_null(INSTANT),
        "ended_reason": or_null(among(list(ENDS))),
        "trigger": among(["event", "replay", "retry"]),
        "attempts": listed(_attempt()),
        "retries": shown(retries),
        "payload": {"description": "The body that is sent, with include=payload."},
    }
    return shown(members, "payload", description="One event for one subscription, and every attempt to deliver it.")


def _tally() -> dict[str, Json]:
    return {
        "deliveries": shown({"made": count(), "ended": shown(dict.fromkeys(ENDS, count()))}),
        "attempts": shown(dict.fromkeys(CLASSES, count()), description="By the class of what was answered."),
        "success_ratio": or_null({"type": "number", "minimum": 0, "maximum": 1}),
        "duration_ms": shown(dict.fromkeys(("p50", "p95", "p99"), or_null(_MILLISECONDS))),
    }


def _paged(items: Json) -> Json:
    return shown({"data": listed(items), "next_cursor": or_null({"type": "string"})})


def schemas() -> dict[str, Json]:
    now = dict.fromkeys(("pending", "held", "in_flight"), count())
    now |= {"counted_to": count("Up to this the counts are exact."), "oldest_pending_at": or_null(INSTANT)}
    subscribed = {"allOf": [ref("Endpoint"), shown({"subscriptions": listed(ref("Subscription"))})]}
    return {
        "Deliveries": {"anyOf": [ref("DeliveryPage"), ref("DeliverySummary"), ref("EndpointPage")]},
        "DeliveryPage": _paged(ref("Delivery")),
        "Delivery": _delivery(),
        "DeliverySummary": shown(
            {"data": listed(shown({"start": INSTANT} | _tally())), "total": shown(_tally()), "now": shown(now)}
        ),
        "EndpointPage": _paged(subscribed),
    }
