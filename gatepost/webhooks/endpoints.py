"""Endpoints: where webhooks go, how they are signed, and when one is disabled. Model and rules, no I/O."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.secrets import Secret
from gatepost.core.webhook_signature import Kind, parse_secret

OVERLAP = timedelta(hours=24)
DISABLE_AFTER = timedelta(hours=120)
LONGEST_TIMEOUT = 30  # seconds
MAX_RETRY_AFTER = 3600  # seconds: the default, and below the bounds of what an endpoint may set
LEAST_MAX_RETRY_AFTER, MOST_MAX_RETRY_AFTER = 1, 24 * 3600
HIDDEN = "***"
_WEEK = 7 * 86_400  # seconds: the longest overlap, and the longest delay of a schedule

Reason = Literal["requested", "gone", "failing", "operator"]


class SigningSecret(msgspec.Struct, frozen=True):
    """A secret as it is kept: encrypted, and for `v1a` with the public key that the receiver has."""

    id: str
    created_at: datetime
    sealed: str
    kind: Kind = "v1"
    public: str = ""
    expires_at: datetime | None = None

    def live(self, at: datetime) -> bool:
        return self.expires_at is None or at < self.expires_at


class Endpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    account: str
    url: str
    created_at: datetime
    updated_at: datetime
    description: str = ""
    headers: dict[str, str] = {}
    sealed_headers: dict[str, str] = {}  # those whose value is not shown: encrypted
    timeout: int = 15
    max_in_flight: int = 16
    rate_limit: int | None = None
    max_retry_after: int = MAX_RETRY_AFTER
    retry_schedule: list[int] | None = None
    signing: Kind = "v1"
    format: Literal["standard", "cloudevents"] = "standard"
    status: Literal["active", "disabled", "removed"] = "active"
    disabled_reason: Reason | Literal[""] = ""
    disabled_at: datetime | None = None
    resumed_at: datetime | None = None
    metadata: dict[str, str] = {}
    secrets: list[SigningSecret] = []


class Health(NamedTuple):
    """How an endpoint fares since its last success.

    `not_before` is its Retry-After, which a success does not lift: it may be in the past, and in the row alone.
    """

    consecutive_failures: int
    failing_since: datetime | None
    not_before: datetime | None


class Defined(NamedTuple):
    """What a body of POST /webhooks/endpoints asks for, checked. A secret that is wanted is of the kind `signing`."""

    endpoint: Endpoint
    wants_secret: bool
    given_secret: Secret | None
    overlap: timedelta
    dropped_headers: list[str] = []  # noqa: RUF012 (never changed)


def define(
    sent: Mapping[str, Any],
    known: Endpoint | None,
    *,
    account: str,
    at: datetime,
    url_problem: Callable[[str], str],
) -> Defined | Refusal:
    """The endpoint that the body defines: a new one, or `known` with the members sent changed."""
    if known is not None and known.status == "removed":
        if set(sent) <= {"id"}:
            return Defined(known, wants_secret=False, given_secret=None, overlap=OVERLAP)
        return Refusal("conflict", "id: the endpoint is removed, which is final; create another", "/id")
    fields = _read(sent, known, url_problem)
    if isinstance(fields, Refusal):
        return fields
    dropped = _dropped(sent, fields, known)
    if dropped and known is not None:
        headers = fields.get("headers", known.headers)
        fields["headers"] = {name: value for name, value in headers.items() if name not in dropped}
    base = known or Endpoint(ids.new("ep"), account, "", at, at, resumed_at=at)
    status = fields.pop("status", base.status)
    made = _with_status(msgspec.structs.replace(base, **fields), status, at)
    overlap = _overlap(sent.get("rotate_secret"))
    if overlap is None:
        return _bad("rotate_secret", 'must be true or {"overlap": seconds}, at most 7 days')
    problem_with = _asked_of_secrets(made, sent)
    if problem_with:
        return _bad(*problem_with)
    given = Secret(sent["secret"]) if sent.get("secret") is not None else None
    wants = made.status != "removed" and (
        bool(sent.get("rotate_secret"))
        or made.signing != base.signing
        or not any(each.live(at) for each in made.secrets)
    )
    if made != base or wants:
        made = msgspec.structs.replace(made, updated_at=at)
    return Defined(made, wants, given, overlap, dropped)


def _dropped(sent: Mapping[str, Any], fields: Mapping[str, Any], known: Endpoint | None) -> list[str]:
    """Headers whose hidden value would go to another origin and that the request does not set again."""
    if known is None or "url" not in fields or origin(fields["url"]) == origin(known.url):
        return []
    set_again = {name for name, value in (sent.get("headers") or {}).items() if value != HIDDEN}
    return [name for name in fields.get("headers", known.headers) if is_credential(name) and name not in set_again]


def origin(url: str) -> str:
    """Scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or {'http': 80, 'https': 443}.get(parts.scheme)}"


