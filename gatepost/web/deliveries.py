"""GET /webhooks/deliveries: checks the query string strictly."""

import re
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any, NamedTuple, get_args

from gatepost.core import clock, ids, json_schema
from gatepost.core.errors import Refusal
from gatepost.core.json_schema import DATE_TIME, EXPECTS, Json, identifier, integer, matching, one_of, string
from gatepost.ledger.entries import PLATFORM_TYPE
from gatepost.ledger.operations import Answer, Caller
from gatepost.oauth import access_tokens
from gatepost.store.transaction import APPEND_ONLY, Tx
from gatepost.web import bearer
from gatepost.web.context import Context
from gatepost.web.definitions import insufficient_scope, load_account, record_refusal, reply
from gatepost.web.requests import Request, parameters
from gatepost.web.responses import Reply
from gatepost.webhooks import listing
from gatepost.webhooks.deliveries import FAILURES, Status
from gatepost.webhooks.listing import DEFAULT_LIMIT, MAX_LIMIT, Query
from gatepost.webhooks.listing_query import DeliveryFilter
from gatepost.webhooks.render import INCLUDES
from gatepost.webhooks.summary import SECONDS

SCOPE = "gatepost:deliveries"


async def answer(context: Context, request: Request) -> Reply:
    """Answer a query. Of the refusals, only a missing scope is recorded in the ledger."""
    token = bearer.read_token(context, request)
    if token is None:
        return bearer.unauthenticated(context, request, SCOPE)
    parsed = query(request.query.encode("latin-1"))

    def read(tx: Tx) -> Answer | Refusal | Caller:
        caller = access_tokens.authenticate(tx, context.service, token)
        if isinstance(caller, Refusal) or SCOPE not in caller.scopes:
            return caller
        account = load_account(tx, caller)
        return parsed if isinstance(parsed, Refusal) else listing.answer(tx, context.service, account, parsed)

    outcome = await (context.store.read(read) if token.proof is None else context.store.run(read))
    if isinstance(outcome, Caller):
        caller, refusal = outcome, insufficient_scope(SCOPE)
        outcome = await context.store.run(
            lambda tx: record_refusal(tx, caller, request, "webhook.delivery.refused", refusal), APPEND_ONLY
        )
    return reply(context, request, SCOPE, outcome)


# --- the query


class Parameter(NamedTuple):
    """A parameter of the query. The check of a value, its error message and the OpenAPI document use the schema."""

    schema: Json
    description: str = ""
    convert: Callable[[Any], Any] = str  # from a value that is valid by the schema; None if it is invalid nevertheless


def values_of(raw: bytes, known: Mapping[str, Parameter]) -> dict[str, Any] | Refusal:
    """The values of a query string by name. Every parameter must be known, sent once, and have a valid value."""
    sent = parameters(raw)
    if isinstance(sent, Refusal):
        return sent
    if any(pair and not pair.partition(b"=")[2] for pair in raw.split(b"&")):
        return Refusal("invalid_request", "every parameter must have a value: leave out parameters that you do not use")
    values: dict[str, Any] = {}
    for name, (text,) in sent.items():
        if name not in known:
            return _invalid(name, f"unknown parameter; the parameters are {', '.join(known)}")
        schema, _, convert = known[name]
        value = int(text) if schema["type"] == "integer" and re.fullmatch(r"[0-9]{1,3}", text) else text
        values[name] = None if json_schema.problem(schema, value) else convert(value)
        if values[name] is None:
            return _invalid(name, f"must be {json_schema.expectation(schema)}")
    return values


def query(raw: bytes) -> Query | Refusal:
    """The parsed query string. Every parameter must belong to the view."""
    values = values_of(raw, PARAMETERS)
    if isinstance(values, Refusal):
        return values
    has_view = "view" in values
    view = values.pop("view", "deliveries")
    for name in values:
        if name not in VIEWS[view]:
            allowed = f"not allowed with view={view}, which allows {', '.join(VIEWS[view])}"
            return _invalid(name, allowed if has_view else "only allowed with view=summary")
    filters = DeliveryFilter(**{_FIELDS.get(name, name): values.pop(name) for name in FILTERS if name in values})
    order = values.pop("order", "newest" if filters.due_before is None else "oldest")
    return Query(filters, view, newest=order == "newest", **values)


