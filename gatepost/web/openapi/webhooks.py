"""Schemas of the webhook area: endpoints and subscriptions, one line for each member of their tables."""

from typing import get_args

from gatepost.core.webhook_signature import SECRET, Kind
from gatepost.ledger import entries
from gatepost.web.openapi.parts import (
    INSTANT,
    METADATA,
    Json,
    among,
    count,
    identifier,
    listed,
    or_null,
    ref,
    rotate_secret,
    sent,
    shown,
    text,
    url,
    when,
    whole,
)
from gatepost.webhooks import endpoints
from gatepost.webhooks.definitions import HELD

_WEEK = 7 * 86_400
_STATUS = ["active", "disabled", "removed"]
_DESCRIPTION = {"type": "string", "maxLength": 500, "description": "For people."}


def _any_case(pattern: str) -> str:
    return "".join(f"[{char.upper()}{char}]" if char.isalpha() else char for char in pattern)


_OURS = _any_case(
    "(?:webhook|content|proxy)-.*|host|authorization|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect"
    "|user-agent|cookie"
)
_BASE64 = "[A-Za-z0-9+/]"
_24_TO_62_BYTES = rf"(?:{_BASE64}{{4}}){{8,20}}(?:{_BASE64}{{2}}(?:==)?|{_BASE64}{{3}}=?)?"
_63_OR_64_BYTES = rf"(?:{_BASE64}{{4}}){{21}}(?:{_BASE64}{{2}}(?:==)?)?"

ENDPOINT: dict[str, Json] = {
    "url": url("Where webhooks are sent, to a public address.", "https://example.com/hooks"),
    "description": _DESCRIPTION,
    "headers": {
        "type": "object",
        "maxProperties": 20,
        "propertyNames": {
            "type": "string",
            "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$",
            "not": {"pattern": f"^(?:{_OURS})$"},
        },
        "additionalProperties": {"type": "string", "pattern": "^[!-~](?:[ -~]{0,1022}[!-~])?$"},
        "description": f"Sent along with every webhook. What looks like a credential is shown as {endpoints.HIDDEN}, "
        "and sent back so it stays as it is.",
        "examples": [{"x-tenant": "acme"}],
    },
    "timeout": whole(1, 30, "Seconds that an attempt may take. The default is 15."),
    "max_in_flight": whole(1, 1000, "Attempts under way at once, at most. The default is 16."),
    "rate_limit": whole(1, 10_000, "Attempts a second, at most. By default there is no limit."),
    "max_retry_after": whole(
        endpoints.LEAST_MAX_RETRY_AFTER,
        endpoints.MOST_MAX_RETRY_AFTER,
        "Seconds for which a Retry-After of the receiver is honoured, at most. The default is 3600.",
    ),
    "retry_schedule": listed(
        whole(1, _WEEK, "In seconds."),
        "Delays after failed attempts, each 10 % more or less. By default those of the account; none: no retries.",
        maxItems=24,
    ),
    "signing": among(list(get_args(Kind)), "v1 is HMAC-SHA256 and the default, v1a is Ed25519 (Standard Webhooks)."),
    "format": among(["standard", "cloudevents"], "Of the body. The default is standard."),
    "status": among(_STATUS, "A disabled one holds its deliveries back; a removed one has none, which is final."),
    "metadata": METADATA,
}
_SECRET = {
    "type": "string",
    "pattern": f"^{SECRET}(?:{_24_TO_62_BYTES}|{_63_OR_64_BYTES})$",
    "description": "A v1 secret that the receiver already has. By default one is made here.",
}
_ROTATE_SECRET = rotate_secret(_WEEK)
_NO_ROTATION: Json = {"rotate_secret": {"enum": [False, None]}}

_PART = "[a-z0-9_-]+"
_PATTERN = rf"^(?:\*|{entries.PLATFORM_TYPE.pattern}|{_PART}(?:\.{_PART})*\.\*)$"
_RESERVED = "|".join(prefix.removesuffix(".") for prefix in entries.RESERVED)


def _of_the_service() -> list[str]:
    """The types that the service has, and every prefix that stands for some of them."""
    parts = [name.split(".") for name in entries.TYPES]
    below = {".".join([*each[:depth], "*"]) for each in parts for depth in range(1, len(each))}
    return sorted({*entries.TYPES, *below})


SUBSCRIPTION: dict[str, Json] = {
    "endpoint_id": identifier("ep") | {"description": "Where the events go. It cannot change."},
    "events": listed(
        {
            "type": "string",
            "maxLength": 256,
            "anyOf": [
                {"pattern": _PATTERN, "not": {"pattern": rf"^(?:{_RESERVED})\."}},
                {"enum": _of_the_service()},
            ],
        },
        "Types, prefixes as invoice.*, or * for every type of the platform; those of the service must be named.",
        minItems=1,
        maxItems=100,
        uniqueItems=True,
        examples=[["invoice.*"]],
    ),
    "filter": {
        "type": "object",
        "maxProperties": 10,
        "propertyNames": {"type": "string", "maxLength": 256, "pattern": "^(?:/(?:[^~/]|~[01])*)+$"},
        "additionalProperties": {"type": ["string", "number", "boolean", "null"], "maxLength": 1024},
        "description": "JSON pointers into the data of an event (RFC 6901), and what must be there.",
        "examples": [{"/customer/country": "NL"}],
    },
    "status": among(_STATUS, "A disabled one matches nothing new, and its deliveries go on; removed is final."),
    "description": _DESCRIPTION,
}