def _read(
    sent: Mapping[str, Any], known: Endpoint | None, url_problem: Callable[[str], str]
) -> dict[str, Any] | Refusal:
    """The members sent, each checked by itself; null means the default."""
    for member in sent:
        if member not in MEMBERS:
            return _bad(member, f"unknown member; an endpoint has {', '.join(MEMBERS)}")
    if known is None and "url" not in sent:
        return _bad("url", "needed: where to send webhooks")
    if known is not None and "secret" in sent:
        return _bad("secret", "only when creating; to replace it send rotate_secret: true")
    fields: dict[str, Any] = {}
    for member, check in _CHECKS.items():
        if member not in sent:
            continue
        value = sent[member]
        if member == "headers" and known is not None:
            value = _with_hidden(value, known.headers)
        if value is None and member != "url":
            fields[member] = _DEFAULTS[member]
            continue
        problem = check(value) or (url_problem(value) if member == "url" else "")
        if problem:
            return _bad(member, problem)
        fields[member] = value
    if known is None and fields.get("status") == "removed":
        return _bad("status", "must be active or disabled when creating")
    return fields


def _with_hidden(headers: Any, known: Mapping[str, str]) -> Any:
    """Headers with what we show as hidden put back: who sends an answer of ours again changes nothing."""
    if not isinstance(headers, dict):
        return headers
    kept = {name.lower(): value for name, value in known.items() if is_credential(name)}
    return {name: kept.get(name.lower(), value) if value == HIDDEN else value for name, value in headers.items()}


def _with_status(endpoint: Endpoint, status: str, at: datetime) -> Endpoint:
    match status:
        case "active":
            return enabled(endpoint, at)
        case "disabled":
            return disabled(endpoint, "requested", at)
        case _:
            return msgspec.structs.replace(
                endpoint,
                status="removed",
                disabled_reason="",
                disabled_at=None,
                headers={},
                sealed_headers={},
                secrets=[],
            )


