"""POST /events: CloudEvents 1.0 in JSON, one or a batch, published for the account whose access token is shown.

The answer comes after the commit. A batch is published whole or not at all. An event's `time` and `dataschema` are
checked and not kept: an entry has the time at which it was recorded.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from gatepost.accounts import account_rows
from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.core.strict_json import read_json
from gatepost.ledger import publishable as rules
from gatepost.ledger.operations import Answer, Caller, refused
from gatepost.ledger.publishable import Event
from gatepost.oauth import access_tokens
from gatepost.store.transaction import Tx
from gatepost.web import bearer, definitions
from gatepost.web.body import BodyLimits
from gatepost.web.context import Surface
from gatepost.web.requests import Request
from gatepost.web.responses import Reply, Said, json
from gatepost.webhooks import publish
from gatepost.webhooks.publish import Published

SCOPE = "gatepost:events"
MAX_BODY = 256 * 1024
BODY = BodyLimits(MAX_BODY)
MOST = 100  # events in a batch: they share a commit
SINGLE = ("application/cloudevents+json", "application/json")
BATCH = "application/cloudevents-batch+json"


class Sent(NamedTuple):
    """What a request asks to publish."""

    events: list[Event]
    batch: bool


class Accepted(NamedTuple):
    account: str
    events: list[Published]  # none, of an empty batch


async def answer(surface: Surface, request: Request) -> Reply:
    shown = bearer.shown(surface, request)
    if shown is None:
        return bearer.unauthenticated(surface, request, SCOPE)
    rejected = await surface.rejected(shown)
    if rejected is not None:
        return definitions.reply(surface, request, SCOPE, rejected)
    sent = read(request)

    def unit(tx: Tx) -> Answer | Refusal | Accepted:
        caller = access_tokens.authenticate(tx, surface.service, shown)
        if isinstance(caller, Refusal):
            return caller
        if SCOPE not in caller.scopes:
            return _refuse(tx, caller, request, Refusal("insufficient_scope", f"this needs the scope {SCOPE}", SCOPE))
        if isinstance(sent, Refusal):
            return _refuse(tx, caller, request, sent)
        return _publish(tx, caller, request, sent)

    try:
        outcome = await surface.store.run(unit)
    except _Undone as undone:
        refusal = undone.refusal

        def again(tx: Tx) -> Answer | Refusal:
            """Who calls is asked anew: a proof that was shown is used, though nothing else stays."""
            caller = access_tokens.authenticate(tx, surface.service, shown)
            return caller if isinstance(caller, Refusal) else _refuse(tx, caller, request, refusal)

        outcome = await surface.store.run(again)
    if isinstance(outcome, Refusal):
        surface.reject(shown)
    if isinstance(outcome, Answer | Refusal):
        return definitions.reply(surface, request, SCOPE, outcome)
    told = [_shown(each) for each in outcome.events]
    answer = json(200, {"data": told} if isinstance(sent, Refusal) or sent.batch else told[0])
    said = Said(entry=told[0]["id"] if len(told) == 1 else "", account=outcome.account)
    return answer._replace(said=said, published=[each for one in outcome.events for each in one.created])


class _Undone(Exception):
    """One of the events was refused: whatever the unit wrote for the others is taken back."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


def _publish(tx: Tx, caller: Caller, request: Request, sent: Sent) -> Accepted:
    account = account_rows.load(tx, caller.account)
    if account is None:
        raise LookupError(caller.account)
    found = publish.several(tx, account, sent.events, caller.origin(request.id, request.source))
    if isinstance(found, tuple):
        place, refusal = found
        raise _Undone(_at(place, refusal) if sent.batch else refusal)
    return Accepted(account.id, found)


def _refuse(tx: Tx, caller: Caller, request: Request, refusal: Refusal) -> Answer:
    account = account_rows.load(tx, caller.account)
    if account is None:
        raise LookupError(caller.account)
    return refused(tx, account, "webhook.event.refused", caller.origin(request.id, request.source), refusal)


def _shown(published: Published) -> dict[str, Any]:
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


def read(request: Request) -> Sent | Refusal:
    """The events of a request. CloudEvents 1.0, JSON format 1.0.2, sections 3 and 4."""
    batch = request.media_type() == BATCH
    if not batch and request.media_type() not in SINGLE:
        return Refusal("unsupported_media_type", f"the body must be {', '.join(SINGLE)}, or {BATCH} for several events")
    if "ce-specversion" in request.headers:
        return Refusal("unsupported_media_type", f"binary mode is not taken: send the event as a whole, as {SINGLE[0]}")
    found = read_json(request.body)
    if isinstance(found, Refusal):
        return found
    if not batch:
        one = read_event(found.value)
        return one if isinstance(one, Refusal) else Sent([one], batch=False)
    if not isinstance(found.value, list):
        return Refusal("invalid_request", "the body must be a list of events")
    if len(found.value) > MOST:
        return Refusal("request_too_large", f"a batch may have at most {MOST} events")
    events: list[Event] = []
    for place, each in enumerate(found.value):
        one = read_event(each)
        if isinstance(one, Refusal):
            return _at(place, one)
        events.append(one)
    return Sent(events, batch=True)


def _at(place: int, refusal: Refusal) -> Refusal:
    return Refusal(refusal.code, f"event {place}: {refusal.detail}", f"/{place}{refusal.pointer}")


def read_event(sent: Any) -> Event | Refusal:
    """One event. What we would not keep is refused, never dropped in silence."""
    if not isinstance(sent, dict):
        return Refusal("invalid_request", "must be a JSON object with specversion, id, source, type and data")
    given = {name: value for name, value in sent.items() if value is not None or name == "data"}  # null is not set
    for name in given:
        if name not in _CHECKS:
            return _bad(name, _UNKNOWN.get(name, f"unknown attribute; there are {', '.join(_CHECKS)}"))
    for name, check in _CHECKS.items():
        problem = check(given[name]) if name in given else "needed" if name in _NEEDED else ""
        if problem:
            return _bad(name, problem)
    source, subject = given["source"], given.get("subject", "")
    return rules.event(given["type"], given.get("data"), given["id"], source=source, subject=subject)


def _bad(name: str, detail: str) -> Refusal:
    pointer = name[:64].replace("~", "~0").replace("/", "~1")  # RFC 6901, section 3
    return Refusal("invalid_request", f"{name[:64]}: {detail}", f"/{pointer}")


def _version(value: Any) -> str:
    return "" if value == "1.0" else 'must be "1.0"'


def _reference(value: Any) -> str:
    right = isinstance(value, str) and 0 < len(value) <= 1024 and value.isascii() and value.isprintable()
    return "" if right and " " not in value else "must be a URI reference of 1 to 1024 characters"


def _content_type(value: Any) -> str:
    kind = value.partition(";")[0].strip().lower() if isinstance(value, str) else ""
    return "" if kind == "application/json" else "must be application/json"


def _time(value: Any) -> str:
    right = isinstance(value, str) and clock.parse_rfc3339(value) is not None
    return "" if right else "must be a time with its offset, as 2026-11-15T08:00:00Z"


def _subject(value: Any) -> str:
    return "" if isinstance(value, str) and value else "must be a text that is not empty"


def _any(_value: Any) -> str:
    return ""


# attribute → its check: an empty text, or what would be right. `type`, `id` and the length of `subject` are checked
# where every event is, however it comes.
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
_NEEDED = ("specversion", "id", "source", "type")
_UNKNOWN = {"data_base64": "binary data is not taken; send JSON as data"}
