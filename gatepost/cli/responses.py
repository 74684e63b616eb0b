"""The responses of the service, as far as commands read them: the members that must be there, and their types."""

from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from gatepost.cli.kinds import CLIENT, ENDPOINT, SCOPE, SUBSCRIPTION, Kind
from gatepost.core.errors import Unavailable

NOT_GATEPOST = "the response is not from Gatepost; check --remote"
T = TypeVar("T")
Word = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z")]  # can be sent in a header, and printed as it is


def decode(body: bytes) -> dict[str, Any]:
    """Decode a JSON object. The result is empty if the body is not one."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def check(body: dict[str, Any], form: Any) -> dict[str, Any]:
    """Return the body, or raise if it lacks members of this form."""
    try:
        msgspec.convert(body, form)
    except msgspec.ValidationError:
        raise Unavailable(NOT_GATEPOST) from None
    return body


# --- tokens


class Token(msgspec.Struct):
    """A token (RFC 6749, section 5.1)."""

    access_token: Word


class _Rule(msgspec.Struct):
    rule: str
    held: bool


class Explanation(msgspec.Struct):
    """The decision on a token request with `Prefer: explain`."""

    decision: str
    rules: list[_Rule]


# --- definitions


class _Secret(msgspec.Struct):
    expires_at: str | None


class _Client(msgspec.Struct):
    client_id: Word
    client_secret: str = ""
    secrets: list[_Secret] = []


class _Scope(msgspec.Struct):
    name: Word


class _Endpoint(msgspec.Struct):
    id: Word
    secrets: list[_Secret]
    secret: str = ""


class _Subscription(msgspec.Struct):
    id: Word


_DEFINITIONS = {CLIENT.noun: _Client, SCOPE.noun: _Scope, ENDPOINT.noun: _Endpoint, SUBSCRIPTION.noun: _Subscription}


def definition(kind: Kind) -> type:
    """The form of a resource that was defined."""
    return _DEFINITIONS[kind.noun]


# --- pages


class _Event(msgspec.Struct):
    id: Word
    type: str


class _Receiver(msgspec.Struct):
    url: str


class _Attempt(msgspec.Struct):
    number: int
    started_at: str
    outcome: str | None
    response_code: int | None
    failure: str | None
    duration_ms: float | None
    detail: str | None


class _PlannedAttempt(msgspec.Struct):
    number: int
    at: str
    because: str


class _Retries(msgspec.Struct):
    next_at: str | None
    plan: list[_PlannedAttempt]


class _Delivery(msgspec.Struct):
    id: Word
    subscription_id: Word
    status: str
    created_at: str
    ended_at: str | None
    event: _Event
    endpoint: _Receiver
    attempts: list[_Attempt]
    retries: _Retries


class _DeliveryWithPayload(_Delivery):
    payload: dict[str, Any] | None


class _Health(msgspec.Struct):
    consecutive_failures: int
    failing_since: str | None
    will_be_disabled_at: str | None


class _ListedSubscription(_Subscription):
    endpoint_id: str
    events: list[str]
    filter: Any
    status: str
    description: str | None


class _ListedEndpoint(msgspec.Struct):
    id: Word
    url: str
    status: str
    disabled_reason: str | None
    held: int
    health: _Health
    subscriptions: list[_ListedSubscription]


class _Page(msgspec.Struct, Generic[T]):
    data: list[T]
    next_cursor: str | None


def page(query: Mapping[str, str]) -> Any:
    """The form of a page that this query asks for."""
    if query.get("view") == "endpoints":
        return _Page[_ListedEndpoint]
    return _Page[_DeliveryWithPayload] if "payload" in query.get("include", "") else _Page[_Delivery]