def _invalid(name: str, problem: str) -> Refusal:
    return Refusal("invalid_request", f"{name[:64]}: {problem}", name[:64])


def _id(prefix: str, noun: str) -> Parameter:
    expects = f"the id of {noun}: {prefix}_ and 26 digits and letters"
    return Parameter(identifier(prefix) | {EXPECTS: expects}, convert=lambda text: ids.parse(prefix, text))


def _code_range(text: str) -> tuple[int, int]:
    """The first code, and the one after the last. Codes that are not valid count as 5xx (RFC 9110, section 15)."""
    if text == "5xx":
        return 500, 1000
    first = int(text.replace("x", "0"))
    return first, first + (100 if text.endswith("x") else 1)


def _milliseconds(text: str) -> int | None:
    """The first millisecond that is not before the time."""
    at = clock.parse_rfc3339(text)
    return None if at is None else clock.milliseconds(at) + (at.microsecond % 1000 > 0)


TIME = DATE_TIME | {EXPECTS: "a time with an offset, such as 2026-11-15T08:00:00Z (encode a + as %2B)"}
_OTHER_VIEWS: dict[str, tuple[str, ...]] = {
    "summary": ("interval", "endpoint_id", "created_after", "created_before"),
    "endpoints": ("limit", "cursor"),
}
FILTERS: dict[str, Parameter] = {
    "id": _id("dlv", "a delivery"),
    "endpoint_id": _id("ep", "an endpoint"),
    "subscription_id": _id("sub", "a subscription"),
    "event_id": _id("evt", "an event"),
    "event_type": Parameter(
        string(
            1,
            256,
            pattern=f"^{PLATFORM_TYPE.pattern}$",
            expects="an event type, such as invoice.paid",
            examples=["invoice.paid"],
        )
    ),
    "status": Parameter(one_of(get_args(Status))),
    "response_code": Parameter(
        matching(
            "(?:[1-9][0-9]{2}|[1-5]xx)",
            expects="a code such as 503, or a class of codes such as 5xx",
            examples=["503", "5xx"],
        ),
        "The response code of the last attempt: a code, or a class of codes.",
        _code_range,
    ),
    "failure": Parameter(one_of(FAILURES), "The phase in which the last attempt failed."),
    "created_after": Parameter(TIME, "Deliveries created at this time or later.", _milliseconds),
    "created_before": Parameter(TIME, "Deliveries created before this time.", _milliseconds),
    "due_before": Parameter(TIME, "Only unfinished deliveries, in the order in which they are due.", _milliseconds),
}
PARAMETERS = FILTERS | {
    "limit": Parameter(
        integer(1, MAX_LIMIT),
        f"Default: {DEFAULT_LIMIT}. A page may have fewer items, even none. Only the last page has a null next_cursor.",
        int,
    ),
    "cursor": Parameter(string(1, 128), "The next_cursor of the previous page, with the same filters and order."),
    "order": Parameter(one_of(["newest", "oldest"]), "Default: newest; with due_before, oldest."),
    "include": Parameter(
        one_of(
            (",".join(names) for size in (1, 2) for names in permutations(INCLUDES, size)),
            **{EXPECTS: f"one or more of {', '.join(INCLUDES)}, separated by commas"},
        ),
        "Adds the body that is sent, or the start of the response body of each attempt.",
        lambda text: frozenset(text.split(",")),
    ),
    "view": Parameter(
        one_of(_OTHER_VIEWS),
        "Returns a summary or the endpoints instead of deliveries. "
        + " ".join(f"{view} accepts only {', '.join(names)}." for view, names in _OTHER_VIEWS.items()),
    ),
    "interval": Parameter(
        one_of(SECONDS),
        "The interval of a summary. Default: hour. minute is for ranges of up to 3 hours, of the last 3 hours.",
    ),
}
_FIELDS = {  # of DeliveryFilter, where they are named otherwise
    "endpoint_id": "endpoint",
    "subscription_id": "subscription",
    "event_id": "event",
    "response_code": "code",
}
VIEWS: dict[str, tuple[str, ...]] = {
    "deliveries": tuple(name for name in PARAMETERS if name not in ("view", "interval")),
    **_OTHER_VIEWS,
}
