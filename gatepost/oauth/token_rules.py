"""Deciding whether a token is issued: an ordered table of small pure rules, each of which narrows a draft or refuses.

The same table answers `Prefer: explain`: the rules that held, the one that refused, and the exact claims.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.ledger import operations
from gatepost.oauth import scopes
from gatepost.oauth.client_grants import GRANT_TYPES, Grant
from gatepost.oauth.clients import Client
from gatepost.oauth.dpop import Proof, too_weak
from gatepost.oauth.resources import MOST_CHARACTERS, normal_form
from gatepost.oauth.scopes import Scope
from gatepost.oauth.signing_keys import SigningKey


class Definitions(Protocol):
    """What a rule may look up."""

    def scope(self, account: str, name: str) -> Scope | None: ...
    def fixed_claims(self, resource: str) -> dict[str, Any] | None: ...


class Request(msgspec.Struct, frozen=True):
    """What a token request asks for, parsed. `sent` holds the parameters that only some grant types have."""

    grant_type: str
    scope: tuple[str, ...]
    resources: tuple[str, ...] = ()
    explain: bool = False
    sent: tuple[tuple[str, str], ...] = ()
    proof: Proof | None = None

    def parameter(self, name: str) -> str:
        return next((value for each, value in self.sent if each == name), "")

    @property
    def thumbprint(self) -> str:
        return self.proof.thumbprint if self.proof else ""


class Basis(msgspec.Struct, frozen=True):
    """What a request rests on, if not on the client alone: a person's consent, another token, a foreign assertion."""

    subject: str
    scope: tuple[str, ...]  # never more than these
    resources: tuple[str, ...] = ()  # never other than these, where there are any
    reaches: tuple[str, ...] = ()  # where it was good itself
    until: int | None = None  # never later than this
    claims: dict[str, Any] = {}  # of the token: how the person was authenticated, who acts
    facts: dict[str, Any] = {}  # for the ledger


class Draft(msgspec.Struct, frozen=True):
    """A token on its way through the rules. `scope` and `lifetime` only ever get smaller."""

    request: Request
    account: Account
    client: Client
    base_url: str
    basis: Basis | None = None
    grant: Grant | None = None
    resource_of: dict[str, str] = {}
    lifetime_of: dict[str, int] = {}
    riders: frozenset[str] = frozenset()  # scopes that only release claims: with openid they go with any resource
    scope: tuple[str, ...] = ()
    resource: str = ""
    lifetime: int = 0
    fixed_claims: dict[str, Any] | None = None  # of a shared resource, by the operator; None: the client's own

    @property
    def audience(self) -> str | list[str]:
        """The one resource; `openid` adds ourselves, since userinfo is ours."""
        if scopes.OPENID in self.scope and self.resource != self.base_url:
            return [self.resource, self.base_url]
        return self.resource


class Token(msgspec.Struct, frozen=True):
    """A token that may be issued: its claims, and the key that signs them."""

    id: str
    claims: dict[str, Any]
    key: SigningKey
    grant: str
    scope: str
    audience: str | list[str]
    lifetime: int
    expires_at: int
    kind: str = "Bearer"


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
    """The claims of RFC 9068, section 2.2, and ours. `extra` never holds a protocol claim but those of the basis."""
    if draft.grant is None:
        raise TypeError("a token needs the grant that allows it")
    token_id = ids.text("tok", token)
    issued = clock.seconds(at)
    scope = " ".join(draft.scope)
    expires = issued + draft.lifetime
    if draft.basis is not None and draft.basis.until is not None:
        expires = min(expires, draft.basis.until)
    audience = draft.audience
    claims = extra | {
        "iss": draft.base_url,
        "sub": subject,
        "aud": audience,
        "exp": expires,
        "iat": issued,
        "jti": token_id,
        "client_id": draft.client.id,
        "scope": scope,
        "account": draft.account.id,
        "grant": draft.grant.id,
    }
    kind = "Bearer"
    if draft.request.proof is not None:  # RFC 9449, section 6.1
        claims["cnf"] = {"jkt": draft.request.proof.thumbprint}
        kind = "DPoP"
    return Token(token_id, claims, key, draft.grant.id, scope, audience, expires - issued, expires, kind)


# --- the rules that every grant shares


