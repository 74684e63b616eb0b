"""POST /events: publishes CloudEvents 1.0 in JSON, one or a batch, for the account of the access token.

The response is sent after the commit. A batch is published as a whole or not at all. An event's `time` and `dataschema`
are checked but not kept: an entry has the time at which it was recorded.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.core.strict_json import read_json
from gatepost.ledger import publishable as rules
from gatepost.ledger.operations import Answer, Caller
from gatepost.ledger.publishable import Event
from gatepost.oauth import access_tokens
from gatepost.store.transaction import APPEND_ONLY, NO_HINTS, Tx
from gatepost.web import bearer, definitions
from gatepost.web.body import BodyLimits
from gatepost.web.context import Context
from gatepost.web.requests import Request
from gatepost.web.responses import LogFields, Reply, json
from gatepost.webhooks import publish
from gatepost.webhooks.publish import Published

SCOPE = "gatepost:events"
MAX_BODY = 256 * 1024
BODY = BodyLimits(MAX_BODY)
MAX_BATCH = 100  # events: they share a commit
SINGLE = ("application/cloudevents+json", "application/json")
BATCH = "application/cloudevents-batch+json"


class EventsRequest(NamedTuple):
    """The events of a request."""

    events: list[Event]
    batch: bool


class Accepted(NamedTuple):
    """The events of a request, published for an account."""

    account: str
    events: list[Published]  # empty for an empty batch


async def answer(context: Context, request: Request) -> Reply:
    """Publish the events of a request. The token is checked before the body is parsed."""
    token = bearer.read_token(context, request)
    if token is None:
        return bearer.unauthenticated(context, request, SCOPE)
    rejected = await context.check_token(token)
    if rejected is not None:
        return definitions.reply(context, request, SCOPE, rejected)
    events = read(request)

    def unit(tx: Tx) -> Answer | Refusal | Accepted:
        caller = access_tokens.authenticate(tx, context.service, token)
        if isinstance(caller, Refusal):
            return caller
        if SCOPE not in caller.scopes:
            refusal = definitions.insufficient_scope(SCOPE)
        elif isinstance(events, Refusal):
            refusal = events
        else:
            return _publish(tx, caller, request, events)
        return definitions.record_refusal(tx, caller, request, "webhook.event.refused", refusal)

    alone = token.proof is not None or isinstance(events, Refusal) or len(events.events) != 1
    try:
        outcome = await context.store.run(unit, NO_HINTS if alone else APPEND_ONLY)
    except _RolledBack as error:
        # The unit now records the refusal, and also the use of the DPoP proof, which was rolled back.
        events = error.refusal
        outcome = await context.store.run(unit)
    if isinstance(outcome, Refusal):
        context.forget_token(token)
    if isinstance(outcome, Answer | Refusal):
        return definitions.reply(context, request, SCOPE, outcome)
    rendered = [_render(published) for published in outcome.events]
    reply = json(200, {"data": rendered} if isinstance(events, Refusal) or events.batch else rendered[0])
    log_fields = LogFields(entry=rendered[0]["id"] if len(rendered) == 1 else "", account=outcome.account)
    deliveries = [delivery for published in outcome.events for delivery in published.created]
    return reply._replace(log_fields=log_fields, published=deliveries)


class _RolledBack(Exception):
    """One of the events was refused: everything that the unit wrote for the others is rolled back."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


def _publish(tx: Tx, caller: Caller, request: Request, sent: EventsRequest) -> Accepted:
    account = definitions.load_account(tx, caller)
    published = publish.publish_events(tx, account, sent.events, caller.origin(request.id, request.source))
    if isinstance(published, tuple):
        index, refusal = published
        raise _RolledBack(_in_batch(index, refusal) if sent.batch else refusal)
    return Accepted(account.id, published)


def _render(published: Published) -> dict[str, Any]:
    entry = published.entry
    return {
        "id": entry.name,
        "type": entry.type,
        "at": clock.rfc3339(clock.from_milliseconds(entry.at)),
        "matched": entry.matched,
        "deliveries": published.deliveries,
        "again": published.again,
    }


