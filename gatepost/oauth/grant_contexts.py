"""What a token request rests on, for each grant type that rests on something; and what is kept once it is issued."""

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.jose import Unreadable, peek, read
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS
from gatepost.core.secrets import random_bytes
from gatepost.ledger.entries import Origin
from gatepost.ledger.record import record
from gatepost.oauth import (
    access_tokens,
    consent_rows,
    consents,
    family_rows,
    issuer_rows,
    refresh_tokens,
    revocation,
    scopes,
    used_assertions,
)
from gatepost.oauth.authorize import codes
from gatepost.oauth.client_authentication import Known
from gatepost.oauth.client_grants import JWT_BEARER, TOKEN_EXCHANGE
from gatepost.oauth.consents import Consent
from gatepost.oauth.grants import authorization_code, jwt_bearer, token_exchange
from gatepost.oauth.grants.authorization_code import Bound
from gatepost.oauth.issuers import Issuer
from gatepost.oauth.refresh_tokens import Ended, Family, Repeat, Reused, Rotate, Stay
from gatepost.oauth.service import Service
from gatepost.oauth.token_rules import Basis, Draft, Request
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx

_bound = msgspec.json.Decoder(Bound)


class Kept(NamedTuple):
    """What else is answered, and recorded, with the token."""

    members: Mapping[str, str] = MappingProxyType({})
    facts: Mapping[str, Any] = MappingProxyType({})
    identity: dict[str, Any] | None = None  # the claims of an ID token


Keep = Callable[[Draft], Kept]


class Rest(NamedTuple):
    """What the request rests on; `keep` writes what comes of it, once it is allowed."""

    basis: Basis
    keep: Keep


Find = Callable[[Tx, Service, Known, Request, Origin], Rest | Refusal]


# --- a person's consent, by a code


def code_id(code: str) -> bytes:
    return hashlib.sha256(b"code\0" + code.encode("utf-8", "surrogatepass")).digest()


def by_code(tx: Tx, service: Service, known: Known, asked: Request, origin: Origin) -> Rest | Refusal:
    """RFC 6749, section 4.1.3. A code shown twice ends everything that came of it."""
    if not asked.parameter("code"):
        return Refusal("invalid_request", "code: missing", "code")
    account, raw_id = known.account, code_id(asked.parameter("code"))
    code = codes.load(tx, account.id, raw_id)
    if code is None or code.client != known.client.id:
        return _bad_code("unknown, or not of this client")
    if code.spent_at is not None:
        if revocation.end_consent(tx, account, code.consent, "code_reused", origin):
            data = {"client": known.client.id, "what": "authorization_code"}
            record(tx, account, "oauth.token.reused", origin, code.consent, data)
        return _bad_code("used before; what it gave is revoked")
    if tx.at >= code.expires_at:
        return _bad_code("expired")
    bound = _bound.decode(code.request)
    problem = authorization_code.problem(
        bound, redirect_uri=asked.parameter("redirect_uri"), verifier=asked.parameter("code_verifier"),
        thumbprint=asked.thumbprint,
    )  # fmt: skip
    if problem is not None:
        return problem
    consent = consent_rows.load(tx, account.id, code.consent, service.keys.data)
    if consent is None or not consent.live(tx.at):
        return _bad_code("the consent has ended")

    def keep(draft: Draft) -> Kept:
        if not codes.spend(tx, account.id, raw_id):
            raise Again("the code was spent meanwhile")
        kept = Kept({}, {"consent": consent.id}, _identity(tx, service, draft, consent, bound.nonce))
        refresh = known.client.grant("refresh_token")
        if scopes.OFFLINE not in consent.said.scope or refresh is None:
            return kept
        token = refresh_tokens.first(ids.new("fam"), random_bytes(32))
        ends_at = tx.at + timedelta(seconds=account.seconds("refresh_token_max_age"))
        family_rows.add(tx,
            Family(
                account.id, token.family, known.client.id, consent.id, token.number, refresh_tokens.leaf(token),
                asked.thumbprint, tx.at, _idle_end(known, ends_at, tx.at), ends_at,
            )
        )  # fmt: skip
        members = {"refresh_token": refresh_tokens.text(service.keys.refresh, token)}
        return kept._replace(members=members, facts={**kept.facts, "family": token.family})

    return Rest(_of_consent(consent), keep)


