"""Entries of the ledger, and the table of all event types of the service, each with an example."""

import hashlib
import re
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from gatepost.core import clock, ids
from gatepost.core.secrets import mask_secrets

OPERATOR = "operator"
SERVICE = "gatepost"
MAX_DATA = 256 * 1024
MAX_UNVALIDATED = 256  # characters of a value that was not validated, in the entry of a refusal
RESERVED = ("account.", "oauth.", "webhook.")
PLATFORM_TYPE = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)+")


class Entry(NamedTuple):
    """One fact. `data` is the JSON text that is hashed, and `data_hash` is None.

    The seal would stay valid if the data were erased: `data` None, and its hash in `data_hash`. The service does not
    erase data, so verification reports such an entry.
    """

    account: str
    id: bytes
    type: str
    at: int
    actor: str
    subject: str
    data: str | None
    data_hash: bytes | None
    matched: int
    keep_days: int
    request: str
    source: str

    @property
    def name(self) -> str:
        return ids.text("evt", self.id)


class Origin(msgspec.Struct, frozen=True):
    """Where a fact comes from: the actor, the id of the request, and the source address."""

    actor: str
    request: str = ""
    source: str = ""


_encode = msgspec.json.Encoder().encode


def new(
    type_: str,
    *,
    account: str,
    origin: Origin,
    subject: str,
    data: dict[str, Any],
    at: datetime,
    keep_days: int,
    raw_id: bytes | None = None,
) -> Entry:
    """A new entry, which matches no subscription yet."""
    if type_ in REFUSALS:
        data = refusal_data(data)
    return Entry(
        account,
        raw_id or ids.new_raw(),
        type_,
        clock.milliseconds(at),
        origin.actor,
        subject,
        _encode(data).decode(),
        None,
        0,
        keep_days,
        origin.request,
        origin.source,
    )


def refusal_data(data: dict[str, Any]) -> dict[str, Any]:
    """The data of a refusal, without secrets, and with strings of at most 256 characters.

    It contains values that a caller sent and that were not validated. Without a limit, callers could fill the ledger
    and the webhooks with them.
    """
    return {name: _truncated(value) for name, value in data.items()}


def _truncated(value: Any) -> Any:
    if isinstance(value, str):
        text = mask_secrets(value)
        return text if len(text) <= MAX_UNVALIDATED else text[: MAX_UNVALIDATED - 1] + "…"
    if isinstance(value, dict):
        return {_truncated(name): _truncated(item) for name, item in value.items()}
    return [_truncated(item) for item in value] if isinstance(value, list | tuple) else value


def render(entry: Entry) -> dict[str, Any]:
    """The entry as commands print it."""
    return {
        "id": entry.name,
        "account": entry.account,
        "type": entry.type,
        "at": clock.rfc3339(clock.from_milliseconds(entry.at)),
        "actor": entry.actor,
        "subject": entry.subject,
        "data": None if entry.data is None else msgspec.json.decode(entry.data),
        "matched": entry.matched,
        "request": entry.request or None,
        "source": entry.source or None,
    }


def data_hash(entry: Entry) -> bytes:
    """The SHA-256 of the entry's data, even if the data was erased."""
    if entry.data is None:
        return entry.data_hash or b""
    return hashlib.sha256(entry.data.encode()).digest()


