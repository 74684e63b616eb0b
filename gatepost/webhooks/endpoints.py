"""Endpoints: where webhooks are sent, how they are signed, and their status. The model and its members, no I/O.

`endpoint_rules` has the rules between members and defines an endpoint from a request.
"""

import re
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

import msgspec

from gatepost.core import clock
from gatepost.core import json_schema as schema
from gatepost.core.members import METADATA, Member, table
from gatepost.core.secret_rotation import rotate_secret_schema, rotated
from gatepost.core.webhook_signature import SECRET, Kind
from gatepost.egress import address_guard

DISABLE_AFTER = timedelta(hours=120)
MAX_OVERLAP = timedelta(days=7)
LONGEST_TIMEOUT = 30  # seconds
MAX_RETRY_AFTER = 3600  # seconds: the default of `max_retry_after`, whose bounds follow
RETRY_AFTER_BOUNDS = (1, 24 * 3600)
MAX_HELD = 10_000  # held deliveries are counted up to this number
HIDDEN = "***"

Reason = Literal["requested", "gone", "failing", "operator"]
Status = Literal["active", "disabled", "removed"]


class SigningSecret(msgspec.Struct, frozen=True):
    """A secret as it is stored: encrypted, and for `v1a` with the public key that the receiver has."""

    id: str
    created_at: datetime
    sealed: str
    kind: Kind = "v1"
    public: str = ""
    expires_at: datetime | None = None

    def is_active(self, at: datetime) -> bool:
        return self.expires_at is None or at < self.expires_at


class Endpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A webhook receiver. Most fields have the names and defaults of the members in requests."""

    id: str
    account: str
    url: str
    created_at: datetime
    updated_at: datetime
    description: str = ""
    headers: dict[str, str] = {}
    sealed_headers: dict[str, str] = {}  # headers whose values are hidden: encrypted
    timeout: int = 15
    max_in_flight: int = 16
    rate_limit: int | None = None
    max_retry_after: int = MAX_RETRY_AFTER
    retry_schedule: list[int] | None = None
    signing: Kind = "v1"
    format: Literal["standard", "cloudevents"] = "standard"
    status: Status = "active"
    disabled_reason: Reason | Literal[""] = ""
    disabled_at: datetime | None = None
    resumed_at: datetime | None = None
    metadata: dict[str, str] = {}
    secrets: list[SigningSecret] = []


class Health(NamedTuple):
    """The failures of an endpoint since its last success.

    `not_before` comes from Retry-After, and may be in the past: a success does not clear it.
    """

    consecutive_failures: int
    failing_since: datetime | None
    not_before: datetime | None


# --- members


def _any_case(pattern: str) -> str:
    """The pattern, made to match letters of either case: JSON Schema has no flag for that."""
    return "".join(f"[{char.upper()}{char}]" if char.isalpha() else char for char in pattern)


# Headers that Gatepost sets itself, that are hop-by-hop (RFC 9110, section 7.6.1), or that a receiver would trust.
_RESERVED_HEADER = _any_case(
    "(?:webhook|content|proxy)-.*|host|authorization|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect"
    "|user-agent|cookie"
)
_HEADER_NAME = schema.matching(
    "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}",  # RFC 9110, section 5.6.2
    expects="a header name of 1 to 128 letters, digits and -_.!#$%&'*+^`|~ that is not reserved",
) | {"not": {"pattern": f"^(?:{_RESERVED_HEADER})$"}}
_HEADER_VALUE = schema.matching(
    "[!-~](?:[ -~]{0,1022}[!-~])?", expects="1 to 1024 printable ASCII characters, without a space at either end"
)
_CREDENTIAL = re.compile(r"token|key|secret|auth|pass|signature|session|credential|bearer|jwt", re.IGNORECASE)
_BASE64 = "[A-Za-z0-9+/]"
_24_TO_62_BYTES = rf"(?:{_BASE64}{{4}}){{8,20}}(?:{_BASE64}{{2}}(?:==)?|{_BASE64}{{3}}=?)?"
_63_OR_64_BYTES = rf"(?:{_BASE64}{{4}}){{21}}(?:{_BASE64}{{2}}(?:==)?)?"


def is_credential(name: str) -> bool:
    """Whether a header's value is likely a secret of the receiver, judged by the header's name."""
    return _CREDENTIAL.search(name) is not None


def origin(url: str) -> str:
    """The scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or {'http': 80, 'https': 443}.get(parts.scheme)}"


