"""POST /events: publishes CloudEvents 1.0 in JSON, one or a batch, for the account of the access token.

The response is sent after the commit. A batch is published as a whole or not at all.
"""

from typing import Any, NamedTuple

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.core.strict_json import read_json
from gatepost.ingest import cloudevents
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
SINGLE = (cloudevents.STRUCTURED, "application/json")
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
    created = [(event["id"], delivery) for event in rendered if not event["again"] for delivery in event["deliveries"]]
    return reply._replace(log_fields=log_fields, published=created)


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
        single = cloudevents.read(parsed.value)
        return single if isinstance(single, Refusal) else EventsRequest([single], batch=False)
    if not isinstance(parsed.value, list):
        return Refusal("invalid_request", "the body must be a list of events")
    if len(parsed.value) > MAX_BATCH:
        return Refusal("request_too_large", f"a batch may have at most {MAX_BATCH} events")
    events: list[Event] = []
    for index, value in enumerate(parsed.value):
        event = cloudevents.read(value)
        if isinstance(event, Refusal):
            return _in_batch(index, event)
        events.append(event)
    return EventsRequest(events, batch=True)


def _in_batch(index: int, refusal: Refusal) -> Refusal:
    return Refusal(refusal.code, f"event {index}: {refusal.detail}", f"/{index}{refusal.pointer}")
