"""The token endpoint, RFC 6749, section 3.2: authenticate the client, decide, record.

The token is signed outside the transaction, and nothing is returned before the commit.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.jose import MAX_BYTES
from gatepost.ledger.entries import Origin, new, refusal_data
from gatepost.ledger.record import append_entry, record
from gatepost.oauth import client_authentication, dpop
from gatepost.oauth.client_authentication import AuthenticatedClient, ClientCredentials, RefusedRequest, refuse
from gatepost.oauth.client_grants import GRANT_TYPES, offered
from gatepost.oauth.grants import GRANTS
from gatepost.oauth.grants.grant_type import NO_EXTRAS, GrantType, LoadedGrant, TokenExtras
from gatepost.oauth.id_tokens import IdToken
from gatepost.oauth.quotas import Quotas, QuotaUse
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import KeyRing, SigningKey
from gatepost.oauth.token_rules import Draft, GrantContext, Token, TokenRequest, decide, explain, mint
from gatepost.store.transaction import Hints, Tx

_REFUSED = "oauth.token.refused"
_TYP = "at+jwt"
_FITS_ALWAYS = 4096  # bytes of scopes and claims of the grant: all other claims have less than 8 KiB
_encode = msgspec.json.Encoder().encode


class Issued(msgspec.Struct):
    """A token that is recorded."""

    token: Token
    event: str
    used: tuple[str, str]  # the account and the secret that authenticated, to note when it was last used
    members: Mapping[str, str] = MappingProxyType({})  # further members of the response
    quotas: Quotas = Quotas()
    id_token: IdToken | None = None
    signed: bytes = b""

    def sign(self, ring: KeyRing) -> bytes:
        """The signed token. It is signed once."""
        if not self.signed:
            self.signed = ring.sign(self.token.key, _encode(self.token.claims), _TYP)
        return self.signed


class Explained(NamedTuple):
    """The response to a request with `Prefer: explain`."""

    body: dict[str, Any]
    event: str


class TokenDecision(msgspec.Struct, frozen=True):
    """A token that the rules allow. It is cached where it depends on definitions alone."""

    authenticated: AuthenticatedClient
    draft: Draft
    key: SigningKey
    subject: str
    claims: dict[str, Any]


def hints(service: Service, credentials: ClientCredentials, request: TokenRequest | Refusal, account: str) -> Hints:
    """How the store may run the unit of this request. A refusal only appends its ledger entry.

    Accounts take turns. `account` is empty if the client has not authenticated before.
    """
    grant = None if isinstance(request, Refusal) else GRANTS.get(request.grant_type)
    if grant is None or isinstance(request, Refusal):
        return Hints(append_only=True, turn=account)
    of_grant = grant.hints(credentials, request)
    return msgspec.structs.replace(of_grant, on_early_result=partial(_sign_ahead, service.ring), turn=account)


def _sign_ahead(ring: KeyRing, outcome: Issued | RefusedRequest | Explained) -> None:
    """Sign a token while its commit is under way. If the unit runs again, it makes another token."""
    if isinstance(outcome, Issued):
        outcome.sign(ring)


def answer(
    tx: Tx, service: Service, credentials: ClientCredentials, request: TokenRequest | Refusal, request_id: str,
    source: str, use: QuotaUse,
) -> Issued | RefusedRequest | Explained:  # fmt: skip
    """Issue a token, refuse the request or explain the decision, and record the outcome.

    A request beyond a quota is refused before anything of it is used up. The meter counts it instead of the ledger.
    """
    origin = Origin(credentials.client, request_id, source)
    if isinstance(request, TokenRequest) and _depends_on_definitions_alone(request):
        cached = tx.derived((credentials, request), lambda: _decide_by_definitions(tx, service, credentials, request))
        if cached is not None and cached.authenticated.is_valid(tx.at):
            quotas = cached.authenticated.quotas
            beyond = use.begin(quotas, tx.at) if quotas.limits else None
            return RefusedRequest(beyond, quotas=quotas) if beyond else _issue(tx, cached, origin, NO_EXTRAS)
    authenticated = client_authentication.authenticate(tx, service, credentials, origin)
    if isinstance(authenticated, Refusal):
        return RefusedRequest(authenticated, authenticated=False)
    if beyond := use.begin(authenticated.quotas, tx.at):
        return RefusedRequest(beyond, quotas=authenticated.quotas)
    if isinstance(request, Refusal):
        return refuse(tx, authenticated, request, origin, _REFUSED, {})
    grant = GRANTS.get(request.grant_type)
    if grant is None:
        expected = f"grant_type: must be one of {', '.join(offered(service.protocol))}"
        refusal = Refusal("unsupported_grant_type", expected, "grant_type")
        return refuse(tx, authenticated, refusal, origin, _REFUSED, {"grant_type": request.grant_type[:128]})
    # RFC 6749, section 5.2: a client without this grant is refused as such, whatever it presents. If it presents a code
    # or a refresh token that was used before, what was issued for it is revoked all the same.
    has_grant = authenticated.client.grant(request.grant_type) is not None
    load = grant.load if has_grant or GRANT_TYPES[request.grant_type].consent else None
    loaded = load(tx, service, authenticated, request, origin) if load else None
    decision: TokenDecision | Refusal
    if isinstance(loaded, Refusal) and has_grant:
        decision = loaded
    else:
        context = loaded.context if isinstance(loaded, LoadedGrant) else None
        decision = _decide(tx, service, authenticated, request, grant, context)
    if request.explain and grant.explainable and not authenticated.client.public:
        return _explain(tx, service, authenticated, request, loaded, decision, origin)
    if isinstance(decision, TokenDecision) and request.proof:
        decision = dpop.use(tx, authenticated.client.id, request.proof) or decision
    if isinstance(decision, Refusal):
        data = {"grant_type": request.grant_type, "scope": " ".join(request.scope)}
        return refuse(tx, authenticated, decision, origin, _REFUSED, data)
    extras = loaded.complete(decision.draft) if isinstance(loaded, LoadedGrant) else NO_EXTRAS
    issued = _issue(tx, decision, origin, extras)
    if extras.id_token_claims is None:
        return issued
    key = service.active_key(tx, authenticated.client.id_token_signed_response_alg)
    issued.id_token = IdToken(extras.id_token_claims, key)
    return issued


def _depends_on_definitions_alone(request: TokenRequest) -> bool:
    grant = GRANTS.get(request.grant_type)
    return grant is not None and grant.load is None and not request.explain and request.proof is None


def _decide_by_definitions(
    tx: Tx, service: Service, credentials: ClientCredentials, request: TokenRequest
) -> TokenDecision | None:
    """A decision that can be cached. None if the client does not authenticate by a secret, or is refused."""
    grant = GRANTS[request.grant_type]
    authenticated = client_authentication.authenticate_by_secret(tx, service, credentials)
    decision = _decide(tx, service, authenticated, request, grant, None) if authenticated else None
    return decision if isinstance(decision, TokenDecision) else None


def _decide(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, request: TokenRequest, grant: GrantType,
    context: GrantContext | None,
) -> TokenDecision | Refusal:  # fmt: skip
    draft = Draft(request, authenticated.account, authenticated.client, service.base_url, context)
    decided = _decide_by_cache(tx, service, draft, grant) or _decide_by_rules(tx, service, draft, grant)
    if isinstance(decided, Refusal):
        return decided
    draft, key = decided
    decision = TokenDecision(authenticated, draft, key, grant.subject(draft), grant.claims(draft))
    return decision if token_fits(service.ring, decision, tx.at) else TOO_LARGE


TOO_LARGE = Refusal(
    "invalid_scope",
    f"scope: the access token would have more than {MAX_BYTES // 1024} KiB; request fewer scopes",
    "scope",
    rule="token_fits",
)


def token_fits(ring: KeyRing, decision: TokenDecision, at: datetime) -> bool:
    """The access token has at most 16 KiB. The service accepts no larger token."""
    if len(_encode(decision.claims)) + sum(len(name) + 1 for name in decision.draft.scope) <= _FITS_ALWAYS:
        return True
    claims = _mint(decision, bytes(16), at).claims
    return len(_encode(claims)) <= ring.max_claims(decision.key, _TYP, MAX_BYTES)


def _mint(decision: TokenDecision, raw: bytes, at: datetime) -> Token:
    return mint(decision.draft, decision.key, token=raw, subject=decision.subject, extra=decision.claims, at=at)


def _decide_by_cache(tx: Tx, service: Service, draft: Draft, grant: GrantType) -> tuple[Draft, SigningKey] | None:
    """The decision about an earlier request with the same key, for this request."""
    cache_key = grant.cache_key(draft)
    if cache_key is None:
        return None

    def derive() -> tuple[Draft, SigningKey] | None:
        decided = _decide_by_rules(tx, service, draft, grant)
        return None if isinstance(decided, Refusal) else decided

    cached = tx.derived(cache_key, derive)
    if cached is None:
        return None
    decided_draft, key = cached
    return msgspec.structs.replace(decided_draft, request=draft.request, context=draft.context), key


def _decide_by_rules(
    tx: Tx, service: Service, draft: Draft, grant: GrantType
) -> tuple[Draft, SigningKey] | Refusal:  # fmt: skip
    """The draft as the rules complete it, and the key that signs the token."""
    decided = decide(draft, service.definitions(tx), grant.rules)
    if isinstance(decided, Refusal):
        return decided
    return decided, service.active_key(tx, draft.account["signing_alg"])


def _issue(tx: Tx, decision: TokenDecision, origin: Origin, extras: TokenExtras) -> Issued:
    """The token, and the ledger entry that has the same id. For a person the entry has the consent, not the `sub`."""
    authenticated, context = decision.authenticated, decision.draft.context
    account, raw = authenticated.account, ids.new_raw()
    token = _mint(decision, raw, tx.at)
    of_grant = {} if context is None else {**context.entry_data, **extras.entry_data}
    append_entry(
        tx,
        new(
            "oauth.token.issued",
            account=account.id,
            origin=origin,
            subject=token.id,
            data={
                "grant_type": decision.draft.request.grant_type,
                "grant": token.grant,
                **({} if "consent" in of_grant else {"sub": decision.subject}),
                "aud": token.audience,
                "scope": token.scope,
                "expires_at": token.expires_at,
                "kid": token.key.id,
                "by": authenticated.by,
                **of_grant,
            },
            at=tx.at,
            keep_days=account.seconds("audit_retention") // 86400,
            raw_id=raw,
        ),
    )
    event, used = ids.with_prefix("evt", token.id), (account.id, authenticated.by)
    return Issued(token, event, used, extras.members, authenticated.quotas)


_BASIS_HOLDS = "The assertion or token that the client presents is valid, and this client may use it."


def _explain(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, request: TokenRequest,
    loaded: LoadedGrant | Refusal | None, decision: TokenDecision | Refusal, origin: Origin,
) -> Explained:  # fmt: skip
    """`Prefer: explain`: the response that the request would get, and the rules behind it. No token is issued."""
    rules = []
    if loaded is not None:
        rules.append({"rule": "basis_holds", "held": isinstance(loaded, LoadedGrant), "means": _BASIS_HOLDS})
    if not isinstance(loaded, Refusal):
        context = loaded.context if loaded else None
        draft = Draft(request, authenticated.account, authenticated.client, service.base_url, context)
        rules += explain(draft, service.definitions(tx), GRANTS[request.grant_type].rules)
        if rules[-1]["held"]:
            rules.append({"rule": TOO_LARGE.rule, "held": decision is not TOO_LARGE, "means": token_fits.__doc__})
    body: dict[str, Any] = {"decision": "refuse" if isinstance(decision, Refusal) else "issue", "rules": rules}
    data = {
        "grant_type": request.grant_type,
        "decision": body["decision"],
        "scope": " ".join(request.scope),
        "by": authenticated.by,
    }
    if isinstance(decision, Refusal):
        reason = {"rule": decision.rule or "basis_holds", "error": decision.code}
        body |= reason | {"error_description": decision.detail}
        data = refusal_data(data | reason)
    else:
        token = _mint(decision, ids.new_raw(), tx.at)
        body |= {
            "grant": token.grant,
            "scope": token.scope,
            "expires_in": token.lifetime,
            "header": {"alg": token.key.alg, "typ": _TYP, "kid": token.key.id},
            "claims": token.claims,
        }
    entry = record(tx, authenticated.account, "oauth.token.explained", origin, authenticated.client.id, data)
    return Explained(body, entry.name)