def _header_rules(headers: dict[str, str]) -> str:
    for name, value in headers.items():
        if value == HIDDEN and is_credential(name):
            return f"{name} is {HIDDEN}, which stands for a stored value, and none is stored"
    if len({name.lower() for name in headers}) != len(headers):
        return "must have different names: the case of a header name does not matter"
    return ""


_OPTIONAL_TIME = schema.nullable(schema.DATE_TIME)
_HEALTH = schema.response_object(
    {
        "consecutive_failures": schema.count(),
        "failing_since": _OPTIONAL_TIME,
        "will_be_disabled_at": _OPTIONAL_TIME | {"description": "Unless an attempt succeeds before."},
        "retry_after_until": _OPTIONAL_TIME | {"description": "The receiver asked for no attempts before this time."},
    }
)
_SECRET = schema.response_object(
    {
        "id": schema.identifier("sk"),
        "created_at": schema.DATE_TIME,
        "expires_at": _OPTIONAL_TIME,
        "public": {"type": "string", "description": "The public key, for v1a."},
    },
    "public",
)
MEMBERS = table(
    "an endpoint",
    Endpoint,
    Member(
        "id",
        schema.identifier("ep"),
        "Identifies the endpoint to change or read. Leave it out to create an endpoint.",
        null=False,
        occasion="change",
        is_reference=True,
    ),
    Member(
        "url",
        address_guard.URL_SCHEMA | {"examples": ["https://example.com/hooks"]},
        "Where webhooks are sent, at a public address. http is accepted only with `--dev`.",
        required=True,
        null=False,
    ),
    Member("description", schema.string(0, 500), "A note for people."),
    Member(
        "headers",
        schema.mapping(
            _HEADER_NAME,
            _HEADER_VALUE,
            20,
            expects="an object of at most 20 headers with values of 1 to 1024 printable ASCII characters",
            examples=[{"x-tenant": "acme"}],
        ),
        f"Headers that every webhook request has. Values of headers with a name like a credential are shown as "
        f"`{HIDDEN}`; sent back like that, they stay as they are.",
        rule=_header_rules,
    ),
    Member(
        "timeout",
        schema.integer(1, LONGEST_TIMEOUT, unit="seconds"),
        "Limits the time from the start of an attempt to the last byte of the response.",
    ),
    Member("max_in_flight", schema.integer(1, 1000), "The most attempts that may be in progress at the same time."),
    Member("rate_limit", schema.integer(1, 10_000), "The most attempts per second.", default_text="no limit"),
    Member(
        "max_retry_after",
        schema.integer(*RETRY_AFTER_BOUNDS, unit="seconds"),
        "The longest time for which a `Retry-After` of the receiver is honored.",
    ),
    Member(
        "retry_schedule",
        schema.array(
            schema.integer(1, int(timedelta(days=7).total_seconds()), unit="seconds"),
            expects="a list of at most 24 delays of 1 to 604800 seconds",
            maxItems=24,
        ),
        "The delays after failed attempts, each varied by up to 10 %. An empty list means no retries.",
        default_text="the account's",
    ),
    Member("signing", schema.one_of(get_args(Kind)), "`v1` is HMAC-SHA256, `v1a` is Ed25519 (Standard Webhooks)."),
    Member("format", schema.one_of(["standard", "cloudevents"]), "The format of the request body."),
    Member(
        "status",
        schema.one_of(get_args(Status)),
        "A disabled endpoint holds its deliveries. Removing an endpoint is final and ends them.",
    ),
    METADATA,
    Member(
        "secret",
        schema.matching(
            f"{SECRET}(?:{_24_TO_62_BYTES}|{_63_OR_64_BYTES})", expects=f"{SECRET} and the base64 of 24 to 64 bytes"
        ),
        "A `v1` secret that the receiver already has, only when the endpoint is created.",
        default_text="generated",
        direction="request",
        occasion="create",
    ),
    Member(
        "rotate_secret",
        rotate_secret_schema(MAX_OVERLAP),
        "Creates another secret. The previous one stays valid for the overlap, 24 hours unless you set it.",
        direction="request",
    ),
    Member("account", schema.identifier("acc"), "The account that the endpoint belongs to.", direction="response"),
    Member(
        "disabled_reason",
        schema.nullable(schema.one_of(get_args(Reason))),
        "`requested` (by a request), `operator` (by a command), `gone` (the receiver responded with 410), "
        f"`failing` ({DISABLE_AFTER.total_seconds() / 3600:.0f} hours without a success), or null.",
        direction="response",
    ),
    Member("disabled_at", schema.DATE_TIME, "When the endpoint was disabled, or null.", direction="response"),
    Member(
        "health",
        _HEALTH,
        "The failures since the last success: `consecutive_failures`, `failing_since`, `will_be_disabled_at` and "
        "`retry_after_until`.",
        direction="response",
    ),
    Member("held", schema.integer(0, MAX_HELD), f"Held deliveries, counted up to {MAX_HELD}.", direction="response"),
    Member(
        "secrets",
        schema.array(_SECRET),
        "The valid secrets, with `id`, `created_at`, `expires_at`, and for `v1a` the `public` key.",
        direction="response",
    ),
    Member("created_at", schema.DATE_TIME, "When the endpoint was created.", direction="response"),
    Member("updated_at", schema.DATE_TIME, "When the endpoint was last changed.", direction="response"),
    Member(
        "dropped_headers",
        schema.array({"type": "string"}),
        "After a change: headers that were dropped because the origin of the URL changed and the request did not send "
        "their hidden values again.",
        direction="response",
    ),
    Member(
        "secret",
        {"type": "string"},
        "The new secret, or for `v1a` the public key, only in the response that created it.",
        direction="response",
    ),
)
OPTIONAL_IN_RESPONSES = ("dropped_headers", "secret")
_STORED = [name for name in MEMBERS.request if name in Endpoint.__struct_fields__]


