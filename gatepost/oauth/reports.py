"""Questions that the ledger answers: which tokens could reach something at an instant, and which scopes nobody uses."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.ledger import search
from gatepost.ledger.entries import Entry
from gatepost.ledger.search import EntryFilter
from gatepost.oauth import client_rows, scopes
from gatepost.oauth.consents import LONGEST_ACCESS
from gatepost.oauth.provenance import CLIENT_DISABLED, read_entry_data
from gatepost.store.interface import Reader

_ENDS = ("oauth.token.revoked", "oauth.consent.ended")
_STOPS = ("oauth.client.changed", "account.suspended", "account.resumed")
_CHANGED = "account.changed"  # among other things, that an issuer was removed
_ALL = 1_000_000_000


class Reaching(NamedTuple):
    """A token that was signed for the audience and had not expired then; and why it was ended by then, if it was."""

    id: str
    client: str
    grant_type: str
    scope: str
    issued_at: datetime
    expires_at: datetime
    ended: str | None
    about: str


def reaching(store: Reader, account: Account, audience: str, at: datetime) -> list[Reaching]:
    """Newest first. Nothing older than the longest-lived access token can matter, nor what happened later."""
    window = EntryFilter(("oauth.token.issued", *_ENDS, *_STOPS, _CHANGED), since=at - LONGEST_ACCESS, until=at)
    ended: dict[str, str] = {}
    stopped: dict[str, bool] = {}  # by client or account: whether it was stopped the last time before
    removed: dict[str, int] = {}  # by name of an issuer: when it was last removed
    found = []
    for entry in search.newest(store, account.id, window, _ALL):
        data = _data(entry)
        if entry.type in _ENDS:
            ended.setdefault(entry.subject, str(data.get("reason", "ended")))
        elif entry.type in _STOPS:
            stopped.setdefault(entry.subject, data.get("status") == "disabled" or entry.type == "account.suspended")
        elif entry.type == _CHANGED:
            removed.setdefault(str(data.get("issuer_removed")), entry.at)
        elif _was_for(data, audience, at):
            found.append((entry, data))
    return [_reaching(entry, data, ended, stopped, removed, account) for entry, data in found]


def _was_for(data: dict[str, Any], audience: str, at: datetime) -> bool:
    named = data.get("aud")
    return audience in (named if isinstance(named, list) else [named]) and data["expires_at"] > at.timestamp()


def _reaching(
    entry: Entry, data: dict[str, Any], ended: dict[str, str], stopped: dict[str, bool], removed: dict[str, int],
    account: Account,
) -> Reaching:  # fmt: skip
    token = ids.with_prefix("tok", entry.name)
    record = read_entry_data(entry.data or "{}")
    subjects = [each.token for each in record.chain] or [record.subject_token]
    why = next((ended[each] for each in (token, record.family, record.consent, *subjects) if each in ended), None)
    if why is None and removed.get(record.issuer, -1) >= entry.at:
        why = "issuer removed"
    if why is None and stopped.get(entry.actor):
        why = "client disabled"
    if why is None and any(stopped.get(each.client) for each in record.chain):
        why = CLIENT_DISABLED.reason
    if why is None and stopped.get(account.id):
        why = "account suspended"
    return Reaching(
        token, entry.actor, data["grant_type"], data["scope"], clock.from_milliseconds(entry.at),
        clock.from_milliseconds(data["expires_at"] * 1000), why, str(data.get("sub") or data.get("consent") or ""),
    )  # fmt: skip


class Unused(NamedTuple):
    """A scope that a client was granted and obtained no token with for so long."""

    client: str
    client_name: str | None
    grant_type: str
    scope: str


def unused(store: Reader, account: Account, days: int) -> Iterator[Unused]:
    """By client, oldest first. Disabled clients and grants obtain nothing and are left out."""
    since = store.read_now(lambda tx: tx.at) - timedelta(days=days)
    used: set[tuple[str, str]] = set()
    for entry in search.newest(store, account.id, EntryFilter(("oauth.token.issued",), since=since), _ALL):
        data = _data(entry)
        used.update((data.get("grant", ""), name) for name in scopes.split(data.get("scope", "")))
    for client in client_rows.every(store, account.id):
        for grant in client.grants if client.active else []:
            missing = [name for name in grant.scopes if (grant.id, name) not in used and grant.status == "active"]
            yield from (Unused(client.id, client.client_name, grant.grant_type, name) for name in missing)


def _data(entry: Entry) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(entry.data) if entry.data else {}
    return found
