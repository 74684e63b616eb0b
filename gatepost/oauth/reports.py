"""Reports from the ledger: the tokens that had not expired at an instant, and the scopes that are not used."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.core.jose import audiences
from gatepost.ledger import search
from gatepost.ledger.entries import Entry
from gatepost.ledger.search import EntryFilter
from gatepost.oauth import client_rows, scopes
from gatepost.oauth.consents import LONGEST_ACCESS
from gatepost.oauth.provenance import CLIENT_DISABLED, read_entry_data
from gatepost.store.interface import Reader

_ENDED = ("oauth.token.revoked", "oauth.consent.ended")
_DISABLED = ("oauth.client.changed", "account.suspended", "account.resumed")
_NO_LIMIT = 1_000_000_000


class UnexpiredToken(NamedTuple):
    """A token for an audience that had not expired at an instant, and the reason if it had been ended by then."""

    id: str
    client: str
    grant_type: str
    scope: str
    issued_at: datetime
    expires_at: datetime
    ended: str | None
    about: str


class _Endings(NamedTuple):
    """What had ended by the instant."""

    reasons: dict[str, str]  # of tokens, families and consents, by id
    disabled: dict[str, bool]  # by the id of a client or account: its last status
    removed_at: dict[str, int]  # by the name of an issuer


def unexpired_tokens(store: Reader, account: Account, audience: str, at: datetime) -> list[UnexpiredToken]:
    """Newest first. Entries older than the longest lifetime of an access token, or later than `at`, do not matter."""
    since = max(at, clock.EPOCH + LONGEST_ACCESS) - LONGEST_ACCESS
    types = ("oauth.token.issued", *_ENDED, *_DISABLED, "account.changed")
    endings, issued = _Endings({}, {}, {}), []
    for entry in search.newest(store, account.id, EntryFilter(types, since=since, until=at), _NO_LIMIT):
        data = _data(entry)
        if entry.type in _ENDED:
            endings.reasons.setdefault(entry.subject, str(data.get("reason", "ended")))
        elif entry.type in _DISABLED:
            disabled = data.get("status") == "disabled" or entry.type == "account.suspended"
            endings.disabled.setdefault(entry.subject, disabled)
        elif entry.type == "account.changed":
            endings.removed_at.setdefault(str(data.get("issuer_removed")), entry.at)
        elif audience in audiences(data) and data["expires_at"] > at.timestamp():
            issued.append((entry, data))
    return [
        UnexpiredToken(
            ids.with_prefix("tok", entry.name), entry.actor, data["grant_type"], data["scope"],
            clock.from_milliseconds(entry.at), clock.from_milliseconds(data["expires_at"] * 1000),
            _ended_reason(entry, endings), str(data.get("sub") or data.get("consent") or ""),
        )
        for entry, data in issued
    ]  # fmt: skip


def _ended_reason(entry: Entry, endings: _Endings) -> str | None:
    token = ids.with_prefix("tok", entry.name)
    recorded = read_entry_data(entry.data or "{}")
    subjects = [subject.token for subject in recorded.chain] or [recorded.subject_token]
    for ended in (token, recorded.family, recorded.consent, *subjects):
        if ended in endings.reasons:
            return endings.reasons[ended]
    if endings.removed_at.get(recorded.issuer, -1) >= entry.at:
        return "issuer removed"
    if endings.disabled.get(entry.actor):
        return "client disabled"
    if any(endings.disabled.get(subject.client) for subject in recorded.chain):
        return CLIENT_DISABLED.reason
    return "account suspended" if endings.disabled.get(entry.account) else None


class UnusedScope(NamedTuple):
    """A scope in a client's grant with which the client has obtained no token in the period."""

    client: str
    client_name: str | None
    grant_type: str
    scope: str


def unused_scopes(store: Reader, account: Account, days: int) -> Iterator[UnusedScope]:
    """By client, the oldest first. Disabled clients and grants are left out, because they obtain no tokens."""
    since = store.read_now(lambda tx: tx.at) - timedelta(days=days)
    used: set[tuple[str, str]] = set()
    for entry in search.newest(store, account.id, EntryFilter(("oauth.token.issued",), since=since), _NO_LIMIT):
        data = _data(entry)
        used.update((data.get("grant", ""), name) for name in scopes.split(data.get("scope", "")))
    for client in client_rows.every(store, account.id):
        for grant in client.grants if client.active else []:
            unused = [name for name in grant.scopes if (grant.id, name) not in used and grant.status == "active"]
            yield from (UnusedScope(client.id, client.client_name, grant.grant_type, name) for name in unused)


def _data(entry: Entry) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(entry.data or "{}")
    return data