def _bad_code(why: str) -> Refusal:
    return Refusal("invalid_grant", f"code: {why}", "code")


def _of_consent(consent: Consent) -> Basis:
    said = consent.said
    return Basis(
        consent.subject, tuple(said.scope), tuple(said.resources), claims=consent.authentication(),
        facts={"consent": consent.id},
    )  # fmt: skip


def _identity(tx: Tx, service: Service, draft: Draft, consent: Consent, nonce: str | None) -> dict[str, Any] | None:
    """OIDC Core 1.0, section 2, but for what the token itself brings: its hash."""
    if scopes.OPENID not in draft.scope:
        return None
    issued = int(tx.at.timestamp())
    # OIDC Core 1.0, section 5.4: userinfo returns the claims of scopes; the ID token only those asked for by name.
    scope = consent.said.scope if draft.client.id_token_claims else []
    claims = consents.released(consent, scope, lambda name: service.scope(tx, consent.account, name), "id_token")
    claims |= {
        "iss": draft.base_url,
        "sub": consent.subject,
        "aud": draft.client.id,
        "exp": issued + draft.account.seconds("id_token_lifetime"),
        "iat": issued,
        **consent.authentication(),
    }
    return claims | ({"nonce": nonce} if nonce is not None else {})


def _idle_end(known: Known, ends_at: datetime, at: datetime) -> datetime:
    """The shortest of the lifetimes of account, client and grant; never beyond the family's own end."""
    grant = known.client.grant("refresh_token")
    lifetimes = [known.account.seconds("refresh_token_lifetime"), known.client.refresh_token_lifetime]
    lifetimes.append(grant.refresh_token_lifetime if grant else None)
    return min(ends_at, at + timedelta(seconds=min(each for each in lifetimes if each is not None)))


# --- a person's consent, by a refresh token


def by_refresh_token(tx: Tx, service: Service, known: Known, asked: Request, origin: Origin) -> Rest | Refusal:
    """RFC 6749, section 6; RFC 9700, section 4.14. Reuse ends the family."""
    if not asked.parameter("refresh_token"):
        return Refusal("invalid_request", "refresh_token: missing", "refresh_token")
    account, key = known.account, service.keys.refresh
    shown = refresh_tokens.read(key, asked.parameter("refresh_token"))
    found = family_rows.load_with_consent(tx, account.id, shown.family, service.keys.data) if shown else None
    if shown is None or found is None or found[0].client != known.client.id:
        return _bad_refresh("unknown, or not of this client")
    family, consent = found
    decided = refresh_tokens.decide(
        family, shown, key, thumbprint=asked.thumbprint, grace=timedelta(seconds=account.seconds("refresh_grace")),
        rotates=not account.strict, at=tx.at,
    )  # fmt: skip
    match decided:
        case Ended():
            return _bad_refresh("expired or revoked")
        case Reused():
            if revocation.end_family(tx, account, family.id, "reused", origin, client=family.client):
                data = {"client": family.client, "what": "refresh_token", "number": shown.number}
                record(tx, account, "oauth.token.reused", origin, family.id, data)
            return _bad_refresh("used before; its family is revoked")
    if not consent.live(tx.at):
        return _bad_refresh("the consent has ended")
    if known.client.public and family.thumbprint and family.thumbprint != asked.thumbprint:
        return Refusal("invalid_grant", "DPoP: the refresh token is bound to another key", "DPoP")
    return Rest(_of_consent(consent), _keeping(tx, service, known, asked, family, consent, decided))


def _keeping(
    tx: Tx, service: Service, known: Known, asked: Request, family: Family, consent: Consent,
    decided: Rotate | Repeat | Stay,
) -> Keep:  # fmt: skip
    def keep(draft: Draft) -> Kept:
        idle = _idle_end(known, family.ends_at, tx.at)
        stands, answer = True, asked.parameter("refresh_token")
        match decided:
            case Rotate(successor):
                stands = family_rows.rotate(tx, family, refresh_tokens.leaf(successor), asked.thumbprint, idle)
                answer = refresh_tokens.text(service.keys.refresh, successor)
            case Repeat(successor):
                answer = refresh_tokens.text(service.keys.refresh, successor)
            case Stay():
                stands = family_rows.extend(tx, family, idle)
        if not stands:
            raise Again("the family moved on meanwhile")
        facts = {"consent": consent.id, "family": family.id}
        return Kept({"refresh_token": answer}, facts, _identity(tx, service, draft, consent, None))

    return keep


