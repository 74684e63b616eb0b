"""Answering a token request: authenticate, decide, record. The signature comes after the commit, outside."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.ledger.entries import Origin, new, refusal_data
from gatepost.ledger.record import append_entry, record
from gatepost.oauth import client_authentication, client_rows, family_rows, key_rows, refresh_tokens, refusals
from gatepost.oauth.client_authentication import Known, Presented
from gatepost.oauth.grant_contexts import BASES, Kept, Rest
from gatepost.oauth.grants import GRANTS
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import SigningKey
from gatepost.oauth.token_rules import Basis, Draft, Request, Token, decide, explain, mint
from gatepost.store.transaction import APPEND_ONLY, NO_HINTS, Hints, Prefetch, Tx


class Identity(NamedTuple):
    """An ID token to be signed."""

    claims: dict[str, Any]
    key: SigningKey


class Issued(NamedTuple):
    token: Token
    event: str
    used: tuple[str, str]  # the account and the secret that authenticated, to note when it was last used
    members: Mapping[str, str] = MappingProxyType({})  # what else is answered
    identity: Identity | None = None


class Refused(NamedTuple):
    refusal: Refusal
    event: str | None
    authenticated: bool = True


class Explained(NamedTuple):
    told: dict[str, Any]
    event: str


class Standing(NamedTuple):
    """A request that is allowed. Of a machine's own it follows from the definitions alone, and is remembered."""

    known: Known
    draft: Draft
    key: SigningKey
    subject: str
    extra: dict[str, Any]


def answer(
    tx: Tx, service: Service, presented: Presented, asked: Request | Refusal, request: str, source: str
) -> Issued | Refused | Explained:
    origin = Origin(presented.client, request, source)
    standing = tx.derived((presented, asked), lambda: _standing(tx, service, presented, asked))
    if standing is not None and standing.known.holds(tx.at):
        return _issue(tx, standing, origin, _NOTHING)
    known = client_authentication.client(tx, service, presented, origin)
    if isinstance(known, Refusal):
        return Refused(known, None, authenticated=False)
    if isinstance(asked, Refusal):
        return _refuse(tx, known, asked, origin, {})
    if asked.grant_type not in GRANTS:
        refusal = Refusal("unsupported_grant_type", f"grant_type: must be one of {', '.join(GRANTS)}", "grant_type")
        return _refuse(tx, known, refusal, origin, {"grant_type": asked.grant_type[:128]})
    find = BASES.get(asked.grant_type) if known.client.grant(asked.grant_type) else None  # RFC 6749, section 5.2
    rest = find(tx, service, known, asked, origin) if find else None
    decided = rest if isinstance(rest, Refusal) else _decide(tx, service, known, asked, rest.basis if rest else None)
    if asked.explain and GRANTS[asked.grant_type].explainable and not known.client.public:
        return _explain(tx, service, known, asked, rest, decided, origin)
    if (
        isinstance(decided, Standing)
        and asked.proof
        and not client_authentication.use_proof(tx, known.client.id, asked.proof)
    ):
        decided = client_authentication.REPLAYED
    if isinstance(decided, Refusal):
        return _refuse(tx, known, decided, origin, {"grant_type": asked.grant_type, "scope": " ".join(asked.scope)})
    kept = rest.keep(decided.draft) if isinstance(rest, Rest) else _NOTHING
    issued = _issue(tx, decided, origin, kept)
    if kept.identity is None:
        return issued
    key = active_key(tx, service, known.client.id_token_signed_response_alg)
    return issued._replace(identity=Identity(kept.identity, key))


def only_appends(asked: Request | Refusal) -> bool:
    """Whether the answer most likely follows from definitions, and the entry is all that is written."""
    return isinstance(asked, Refusal) or (asked.grant_type not in BASES and asked.proof is None)


def hints(presented: Presented, asked: Request | Refusal) -> Hints:
    """How the store may run such a request faster."""
    if isinstance(asked, Refusal) or asked.grant_type != "refresh_token":
        return APPEND_ONLY if only_appends(asked) else NO_HINTS
    family = refresh_tokens.family_in(asked.parameter("refresh_token"))
    if family is None:
        return NO_HINTS

    def wanted(tx: Tx) -> Prefetch | None:
        client = client_rows.load(tx, presented.client)
        return family_rows.wanted(client.account, family) if client else None

    return Hints(append_only=True, prefetch=wanted)


_NOTHING = Kept()


def _standing(tx: Tx, service: Service, presented: Presented, asked: Request | Refusal) -> Standing | None:
    """Only what a secret shows can be remembered: an assertion, a proof and what others said are new each time."""
    if isinstance(asked, Refusal) or asked.explain or asked.grant_type not in GRANTS:
        return None
    if asked.proof is not None or asked.grant_type in BASES:
        return None
    known = client_authentication.by_secret(tx, presented)
    decided = _decide(tx, service, known, asked, None) if known else None
    return decided if isinstance(decided, Standing) else None


