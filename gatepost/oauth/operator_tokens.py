"""Operator tokens, which open the operator's view and nothing else. Only the operator's command creates them.

A token consists of the id of the ledger entry that records it, its expiry, and an HMAC with a key that serves no other
purpose. It is accepted while that entry exists and the token is not revoked.
"""

from datetime import datetime, timedelta
from hmac import compare_digest
from typing import NamedTuple

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, NotFound
from gatepost.core.jose import b64, unb64
from gatepost.core.secrets import Secret, mac
from gatepost.ledger import entry_rows, search
from gatepost.ledger.entries import OPERATOR, Entry, Origin
from gatepost.ledger.record import record
from gatepost.ledger.search import EntryFilter
from gatepost.oauth import account_admin, revocation, revoked_tokens
from gatepost.oauth.service import Service
from gatepost.store.transaction import HIGHEST, Tx

LIFETIME = timedelta(hours=1)
MIN_LIFETIME = timedelta(minutes=1)
MAX_LIFETIME = timedelta(hours=8)
TYPE = "account.operator.authorized"
_PREFIX = "gpo_"
_ID, _EXPIRY, _MAC = 16, 8, 32  # bytes
_PAGE = 100
_ORIGIN = Origin(OPERATOR)


class OperatorToken(NamedTuple):
    """A new token. Its id and that of its ledger entry differ only in the prefix."""

    id: str
    token: Secret
    expires_at: datetime


class Contents(NamedTuple):
    """The id of a token and the millisecond in which it expires."""

    id: bytes
    expires_at: int


def create(tx: Tx, service: Service, lifetime: timedelta, reason: str) -> OperatorToken:
    """Create a token, and record it in the operator's ledger."""
    if not MIN_LIFETIME <= lifetime <= MAX_LIFETIME:
        raise BadSetting("--lifetime: must be from 1m to 8h")
    operator = account_admin.create_operator(tx, service)
    expires_at = tx.at + lifetime
    data = {"expires_at": clock.rfc3339(expires_at)} | ({"reason": reason} if reason else {})
    entry = record(tx, operator, TYPE, _ORIGIN, operator.id, data)
    token = write(service.keys.operator, Contents(entry.id, clock.milliseconds(expires_at)))
    return OperatorToken(ids.text("tok", entry.id), token, expires_at)


def write(key: bytes, contents: Contents) -> Secret:
    """The text of a token."""
    signed = contents.id + contents.expires_at.to_bytes(_EXPIRY, "big")
    return Secret(_PREFIX + b64(signed + mac(key, signed)).decode())


def read(key: bytes, text: str) -> Contents | None:
    """The contents of a token. None if the service did not write it."""
    try:
        raw = unb64(text.removeprefix(_PREFIX))
    except ValueError:
        return None
    signed = raw[:-_MAC]
    if (
        not text.startswith(_PREFIX)
        or len(raw) != _ID + _EXPIRY + _MAC
        or not compare_digest(raw[-_MAC:], mac(key, signed))
    ):
        return None
    return Contents(signed[:_ID], int.from_bytes(signed[_ID:], "big"))


def verify(tx: Tx, service: Service, text: str) -> str | None:
    """The id of a token that is accepted now, or None."""
    contents = read(service.keys.operator, text)
    if contents is None or contents.expires_at <= tx.now:
        return None
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    if operator is None or _entry(tx, operator, contents.id) is None:
        return None
    return None if revoked_tokens.contains(tx, operator.id, contents.id) else ids.text("tok", contents.id)


def revoke(tx: Tx, token: str) -> bool:
    """Revoke the token with this id. False if it was revoked before."""
    raw_id, operator = ids.parse("tok", token), account_rows.load_named(tx, accounts.OPERATOR)
    entry = _entry(tx, operator, raw_id) if raw_id and operator else None
    if operator is None or entry is None:
        do = f"`gatepost audit list --account {accounts.OPERATOR} --type {TYPE}` lists them, as evt_ instead of tok_"
        raise NotFound(f"there is no operator token {token}; {do}")
    return _end(tx, operator, entry, "revoked_by_operator", _ORIGIN)


def revoke_all(tx: Tx, reason: str, origin: Origin) -> None:
    """Revoke every token that may not have expired yet."""
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    if operator is None:
        return
    wanted = EntryFilter((TYPE,), since=tx.at - MAX_LIFETIME - search.CLOCK_TOLERANCE)
    before: bytes | None = HIGHEST
    while before is not None:
        page, before = search.page(tx, operator.id, wanted, before, _PAGE)
        for entry in page:
            _end(tx, operator, entry, reason, origin)


def _end(tx: Tx, operator: Account, entry: Entry, reason: str, origin: Origin) -> bool:
    latest = clock.from_milliseconds(entry.at) + MAX_LIFETIME
    return revocation.end_token(tx, operator, ids.text("tok", entry.id), latest, reason, origin)


def _entry(tx: Tx, operator: Account, raw_id: bytes) -> Entry | None:
    entry = entry_rows.load(tx, operator.id, raw_id)
    tx.check_snapshot()
    return entry if entry is not None and entry.type == TYPE else None
