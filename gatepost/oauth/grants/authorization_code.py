"""A person allowed it: a code is redeemed. RFC 6749, section 4.1.3; RFC 7636; OAuth 2.1."""

import hashlib
import re
from datetime import datetime

import msgspec

from gatepost.core.errors import Refusal
from gatepost.core.jose import b64
from gatepost.core.secrets import same
from gatepost.oauth.token_rules import NARROWING, grant_is_configured, key_is_shown, scopes_are_agreed

RULES = (key_is_shown, grant_is_configured, scopes_are_agreed, *NARROWING)

VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


class Bound(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a code is bound to: its redemption must match."""

    redirect_uri: str
    challenge: str = ""
    thumbprint: str = ""
    nonce: str | None = None


def problem(bound: Bound, *, redirect_uri: str, verifier: str, thumbprint: str) -> Refusal | None:
    """Why this redemption does not match what the code is bound to."""
    if redirect_uri != bound.redirect_uri:
        return Refusal("invalid_grant", "redirect_uri: must be the one of the authorization request", "redirect_uri")
    if not bound.challenge and verifier:  # RFC 9700, section 4.8.2: a stripped challenge
        return Refusal("invalid_grant", "code_verifier: the authorization had no code_challenge", "code_verifier")
    if bound.challenge and not verifier:
        return Refusal("invalid_grant", "code_verifier: missing", "code_verifier")
    if bound.challenge and not _fits(verifier, bound.challenge):
        return Refusal("invalid_grant", "code_verifier: does not fit the code_challenge", "code_verifier")
    if bound.thumbprint and bound.thumbprint != thumbprint:  # RFC 9449, section 10
        return Refusal("invalid_grant", "DPoP: the code is bound to another key", "DPoP")
    return None


def _fits(verifier: str, challenge: str) -> bool:
    """RFC 7636, section 4.6, S256."""
    hashed = b64(hashlib.sha256(verifier.encode("utf-8", "surrogatepass")).digest())
    return bool(VERIFIER.fullmatch(verifier)) and same(hashed, challenge.encode())


def expired(expires_at: datetime, at: datetime) -> bool:
    return at >= expires_at
