"""GET /webhooks/deliveries: checks the query string strictly. Only a refusal writes to the ledger."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, get_args

from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.ledger.entries import PLATFORM_TYPE
from gatepost.ledger.operations import Answer, Caller, refused
from gatepost.oauth import access_tokens
from gatepost.store.transaction import APPEND_ONLY, Tx
from gatepost.web import bearer
from gatepost.web.context import Context
from gatepost.web.definitions import reply
from gatepost.web.requests import Request, parameters
from gatepost.web.responses import Reply
from gatepost.webhooks import listing
from gatepost.webhooks.deliveries import FAILURES, Status
from gatepost.webhooks.listing import MAX_LIMIT, Query
from gatepost.webhooks.listing_query import DeliveryFilter
from gatepost.webhooks.render import INCLUDES
from gatepost.webhooks.summary import SECONDS

SCOPE = "gatepost:deliveries"
_REFUSED = "webhook.delivery.refused"


class Denied(NamedTuple):
    """The token does not allow the operation. This is recorded in the ledger; a malformed query is not."""

    caller: Caller
    why: Refusal


async def answer(context: Context, request: Request) -> Reply:
    sent = bearer.read_token(context, request)
    if sent is None:
        return bearer.unauthenticated(context, request, SCOPE)
    asked = query(request.query.encode("latin-1"))

    def read(tx: Tx) -> Answer | Denied | Refusal:
        caller = access_tokens.authenticate(tx, context.service, sent)
        if isinstance(caller, Refusal):
            return caller
        if SCOPE not in caller.scopes:
            return Denied(caller, Refusal("insufficient_scope", f"this operation needs the scope {SCOPE}", SCOPE))
        account = account_rows.load(tx, caller.account)
        if account is None:
            raise LookupError(caller.account)
        return asked if isinstance(asked, Refusal) else listing.answer(tx, context.service, account, asked)

    outcome = await (context.store.read(read) if sent.proof is None else context.store.run(read))
    if isinstance(outcome, Denied):
        denied = outcome

        def tell(tx: Tx) -> Answer:
            account = account_rows.load(tx, denied.caller.account)
            if account is None:
                raise LookupError(denied.caller.account)
            return refused(tx, account, _REFUSED, denied.caller.origin(request.id, request.source), denied.why)

        outcome = await context.store.run(tell, APPEND_ONLY)
    return reply(context, request, SCOPE, outcome)


# --- the query


class Invalid(NamedTuple):
    """What the value must be instead."""

    problem: str


def query(raw: bytes) -> Query | Refusal:
    """The parsed query string. Every parameter must be known, sent once, have a value, and belong to the view."""
    sent = parameters(raw)
    if isinstance(sent, Refusal):
        return sent
    if any(pair and not pair.partition(b"=")[2] for pair in raw.split(b"&")):
        return Refusal("invalid_request", "every parameter must have a value: leave out parameters that you do not use")
    read: dict[str, Any] = {}
    for name, (text,) in sent.items():
        if name not in PARAMETERS:
            return _bad(name, f"unknown parameter; the parameters are {', '.join(PARAMETERS)}")
        value = PARAMETERS[name](text)
        if isinstance(value, Invalid):
            return _bad(name, value.problem)
        read[name] = value
    view = read.pop("view", "deliveries")
    for name in read:
        if name not in VIEWS[view]:
            allowed = f"not allowed with view={view}, which allows {', '.join(VIEWS[view])}"
            return _bad(name, allowed if "view" in sent else "only allowed with view=summary")
    return _query(view, read)


def _query(view: Any, read: dict[str, Any]) -> Query:
    due = read.get("due_before")
    filters = DeliveryFilter(
        id=read.get("id"),
        endpoint=read.get("endpoint_id"),
        subscription=read.get("subscription_id"),
        event=read.get("event_id"),
        event_type=read.get("event_type"),
        status=read.get("status"),
        code=read.get("response_code"),
        failure=read.get("failure"),
        created_after=_floor(read["created_after"]) if "created_after" in read else None,
        created_before=_ceiling(read["created_before"]) if "created_before" in read else None,
        due_before=_ceiling(due) if due else None,
    )
    return Query(
        filters,
        view,
        newest=read.get("order", "oldest" if due else "newest") == "newest",
        limit=read.get("limit", listing.DEFAULT_LIMIT),
        cursor=read.get("cursor", ""),
        include=read.get("include", frozenset()),
        interval=read.get("interval", "hour"),
    )


def _bad(name: str, words: str) -> Refusal:
    return Refusal("invalid_request", f"{name[:64]}: {words}", name[:64])


def _floor(at: datetime) -> int:
    return clock.milliseconds(at)


def _ceiling(at: datetime) -> int:
    """The first millisecond that is not before `at`."""
    return clock.milliseconds(at) + (at.microsecond % 1000 > 0)


# --- single parameters

Read = Callable[[str], Any]  # returns the value, or Invalid


def _identifier(prefix: str, noun: str) -> Read:
    invalid = Invalid(f"must be the id of {noun}: {prefix}_ and 26 digits and letters")

    def read(text: str) -> bytes | Invalid:
        return ids.parse(prefix, text) or invalid

    return read


def _among(*choices: str) -> Read:
    return lambda text: text if text in choices else Invalid(f"must be one of {', '.join(choices)}")


def _event_type(text: str) -> str | Invalid:
    valid = len(text) <= 256 and PLATFORM_TYPE.fullmatch(text)
    return text if valid else Invalid("must be an event type, such as invoice.paid")


def _response_code(text: str) -> tuple[int, int] | Invalid:
    if not re.fullmatch(r"[1-5](?:[0-9]{2}|xx)", text):
        return Invalid("must be a code such as 503, or a class of codes such as 5xx")
    first = int(text.replace("x", "0"))
    return first, first + (100 if text.endswith("x") else 1)


def _instant(text: str) -> datetime | Invalid:
    found = clock.parse_rfc3339(text)
    return found or Invalid("must be a time with an offset, such as 2026-11-15T08:00:00Z (encode a + as %2B)")


def _limit(text: str) -> int | Invalid:
    valid = re.fullmatch(r"[0-9]{1,3}", text) and 1 <= int(text) <= MAX_LIMIT
    return int(text) if valid else Invalid(f"must be a whole number from 1 to {MAX_LIMIT}")


def _include(text: str) -> frozenset[str] | Invalid:
    named = text.split(",")
    valid = len(set(named)) == len(named) and set(named) <= set(INCLUDES)
    return frozenset(named) if valid else Invalid(f"must be one or more of {', '.join(INCLUDES)}, separated by commas")


# parameter → its parser. The first ones are filters.
PARAMETERS: dict[str, Read] = {
    "id": _identifier("dlv", "a delivery"),
    "endpoint_id": _identifier("ep", "an endpoint"),
    "subscription_id": _identifier("sub", "a subscription"),
    "event_id": _identifier("evt", "an event"),
    "event_type": _event_type,
    "status": _among(*get_args(Status)),
    "response_code": _response_code,
    "failure": _among(*FAILURES),
    "created_after": _instant,
    "created_before": _instant,
    "due_before": _instant,
    "limit": _limit,
    "cursor": lambda text: text,
    "order": _among("newest", "oldest"),
    "include": _include,
    "view": _among("summary", "endpoints"),
    "interval": _among(*SECONDS),
}
VIEWS: dict[str, tuple[str, ...]] = {
    "deliveries": tuple(name for name in PARAMETERS if name not in ("view", "interval")),
    "summary": ("interval", "created_after", "created_before"),
    "endpoints": ("limit", "cursor"),
}
