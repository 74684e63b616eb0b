"""Whether a token of ours still works: its signature, its times, and everything that it rests on."""

from typing import Any, NamedTuple

import msgspec

from gatepost import ids
from gatepost.accounts import Account
from gatepost.clients import Client
from gatepost.consents import Consent
from gatepost.errors import Refusal
from gatepost.families import Family
from gatepost.keys import PUBLISHED
from gatepost.store.tx import Tx
from gatepost.tokens.jws import Unreadable, is_live
from gatepost.units.service import Service


class Live(NamedTuple):
    """An access token that works."""

    claims: dict[str, Any]
    client: Client
    account: Account
    consent: Consent | None = None
    family: str | None = None


class Standing(NamedTuple):
    """A token of ours that nobody ended, with what it rests on. Time and definitions may still be against it."""

    claims: dict[str, Any]
    consent: Consent | None = None
    family: str | None = None


_NOT_OURS = Refusal("invalid_token", "the access token cannot be verified")
_TOO_LATE = Refusal("invalid_token", "the access token is expired or not for this service")
_GONE = Refusal("invalid_token", "the access token no longer works")


def access_token(tx: Tx, service: Service, token: str) -> Live | Refusal:
    """A token shown again is not verified again, until anything at all is ended."""
    try:
        standing = tx.standing(("token", token), lambda: _standing(tx, service, token))
    except Unreadable:
        return _NOT_OURS
    if standing is None:
        return _GONE
    claims, consent, family = standing
    if claims.get("iss") != service.base_url or not is_live(claims, tx.at):
        return _TOO_LATE
    client = tx.client(str(claims.get("client_id")))
    account = tx.account(client.account) if client else None
    if client is None or account is None or not client.active or not account.active:
        return _GONE
    if consent is not None and not consent.live(tx.at):
        return _GONE
    return Live(claims, client, account, consent, family)


def _standing(tx: Tx, service: Service, token: str) -> Standing | None:
    published = [each.key for each in tx.signing_keys() if each.key.status in PUBLISHED]
    claims = service.ring.read(token, published, "at+jwt")
    account, raw_id = str(claims["account"]), ids.raw(claims["jti"])
    if tx.flows.is_revoked(account, raw_id):
        return None
    if "auth_time" not in claims:
        return Standing(claims)
    return _of_a_person(tx, service, claims, account, raw_id)


def _of_a_person(tx: Tx, service: Service, claims: dict[str, Any], account: str, raw_id: bytes) -> Standing | None:
    """What the token rests on is in the entry that recorded it: a consent, and perhaps a family."""
    entry = tx.entry(account, raw_id)
    data = msgspec.json.decode(entry.data) if entry and entry.data else {}
    consent = tx.flows.consent(account, data.get("consent", ""), service.keys.data)
    if consent is None or consent.ended_at is not None:
        return None
    family = data.get("family")
    if family is not None and not is_open(tx.flows.family(account, family)):
        return None
    return Standing(claims, consent, family)


def is_open(family: Family | None) -> bool:
    """Whether nobody ended it. One that merely ran out takes no access token with it."""
    return family is not None and family.ended_at is None
