"""A workload shows a token of an issuer that the account trusts. RFC 7523, section 2.1."""

from datetime import datetime
from typing import Any

from gatepost.core.errors import Refusal
from gatepost.core.jose import audiences, instant, is_live
from gatepost.oauth.issuers import Issuer
from gatepost.oauth.token_rules import (
    NARROWING,
    Basis,
    grant_is_configured,
    key_is_shown,
    scopes_are_agreed,
    scopes_are_named,
)

RULES = (key_is_shown, grant_is_configured, scopes_are_named, scopes_are_agreed, *NARROWING)
TYPES = (None, "JWT", "jwt")
LONGEST = 3600  # seconds an assertion may live


def rest_on(issuer: Issuer, claims: dict[str, Any], base_url: str, at: datetime) -> Basis | Refusal:
    """RFC 7523, section 3: what a token that this issuer signed amounts to."""
    if claims.get("iss") != issuer.issuer:
        return _bad("iss is not that of the trusted issuer")
    if audiences(claims) != [base_url]:
        return _bad(f"aud must be {base_url}, alone")
    issued, expires = instant(claims, "iat"), instant(claims, "exp")
    if not is_live(claims, at) or expires is None:
        return _bad("it is expired, not yet valid, or has no exp")
    if expires - (issued if issued is not None else at.timestamp()) > LONGEST:
        return _bad("it lives for more than an hour")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= 512 or not subject.isprintable():
        return _bad("sub is missing")
    if not issuer.matches(claims):
        return _bad("its claims are not those that the trusted issuer's entry names")
    if issuer.once and not token_id(claims):
        return _bad("jti is missing: this issuer's tokens are accepted once each")
    facts = {"issuer": issuer.name, "issuer_entry": issuer.identity}
    return Basis(issuer.subject(subject), tuple(issuer.scope), facts=facts)


def token_id(claims: dict[str, Any]) -> str:
    """Its `jti`, if that can tell it from others; else empty."""
    found = claims.get("jti")
    return found if isinstance(found, str) and len(found) <= 256 else ""


def _bad(detail: str) -> Refusal:
    return Refusal("invalid_grant", f"assertion: {detail}", "assertion")