def client_is_confidential(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """The client authenticates itself; a public client cannot act on its own behalf."""
    if draft.client.public:
        return Refusal("unauthorized_client", f"{draft.request.grant_type} needs a client that authenticates")
    return draft


def key_is_shown(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """A client or an account whose tokens are bound to a key shows that it holds one (RFC 9449)."""
    bound = draft.client.dpop_bound_access_tokens or draft.account.strict
    if bound and draft.request.proof is None:
        return Refusal("invalid_dpop_proof", "DPoP: this client's tokens are bound to a key; send a proof", "DPoP")
    return (too_weak(draft.request.proof) if draft.account.strict else None) or draft


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


def scopes_are_agreed(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """No scope goes beyond what was agreed to; none named means all of that."""
    agreed = draft.basis.scope if draft.basis else ()
    beyond = [name for name in draft.request.scope if name not in agreed]
    if beyond:
        return Refusal("invalid_scope", f"scope: {beyond[0][:128]} is beyond what was agreed to", "scope")
    return msgspec.structs.replace(draft, scope=draft.request.scope or agreed)


def scopes_are_granted(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """Every scope asked for is in the client's grant: nothing is silently left out."""
    granted = draft.grant.scopes if draft.grant else []
    missing = [name for name in draft.scope if name not in granted]
    if missing:
        return Refusal("invalid_scope", f"scope: {missing[0][:128]} is not in the client's grant", "scope")
    return draft


def scopes_are_active(draft: Draft, definitions: Definitions) -> Draft | Refusal:
    """Every scope asked for is defined in the account and not retired."""
    resource_of, lifetime_of, riders = {}, {}, set()
    by_person = GRANT_TYPES[draft.request.grant_type].by_code
    for name in draft.scope:
        if by_person and name in scopes.BY_CODE:
            continue
        if name in operations.OPERATIONS:
            resource_of[name] = draft.base_url
            continue
        scope = definitions.scope(draft.account.id, name)
        if scope is None or scope.status != "active":
            return Refusal("invalid_scope", f"scope: {name} is not an active scope of the account", "scope")
        resource_of[name] = scope.resource
        if scope.max_lifetime is not None:
            lifetime_of[name] = scope.max_lifetime
        if scope.claims and scopes.OPENID in draft.scope and scope.resource == scopes.default_resource(scope.account):
            riders.add(name)
    found = {"resource_of": resource_of, "lifetime_of": lifetime_of, "riders": frozenset(riders)}
    return msgspec.structs.replace(draft, **found)


def audience_is_one(draft: Draft, definitions: Definitions) -> Draft | Refusal:
    """The scopes are of one resource, or the request names which (RFC 8707)."""
    offered = {each for name, each in draft.resource_of.items() if name not in draft.riders}
    agreed = set(draft.basis.resources) if draft.basis else set()
    if draft.request.resources or not offered:
        offered = set(draft.resource_of.values())
        if agreed and not draft.request.resources:
            offered &= agreed
    named = set(draft.request.resources) or (agreed & offered if len(agreed & offered) == 1 else set())
    if len(named) > 1:
        return Refusal("invalid_target", "resource: a token is for one resource; ask once for each", "resource")
    if named and not named <= offered:
        return Refusal("invalid_target", f"resource: {_not_offered(named, offered)}", "resource")
    if not named and len(offered) > 1:
        listed = ", ".join(sorted(offered))
        return Refusal("invalid_scope", f"scope: these are of several resources ({listed}); name one", "resource")
    if agreed and not (named or offered) <= agreed:
        return Refusal("invalid_target", "resource: the authorization was not for this resource", "resource")
    if not offered and scopes.OPENID not in draft.scope:
        return Refusal("invalid_scope", "scope: offline_access alone opens nothing", "scope")
    resource = (named or offered or {draft.base_url}).pop()
    free = draft.riders.union(scopes.BY_CODE)
    kept = tuple(name for name in draft.scope if name in free or draft.resource_of[name] == resource)
    fixed = definitions.fixed_claims(resource)
    return msgspec.structs.replace(draft, resource=resource, scope=kept, fixed_claims=fixed)


def _not_offered(named: set[str], offered: set[str]) -> str:
    """Names the normal form where that is all that is wrong."""
    normal = {normal_form(each) if len(each) <= MOST_CHARACTERS else None for each in named}
    meant = sorted(each for each in normal if each in offered)
    return f"must be in normal form: {meant[0]}" if meant else "none of the scopes asked for is of this resource"


def lifetime_is_shortest(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """The shortest of the lifetimes of account, client, grant and scopes."""
    grant = draft.grant.access_token_lifetime if draft.grant else None
    candidates = [draft.account.seconds("access_token_lifetime"), draft.client.access_token_lifetime, grant]
    candidates += [draft.lifetime_of[name] for name in draft.scope if name in draft.lifetime_of]
    return msgspec.structs.replace(draft, lifetime=min(each for each in candidates if each is not None))


NARROWING: tuple[Rule, ...] = (scopes_are_granted, scopes_are_active, audience_is_one, lifetime_is_shortest)
SHARED: tuple[Rule, ...] = (key_is_shown, grant_is_configured, scopes_are_named, *NARROWING)