def _asked_of_secrets(endpoint: Endpoint, sent: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is wrong with `secret` and `rotate_secret` beside the rest: the member at fault and why."""
    if sent.get("rotate_secret") and endpoint.status == "removed":
        return "rotate_secret", "a removed endpoint has no secret"
    if sent.get("secret") is None:
        return None
    if sent.get("rotate_secret"):
        return "rotate_secret", "not together with secret, which is then the only one"
    if endpoint.signing != "v1":
        return "secret", "only for signing v1; a v1a key is always made here"
    problem = _secret(sent["secret"])
    return ("secret", problem) if problem else None


def disabled(endpoint: Endpoint, reason: Reason, at: datetime) -> Endpoint:
    """The endpoint, getting nothing until it is resumed. One that is not active stays as it is, with its reason."""
    if endpoint.status != "active":
        return endpoint
    return msgspec.structs.replace(endpoint, status="disabled", disabled_reason=reason, disabled_at=at, updated_at=at)


def enabled(endpoint: Endpoint, at: datetime) -> Endpoint:
    """The endpoint, resumed. One that is active stays as it is, and removed is final."""
    if endpoint.status != "disabled":
        return endpoint
    return msgspec.structs.replace(
        endpoint, status="active", disabled_reason="", disabled_at=None, resumed_at=at, updated_at=at
    )


def will_be_disabled_at(endpoint: Endpoint, health: Health | None) -> datetime | None:
    """When it is disabled unless it has a success before. Failures from before it was resumed do not count."""
    if endpoint.status != "active" or health is None or health.failing_since is None:
        return None
    return max(health.failing_since, endpoint.resumed_at or endpoint.created_at) + DISABLE_AFTER


def with_secret(endpoint: Endpoint, secret: SigningSecret, overlap: timedelta, at: datetime) -> Endpoint:
    """The endpoint with one more secret. The one before lives on for the overlap; any older one ends now."""
    before = [each for each in endpoint.secrets if each.live(at)][-1:] if overlap else []
    ending = [
        msgspec.structs.replace(each, expires_at=min(each.expires_at or at + overlap, at + overlap)) for each in before
    ]
    return msgspec.structs.replace(endpoint, secrets=[*ending, secret], updated_at=at)


def shown(endpoint: Endpoint, health: Health | None, held: int, at: datetime) -> dict[str, Any]:
    """The answer of POST /webhooks/endpoints: everything defined, never a secret."""
    found = health or Health(0, None, None)
    waits = found.not_before is not None and found.not_before > at
    return {
        "id": endpoint.id,
        "account": endpoint.account,
        "url": endpoint.url,
        "description": endpoint.description,
        "headers": {name: HIDDEN if is_credential(name) else value for name, value in endpoint.headers.items()}
        | dict.fromkeys(endpoint.sealed_headers, HIDDEN),
        "timeout": endpoint.timeout,
        "max_in_flight": endpoint.max_in_flight,
        "rate_limit": endpoint.rate_limit,
        "max_retry_after": endpoint.max_retry_after,
        "retry_schedule": endpoint.retry_schedule,
        "signing": endpoint.signing,
        "format": endpoint.format,
        "status": endpoint.status,
        "disabled_reason": endpoint.disabled_reason or None,
        "disabled_at": _time(endpoint.disabled_at),
        "health": {
            "consecutive_failures": found.consecutive_failures,
            "failing_since": _time(found.failing_since),
            "will_be_disabled_at": _time(will_be_disabled_at(endpoint, health)),
            "retry_after_until": _time(found.not_before) if waits else None,
        },
        "held": held,
        "secrets": [
            {"id": each.id, "created_at": _time(each.created_at), "expires_at": _time(each.expires_at)}
            | ({"public": each.public} if each.kind == "v1a" else {})
            for each in endpoint.secrets
        ],
        "metadata": endpoint.metadata,
        "created_at": _time(endpoint.created_at),
        "updated_at": _time(endpoint.updated_at),
    }


def _time(instant: datetime | None) -> str | None:
    return None if instant is None else clock.rfc3339(instant)


# --- single members


def _bad(member: str, detail: str) -> Refusal:
    pointer = member[:64].replace("~", "~0").replace("/", "~1")  # RFC 6901, section 3
    return Refusal("invalid_request", f"{member[:64]}: {detail}", f"/{pointer}")


def _overlap(value: Any) -> timedelta | None:
    if value is None or value is True or value is False:
        return OVERLAP
    if isinstance(value, dict) and set(value) == {"overlap"} and _is_whole(value["overlap"], 0, _WEEK):
        return timedelta(seconds=value["overlap"])
    return None


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _secret(value: Any) -> str:
    try:
        parse_secret(value if isinstance(value, str) else "")
    except ValueError as error:
        return str(error)
    return ""


Check = Callable[[Any], str]


def _url(value: Any) -> str:
    return "" if isinstance(value, str) else "must be a web address, and cannot be removed"


def _description(value: Any) -> str:
    return "" if isinstance(value, str) and len(value) <= 500 else "must be a text of at most 500 characters"


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")  # RFC 9110, section 5.6.2
_VALUE = re.compile(r"[!-~](?:[ -~]{0,1022}[!-~])?")
# What we set ourselves, what is between two hops (RFC 9110, section 7.6.1), and what a receiver would believe of us.
_OURS = re.compile(
    r"(webhook|content|proxy)-.*|host|authorization|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect"
    r"|user-agent|cookie",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(r"token|key|secret|auth|pass|signature|session|credential|bearer|jwt", re.IGNORECASE)


def is_credential(name: str) -> bool:
    """Whether the value is likely a secret of the receiver, by the header's name."""
    return _CREDENTIAL.search(name) is not None


def _headers(value: Any) -> str:
    if not isinstance(value, dict) or len(value) > 20:
        return "must be an object of at most 20 headers"
    for name, text in value.items():
        if not _TOKEN.fullmatch(name):
            return "must have names of 1 to 128 letters, digits and -_.!#$%&'*+^`|~"
        if _OURS.fullmatch(name):
            return f"must not set {name}"
        if not isinstance(text, str) or not _VALUE.fullmatch(text):
            return f"{name} must be 1 to 1024 printable ASCII characters, with no space at either end"
        if text == HIDDEN and is_credential(name):
            return f"{name} is {HIDDEN}, which stands for a value that is kept, and none is"
    if len({name.lower() for name in value}) != len(value):
        return "must be all different: in a header's name case does not count"
    return ""


def _among(*choices: str) -> Check:
    return lambda value: "" if value in choices else f"must be one of {', '.join(choices)}"


def _whole_number(low: int, high: int, of: str = "") -> Check:
    return lambda value: "" if _is_whole(value, low, high) else f"must be a whole number{of} from {low} to {high}"


def _retry_schedule(value: Any) -> str:
    right = isinstance(value, list) and len(value) <= 24 and all(_is_whole(each, 1, _WEEK) for each in value)
    return "" if right else "must be a list of at most 24 delays, each a whole number of seconds from 1 to 604800"


def _pairs(value: Any) -> str:
    right = isinstance(value, dict) and len(value) <= 50
    right = right and all(
        0 < len(key) <= 64 and isinstance(text, str) and len(text) <= 512 for key, text in value.items()
    )
    return "" if right else "must be at most 50 pairs of text, names up to 64 and values up to 512 characters"


# member → its check: an empty text, or what would be right.
_CHECKS: dict[str, Check] = {
    "url": _url,
    "description": _description,
    "headers": _headers,
    "timeout": _whole_number(1, LONGEST_TIMEOUT, " of seconds"),
    "max_in_flight": _whole_number(1, 1000),
    "rate_limit": _whole_number(1, 10_000),
    "max_retry_after": _whole_number(LEAST_MAX_RETRY_AFTER, MOST_MAX_RETRY_AFTER, " of seconds"),
    "retry_schedule": _retry_schedule,
    "signing": _among("v1", "v1a"),
    "format": _among("standard", "cloudevents"),
    "status": _among("active", "disabled", "removed"),
    "metadata": _pairs,
}
MEMBERS = ("id", *_CHECKS, "secret", "rotate_secret")
_NO_ENDPOINT = Endpoint("", "", "", clock.EPOCH, clock.EPOCH)
_DEFAULTS: dict[str, Any] = {member: getattr(_NO_ENDPOINT, member) for member in _CHECKS}
