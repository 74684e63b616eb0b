"""Ending access tokens, families and consents: by the client (RFC 7009), the login application or the operator."""

from datetime import datetime
from typing import Any

from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.jose import InvalidJwt, decode_unverified, verify_jws
from gatepost.core.jwk_sets import assertion_algorithms
from gatepost.core.secrets import digest
from gatepost.ledger.entries import Origin
from gatepost.ledger.record import record
from gatepost.oauth import access_tokens, consent_rows, family_rows, refresh_tokens, revoked_tokens, used_assertions
from gatepost.oauth.authorize.handoff import REVOKE_TYPE, envelope_problem
from gatepost.oauth.client_authentication import AuthenticatedClient
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx

_AT_ONCE = 200  # consents that are ended together


def person(service: Service, account: str, subject: str) -> bytes:
    """The hash by which the consents of a person are found."""
    return digest(service.keys.hash, f"person\0{account}\0{subject}")


def end_consent(tx: Tx, account: Account, consent: str, reason: str, origin: Origin) -> bool:
    """End a consent and its families. Access tokens that depend on it become invalid. False if it had ended before."""
    client = consent_rows.end(tx, account.id, consent, reason)
    if client is None:
        return False
    for family in family_rows.of_consent(tx, account.id, consent):
        family_rows.end(tx, account.id, family, reason)
    record(tx, account, "oauth.consent.ended", origin, consent, {"client": client, "reason": reason})
    return True


def end_family(tx: Tx, account: Account, family: str, reason: str, origin: Origin, **data: Any) -> bool:
    """End a refresh token, its successors, and the access tokens obtained with them. False if it had ended before."""
    if not family_rows.end(tx, account.id, family, reason):
        return False
    record(tx, account, "oauth.token.revoked", origin, family, {"reason": reason} | data)
    return True


def end_token(
    tx: Tx, account: Account, token: str, expires_at: datetime, reason: str, origin: Origin, **data: Any
) -> bool:
    """Revoke an access token. False if it was revoked before."""
    if not revoked_tokens.add(tx, account.id, ids.raw(token), expires_at):
        return False
    record(tx, account, "oauth.token.revoked", origin, token, {"reason": reason} | data)
    return True


def by_client(tx: Tx, service: Service, authenticated: AuthenticatedClient, token: str, origin: Origin) -> None:
    """Revoke a token of the client. RFC 7009, section 2.2: any other token changes nothing, and is no error."""
    account, client = authenticated.account, authenticated.client.id
    refresh_token = refresh_tokens.read(service.keys.refresh, token)
    if refresh_token is not None:
        _end_own_family(tx, account, client, refresh_token.family, origin)
        return
    active = access_tokens.verify(tx, service, token)
    claims = access_tokens.dormant_claims(tx, service, token) if isinstance(active, Refusal) else active.claims
    if claims is None or claims["client_id"] != client:
        return
    if not isinstance(active, Refusal) and active.provenance.family:
        _end_own_family(tx, account, client, active.provenance.family, origin)
    expires_at = clock.from_milliseconds(claims["exp"] * 1000)
    end_token(tx, account, claims["jti"], expires_at, "revoked_by_client", origin, client=client)


def _end_own_family(tx: Tx, account: Account, client: str, family_id: str, origin: Origin) -> None:
    """End a family if it belongs to the client. An exchanged token depends on the family of another client."""
    family = family_rows.load(tx, account.id, family_id)
    if family is not None and family.client == client:
        end_family(tx, account, family.id, "revoked_by_client", origin, client=client)


def is_by_login_application(token: str) -> bool:
    """Whether the token is a revocation that a login application signed, and not a token to revoke."""
    return decode_unverified(token)[0].get("typ") == REVOKE_TYPE


def by_login_application(tx: Tx, service: Service, token: str, request: str, source: str) -> int | Refusal:
    """End the consents of a person, as the login application requests. Returns how many ended."""
    _, unverified = decode_unverified(token)
    issuer = str(unverified.get("iss"))
    account = account_rows.load(tx, issuer) if ids.parse("acc", issuer) else None
    if account is None or not account.active:
        return _invalid("iss must be the account's id")
    algorithms = assertion_algorithms(strict=account.strict)
    try:
        keys = login_keys(tx, service, account, token)
        claims = verify_jws(token, keys, algorithms=algorithms, typ=(REVOKE_TYPE,))
        problem = envelope_problem(claims, account=account.id, base_url=service.base_url, at=tx.at)
    except InvalidJwt as error:
        return _invalid(f"it cannot be verified with the account's login_jwks ({error})")
    if problem:
        return _invalid(problem)
    subject, client = claims.get("sub"), claims.get("client_id")
    if not isinstance(subject, str) or not subject or not isinstance(client, str | None):
        return _invalid("sub must be that of a handoff, and client_id a client's id")
    if client is not None and ids.parse("cli", client) is None:
        return 0
    subject = subject.removeprefix(f"{account.id}.")  # tokens contain it with this prefix; a handoff must not
    until = clock.from_milliseconds(int(claims["exp"] * 1000) + 60_000)
    content = f"{claims['jti']}\0{subject}\0{client or ''}"
    if not used_assertions.use(tx, account.id, "revocation", claims["jti"], until):
        if used_assertions.is_used(tx, account.id, "revocation content", content):
            return 0  # the same revocation, sent again
        return _invalid("its jti was used before, for another person or client; nothing was revoked")
    used_assertions.use(tx, account.id, "revocation content", content, until)
    origin = Origin("login application", request, source)
    return end_consents(
        tx, account, "revoked_by_login", origin, person=person(service, account.id, subject), client=client
    )  # fmt: skip


def end_consents(
    tx: Tx, account: Account, reason: str, origin: Origin, *, person: bytes | None, client: str | None
) -> int:  # fmt: skip
    """End all consents of a person, of a client, or of a person for a client. Returns how many ended."""
    total = 0
    while (ended := end_some_consents(tx, account, reason, origin, person=person, client=client)) is not None:
        total += ended
    return total


def end_some_consents(
    tx: Tx, account: Account, reason: str, origin: Origin, *, person: bytes | None, client: str | None
) -> int | None:  # fmt: skip
    """The same for a part of them. Returns how many ended, or None if none were left."""
    consents = consent_rows.active_of(tx, account.id, person=person, client=client, limit=_AT_ONCE)
    return sum(end_consent(tx, account, consent, reason, origin) for consent in consents) if consents else None


def login_keys(tx: Tx, service: Service, account: Account, token: str) -> dict[str, Any]:
    """The keys of the account's login application: a key set in its settings, or one that it publishes."""
    keys = account["login_jwks"]
    if isinstance(keys, str):
        return service.foreign.keys_for(token, keys, tx.at, account=account.name)
    return keys or {}


def _invalid(detail: str) -> Refusal:
    return Refusal("invalid_request", f"token: {detail}", "token")