def _decide(tx: Tx, service: Service, known: Known, asked: Request, basis: Basis | None) -> Standing | Refusal:
    way = GRANTS[asked.grant_type]
    draft = Draft(asked, known.account, known.client, service.base_url, basis)
    decided = _remembered(tx, service, draft) or decide(draft, service.definitions(tx), way.rules)
    if isinstance(decided, Refusal):
        return decided
    key = active_key(tx, service, known.account["signing_alg"])
    return Standing(known, decided, key, way.subject(decided), way.extra_claims(decided))


def _remembered(tx: Tx, service: Service, draft: Draft) -> Draft | None:
    """What people allowed is refreshed over and over. The rules look at nothing else, and definitions change rarely."""
    asked, basis = draft.request, draft.basis
    if asked.grant_type != "refresh_token" or basis is None or asked.proof is not None:
        return None

    def derive() -> Draft | None:
        found = decide(draft, service.definitions(tx), GRANTS[asked.grant_type].rules)
        return found if isinstance(found, Draft) else None

    looked_at = ("refreshed", draft.client.id, asked.scope, asked.resources, basis.scope, basis.resources)
    found = tx.derived(looked_at, derive)
    return msgspec.structs.replace(found, request=asked, basis=basis) if found else None


def _issue(tx: Tx, standing: Standing, origin: Origin, kept: Kept) -> Issued:
    """The token, and the entry that has its id. Instead of a person's name the ledger has their consent."""
    known, account, basis = standing.known, standing.known.account, standing.draft.basis
    raw = ids.fresh()
    token = mint(standing.draft, standing.key, token=raw, subject=standing.subject, extra=standing.extra, at=tx.at)
    facts = {} if basis is None else {**basis.facts, **kept.facts}
    append_entry(
        tx,
        new(
            "oauth.token.issued",
            account=account.id,
            origin=origin,
            subject=token.id,
            data={
                "grant_type": standing.draft.request.grant_type,
                "grant": token.grant,
                **({} if "consent" in facts else {"sub": standing.subject}),
                "aud": token.audience,
                "scope": token.scope,
                "expires_at": token.expires_at,
                "kid": token.key.id,
                "by": known.by,
                **facts,
            },
            at=tx.at,
            keep_days=account.seconds("audit_retention") // 86400,
            raw_id=raw,
        ),
    )
    return Issued(token, ids.retitle("evt", token.id), (account.id, known.by), kept.members)


def active_key(tx: Tx, service: Service, alg: str) -> SigningKey:
    for wrapped in key_rows.load(tx):
        if wrapped.key.alg == alg and wrapped.key.status == "active":
            service.ring.take(wrapped)
            return wrapped.key
    raise LookupError(f"no active {alg} key")


def _refuse(tx: Tx, known: Known, refusal: Refusal, origin: Origin, asked: dict[str, Any]) -> Refused:
    data = asked | {"error": refusal.code, "error_description": refusal.detail, "by": known.by}
    if refusal.rule:
        data["rule"] = refusal.rule
    return Refused(refusal, refusals.ledger(tx, known.account, known.client, "oauth.token.refused", origin, data))


_BASIS_HOLDS = "What the request rests on, a token or an assertion, is valid and may be used by this client."


def _explain(
    tx: Tx, service: Service, known: Known, asked: Request, rest: Rest | Refusal | None, decided: Standing | Refusal,
    origin: Origin,
) -> Explained:  # fmt: skip
    """`Prefer: explain`: what would be answered and by which rule, with nothing issued."""
    rules = []
    if rest is not None:
        rules.append({"rule": "basis_holds", "held": isinstance(rest, Rest), "means": _BASIS_HOLDS})
    if not isinstance(rest, Refusal):
        draft = Draft(asked, known.account, known.client, service.base_url, rest.basis if rest else None)
        rules += explain(draft, service.definitions(tx), GRANTS[asked.grant_type].rules)
    told: dict[str, Any] = {"decision": "refuse" if isinstance(decided, Refusal) else "issue", "rules": rules}
    if isinstance(decided, Refusal):
        why = {"rule": decided.rule or "basis_holds", "error": decided.code}
        told |= why | {"error_description": decided.detail}
    else:
        why = {}
        token = mint(
            decided.draft, decided.key, token=ids.fresh(), subject=decided.subject, extra=decided.extra, at=tx.at
        )
        told |= {
            "grant": token.grant,
            "scope": token.scope,
            "expires_in": token.lifetime,
            "header": {"alg": token.key.alg, "typ": "at+jwt", "kid": token.key.id},
            "claims": token.claims,
        }
    scope = " ".join(asked.scope)
    data = {"grant_type": asked.grant_type, "decision": told["decision"], "scope": scope, "by": known.by} | why
    if isinstance(decided, Refusal):
        data = refusal_data(data)
    entry = record(tx, known.account, "oauth.token.explained", origin, known.client.id, data)
    return Explained(told, entry.name)
