"""Token exchange: a client exchanges an access token for one with another audience, and never more scope. RFC 8693."""

from typing import Any

import msgspec

from gatepost.core.errors import Refusal
from gatepost.core.jose import audiences, unverified_header
from gatepost.ledger.entries import Origin
from gatepost.oauth import access_tokens, scopes
from gatepost.oauth.client_authentication import AuthenticatedClient
from gatepost.oauth.client_grants import TOKEN_EXCHANGE
from gatepost.oauth.clients import Client
from gatepost.oauth.consents import Consent
from gatepost.oauth.grants.grant_type import GrantType, LoadedGrant, TokenExtras
from gatepost.oauth.provenance import LONGEST_CHAIN, Provenance, SubjectToken, earlier_limits
from gatepost.oauth.resources import owned_as
from gatepost.oauth.service import Service
from gatepost.oauth.token_rules import (
    SHARED,
    Definitions,
    Draft,
    GrantContext,
    ScopeLimit,
    TokenRequest,
    client_is_confidential,
)
from gatepost.store.transaction import Tx

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 (a name, not a secret)
JWT = "urn:ietf:params:oauth:token-type:jwt"


def stays_within_the_subject(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """For the audience of the subject token, or of one that it was obtained for, the token adds no scope.

    The same holds for the resources of what a person granted or refused, if a client exchanges its own token.
    """
    resource = owned_as(draft.resource)  # with and without a slash
    for limit in draft.context.limits if draft.context else ():
        beyond = scopes.first_beyond(draft.scope, limit.scope) if resource in map(owned_as, limit.audience) else None
        if beyond is not None:
            detail = f"scope: {beyond} is not in the {limit.source}"
            return Refusal("invalid_scope", detail, "scope")
    return draft


RULES = (client_is_confidential, *SHARED, stays_within_the_subject)


def load(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, request: TokenRequest, _origin: Origin
) -> LoadedGrant | Refusal:
    """The subject token: an active one of the account, issued to this client or for a resource that it serves."""
    problem = check_parameters(dict(request.parameters))
    if problem is not None:
        return problem
    token = access_tokens.verify(tx, service, request.parameter("subject_token"))
    if isinstance(token, Refusal):
        return Refusal("invalid_request", f"subject_token: {token.detail}", "subject_token")
    context = check_subject_token(
        token.claims, authenticated.client, authenticated.account.id, service.base_url, thumbprint=request.thumbprint
    )
    if isinstance(context, Refusal):
        return context
    kid = unverified_header(request.parameter("subject_token"))["kid"]  # `verify` has checked the token
    provenance = extend_provenance(token.provenance, token.claims, kid)
    if isinstance(provenance, Refusal):
        return provenance
    earlier = earlier_limits(tx, authenticated.account.id, token.provenance)
    if earlier is None:
        detail = "subject_token: the record of a token that it was obtained for was erased"
        return Refusal("invalid_request", detail, "subject_token")
    if token.consent is not None and token.client.id == authenticated.client.id:
        earlier.append(_limit_of_consent(tx, service, token.consent))
    context = msgspec.structs.replace(
        context, limits=(*context.limits, *earlier), entry_data=context.entry_data | provenance.entry_data()
    )
    members = {"issued_token_type": request.parameter("requested_token_type") or ACCESS_TOKEN}
    return LoadedGrant(context, lambda _draft: TokenExtras(members))


def _limit_of_consent(tx: Tx, service: Service, consent: Consent) -> ScopeLimit:
    """What the person decided also limits a client whose token has only a part of it, such as `openid`."""
    decided = (service.scope(tx, consent.account, name) for name in (*consent.details.scope, *consent.details.refused))
    resources = tuple(scope.resource for scope in decided if scope is not None)
    return ScopeLimit(resources, tuple(consent.details.scope), "scopes that the person granted")


def check_parameters(parameters: dict[str, str]) -> Refusal | None:
    """What is wrong with the parameters of RFC 8693, section 2.1."""
    if not parameters.get("subject_token"):
        return Refusal("invalid_request", "subject_token: missing", "subject_token")
    if parameters.get("subject_token_type") not in (ACCESS_TOKEN, JWT):
        return Refusal("invalid_request", f"subject_token_type: must be {ACCESS_TOKEN} or {JWT}", "subject_token_type")
    if parameters.get("requested_token_type", ACCESS_TOKEN) not in (ACCESS_TOKEN, JWT):
        return Refusal("invalid_request", f"requested_token_type: must be {ACCESS_TOKEN}", "requested_token_type")
    if parameters.get("actor_token") or parameters.get("actor_token_type"):
        return Refusal("invalid_request", "actor_token: the client itself is the actor; leave it out", "actor_token")
    return None


def check_subject_token(
    claims: dict[str, Any], client: Client, account: str, base_url: str, *, thumbprint: str = ""
) -> GrantContext | Refusal:
    """What this client may obtain for an active access token. RFC 8693, section 2.2.2, names the error."""
    audience = [resource for resource in audiences(claims) if resource != base_url]
    serves = any(resource in client.serves for resource in audience)
    if claims.get("account") != account or not (claims.get("client_id") == client.id or serves):
        detail = "subject_token: must be issued to this client, or for a resource that it serves"
        return Refusal("invalid_request", detail, "subject_token")
    refusal = _check_binding(claims, thumbprint, serves=serves)
    if refusal is not None:
        return refusal
    grant = client.grant(TOKEN_EXCHANGE)
    delegation = grant is None or grant.exchange != "impersonation"
    act = claims.get("act")
    if delegation:
        act = {"sub": client.id} | ({"act": act} if act else {})
    authentication = {name: claims[name] for name in ("auth_time", "acr", "amr") if name in claims}
    scope = tuple(scopes.split(claims["scope"]))
    return GrantContext(
        claims["sub"], scope, limits=(ScopeLimit(tuple(audience), scope),), expires_at=claims["exp"],
        claims=authentication | ({"act": act} if act else {}),
        entry_data={"subject_token": claims["jti"], "mode": "delegation" if delegation else "impersonation"},
    )  # fmt: skip


def _check_binding(claims: dict[str, Any], thumbprint: str, *, serves: bool) -> Refusal | None:
    """RFC 9449: a copy of a bound token cannot be used without its key, so an exchange must not remove the binding.

    A resource server received the token together with a proof of the sender's key, and exchanges it with its own key.
    """
    bound = claims.get("cnf", {}).get("jkt", "")
    if bound and not thumbprint:
        return Refusal("invalid_dpop_proof", "DPoP: the subject token is bound to a key; send a proof", "DPoP")
    if bound and bound != thumbprint and not serves:
        detail = "DPoP: the subject token is bound to another key, and this client does not serve its resource"
        return Refusal("invalid_dpop_proof", detail, "DPoP")
    return None


def extend_provenance(provenance: Provenance, claims: dict[str, Any], kid: str) -> Provenance | Refusal:
    """The provenance of the new token: the subject token, and everything that it was itself obtained from."""
    if len(provenance.chain) >= LONGEST_CHAIN:
        detail = (
            f"subject_token: it was obtained by {len(provenance.chain)} exchanges in a row; at most {LONGEST_CHAIN}"
        )
        return Refusal("invalid_request", detail, "subject_token")
    subject = SubjectToken(claims["jti"], claims["client_id"], kid)
    return msgspec.structs.replace(provenance, chain=(subject, *provenance.chain))


GRANT = GrantType(
    RULES,
    load,
    parameters=("subject_token", "subject_token_type", "requested_token_type", "actor_token", "actor_token_type"),
    resource_parameters=("resource", "audience"),  # RFC 8693, section 2.1: both name a resource
    explainable=True,
)
