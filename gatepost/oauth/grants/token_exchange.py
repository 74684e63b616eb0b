"""A token is exchanged for one that reaches further in, and never further out. RFC 8693."""

from typing import Any

import msgspec

from gatepost.core.errors import Refusal
from gatepost.core.jose import audiences
from gatepost.oauth import scopes
from gatepost.oauth.client_grants import TOKEN_EXCHANGE
from gatepost.oauth.clients import Client
from gatepost.oauth.provenance import LONGEST_CHAIN, Provenance, SubjectToken
from gatepost.oauth.resources import owned_as
from gatepost.oauth.token_rules import SHARED, Basis, Definitions, Draft, client_is_confidential

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 (a name, not a secret)
JWT = "urn:ietf:params:oauth:token-type:jwt"


def stays_within_the_subject(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """For the resource that the subject token is for, no scope that it does not hold."""
    basis = draft.basis
    if basis is not None and owned_as(draft.resource) in map(owned_as, basis.reaches):  # with and without a slash
        beyond = [name for name in draft.scope if name not in basis.scope]
        if beyond:
            return Refusal("invalid_scope", f"scope: {beyond[0]} is not in the subject token", "scope")
    return draft


RULES = (client_is_confidential, *SHARED, stays_within_the_subject)


def problem(sent: dict[str, str]) -> Refusal | None:
    """What is wrong with the parameters of RFC 8693, section 2.1, before the subject token is looked at."""
    if not sent.get("subject_token"):
        return Refusal("invalid_request", "subject_token: missing", "subject_token")
    if sent.get("subject_token_type") not in (ACCESS_TOKEN, JWT):
        return Refusal("invalid_request", f"subject_token_type: must be {ACCESS_TOKEN} or {JWT}", "subject_token_type")
    if sent.get("requested_token_type", ACCESS_TOKEN) not in (ACCESS_TOKEN, JWT):
        return Refusal("invalid_request", f"requested_token_type: must be {ACCESS_TOKEN}", "requested_token_type")
    if sent.get("actor_token") or sent.get("actor_token_type"):
        return Refusal("invalid_request", "actor_token: the client itself is the actor; leave it out", "actor_token")
    return None


def rest_on(
    claims: dict[str, Any], client: Client, account: str, base_url: str, *, thumbprint: str = ""
) -> Basis | Refusal:
    """What a live token of ours amounts to in the hands of this client. RFC 8693, section 2.2.2, names the error."""
    reaches = [each for each in audiences(claims) if each != base_url]
    own, serves = claims.get("client_id") == client.id, any(each in client.serves for each in reaches)
    if claims.get("account") != account or not (own or serves):
        words = "subject_token: not for a resource that this client serves, nor issued to it"
        return Refusal("invalid_request", words, "subject_token")
    unproven = _unproven(claims, thumbprint, serves=serves)
    if unproven is not None:
        return unproven
    delegated = _delegation(client)
    chain = claims.get("act")
    act = {"sub": client.id} | ({"act": chain} if chain else {}) if delegated else chain
    told = {name: claims[name] for name in ("auth_time", "acr", "amr") if name in claims} | (
        {"act": act} if act else {}
    )
    return Basis(
        claims["sub"], tuple(scopes.split(claims["scope"])), reaches=tuple(reaches), until=claims["exp"], claims=told,
        facts={"subject_token": claims["jti"], "mode": "delegation" if delegated else "impersonation"},
    )  # fmt: skip


def _unproven(claims: dict[str, Any], thumbprint: str, *, serves: bool) -> Refusal | None:
    """RFC 9449: a bound token is of no use to somebody who only copied it, so an exchange must not unbind it.

    A resource server received the token together with a proof of the sender's key, and exchanges it with its own key.
    """
    bound = claims.get("cnf", {}).get("jkt", "")
    if bound and not thumbprint:
        return Refusal("invalid_dpop_proof", "DPoP: the subject token is bound to a key; send a proof", "DPoP")
    if bound and bound != thumbprint and not serves:
        words = "DPoP: the subject token is bound to another key, and this client does not serve its resource"
        return Refusal("invalid_dpop_proof", words, "DPoP")
    return None


def _delegation(client: Client) -> bool:
    grant = client.grant(TOKEN_EXCHANGE)
    return grant is None or grant.exchange != "impersonation"


def extended(provenance: Provenance, claims: dict[str, Any], kid: str) -> Provenance | Refusal:
    """What the new token is obtained from: the subject token, and everything that it was obtained from itself."""
    if len(provenance.chain) >= LONGEST_CHAIN:
        words = f"subject_token: it was obtained by {len(provenance.chain)} exchanges in a row; at most {LONGEST_CHAIN}"
        return Refusal("invalid_request", words, "subject_token")
    subject = SubjectToken(claims["jti"], claims["client_id"], kid)
    return msgspec.structs.replace(provenance, chain=(subject, *provenance.chain))