# type → an example of its data. The service records no entry of another type.
TYPES: dict[str, dict[str, Any]] = {
    "account.created": {"name": "acme", "settings": {}},
    "account.changed": {"settings": {"access_token_lifetime": 600}},
    "account.suspended": {"reason": "unpaid"},
    "account.resumed": {},
    "account.store.restored": {
        "backup_at": "2026-11-15T03:00:00.000Z",
        "tokens": "ended",
        "unfinished_deliveries": 3,
        "lost_entries": {"oauth.token.issued": 120},
    },
    "account.operator.authorized": {"expires_at": "2026-11-15T09:00:00.000Z", "reason": "incident 42"},
    "account.heads.recorded": {"heads": {"acc_…": "12:9f86d081…"}, "previous": "evt_…"},
    "oauth.client.created": {
        "client_name": "Billing",
        "scope": "invoices:read",
        "grant_types": ["client_credentials"],
        "status": "active",
    },
    "oauth.client.changed": {"changed": ["status"], "status": "disabled", "scope": "invoices:read"},
    "oauth.client.refused": {"error": "invalid_client_metadata", "error_description": "…", "member": "scope"},
    "oauth.scope.created": {"resource": "https://api.example.com"},
    "oauth.scope.changed": {
        "changed": ["max_lifetime"],
        "resource": "https://api.example.com",
        "status": "active",
    },
    "oauth.scope.refused": {"error": "limit_reached", "error_description": "…"},
    "oauth.token.issued": {
        "grant_type": "client_credentials",
        "grant": "grt_…",
        "sub": "cli_…",
        "aud": "https://api.example.com",
        "scope": "invoices:read",
        "expires_at": 1794700800,
        "kid": "key_…",
        "by": "sec_…",
    },
    "oauth.token.refused": {
        "grant_type": "client_credentials",
        "error": "invalid_scope",
        "error_description": "…",
        "rule": "scopes_are_granted",
        "scope": "invoices:write",
        "by": "sec_…",
    },
    "oauth.token.explained": {
        "grant_type": "client_credentials",
        "decision": "issue",
        "scope": "invoices:read",
        "by": "sec_…",
    },
    "oauth.token.revoked": {"client": "cli_…", "reason": "revoked_by_client"},
    "oauth.token.reused": {"client": "cli_…", "what": "refresh_token", "number": 3},
    "oauth.consent.given": {"client": "cli_…", "scope": "openid invoices:read"},
    "oauth.consent.ended": {"client": "cli_…", "reason": "revoked_by_login"},
    "oauth.consent.refused": {"client": "cli_…", "error": "access_denied"},
    "oauth.request.refused": {"at": "par", "error": "invalid_scope", "error_description": "…", "by": "sec_…"},
    "webhook.endpoint.created": {"url": "https://example.com/hooks", "status": "active"},
    "webhook.endpoint.changed": {"changed": ["url"], "url": "https://example.com/hooks", "status": "active"},
    "webhook.endpoint.disabled": {"reason": "gone", "url": "https://example.com/hooks"},
    "webhook.endpoint.enabled": {"url": "https://example.com/hooks"},
    "webhook.endpoint.removed": {"url": "https://example.com/hooks"},
    "webhook.subscription.created": {"endpoint": "ep_…", "events": ["invoice.*"], "status": "active"},
    "webhook.subscription.changed": {"changed": ["events"], "endpoint": "ep_…", "events": ["*"], "status": "active"},
    "webhook.subscription.removed": {"endpoint": "ep_…", "events": ["invoice.*"]},
    "webhook.replay.started": {"subscription": "sub_…", "endpoint": "ep_…", "asked": {"only": "failed"}},
    "webhook.replay.ended": {"subscription": "sub_…", "endpoint": "ep_…", "examined": 1200, "made": 31},
    "webhook.delivery.changed": {
        "action": "cancelled",
        "endpoint": "ep_…",
        "event": "evt_…",
        "event_type": "invoice.paid",
    },
    "webhook.delivery.failed": {
        "endpoint": "ep_…",
        "event": "evt_…",
        "event_type": "invoice.paid",
        "ended_reason": "attempts_exhausted",
        "attempts": 10,
        "response_code": 503,
        "failure": None,
    },
    "webhook.endpoint.refused": {"error": "insufficient_scope", "error_description": "…", "member": "…"},
    "webhook.subscription.refused": {"error": "insufficient_scope", "error_description": "…", "member": "…"},
    "webhook.delivery.refused": {"error": "insufficient_scope", "error_description": "…", "member": "…"},
    "webhook.event.refused": {"error": "insufficient_scope", "error_description": "…", "member": "…"},
    "oauth.key.announced": {"alg": "ES256"},
    "oauth.key.activated": {"alg": "ES256"},
    "oauth.key.retired": {"alg": "ES256", "leaves_jwks_at": "2027-02-14T00:15:00.000Z"},
    "oauth.key.revoked": {"alg": "ES256", "reason": "compromised"},
}
REFUSALS = frozenset(type_ for type_ in TYPES if type_.endswith(".refused"))
