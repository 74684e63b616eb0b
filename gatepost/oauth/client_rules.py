"""Defining a client: the client that a request describes, and the rules between its members. No I/O.

A violation of a rule names the member at fault and what is wrong.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import chain
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
    of_profile = _fapi2_violations(client) if strict else ()
    violation = next(chain(_resource_violations(client, base, base_url), _violations(client), of_profile), None)
    if violation:
        return MEMBERS.refusal(*violation)
    if client.token_endpoint_auth_method not in SECRET_METHODS:
        if rotate_secret:
            return MEMBERS.refusal("rotate_secret", f"a {client.token_endpoint_auth_method} client has no secret")
        return ClientDefinition(
            msgspec.structs.replace(client, secrets=[]), needs_secret=False, overlap=overlap_of(None)
        )
    needs_secret = bool(rotate_secret) or not any(secret.is_active(at) for secret in client.secrets)
    return ClientDefinition(client, needs_secret, overlap_of(rotate_secret))


def fapi2_violation(client: Client) -> Violation | None:
    """Why the client cannot be used under the FAPI 2.0 security profile."""
    return next(_fapi2_violations(client), None)


def added(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """The references that a definition adds. Those that were there before may have become invalid since."""
    known = frozenset(before)
    return [reference for reference in after if reference not in known]


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
    granted = list(dict.fromkeys(name for grant in parsed for name in grant.scopes))
    allowed = scopes.split(client.scope) or granted
    beyond = scopes.first_beyond(granted, allowed)
    if beyond is not None:
        return MEMBERS.refusal("grants", f"{beyond} is not in the client's scope")
    scope = " ".join(allowed)
    if not client.scope and (problem := MEMBERS.problem("scope", scope)):
        return MEMBERS.refusal("grants", f"the client's scope, which is built from them, {problem}")
    return msgspec.structs.replace(client, grants=parsed, explicit_grants=True, scope=scope)


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
    allowed = frozenset(scopes.split(client.scope))
    grants = [
        msgspec.structs.replace(grant, scopes=[name for name in grant.scopes if name in allowed])
        for grant in client.grants
    ]
    return msgspec.structs.replace(client, grants=grants)


# --- rules between members


def _resource_violations(client: Client, before: Client, base_url: str) -> Iterator[Violation]:
    own = scopes.default_resource(client.account)
    for resource in added(before.serves, client.serves):
        is_another_default = resource.startswith(scopes.default_resource("")) and resource != own
        if is_another_default or resources.is_base_url(resource, base_url):
            yield "serves", "must not be Gatepost's own base URL or the default resource of another account"


def _violations(client: Client) -> Iterator[Violation]:
    for grant_type in client.grant_types:
        if GRANT_TYPES[grant_type].confidential and client.public:
            yield "grant_types", f"{grant_type} needs a client that authenticates; token_endpoint_auth_method is none"
    for grant_type in client.grant_types:
        if GRANT_TYPES[grant_type].redirects and not client.redirect_uris:
            yield "redirect_uris", f"required for {grant_type} (the default); for a machine send client_credentials"
    yield from _key_violations(client)
    for uri in client.redirect_uris:
        problem = redirect_uris.problem(uri, native=client.application_type == "native")
        if problem:
            yield "redirect_uris", f"{uri[:200]!r} {problem}"
    if not client.require_pkce and client.public:
        yield "require_pkce", "may be false only for a client that authenticates"
    if client.max_concurrent_token_requests is not None and client.public:
        yield "max_concurrent_token_requests", "only for a client that authenticates"
    if not client.require_nonce and client.require_pkce:
        yield "require_nonce", "may be false only if require_pkce is false; with PKCE no nonce is needed"
    granted = {name for grant in client.grants for name in grant.scopes}
    missing = scopes.first_beyond(scopes.split(client.scope), granted)
    if missing is not None:
        yield "scope", _missing_scope(missing, client)


def _missing_scope(name: str, client: Client) -> str:
    if client.explicit_grants:
        return f"{name} is in none of the client's explicit grants; add it to one, or send grants: null"
    return f"{name} cannot be obtained by {', '.join(client.grant_types)}"


def _key_violations(client: Client) -> Iterator[Violation]:
    if client.jwks is not None and client.jwks_uri is not None:
        yield "jwks_uri", "send jwks or jwks_uri, not both"
    without_keys = client.jwks is None and client.jwks_uri is None
    if client.token_endpoint_auth_method == "private_key_jwt" and without_keys:  # noqa: S105 (a name, not a secret)
        yield "jwks", "required for private_key_jwt, unless jwks_uri is sent"


def _fapi2_violations(client: Client) -> Iterator[Violation]:
    """The rules of the FAPI 2.0 security profile."""
    if client.token_endpoint_auth_method != "private_key_jwt":  # noqa: S105 (a name, not a secret)
        yield "token_endpoint_auth_method", "must be private_key_jwt: the account's profile is fapi2"
    is_rs256 = client.id_token_signed_response_alg == "RS256"  # noqa: S105 (a name, not a secret)
    if "authorization_code" in client.grant_types and is_rs256:
        yield "id_token_signed_response_alg", "must be ES256 or EdDSA in fapi2"
    if any(key.get("alg") == "RS256" for key in (client.jwks or {}).get("keys", [])):
        yield "jwks", "must have no key for RS256 in fapi2; use PS256, ES256 or EdDSA"
    if not client.require_pkce:
        yield "require_pkce", "must be true in fapi2"
    if any(uri.startswith("http:") for uri in client.redirect_uris):
        yield "redirect_uris", "must be https in fapi2"