def _bad_refresh(why: str) -> Refusal:
    return Refusal("invalid_grant", f"refresh_token: {why}", "refresh_token")


# --- an assertion of a trusted issuer


def by_assertion(tx: Tx, service: Service, known: Known, asked: Request, _origin: Origin) -> Rest | Refusal:
    """RFC 7523, section 2.1: only through an entry of the account that names issuer, client and what must match."""
    assertion = asked.parameter("assertion")
    if not assertion:
        return Refusal("invalid_request", "assertion: missing", "assertion")
    named = peek(assertion)[1].get("iss")
    trusted = [
        each
        for each in issuer_rows.load(tx, known.account.id)
        if each.issuer == named and each.client == known.client.id
    ]
    why = Refusal("invalid_grant", "assertion: not of an issuer that is trusted for this client", "assertion")
    for issuer in trusted:
        keys = service.foreign.keys_for(assertion, issuer.jwks_uri, tx.at, account=known.account.name)
        try:
            claims = read(assertion, keys, algorithms=ASSERTION_ALGORITHMS, typ=jwt_bearer.TYPES)
            basis = jwt_bearer.rest_on(issuer, claims, service.base_url, tx.at)
        except Unreadable as error:
            why = Refusal("invalid_grant", f"assertion: it cannot be verified ({error})", "assertion")
            continue
        if isinstance(basis, Refusal):
            why = basis
        elif issuer.once:
            return _once(tx, issuer, basis, claims)
        else:
            return Rest(basis, lambda _draft: Kept())
    return why


def _once(tx: Tx, issuer: Issuer, basis: Basis, claims: dict[str, Any]) -> Rest | Refusal:
    """The insert decides, in the commit that issues the token: what was refused or explained may be shown again."""
    used = (issuer.account, f"assertion of {issuer.issuer}", jwt_bearer.token_id(claims))
    if used_assertions.is_used(tx, *used):
        return Refusal("invalid_grant", "assertion: it was used before, and is accepted once", "assertion")

    def keep(_draft: Draft) -> Kept:
        if not used_assertions.use(
            tx, *used, tx.at + timedelta(seconds=jwt_bearer.LONGEST + 60)
        ):  # it has expired by then
            raise Again("the assertion was used meanwhile")
        return Kept()

    return Rest(basis, keep)


# --- another token


def by_exchange(tx: Tx, service: Service, known: Known, asked: Request, _origin: Origin) -> Rest | Refusal:
    """RFC 8693: the subject token is live, of this account, and for what this client serves, or its own."""
    problem = token_exchange.problem(dict(asked.sent))
    if problem is not None:
        return problem
    found = access_tokens.access_token(tx, service, asked.parameter("subject_token"))
    if isinstance(found, Refusal):
        return Refusal("invalid_request", f"subject_token: {found.detail}", "subject_token")
    basis = token_exchange.rest_on(
        found.claims, known.client, known.account.id, service.base_url, thumbprint=asked.thumbprint
    )
    if isinstance(basis, Refusal):
        return basis
    kid = peek(asked.parameter("subject_token"))[0]["kid"]  # verified: the header is one that the service wrote
    longer = token_exchange.extended(found.provenance, found.claims, kid)
    if isinstance(longer, Refusal):
        return longer
    facts = basis.facts | longer.facts()
    members = {"issued_token_type": asked.parameter("requested_token_type") or token_exchange.ACCESS_TOKEN}
    return Rest(msgspec.structs.replace(basis, facts=facts), lambda _draft: Kept(members))


BASES: dict[str, Find] = {
    "authorization_code": by_code,
    "refresh_token": by_refresh_token,
    JWT_BEARER: by_assertion,
    TOKEN_EXCHANGE: by_exchange,
}
