"""What a token says about itself, to those who may know: RFC 7662; and userinfo, OIDC Core 1.0 section 5.3."""

from typing import Any

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.core.jose import audiences
from gatepost.oauth import access_tokens, consents, family_rows, refresh_tokens, scopes
from gatepost.oauth.access_tokens import PresentedToken, verify_presented
from gatepost.oauth.client_authentication import AuthenticatedClient
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx

INACTIVE: dict[str, Any] = {"active": False}


def introspect(tx: Tx, service: Service, authenticated: AuthenticatedClient, token: str) -> dict[str, Any]:
    """For the client a token was issued to, and those of its account that serve its audience; nothing for others."""
    shown = refresh_tokens.read(service.keys.refresh, token)
    if shown is not None:
        return _refresh_token(tx, service, authenticated, shown)
    found = access_tokens.verify(tx, service, token)
    if isinstance(found, Refusal) or found.account.id != authenticated.account.id:
        return INACTIVE
    serves = any(each in authenticated.client.serves for each in audiences(found.claims))
    if found.client.id != authenticated.client.id and not serves:
        return INACTIVE
    kind = "DPoP" if "cnf" in found.claims else "Bearer"
    return {"active": True, "token_type": kind} | found.claims


def _refresh_token(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, shown: refresh_tokens.RefreshToken
) -> dict[str, Any]:
    found = family_rows.load_with_consent(tx, authenticated.account.id, shown.family, service.keys.data)
    if found is None or found[0].client != authenticated.client.id:
        return INACTIVE
    row, consent = found
    if not row.live(tx.at) or not consent.live(tx.at) or refresh_tokens.leaf(shown) != row.leaf:
        return INACTIVE
    return {
        "active": True,
        "token_type": "refresh_token",
        "iss": service.base_url,
        "client_id": row.client,
        "sub": consent.subject,
        "scope": " ".join(consent.details.scope),
        "exp": clock.seconds(min(row.idle_ends_at, row.ends_at)),
        "iat": clock.seconds(row.rotated_at),
        "account": row.account,
    }


def userinfo(tx: Tx, service: Service, shown: PresentedToken) -> dict[str, Any] | Refusal:
    """The claims that the token's scopes release, as the login application said them."""
    found = verify_presented(tx, service, shown)
    if isinstance(found, Refusal):
        return found
    held = str(found.claims["scope"]).split(" ")
    if scopes.OPENID not in held or found.consent is None or service.base_url not in audiences(found.claims):
        return Refusal("insufficient_scope", "userinfo needs an access token with the scope openid", scopes.OPENID)
    consent = found.consent
    requested = consent.details.userinfo
    claims = consents.released_claims(consent, requested, held, lambda name: service.scope(tx, consent.account, name))
    return claims | {"sub": consent.subject}
