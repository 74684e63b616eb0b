"""Whether a token of ours still works: its signature, its times, and everything that it was obtained from."""

from typing import Any, NamedTuple

from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.jose import Unreadable, is_live
from gatepost.oauth import client_rows, key_rows, revoked_tokens
from gatepost.oauth import provenance_check as origins
from gatepost.oauth.clients import Client
from gatepost.oauth.consents import Consent
from gatepost.oauth.provenance import NOTHING, Provenance
from gatepost.oauth.provenance_check import Ended
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import PUBLISHED
from gatepost.store.transaction import Tx


class Live(NamedTuple):
    """An access token that works."""

    claims: dict[str, Any]
    client: Client
    account: Account
    consent: Consent | None = None
    provenance: Provenance = NOTHING


class Standing(NamedTuple):
    """A token of ours that was not ended, with what it was obtained from. It may have expired."""

    claims: dict[str, Any]
    consent: Consent | None = None
    provenance: Provenance = NOTHING


_NOT_OURS = Refusal("invalid_token", "the access token cannot be verified")
_TOO_LATE = Refusal("invalid_token", "the access token is expired or not for this service")
_GONE = Refusal("invalid_token", "the access token no longer works")


def access_token(tx: Tx, service: Service, token: str) -> Live | Refusal:
    """A token shown again is not verified again, until anything at all is ended or a definition changes."""
    try:
        standing = tx.valid(("token", token), lambda: _standing(tx, service, token))
    except Unreadable:
        return _NOT_OURS
    if standing is None:
        return _GONE
    claims, consent, provenance = standing
    if claims.get("iss") != service.base_url or not is_live(claims, tx.at):
        return _TOO_LATE
    client = client_rows.load(tx, str(claims.get("client_id")))
    account = account_rows.load(tx, client.account) if client else None
    if client is None or account is None or not client.active or not account.active:
        return _GONE
    if consent is not None and not consent.live(tx.at):
        return _GONE
    return Live(claims, client, account, consent, provenance)


def _standing(tx: Tx, service: Service, token: str) -> Standing | None:
    found = _judged(tx, service, token)
    return found if isinstance(found, Standing) else None


def _judged(tx: Tx, service: Service, token: str) -> Standing | Ended:
    claims = _verified(tx, service, token)
    account, raw_id = str(claims["account"]), ids.raw(claims["jti"])
    if revoked_tokens.contains(tx, account, raw_id):
        return Ended("revoked")
    if _is_a_machines_own(tx, claims):
        return Standing(claims)
    found = origins.load(tx, account, raw_id)
    if found is None:
        return Ended("record erased")
    checked = origins.check(tx, service, account, found)
    return checked if isinstance(checked, Ended) else Standing(claims, checked, found.provenance)


def _verified(tx: Tx, service: Service, token: str) -> dict[str, Any]:
    published = [each.key for each in key_rows.load(tx) if each.key.status in PUBLISHED]
    return service.ring.read(token, published, "at+jwt")


def _is_a_machines_own(tx: Tx, claims: dict[str, Any]) -> bool:
    """Obtained by client_credentials: it rests on its client alone, so nothing is looked up.

    A grant's id keeps its type. A token of a grant that the client no longer has is looked up like any other.
    """
    client = client_rows.load(tx, str(claims.get("client_id")))
    grant = client.grant("client_credentials") if client else None
    return grant is not None and grant.id == claims.get("grant")


def dormant(tx: Tx, service: Service, token: str) -> dict[str, Any] | None:
    """The claims of a token that does not work now but may again: a client further up its chain is disabled."""
    try:
        found = _judged(tx, service, token)
    except Unreadable:
        return None
    dormant = isinstance(found, Ended) and not found.final
    return _verified(tx, service, token) if dormant else None
