"""The rules for issuing tokens: an ordered table of pure functions, each of which narrows a draft or refuses it.

`Prefer: explain` returns the same table: the rules that held, the rule that refused, and the exact claims.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.ledger import operations
from gatepost.oauth import scopes
from gatepost.oauth.client_grants import GRANT_TYPES, Grant
from gatepost.oauth.clients import Client
from gatepost.oauth.dpop import Proof, too_weak
from gatepost.oauth.resources import MAX_LENGTH, normal_form
from gatepost.oauth.scopes import Scope
from gatepost.oauth.signing_keys import SigningKey


class Definitions(Protocol):
    """What a rule, or a check of an authorization request, may look up."""

    def scope(self, account: str, name: str) -> Scope | None: ...
    def fixed_claims(self, resource: str) -> dict[str, Any] | None: ...


class TokenRequest(msgspec.Struct, frozen=True):
    """A parsed token request. `parameters` has those of its grant type alone."""

    grant_type: str
    scope: tuple[str, ...]
    resources: tuple[str, ...] = ()
    explain: bool = False
    parameters: tuple[tuple[str, str], ...] = ()
    proof: Proof | None = None

    def parameter(self, name: str) -> str:
        for sent, value in self.parameters:
            if sent == name:
                return value
        return ""

    @property
    def thumbprint(self) -> str:
        return self.proof.thumbprint if self.proof else ""


class ScopeLimit(NamedTuple):
    """The scopes that an exchanged token had for its audience. No token obtained for it has others there."""

    audience: tuple[str, ...]
    scope: tuple[str, ...]
    source: str = "subject token, or in a token that it was obtained for"


class GrantContext(msgspec.Struct, frozen=True):
    """What the client presents in a request: a person's consent, a subject token, an assertion. It limits the token."""

    subject: str
    scope: tuple[str, ...]  # the token has no other scopes
    resources: tuple[str, ...] = ()  # the token is for one of these, if there are any
    limits: tuple[ScopeLimit, ...] = ()  # of the subject token, and of those that it was obtained for
    expires_at: int | None = None  # the token expires no later
    claims: dict[str, Any] = {}  # of the token: how the person was authenticated, who acts
    entry_data: dict[str, Any] = {}  # of the ledger entry


class Draft(msgspec.Struct, frozen=True):
    """A token request as the rules complete it. Rules only narrow `scope` and `lifetime`."""

    request: TokenRequest
    account: Account
    client: Client
    base_url: str
    context: GrantContext | None = None
    grant: Grant | None = None
    resource_of: dict[str, str] = {}
    lifetime_of: dict[str, int] = {}
    claim_scopes: frozenset[str] = frozenset()  # with `openid`, scopes that only release claims fit any resource
    scope: tuple[str, ...] = ()
    resource: str = ""
    lifetime: int = 0
    fixed_claims: dict[str, Any] | None = None  # of a shared resource; None: those of the client

    @property
    def audience(self) -> str | list[str]:
        """The resource. `openid` adds the service itself, which serves userinfo."""
        if scopes.OPENID in self.scope and self.resource != self.base_url:
            return [self.resource, self.base_url]
        return self.resource


class Token(msgspec.Struct, frozen=True):
    """An access token that is not signed yet: its claims and its key."""

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
    """The draft that the last rule returned, or the first refusal, with the name of its rule."""
    for rule in rules:
        outcome = rule(draft, definitions)
        if isinstance(outcome, Refusal):
            return msgspec.structs.replace(outcome, rule=rule.__name__)
        draft = outcome
    return draft


def explain(draft: Draft, definitions: Definitions, rules: tuple[Rule, ...]) -> list[dict[str, Any]]:
    """The rules in order, up to the first that refuses: the meaning of each, and whether it held."""
    explained = []
    for rule in rules:
        outcome = rule(draft, definitions)
        held = not isinstance(outcome, Refusal)
        explained.append({"rule": rule.__name__, "held": held, "means": " ".join((rule.__doc__ or "").split())})
        if isinstance(outcome, Refusal):
            break
        draft = outcome
    return explained


def mint(draft: Draft, key: SigningKey, *, token: bytes, subject: str, extra: dict[str, Any], at: datetime) -> Token:
    """The claims of RFC 9068, section 2.2, and those of Gatepost. They take precedence over `extra`."""
    if draft.grant is None:
        raise TypeError("a token needs the grant that allows it")
    token_id = ids.text("tok", token)
    issued = clock.seconds(at)
    scope = " ".join(draft.scope)
    expires = issued + draft.lifetime
    if draft.context is not None and draft.context.expires_at is not None:
        expires = min(expires, draft.context.expires_at)
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


# --- the rules that grant types share


