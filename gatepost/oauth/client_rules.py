"""Defining a client: the client that a request describes, and the rules between its members. No I/O.

A rule returns the member at fault and what is wrong, or None.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.jwk_sets import STRICT_ALGORITHMS
from gatepost.core.members import read
from gatepost.core.secret_rotation import overlap_of
from gatepost.oauth import client_grants, redirect_uris, resources, scopes
from gatepost.oauth.client_grants import GRANT_TYPES
from gatepost.oauth.clients import MEMBERS, SECRET_METHODS, Client

Violation = tuple[str, str]


class ClientDefinition(NamedTuple):
    """The result of a valid request body: the client, and whether it needs a new secret."""

    client: Client
    needs_secret: bool
    overlap: timedelta


def define(
    body: Mapping[str, Any], current: Client | None, *, account: str, base_url: str, at: datetime, strict: bool = False
) -> ClientDefinition | Refusal:
    """The client that the body defines: a new one, or `current` with the members sent changed.

    RFC 7591, section 2: unknown members of a registration are ignored. `strict` is the FAPI 2.0 security profile.
    """
    values = read(MEMBERS, body, creating=current is None, ignore_unknown=current is None)
    if isinstance(values, Refusal):
        return values
    rotate_secret, grants = values.pop("rotate_secret", None), values.pop("grants", None)
    if strict and body.get("id_token_signed_response_alg", None if current is None else "") is None:
        values["id_token_signed_response_alg"] = STRICT_ALGORITHMS[0]
    base = current or Client(ids.new("cli"), account, at, at)
    client = _with_grants(msgspec.structs.replace(base, **values), body, grants)
    if isinstance(client, Refusal):
        return client
    rules = (*RULES, *FAPI2_RULES) if strict else RULES
    violation = _serves_own_resources(client, base_url) or _first_violation(client, rules)
    if violation:
        return MEMBERS.refusal(*violation)
    if client.token_endpoint_auth_method not in SECRET_METHODS:
        if rotate_secret:
            return MEMBERS.refusal("rotate_secret", f"a {client.token_endpoint_auth_method} client has no secret")
        return ClientDefinition(
            msgspec.structs.replace(client, secrets=[]), needs_secret=False, overlap=overlap_of(None)
        )
    needs_secret = bool(rotate_secret) or not any(secret.live(at) for secret in client.secrets)
    return ClientDefinition(client, needs_secret, overlap_of(rotate_secret))


def fapi2_violation(client: Client) -> Violation | None:
    """Why the client cannot be used under the FAPI 2.0 security profile."""
    return _first_violation(client, FAPI2_RULES)


def _first_violation(client: Client, rules: tuple[Callable[[Client], Violation | None], ...]) -> Violation | None:
    return next((violation for rule in rules if (violation := rule(client))), None)


# --- grants


def _with_grants(client: Client, body: Mapping[str, Any], given: list[dict[str, Any]] | None) -> Client | Refusal:
    """The client with its grants as sent, else with one for each grant type. The id of a grant stays with its type."""
    if client.explicit_grants and "grants" not in body:
        return _with_explicit_grants(_with_grant_types(client, client.grant_types))
    current = {grant.grant_type: grant for grant in client.grants}
    if not given:
        client = _with_grant_types(client, client.grant_types)
        built = client_grants.build(client.grant_types, client.scope, current, reset="grants" in body)
        return msgspec.structs.replace(client, grants=built, explicit_grants=False)
    parsed = client_grants.parse(given, current)
    if isinstance(parsed, str):
        return MEMBERS.refusal("grants", parsed)
    grant_types = [grant.grant_type for grant in parsed]
    client = _with_grant_types(client, client.grant_types if body.get("grant_types") else grant_types)
    if set(grant_types) != set(client.grant_types):
        return MEMBERS.refusal("grants", "must have one entry for each of grant_types")
    allowed = scopes.split(client.scope) or list(dict.fromkeys(name for grant in parsed for name in grant.scopes))
    beyond = [name for grant in parsed for name in grant.scopes if name not in allowed]
    if beyond:
        return MEMBERS.refusal("grants", f"{beyond[0]} is not in the client's scope")
    return msgspec.structs.replace(client, grants=parsed, explicit_grants=True, scope=" ".join(allowed))


def _with_grant_types(client: Client, grant_types: list[str]) -> Client:
    """RFC 7591, section 2: the default grant type; section 2.1: response types that are consistent with them."""
    grant_types = grant_types or ["authorization_code"]
    response_types = ["code"] if "authorization_code" in grant_types else []
    return msgspec.structs.replace(client, grant_types=grant_types, response_types=response_types)


def _with_explicit_grants(client: Client) -> Client | Refusal:
    """Explicit grants stay as they are, without the scopes that the client no longer has; none are added."""
    if {grant.grant_type for grant in client.grants} != set(client.grant_types):
        return MEMBERS.refusal(
            "grant_types", "this client has explicit grants; send grants too, or grants: null to build them"
        )
    allowed = scopes.split(client.scope)
    grants = [
        msgspec.structs.replace(grant, scopes=[name for name in grant.scopes if name in allowed])
        for grant in client.grants
    ]
    return msgspec.structs.replace(client, grants=grants)


# --- rules between members


def _public_clients_use_public_grant_types(client: Client) -> Violation | None:
    for grant_type in client.grant_types:
        if GRANT_TYPES[grant_type].confidential and client.public:
            return "grant_types", f"{grant_type} needs a client that authenticates; token_endpoint_auth_method is none"
    return None


def _redirecting_grant_types_have_redirect_uris(client: Client) -> Violation | None:
    for grant_type in client.grant_types:
        if GRANT_TYPES[grant_type].redirects and not client.redirect_uris:
            return "redirect_uris", f"required for {grant_type} (the default); for a machine send client_credentials"
    return None


def _keys_are_sent_or_published(client: Client) -> Violation | None:
    both = client.jwks is not None and client.jwks_uri is not None
    return ("jwks_uri", "send jwks or jwks_uri, not both") if both else None


def _private_key_jwt_has_keys(client: Client) -> Violation | None:
    without = client.jwks is None and client.jwks_uri is None
    if client.token_endpoint_auth_method == "private_key_jwt" and without:  # noqa: S105 (a name, not a secret)
        return "jwks", "required for private_key_jwt, unless jwks_uri is sent"
    return None


def _redirect_uris_fit_the_application_type(client: Client) -> Violation | None:
    for uri in client.redirect_uris:
        problem = redirect_uris.problem(uri, native=client.application_type == "native")
        if problem:
            return "redirect_uris", f"{uri[:200]!r} {problem}"
    return None


def _public_clients_use_pkce(client: Client) -> Violation | None:
    if not client.require_pkce and client.public:
        return "require_pkce", "may be false only for a client that authenticates"
    return None


def _pkce_or_nonce(client: Client) -> Violation | None:
    if not client.require_nonce and client.require_pkce:
        return "require_nonce", "may be false only if require_pkce is false; with PKCE no nonce is needed"
    return None


def _every_scope_has_a_grant(client: Client) -> Violation | None:
    granted = {name for grant in client.grants for name in grant.scopes}
    missing = [name for name in scopes.split(client.scope) if name not in granted]
    return ("scope", f"{missing[0]} cannot be obtained by {', '.join(client.grant_types)}") if missing else None


RULES = (
    _public_clients_use_public_grant_types,
    _redirecting_grant_types_have_redirect_uris,
    _keys_are_sent_or_published,
    _private_key_jwt_has_keys,
    _redirect_uris_fit_the_application_type,
    _public_clients_use_pkce,
    _pkce_or_nonce,
    _every_scope_has_a_grant,
)


def _serves_own_resources(client: Client, base_url: str) -> Violation | None:
    own = scopes.default_resource(client.account)
    for resource in client.serves:
        is_another_default = resource.startswith(scopes.default_resource("")) and resource != own
        if is_another_default or resources.is_base_url(resource, base_url):
            return "serves", "must not be Gatepost's own base URL or the default resource of another account"
    return None


# --- rules of the FAPI 2.0 security profile


def _fapi2_client_signs_assertions(client: Client) -> Violation | None:
    if client.token_endpoint_auth_method != "private_key_jwt":  # noqa: S105 (a name, not a secret)
        return "token_endpoint_auth_method", "must be private_key_jwt: the account's profile is fapi2"
    return None


def _fapi2_id_tokens_are_not_rs256(client: Client) -> Violation | None:
    is_rs256 = client.id_token_signed_response_alg == "RS256"  # noqa: S105 (a name, not a secret)
    if "authorization_code" in client.grant_types and is_rs256:
        return "id_token_signed_response_alg", "must be ES256 or EdDSA in fapi2"
    return None


def _fapi2_keys_are_not_rs256(client: Client) -> Violation | None:
    if any(key.get("alg") == "RS256" for key in (client.jwks or {}).get("keys", [])):
        return "jwks", "must have no key for RS256 in fapi2; use PS256, ES256 or EdDSA"
    return None


def _fapi2_client_uses_pkce(client: Client) -> Violation | None:
    return None if client.require_pkce else ("require_pkce", "must be true in fapi2")


def _fapi2_redirect_uris_are_https(client: Client) -> Violation | None:
    is_http = any(uri.startswith("http:") for uri in client.redirect_uris)
    return ("redirect_uris", "must be https in fapi2") if is_http else None


FAPI2_RULES = (
    _fapi2_client_signs_assertions,
    _fapi2_id_tokens_are_not_rs256,
    _fapi2_keys_are_not_rs256,
    _fapi2_client_uses_pkce,
    _fapi2_redirect_uris_are_https,
)
