"""Access tokens that are presented: verification, and authentication of a caller by one (RFC 6750, RFC 9449)."""

from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.jose import InvalidJwt, audiences, is_time_valid
from gatepost.ledger.operations import Caller
from gatepost.oauth import client_rows, dpop, key_rows, provenance, revoked_tokens
from gatepost.oauth.clients import Client
from gatepost.oauth.consents import Consent
from gatepost.oauth.dpop import Proof
from gatepost.oauth.provenance import NO_PROVENANCE, InvalidToken, Provenance
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx


class PresentedToken(NamedTuple):
    """An access token in an Authorization header, and the DPoP proof sent with it."""

    token: str
    proof: Proof | Refusal | None = None


class ActiveToken(NamedTuple):
    """An access token that is accepted now."""

    claims: dict[str, Any]
    client: Client
    account: Account
    consent: Consent | None = None
    provenance: Provenance = NO_PROVENANCE


class VerifiedToken(NamedTuple):
    """A token with a valid signature that is not revoked. It may have expired."""

    claims: dict[str, Any]
    consent: Consent | None = None
    provenance: Provenance = NO_PROVENANCE


_UNVERIFIABLE = Refusal("invalid_token", "the access token cannot be verified")
_EXPIRED = Refusal("invalid_token", "the access token is expired or not for this service")
_REVOKED = Refusal("invalid_token", "the access token no longer works")


def authenticate(tx: Tx, service: Service, presented: PresentedToken, *, use_up: bool = True) -> Caller | Refusal:
    """The caller of an operation. Its token must be issued for the service itself. RFC 9068, section 4.

    Without `use_up`, nothing is written: the DPoP proof can still be used once afterwards.
    """
    token = verify_presented(tx, service, presented, use_up=use_up)
    if isinstance(token, Refusal):
        return token
    if service.base_url not in audiences(token.claims):
        return _EXPIRED
    scope = frozenset(str(token.claims["scope"]).split(" "))
    return Caller(token.account.id, token.client.id, scope, str(token.claims["jti"]))


def verify_presented(
    tx: Tx, service: Service, presented: PresentedToken, *, use_up: bool = True
) -> ActiveToken | Refusal:
    """Verify a token. If it is bound to a key, it needs a proof of that key (RFC 9449, section 7.2)."""
    token = verify(tx, service, presented.token)
    if isinstance(token, Refusal):
        return token
    bound, proof = token.claims.get("cnf", {}).get("jkt", ""), presented.proof
    if isinstance(proof, Refusal):
        return proof
    if bound != (proof.thumbprint if proof else ""):
        detail = "the access token is bound to a key: send it as DPoP, with a proof of that key"
        return Refusal(
            "invalid_token", detail if bound else "the access token is not bound to a key: send it as Bearer"
        )
    refusal = dpop.too_weak(proof) if token.account.strict else None
    if refusal is None and use_up and proof:
        refusal = dpop.use(tx, token.client.id, proof)
    return msgspec.structs.replace(refusal, status_override=401) if refusal else token


def verify(tx: Tx, service: Service, token: str) -> ActiveToken | Refusal:
    """Verify an access token. The result is cached until anything is revoked or a definition changes."""
    try:
        verified = tx.valid(("token", token), lambda: _verify(tx, service, token))
    except InvalidJwt:
        return _UNVERIFIABLE
    if verified is None:
        return _REVOKED
    claims, consent, obtained_from = verified
    if claims.get("iss") != service.base_url or not is_time_valid(claims, tx.at):
        return _EXPIRED
    client = client_rows.load(tx, str(claims.get("client_id")))
    account = account_rows.load(tx, client.account) if client else None
    if client is None or account is None or not client.active or not account.active:
        return _REVOKED
    if consent is not None and not consent.is_active(tx.at):
        return _REVOKED
    return ActiveToken(claims, client, account, consent, obtained_from)


def dormant_claims(tx: Tx, service: Service, token: str) -> dict[str, Any] | None:
    """The claims of a token that is not accepted while a client in its chain is disabled, and may be again."""
    try:
        checked = _check(tx, service, token)
    except InvalidJwt:
        return None
    dormant = isinstance(checked, InvalidToken) and not checked.final
    return _read(tx, service, token) if dormant else None


def _verify(tx: Tx, service: Service, token: str) -> VerifiedToken | None:
    checked = _check(tx, service, token)
    return checked if isinstance(checked, VerifiedToken) else None


def _check(tx: Tx, service: Service, token: str) -> VerifiedToken | InvalidToken:
    claims = _read(tx, service, token)
    account, raw_id = str(claims["account"]), ids.raw(claims["jti"])
    if revoked_tokens.contains(tx, account, raw_id):
        return InvalidToken("revoked")
    if _is_by_client_credentials(tx, claims):
        return VerifiedToken(claims)
    recorded = provenance.load(tx, account, raw_id)
    if recorded is None:
        return InvalidToken("record erased")
    checked = provenance.check(tx, service, account, recorded)
    return checked if isinstance(checked, InvalidToken) else VerifiedToken(claims, checked, recorded.provenance)


def _read(tx: Tx, service: Service, token: str) -> dict[str, Any]:
    return service.ring.read(token, key_rows.load_published(tx), "at+jwt")


def _is_by_client_credentials(tx: Tx, claims: dict[str, Any]) -> bool:
    """Such a token depends on its client alone, so its provenance is not loaded.

    The id of a grant always has the same type. A token of a grant that the client no longer has is checked in full.
    """
    client = client_rows.load(tx, str(claims.get("client_id")))
    grant = client.grant("client_credentials") if client else None
    return grant is not None and grant.id == claims.get("grant")
