"""Schemas of the responses of GET /webhooks/deliveries: a page of deliveries, and its two other views."""

from datetime import timedelta
from typing import get_args

from gatepost.core.json_schema import DATE_TIME, Json, array, count, identifier, nullable, one_of, ref, response_object
from gatepost.webhooks.deliveries import BECAUSE, ENDS, FAILURES, Outcome, Status
from gatepost.webhooks.endpoint_activity import DEGRADED, LAST_DELIVERY, MAX_WAITING, RECENT, Condition
from gatepost.webhooks.summary import CLASSES

_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "integer", "minimum": 1}
_MILLISECONDS: Json = {"type": "number", "minimum": 0}
_RATIO: Json = {"type": "number", "minimum": 0, "maximum": 1}


def _attempt() -> Json:
    timings = dict.fromkeys(("dns_ms", "connect_ms", "tls_ms", "first_byte_ms"), _MILLISECONDS)
    members = {
        "number": _NUMBER,
        "because": nullable(one_of(BECAUSE, description="Why the attempt was made. Null in old records.")),
        "planned_at": DATE_TIME,
        "started_at": DATE_TIME,
        "ended_at": nullable(DATE_TIME),
        "duration_ms": nullable(_MILLISECONDS),
        "outcome": nullable(one_of(get_args(Outcome), description="Null while the attempt is in progress.")),
        "response_code": nullable({"type": "integer"}),
        "failure": nullable(one_of(FAILURES, description="The phase in which the attempt failed.")),
        "detail": _TEXT | {"description": "What happened, for people."},
        "retry_after": _TEXT | {"description": "The header as the receiver sent it."},
        "timings": response_object(timings, *timings, description="Time since the start, for each phase reached."),
        "url": _TEXT,
        "remote_ip": nullable(_TEXT),
        "signed_with": array(identifier("sk")),
        "waited": response_object(
            {"for": one_of(["plan", "rate_limit", "retry_after", "window", "turn"]), "ms": count()}
        ),
        "worker": identifier("wrk"),
        "response": _TEXT | {"description": "The start of the response body, with include=responses."},
    }
    return response_object(members, "retry_after", "response")


def _delivery() -> Json:
    retries = {
        "made": count(),
        "remaining": count(),
        "next_at": nullable(DATE_TIME | {"description": "The exact time of the next attempt."}),
        "plan": array(
            response_object({"number": _NUMBER, "at": DATE_TIME, "because": one_of(BECAUSE)}),
            description="The first attempt is exact. The later ones assume that each attempt fails at once.",
        ),
    }
    members = {
        "id": identifier("dlv"),
        "account": identifier("acc"),
        "endpoint": response_object({"id": identifier("ep"), "url": _TEXT}),
        "subscription_id": identifier("sub"),
        "event": response_object({"id": identifier("evt"), "type": _TEXT, "at": DATE_TIME}),
        "status": one_of(get_args(Status)),
        "created_at": DATE_TIME,
        "ended_at": nullable(DATE_TIME),
        "ended_reason": nullable(one_of(ENDS)),
        "trigger": one_of(["event", "replay", "retry"]),
        "attempts": array(_attempt()),
        "retries": response_object(retries),
        "payload": {"description": "The body that is sent, with include=payload."},
    }
    described = "One event for one subscription, with every attempt to deliver it."
    return response_object(members, "payload", description=described)


def _page(items: Json) -> Json:
    return response_object({"data": array(items), "next_cursor": nullable(_TEXT)})


def _activity(counts: dict[str, Json]) -> dict[str, Json]:
    """What view=endpoints adds to an endpoint. `counts` are the members of a summary."""
    minutes = RECENT // timedelta(minutes=1)
    last = {
        "id": identifier("dlv"),
        "created_at": DATE_TIME,
        "ended_at": nullable(DATE_TIME),
        "ended_reason": nullable(one_of(ENDS)),
        "response_code": nullable({"type": "integer"}),
        "failure": nullable(one_of(FAILURES)),
    }
    return {
        "condition": one_of(
            get_args(Condition),
            description=f"failing: the last attempt failed, and none succeeded in the last {minutes} minutes. "
            f"degraded: less than {DEGRADED:.0%} of the attempts in the last {minutes} minutes succeeded.",
        ),
        "recent": response_object(
            {"since": DATE_TIME, "attempts_per_second": {"type": "number", "minimum": 0}} | counts,
            description=f"The counts of the last {minutes} minutes.",
        ),
        "waiting": count(maximum=MAX_WAITING, description=f"Unfinished deliveries, counted up to {MAX_WAITING}."),
        "oldest_due_at": nullable(DATE_TIME | {"description": "The earliest due time of unfinished deliveries."}),
        "last_delivery": nullable(
            response_object(last, description=f"The newest delivery, if it is at most {LAST_DELIVERY.days} days old.")
        ),
    }


def schemas() -> dict[str, Json]:
    """The components of the operation."""
    tally = {
        "deliveries": response_object({"made": count(), "ended": response_object(dict.fromkeys(ENDS, count()))}),
        "attempts": response_object(dict.fromkeys(CLASSES, count()), description="Attempts by class of response."),
        "success_ratio": nullable(_RATIO | {"description": "Of ended deliveries: the share that was delivered."}),
        "attempt_success_ratio": nullable(
            _RATIO | {"description": "Of attempts with a known result: the share with a 2xx response."}
        ),
        "duration_ms": response_object(
            dict.fromkeys(("p50", "p95", "p99"), nullable(_MILLISECONDS)),
            description="Percentiles of the duration of attempts with a response.",
        ),
    }
    now = dict.fromkeys(("pending", "held", "in_flight"), count()) | {
        "counted_to": count(description="Counts are exact up to this number."),
        "oldest_pending_at": nullable(DATE_TIME),
    }
    summary = {
        "data": array(response_object({"start": DATE_TIME} | tally)),
        "total": response_object(tally),
        "now": response_object(now),
    }
    added = {"subscriptions": array(ref("Subscription"))} | _activity(tally)
    return {
        "Deliveries": {"anyOf": [ref("DeliveryPage"), ref("DeliverySummary"), ref("EndpointPage")]},
        "DeliveryPage": _page(ref("Delivery")),
        "Delivery": _delivery(),
        "DeliverySummary": response_object(summary),
        "EndpointPage": _page({"allOf": [ref("Endpoint"), response_object(added)]}),
    }
