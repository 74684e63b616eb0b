"""Token introspection, RFC 7662, and userinfo, OIDC Core 1.0, section 5.3."""

from typing import Any

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.core.jose import audiences
from gatepost.ledger.entries import Origin
from gatepost.ledger.operations import refused
from gatepost.oauth import access_tokens, consents, family_rows, refresh_tokens, scopes
from gatepost.oauth.access_tokens import PresentedToken, verify_presented
from gatepost.oauth.client_authentication import AuthenticatedClient
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx

INACTIVE: dict[str, Any] = {"active": False}


def introspect(tx: Tx, service: Service, authenticated: AuthenticatedClient, token: str) -> dict[str, Any]:
    """The claims of a token, for the client it was issued to and for clients of its account that serve its audience.

    RFC 7662, section 2.2: for every other client and token the response is the same.
    """
    refresh_token = refresh_tokens.read(service.keys.refresh, token)
    if refresh_token is not None:
        return _introspect_refresh_token(tx, service, authenticated, refresh_token)
    active = access_tokens.verify(tx, service, token)
    if isinstance(active, Refusal) or active.account.id != authenticated.account.id:
        return INACTIVE
    serves = any(resource in authenticated.client.serves for resource in audiences(active.claims))
    if active.client.id != authenticated.client.id and not serves:
        return INACTIVE
    return {"active": True, "token_type": "DPoP" if "cnf" in active.claims else "Bearer"} | active.claims


def _introspect_refresh_token(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, token: refresh_tokens.RefreshToken
) -> dict[str, Any]:
    loaded = family_rows.load_with_consent(tx, authenticated.account.id, token.family, service.keys.data)
    if loaded is None or loaded[0].client != authenticated.client.id:
        return INACTIVE
    family, consent = loaded
    if not family.is_active(tx.at) or not consent.is_active(tx.at) or refresh_tokens.leaf(token) != family.leaf:
        return INACTIVE
    return {
        "active": True,
        "token_type": "refresh_token",
        "iss": service.base_url,
        "client_id": family.client,
        "sub": consent.subject,
        "scope": " ".join(consent.details.scope),
        "exp": clock.seconds(min(family.idle_ends_at, family.ends_at)),
        "iat": clock.seconds(family.rotated_at),
        "account": family.account,
    }


def userinfo(tx: Tx, service: Service, presented: PresentedToken) -> dict[str, Any] | Refusal:
    """The claims about the person that the token's scopes release. OIDC Core 1.0, section 5.3.2."""
    token = verify_presented(tx, service, presented)
    if isinstance(token, Refusal):
        return token
    held, consent = str(token.claims["scope"]).split(" "), token.consent
    if scopes.OPENID not in held or consent is None or service.base_url not in audiences(token.claims):
        return Refusal("insufficient_scope", "userinfo needs an access token with the scope openid", scopes.OPENID)
    claims = consents.released_claims(
        consent, consent.details.userinfo, held, lambda name: service.scope(tx, consent.account, name)
    )
    return claims | {"sub": consent.subject}


def record_refusal(
    tx: Tx, service: Service, presented: PresentedToken, refusal: Refusal, request_id: str, source: str
) -> str:  # fmt: skip
    """Record that userinfo refused a valid token. Returns the entry's id, or "" if the token has become invalid."""
    token = verify_presented(tx, service, presented, use_up=False)
    if isinstance(token, Refusal):
        return ""
    origin = Origin(str(token.claims["jti"]), request_id, source)
    answer = refused(tx, token.account, "oauth.request.refused", origin, refusal, at="userinfo")
    return answer.event or ""
