"""ID tokens: OIDC Core 1.0, section 2."""

import hashlib
from typing import Any, NamedTuple

import msgspec

from gatepost.core import clock
from gatepost.core.jose import b64
from gatepost.oauth import consents, scopes
from gatepost.oauth.consents import Consent
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import KeyRing, SigningKey
from gatepost.oauth.token_rules import Draft
from gatepost.store.transaction import Tx

_encode = msgspec.json.Encoder().encode


class IdToken(NamedTuple):
    """An ID token that is not signed yet. The hash of its access token is added then."""

    claims: dict[str, Any]
    key: SigningKey


def claims(tx: Tx, service: Service, draft: Draft, consent: Consent, nonce: str | None) -> dict[str, Any] | None:
    """The claims of the ID token that a response includes; None without the scope `openid`."""
    if scopes.OPENID not in draft.scope:
        return None
    issued = clock.seconds(tx.at)
    # OIDC Core 1.0, section 5.4: userinfo returns the claims of scopes; the ID token only those requested by name.
    scope = consent.details.scope if draft.client.id_token_claims else []
    requested = consent.details.id_token
    released = consents.released_claims(
        consent, requested, scope, lambda name: service.scope(tx, consent.account, name)
    )
    return released | {
        "iss": draft.base_url,
        "sub": consent.subject,
        "aud": draft.client.id,
        "exp": issued + draft.account.seconds("id_token_lifetime"),
        "iat": issued,
        **consent.authentication(),
        **({"nonce": nonce} if nonce is not None else {}),
    }


def sign(ring: KeyRing, token: IdToken, access_token: bytes) -> str:
    """Sign with the hash of the access token in the same response: OIDC Core 1.0, section 3.1.3.6."""
    digest = hashlib.sha512(access_token) if token.key.alg == "EdDSA" else hashlib.sha256(access_token)
    half = digest.digest()[: digest.digest_size // 2]
    return ring.sign(token.key, _encode(token.claims | {"at_hash": b64(half).decode()}), "JWT").decode()
