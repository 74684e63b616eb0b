"""Deciding whether a token is issued: an ordered table of small pure rules, each of which narrows a draft or refuses.

The same table answers `Prefer: explain`: the rules that held, the one that refused, and the exact claims.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gatepost import clock, ids, scopes
from gatepost.accounts import Account
from gatepost.clients import Client, Grant
from gatepost.errors import Refusal
from gatepost.keys import SigningKey
from gatepost.scopes import Scope


class Definitions(Protocol):
    """What a rule may look up."""

    def scope(self, account: str, name: str) -> Scope | None: ...


class Request(msgspec.Struct, frozen=True):
    """What a token request asks for, parsed."""

    grant_type: str
    scope: tuple[str, ...]
    resources: tuple[str, ...] = ()
    explain: bool = False


class Draft(msgspec.Struct, frozen=True):
    """A token on its way through the rules. `scope` and `lifetime` only ever get smaller."""

    request: Request
    account: Account
    client: Client
    base_url: str
    grant: Grant | None = None
    resource_of: dict[str, str] = {}
    lifetime_of: dict[str, int] = {}
    scope: tuple[str, ...] = ()
    resource: str = ""
    lifetime: int = 0


class Token(msgspec.Struct, frozen=True):
    """A token that may be issued: its claims, and the key that signs them."""

    id: str
    claims: dict[str, Any]
    key: SigningKey
    grant: str
    scope: str
    audience: str
    lifetime: int
    expires_at: int


Rule = Callable[[Draft, Definitions], Draft | Refusal]


def decide(draft: Draft, definitions: Definitions, rules: tuple[Rule, ...]) -> Draft | Refusal:
    """The draft as the last rule left it, or the first refusal, which names its rule."""
    for rule in rules:
        outcome = rule(draft, definitions)
        if isinstance(outcome, Refusal):
            return msgspec.structs.replace(outcome, rule=rule.__name__)
        draft = outcome
    return draft


def explain(draft: Draft, definitions: Definitions, rules: tuple[Rule, ...]) -> list[dict[str, Any]]:
    """Each rule asked, in order, with what it is and whether it held."""
    told = []
    for rule in rules:
        outcome = rule(draft, definitions)
        held = not isinstance(outcome, Refusal)
        told.append({"rule": rule.__name__, "held": held, "means": " ".join((rule.__doc__ or "").split())})
        if isinstance(outcome, Refusal):
            break
        draft = outcome
    return told


def mint(draft: Draft, key: SigningKey, *, token: bytes, subject: str, extra: dict[str, Any], at: datetime) -> Token:
    """The claims of RFC 9068, section 2.2, and ours. `extra` never holds a protocol claim."""
    if draft.grant is None:
        raise TypeError("a token needs the grant that allows it")
    token_id = ids.text("tok", token)
    issued = clock.seconds(at)
    scope = " ".join(draft.scope)
    claims = extra | {
        "iss": draft.base_url,
        "sub": subject,
        "aud": draft.resource,
        "exp": issued + draft.lifetime,
        "iat": issued,
        "jti": token_id,
        "client_id": draft.client.id,
        "scope": scope,
        "account": draft.account.id,
        "grant": draft.grant.id,
    }
    return Token(token_id, claims, key, draft.grant.id, scope, draft.resource, draft.lifetime, issued + draft.lifetime)


# --- the rules that every grant shares


def grant_is_configured(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """The client has an active grant of this type."""
    grant = draft.client.grant(draft.request.grant_type)
    if grant is None:
        return Refusal("unauthorized_client", f"this client has no active {draft.request.grant_type} grant")
    return msgspec.structs.replace(draft, grant=grant)


def scopes_are_named(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """The request says which scopes it wants: there is no default."""
    if not draft.request.scope:
        return Refusal("invalid_scope", "scope: name the scopes you want; there is no default", "scope")
    return msgspec.structs.replace(draft, scope=draft.request.scope)


def scopes_are_granted(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """Every scope asked for is in the client's grant: nothing is silently left out."""
    granted = draft.grant.scopes if draft.grant else []
    missing = [name for name in draft.scope if name not in granted]
    if missing:
        return Refusal("invalid_scope", f"scope: {missing[0][:128]} is not in the client's grant", "scope")
    return draft


def scopes_are_active(draft: Draft, definitions: Definitions) -> Draft | Refusal:
    """Every scope asked for is defined in the account and not retired."""
    resource_of, lifetime_of = {}, {}
    for name in draft.scope:
        if name in scopes.OPERATIONS:
            resource_of[name] = draft.base_url
            continue
        scope = definitions.scope(draft.account.id, name)
        if scope is None or scope.status != "active":
            return Refusal("invalid_scope", f"scope: {name} is not an active scope of the account", "scope")
        resource_of[name] = scope.resource
        if scope.max_lifetime is not None:
            lifetime_of[name] = scope.max_lifetime
    return msgspec.structs.replace(draft, resource_of=resource_of, lifetime_of=lifetime_of)


def audience_is_one(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """The scopes are of one resource, or the request names which (RFC 8707)."""
    offered = set(draft.resource_of.values())
    named = set(draft.request.resources)
    if len(named) > 1:
        return Refusal("invalid_target", "resource: a token is for one resource; ask once for each", "resource")
    if named and not named <= offered:
        return Refusal("invalid_target", "resource: none of the scopes asked for is of this resource", "resource")
    if not named and len(offered) > 1:
        listed = ", ".join(sorted(offered))
        return Refusal("invalid_scope", f"scope: these are of several resources ({listed}); name one", "resource")
    resource = (named or offered).pop()
    kept = tuple(name for name in draft.scope if draft.resource_of[name] == resource)
    return msgspec.structs.replace(draft, resource=resource, scope=kept)


def lifetime_is_shortest(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """The shortest of the lifetimes of account, client, grant and scopes."""
    grant = draft.grant.access_token_lifetime if draft.grant else None
    candidates = [draft.account.seconds("access_token_lifetime"), draft.client.access_token_lifetime, grant]
    candidates += [draft.lifetime_of[name] for name in draft.scope if name in draft.lifetime_of]
    return msgspec.structs.replace(draft, lifetime=min(each for each in candidates if each is not None))


SHARED: tuple[Rule, ...] = (
    grant_is_configured,
    scopes_are_named,
    scopes_are_granted,
    scopes_are_active,
    audience_is_one,
    lifetime_is_shortest,
)