def client_is_confidential(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """The client authenticates itself; a public client cannot act on its own behalf."""
    if draft.client.public:
        return Refusal("unauthorized_client", f"{draft.request.grant_type} needs a client that authenticates")
    return draft


def key_is_shown(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """A client whose tokens must be bound to a key, or whose account requires that, sends a DPoP proof (RFC 9449)."""
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
    """The request names its scopes: there is no default."""
    if not draft.request.scope:
        return Refusal("invalid_scope", "scope: name the scopes you want; there is no default", "scope")
    return msgspec.structs.replace(draft, scope=draft.request.scope)


def scopes_are_agreed(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """No scope exceeds what was agreed to. A request without scopes gets all that was agreed to."""
    agreed = draft.context.scope if draft.context else ()
    beyond = scopes.first_beyond(draft.request.scope, agreed)
    if beyond is not None:
        return Refusal("invalid_scope", f"scope: {scopes.problem_with(beyond, 'exceeds what was agreed to')}", "scope")
    return msgspec.structs.replace(draft, scope=draft.request.scope or agreed)


def scopes_are_granted(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """Every requested scope is in the client's grant."""
    granted = draft.grant.scopes if draft.grant else []
    missing = scopes.first_beyond(draft.scope, granted)
    if missing is not None:
        detail = scopes.problem_with(missing, "is not in the client's grant")
        return Refusal("invalid_scope", f"scope: {detail}", "scope")
    return draft


def scopes_are_active(draft: Draft, definitions: Definitions) -> Draft | Refusal:
    """Every requested scope is defined in the account and not retired."""
    resource_of, lifetime_of, claim_scopes = {}, {}, set()
    has_consent = GRANT_TYPES[draft.request.grant_type].consent
    for name in draft.scope:
        if has_consent and name in scopes.PROTOCOL_SCOPES:
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
            claim_scopes.add(name)
    return msgspec.structs.replace(
        draft, resource_of=resource_of, lifetime_of=lifetime_of, claim_scopes=frozenset(claim_scopes)
    )


def audience_is_one(draft: Draft, definitions: Definitions) -> Draft | Refusal:
    """The scopes belong to one resource, or the request names the resource (RFC 8707)."""
    offered = {resource for name, resource in draft.resource_of.items() if name not in draft.claim_scopes}
    agreed = set(draft.context.resources) if draft.context else set()
    if draft.request.resources or not offered:
        offered = set(draft.resource_of.values())
        if agreed and not draft.request.resources:
            offered &= agreed
    named = set(draft.request.resources) or (agreed & offered if len(agreed & offered) == 1 else set())
    if len(named) > 1:
        return Refusal("invalid_target", "resource: a token is for one resource; send one request for each", "resource")
    if named and not named <= offered:
        return Refusal("invalid_target", f"resource: {_not_offered(named, offered)}", "resource")
    if not named and len(offered) > 1:
        listed = ", ".join(sorted(offered))
        return Refusal(
            "invalid_scope", f"scope: these belong to several resources ({listed}); name one in resource", "resource"
        )
    if agreed and not (named or offered) <= agreed:
        return Refusal("invalid_target", "resource: the authorization was not for this resource", "resource")
    if not offered and scopes.OPENID not in draft.scope:
        return Refusal("invalid_scope", "scope: offline_access alone gives no access", "scope")
    resource = (named or offered or {draft.base_url}).pop()
    free = draft.claim_scopes.union(scopes.PROTOCOL_SCOPES)
    kept = tuple(name for name in draft.scope if name in free or draft.resource_of[name] == resource)
    fixed = definitions.fixed_claims(resource)
    return msgspec.structs.replace(draft, resource=resource, scope=kept, fixed_claims=fixed)


def _not_offered(named: set[str], offered: set[str]) -> str:
    """The detail names the normal form if the resource differs from an offered one in nothing else."""
    normal = {normal_form(resource) if len(resource) <= MAX_LENGTH else None for resource in named}
    similar = sorted(resource for resource in normal if resource in offered)
    return (
        f"must be in normal form: {similar[0]}" if similar else "none of the requested scopes belongs to this resource"
    )


def lifetime_is_shortest(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """The lifetime is the shortest of those of account, client, grant and scopes."""
    grant = draft.grant.access_token_lifetime if draft.grant else None
    candidates = [draft.account.seconds("access_token_lifetime"), draft.client.access_token_lifetime, grant]
    candidates += [draft.lifetime_of[name] for name in draft.scope if name in draft.lifetime_of]
    return msgspec.structs.replace(draft, lifetime=min(lifetime for lifetime in candidates if lifetime is not None))


NARROWING: tuple[Rule, ...] = (scopes_are_granted, scopes_are_active, audience_is_one, lifetime_is_shortest)
CONSENT_RULES: tuple[Rule, ...] = (key_is_shown, grant_is_configured, scopes_are_agreed, *NARROWING)
SHARED: tuple[Rule, ...] = (key_is_shown, grant_is_configured, scopes_are_named, *NARROWING)