def _endpoint_creation() -> Json:
    members = {name: or_null(schema) for name, schema in ENDPOINT.items()}
    members |= {"url": ENDPOINT["url"], "status": or_null(among(["active", "disabled"]))}
    members |= {"secret": or_null(_SECRET), "rotate_secret": or_null(_ROTATE_SECRET)}
    given = {"required": ["secret"], "properties": {"secret": {"type": "string"}}}
    alone = {"properties": _NO_ROTATION | {"signing": {"enum": ["v1", None]}}}
    return sent(members, "url", description="A new endpoint.") | {"if": given, "then": alone}


def _endpoint_redefinition() -> Json:
    members = {name: or_null(schema) for name, schema in ENDPOINT.items()}
    members |= {"id": identifier("ep"), "url": ENDPOINT["url"], "rotate_secret": or_null(_ROTATE_SECRET)}
    described = "Change the members sent of an endpoint of the account; with id alone, read it."
    return sent(members, "id", description=described) | when("status", "removed", _NO_ROTATION)


def _endpoint() -> Json:
    none = {"rate_limit", "retry_schedule"}
    health = {
        "consecutive_failures": count(),
        "failing_since": or_null(INSTANT),
        "will_be_disabled_at": or_null(INSTANT | {"description": "Unless it has a success before."}),
        "retry_after_until": or_null(INSTANT | {"description": "It asked for no attempts before."}),
    }
    secret = {
        "id": identifier("sk"),
        "created_at": INSTANT,
        "expires_at": or_null(INSTANT),
        "public": {"type": "string", "description": "The public key, for v1a."},
    }
    once = "In the answer that made it, and never again: for v1 the secret, for v1a the public key."
    return shown(
        {"id": identifier("ep"), "account": identifier("acc")}
        | {name: or_null(schema) if name in none else schema for name, schema in ENDPOINT.items()}
        | {
            "dropped_headers": {
                "type": "array",
                "items": {"type": "string"},
                "description": "In the answer to a change: headers that were dropped, because the origin of the URL "
                "changed and the request did not set their hidden values again.",
            },
            "disabled_reason": or_null(among(list(get_args(endpoints.Reason)))),
            "disabled_at": or_null(INSTANT),
            "health": shown(health, description="Since its last success."),
            "held": whole(0, HELD, f"Deliveries that wait for it to be resumed, counted up to {HELD}."),
            "secrets": listed(shown(secret, "public"), "Those that sign now, without what is secret."),
            "created_at": INSTANT,
            "updated_at": INSTANT,
            "secret": {"type": "string", "description": once},
        },
        "secret",
        "dropped_headers",
    )


def _replay() -> Json:
    """What is to be sent again: a range, or events by name. Null is the same as not sent."""
    events = listed(identifier("evt"), minItems=1, maxItems=100, uniqueItems=True)
    members = {
        "from": or_null(INSTANT),
        "until": or_null(INSTANT),
        "only": or_null(among(["failed"], "Those of which a delivery by this subscription failed.")),
        "event_ids": or_null(events),
    }
    nothing = {"type": "null"}
    by_range: list[Json] = [
        {"required": [name], "properties": {name: {"type": "string"}, "event_ids": nothing}}
        for name in ("from", "until", "only")
    ]
    named = dict.fromkeys(("from", "until", "only"), nothing) | {"event_ids": {"type": "array"}}
    described = "Make new deliveries of retained events: of a range, or of those named."
    return sent(members, description=described) | {
        "anyOf": [*by_range, {"required": ["event_ids"], "properties": named}]
    }


def _subscription_creation() -> Json:
    needed = ("endpoint_id", "events")
    members = {name: schema if name in needed else or_null(schema) for name, schema in SUBSCRIPTION.items()}
    members |= {"status": or_null(among(["active", "disabled"])), "replay": or_null(ref("Replay"))}
    return sent(members, *needed, description="A new subscription.")


def _subscription_redefinition() -> Json:
    never = ("endpoint_id", "events")
    members = {name: schema if name in never else or_null(schema) for name, schema in SUBSCRIPTION.items()}
    members |= {"id": identifier("sub"), "replay": or_null(ref("Replay"))}
    described = "Change the members sent of a subscription of the account; with id alone, read it."
    without = when("status", "removed", {"replay": {"type": "null"}})
    return sent(members, "id", description=described) | without


def _subscription() -> Json:
    asked = {"from": INSTANT, "until": INSTANT, "only": among(["failed"]), "event_ids": listed(identifier("evt"))}
    job = {
        "id": identifier("rpl"),
        "state": among(["running", "ended"]),
        "examined": count("Retained events looked at."),
        "made": count("New deliveries."),
    }
    replay = shown(job | asked, *asked, description="The latest one, and how far it is.")
    dated = {"created_at": INSTANT, "updated_at": INSTANT}
    whose = {"id": identifier("sub"), "account": identifier("acc")}
    return shown(whose | SUBSCRIPTION | dated | {"replay": or_null(replay)})


def schemas() -> dict[str, Json]:
    fault = shown({"pointer": {"type": "string", "pattern": "^/"}, "detail": text(4096)})
    problem = {"type": text(200), "title": text(200), "detail": text(4096), "code": text(64)}
    problem |= {"status": {"type": "integer"}, "errors": listed(fault)}
    return {
        "EndpointDefinition": {"anyOf": [ref("EndpointCreation"), ref("EndpointRedefinition")]},
        "EndpointCreation": _endpoint_creation(),
        "EndpointRedefinition": _endpoint_redefinition(),
        "Endpoint": _endpoint(),
        "SubscriptionDefinition": {"anyOf": [ref("SubscriptionCreation"), ref("SubscriptionRedefinition")]},
        "SubscriptionCreation": _subscription_creation(),
        "SubscriptionRedefinition": _subscription_redefinition(),
        "Replay": _replay(),
        "Subscription": _subscription(),
        "Problem": shown(problem, "errors"),
    }