# --- reading


def read(request: Request) -> EventsRequest | Refusal:
    """The events of a request. CloudEvents 1.0, JSON format 1.0.2, sections 3 and 4."""
    batch = request.media_type() == BATCH
    if not batch and request.media_type() not in SINGLE:
        return Refusal("unsupported_media_type", f"the body must be {', '.join(SINGLE)}, or {BATCH} for several events")
    if "ce-specversion" in request.headers:
        return Refusal("unsupported_media_type", f"binary mode is not supported; send the whole event as {SINGLE[0]}")
    parsed = read_json(request.body)
    if isinstance(parsed, Refusal):
        return parsed
    if not batch:
        single = read_event(parsed.value)
        return single if isinstance(single, Refusal) else EventsRequest([single], batch=False)
    if not isinstance(parsed.value, list):
        return Refusal("invalid_request", "the body must be a list of events")
    if len(parsed.value) > MAX_BATCH:
        return Refusal("request_too_large", f"a batch may have at most {MAX_BATCH} events")
    events: list[Event] = []
    for index, value in enumerate(parsed.value):
        event = read_event(value)
        if isinstance(event, Refusal):
            return _in_batch(index, event)
        events.append(event)
    return EventsRequest(events, batch=True)


def _in_batch(index: int, refusal: Refusal) -> Refusal:
    return Refusal(refusal.code, f"event {index}: {refusal.detail}", f"/{index}{refusal.pointer}")


def read_event(sent: Any) -> Event | Refusal:
    """Read one event. An attribute that would not be kept is refused, and never silently dropped."""
    if not isinstance(sent, dict):
        return Refusal("invalid_request", "must be a JSON object with specversion, id, source, type and data")
    given = {name: value for name, value in sent.items() if value is not None or name == "data"}  # null means not set
    for name in given:
        if name not in _CHECKS:
            return _invalid(name, _UNKNOWN.get(name, f"unknown attribute; the attributes are {', '.join(_CHECKS)}"))
    for name, check in _CHECKS.items():
        problem = check(given[name]) if name in given else "required" if name in _REQUIRED else ""
        if problem:
            return _invalid(name, problem)
    source, subject = given["source"], given.get("subject", "")
    return rules.event(given["type"], given.get("data"), given["id"], source=source, subject=subject)


def _invalid(name: str, detail: str) -> Refusal:
    pointer = name[:64].replace("~", "~0").replace("/", "~1")  # RFC 6901, section 3
    return Refusal("invalid_request", f"{name[:64]}: {detail}", f"/{pointer}")


def _version(value: Any) -> str:
    return "" if value == "1.0" else 'must be "1.0"'


def _reference(value: Any) -> str:
    valid = isinstance(value, str) and 0 < len(value) <= 1024 and value.isascii() and value.isprintable()
    return "" if valid and " " not in value else "must be a URI reference of 1 to 1024 characters"


def _content_type(value: Any) -> str:
    kind = value.partition(";")[0].strip().lower() if isinstance(value, str) else ""
    return "" if kind == "application/json" else "must be application/json"


def _time(value: Any) -> str:
    valid = isinstance(value, str) and clock.parse_rfc3339(value) is not None
    return "" if valid else "must be a time with an offset, such as 2026-11-15T08:00:00Z"


def _subject(value: Any) -> str:
    return "" if isinstance(value, str) and value else "must be a non-empty string"


def _any(_value: Any) -> str:
    return ""


# Attribute → its check, which returns "" or what the value must be. For all sources, `publishable.event` checks `type`,
# `id` and the length of `subject`.
_CHECKS: dict[str, Callable[[Any], str]] = {
    "specversion": _version,
    "id": _any,
    "source": _reference,
    "type": _any,
    "subject": _subject,
    "time": _time,
    "datacontenttype": _content_type,
    "dataschema": _reference,
    "data": _any,
}
_REQUIRED = ("specversion", "id", "source", "type")
_UNKNOWN = {"data_base64": "binary data is not supported; send JSON as data"}
