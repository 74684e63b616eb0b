"""Ending what was given: access tokens, families and consents; at the client's, a person's or the operator's wish."""

from datetime import datetime
from typing import Any

from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.jose import Unreadable, peek, read
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS
from gatepost.core.secrets import digest
from gatepost.ledger.entries import Origin
from gatepost.ledger.record import record
from gatepost.oauth import access_tokens, consent_rows, family_rows, refresh_tokens, revoked_tokens, used_assertions
from gatepost.oauth.authorize.handoff import REVOKE_TYPE, envelope_problem
from gatepost.oauth.client_authentication import AuthenticatedClient
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx

_AT_ONCE = 200  # consents in a slice


def person(service: Service, account: str, subject: str) -> bytes:
    """By which the consents of one person are found."""
    return digest(service.keys.hash, f"person\0{account}\0{subject}")


def end_consent(tx: Tx, account: Account, consent: str, reason: str, origin: Origin) -> bool:
    """A consent and its families; access tokens that rest on it stop working with it. False when it had ended."""
    client = consent_rows.end(tx, account.id, consent, reason)
    if client is None:
        return False
    for family in family_rows.of_consent(tx, account.id, consent):
        family_rows.end(tx, account.id, family, reason)
    record(tx, account, "oauth.consent.ended", origin, consent, {"client": client, "reason": reason})
    return True


def end_family(tx: Tx, account: Account, family: str, reason: str, origin: Origin, **data: Any) -> bool:
    """A refresh token, its descendants, and the access tokens that came of them. False when it had ended."""
    if not family_rows.end(tx, account.id, family, reason):
        return False
    record(tx, account, "oauth.token.revoked", origin, family, {"reason": reason} | data)
    return True


def end_token(
    tx: Tx, account: Account, token: str, expires_at: datetime, reason: str, origin: Origin, **data: Any
) -> bool:
    """One access token. False when it was revoked before."""
    if not revoked_tokens.add(tx, account.id, ids.raw(token), expires_at):
        return False
    record(tx, account, "oauth.token.revoked", origin, token, {"reason": reason} | data)
    return True


def by_client(tx: Tx, service: Service, authenticated: AuthenticatedClient, token: str, origin: Origin) -> None:
    """RFC 7009: the client gives back what it holds. Whatever else it shows changes nothing, and is not told apart."""
    account, client = authenticated.account, authenticated.client.id
    shown = refresh_tokens.read(service.keys.refresh, token)
    if shown is not None:
        family = family_rows.load(tx, account.id, shown.family)
        if family is not None and family.client == client:
            end_family(tx, account, family.id, "revoked_by_client", origin, client=client)
        return
    found = access_tokens.verify(tx, service, token)
    claims = access_tokens.dormant_claims(tx, service, token) if isinstance(found, Refusal) else found.claims
    if claims is None or claims["client_id"] != client:
        return
    named = "" if isinstance(found, Refusal) else found.provenance.family
    family = family_rows.load(tx, account.id, named) if named else None
    if family is not None and family.client == client:  # what was exchanged rests on the family of another
        end_family(tx, account, family.id, "revoked_by_client", origin, client=client)
    expires_at = clock.from_milliseconds(claims["exp"] * 1000)
    end_token(tx, account, claims["jti"], expires_at, "revoked_by_client", origin, client=client)


def is_by_login_application(token: str) -> bool:
    return peek(token)[0].get("typ") == REVOKE_TYPE


def by_login_application(tx: Tx, service: Service, token: str, request: str, source: str) -> int | Refusal:
    """Off-boarding: the application that logs people in ends what a person allowed. Says how many consents ended."""
    _, unverified = peek(token)
    name = str(unverified.get("iss"))
    account = account_rows.load(tx, name) if ids.parse("acc", name) else None
    if account is None or not account.active:
        return _bad("iss must be the account's id")
    try:
        keys = login_keys(tx, service, account, token)
        claims = read(token, keys, algorithms=ASSERTION_ALGORITHMS, typ=(REVOKE_TYPE,))
        problem = envelope_problem(claims, account=account.id, base_url=service.base_url, at=tx.at)
    except Unreadable as error:
        return _bad(f"it cannot be verified with the account's login_jwks ({error})")
    if problem:
        return _bad(problem)
    subject, client = claims.get("sub"), claims.get("client_id")
    if not isinstance(subject, str) or not subject or not isinstance(client, str | None):
        return _bad("sub must be that of a handoff, and client_id a client's id")
    if client is not None and ids.parse("cli", client) is None:
        return 0
    subject = subject.removeprefix(f"{account.id}.")  # as tokens have it
    until = clock.from_milliseconds(int(claims["exp"] * 1000) + 60_000)
    if not used_assertions.use(tx, account.id, "revocation", claims["jti"], until):
        return 0
    origin = Origin("login application", request, source)
    return end_consents(
        tx, account, "revoked_by_login", origin, person=person(service, account.id, subject), client=client
    )  # fmt: skip


def end_consents(
    tx: Tx, account: Account, reason: str, origin: Origin, *, person: bytes | None, client: str | None
) -> int:  # fmt: skip
    """All of a person, of a client, or of a person at a client."""
    ended = 0
    while (some := end_some_consents(tx, account, reason, origin, person=person, client=client)) is not None:
        ended += some
    return ended


def end_some_consents(
    tx: Tx, account: Account, reason: str, origin: Origin, *, person: bytes | None, client: str | None
) -> int | None:  # fmt: skip
    """A slice of them, for who has many: how many ended, or None when none was left."""
    those = consent_rows.active_of(tx, account.id, person=person, client=client, limit=_AT_ONCE)
    return sum(end_consent(tx, account, each, reason, origin) for each in those) if those else None


def login_keys(tx: Tx, service: Service, account: Account, token: str) -> dict[str, Any]:
    """The keys of the account's login application: given, or published at a URL."""
    keys = account["login_jwks"]
    if isinstance(keys, str):
        return service.foreign.keys_for(token, keys, tx.at, account=account.name)
    return keys or {}


def _bad(detail: str) -> Refusal:
    return Refusal("invalid_request", f"token: {detail}", "token")
