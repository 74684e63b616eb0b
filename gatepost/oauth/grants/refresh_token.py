"""Refresh tokens: a client obtains further tokens for a consent. RFC 6749, section 6; RFC 9700, section 4.14.

The format of refresh tokens and the rules of rotation and reuse are in `refresh_tokens`. For the ID token of a refresh
see OIDC Core 1.0, section 12.2.
"""

from collections.abc import Callable, Hashable
from datetime import timedelta

from gatepost.core.errors import Refusal
from gatepost.ledger.entries import Origin
from gatepost.ledger.record import record
from gatepost.oauth import client_rows, family_rows, id_tokens, refresh_tokens, revocation
from gatepost.oauth.client_authentication import AuthenticatedClient, ClientCredentials
from gatepost.oauth.consents import Consent
from gatepost.oauth.grants.authorization_code import consent_context, not_bound_to
from gatepost.oauth.grants.grant_type import GrantType, LoadedGrant, TokenExtras
from gatepost.oauth.refresh_tokens import Family, Inactive, Repeat, Reused, Rotate, Stay
from gatepost.oauth.service import Service
from gatepost.oauth.token_rules import CONSENT_RULES, Draft, TokenRequest
from gatepost.store.pending import Again
from gatepost.store.transaction import NO_HINTS, Hints, Prefetch, Tx


def load(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, request: TokenRequest, origin: Origin
) -> LoadedGrant | Refusal:
    """The consent of the token's family. A token that is reused ends its family."""
    if not request.parameter("refresh_token"):
        return Refusal("invalid_request", "refresh_token: missing", "refresh_token")
    account, client, key = authenticated.account, authenticated.client, service.keys.refresh
    token = refresh_tokens.read(key, request.parameter("refresh_token"))
    row = family_rows.load_with_consent(tx, account.id, token.family, service.keys.data) if token else None
    if token is None or row is None or row[0].client != client.id:
        return _invalid_token("unknown, or issued to another client")
    family, consent = row
    decision = refresh_tokens.decide(
        family, token, key, thumbprint=request.thumbprint, grace=timedelta(seconds=account.seconds("refresh_grace")),
        rotates=not account.strict, at=tx.at, may_be_done=tx.may_be_done,
    )  # fmt: skip
    match decision:
        case Inactive():
            return _invalid_token("expired or revoked")
        case Reused():
            if revocation.end_family(tx, account, family.id, "reused", origin, client=family.client):
                data = {"client": family.client, "what": "refresh_token", "number": token.number}
                record(tx, account, "oauth.token.reused", origin, family.id, data)
            return _invalid_token("used before; its family is revoked")
    if not consent.is_active(tx.at):
        return _invalid_token("the consent has ended")
    if client.public and family.thumbprint and family.thumbprint != request.thumbprint:
        return not_bound_to("the refresh token", request.thumbprint)

    complete = _completion(tx, service, authenticated, request, family, consent, decision)
    return LoadedGrant(consent_context(consent), complete)


def _completion(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, request: TokenRequest, family: Family,
    consent: Consent, decision: Rotate | Repeat | Stay,
) -> Callable[[Draft], TokenExtras]:  # fmt: skip
    def complete(draft: Draft) -> TokenExtras:
        idle_ends_at = refresh_tokens.idle_end(authenticated.account, authenticated.client, family.ends_at, tx.at)
        updated, answer = True, request.parameter("refresh_token")
        match decision:
            case Rotate(successor):
                leaf = refresh_tokens.leaf(successor)
                updated = family_rows.rotate(tx, family, leaf, request.thumbprint, idle_ends_at)
                answer = refresh_tokens.serialize(service.keys.refresh, successor)
            case Repeat(successor):
                answer = refresh_tokens.serialize(service.keys.refresh, successor)
                if tx.may_be_done:  # no response with the successor was sent
                    family_rows.restart_grace(tx, family)
            case Stay():
                updated = family_rows.extend(tx, family, idle_ends_at)
        if not updated:
            raise Again("another request used the refresh token")
        # OIDC Core 1.0, section 12.2: the ID token keeps the subject and auth_time of the first one.
        id_token = id_tokens.claims(tx, service, draft, consent, None)
        return TokenExtras({"refresh_token": answer}, {"family": family.id}, id_token)

    return complete


def hints(credentials: ClientCredentials, request: TokenRequest) -> Hints:
    """The rows of many families are read together."""
    family = refresh_tokens.family_in(request.parameter("refresh_token"))
    if family is None:
        return NO_HINTS

    def prefetch(tx: Tx) -> Prefetch | None:
        client = client_rows.load(tx, credentials.client)
        return family_rows.prefetch(client.account, family) if client else None

    return Hints(append_only=True, prefetch=prefetch)


def cache_key(draft: Draft) -> Hashable | None:
    """Everything that the rules read besides definitions. A consent is refreshed many times."""
    request, context = draft.request, draft.context
    if context is None or request.proof is not None:
        return None
    return ("refreshed", draft.client.id, request.scope, request.resources, context.scope, context.resources)


def _invalid_token(reason: str) -> Refusal:
    return Refusal("invalid_grant", f"refresh_token: {reason}", "refresh_token")


GRANT = GrantType(CONSENT_RULES, load, parameters=("refresh_token",), hints=hints, cache_key=cache_key)