def render(endpoint: Endpoint, health: Health | None, held: int, at: datetime) -> dict[str, Any]:
    """The response of POST /webhooks/endpoints, without any secret."""
    failures = health or Health(0, None, None)
    waits = failures.not_before is not None and failures.not_before > at
    visible = {name: HIDDEN if is_credential(name) else value for name, value in endpoint.headers.items()}
    return (
        {"id": endpoint.id, "account": endpoint.account}
        | {name: getattr(endpoint, name) for name in _STORED}
        | {
            "headers": visible | dict.fromkeys(endpoint.sealed_headers, HIDDEN),
            "disabled_reason": endpoint.disabled_reason or None,
            "disabled_at": _time(endpoint.disabled_at),
            "health": {
                "consecutive_failures": failures.consecutive_failures,
                "failing_since": _time(failures.failing_since),
                "will_be_disabled_at": _time(will_be_disabled_at(endpoint, health)),
                "retry_after_until": _time(failures.not_before) if waits else None,
            },
            "held": held,
            "secrets": [
                {"id": secret.id, "created_at": _time(secret.created_at), "expires_at": _time(secret.expires_at)}
                | ({"public": secret.public} if secret.kind == "v1a" else {})
                for secret in endpoint.secrets
                if secret.is_active(at)
            ],
            "created_at": _time(endpoint.created_at),
            "updated_at": _time(endpoint.updated_at),
        }
    )


def _time(instant: datetime | None) -> str | None:
    return None if instant is None else clock.rfc3339(instant)


# --- status and secrets


def disabled(endpoint: Endpoint, reason: Reason, at: datetime) -> Endpoint:
    """The endpoint, disabled until it is resumed. One that is not active stays as it is, with its reason."""
    if endpoint.status != "active":
        return endpoint
    return msgspec.structs.replace(endpoint, status="disabled", disabled_reason=reason, disabled_at=at, updated_at=at)


def enabled(endpoint: Endpoint, at: datetime) -> Endpoint:
    """The endpoint, resumed. One that is active stays as it is, and removal is final."""
    if endpoint.status != "disabled":
        return endpoint
    return msgspec.structs.replace(
        endpoint, status="active", disabled_reason="", disabled_at=None, resumed_at=at, updated_at=at
    )


def removed(endpoint: Endpoint) -> Endpoint:
    """The endpoint, removed, without its secrets and headers."""
    return msgspec.structs.replace(
        endpoint, status="removed", disabled_reason="", disabled_at=None, headers={}, sealed_headers={}, secrets=[]
    )


def will_be_disabled_at(endpoint: Endpoint, health: Health | None) -> datetime | None:
    """When the endpoint is disabled unless an attempt succeeds. Failures before it was resumed do not count."""
    if endpoint.status != "active" or health is None or health.failing_since is None:
        return None
    return max(health.failing_since, endpoint.resumed_at or endpoint.created_at) + DISABLE_AFTER


def with_secret(endpoint: Endpoint, secret: SigningSecret, overlap: timedelta, at: datetime) -> Endpoint:
    """The endpoint with another secret. The previous one stays valid for the overlap; any older one ends now."""
    return msgspec.structs.replace(endpoint, secrets=rotated(endpoint.secrets, secret, overlap, at), updated_at=at)
