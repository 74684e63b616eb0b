"""Answering a token request: authenticate, decide, record. The signature comes after the commit, outside."""

from typing import Any, NamedTuple

from gatepost import ids
from gatepost.accounts import Account
from gatepost.errors import Refusal
from gatepost.grants import GRANTS
from gatepost.keys import SigningKey
from gatepost.ledger.entries import Origin, new
from gatepost.store.tx import Tx
from gatepost.tokens.issue import Draft, Request, Token, decide, explain, mint
from gatepost.units import authenticate
from gatepost.units.authenticate import Known, Presented
from gatepost.units.service import Service, record


class Issued(NamedTuple):
    token: Token
    event: str
    used: tuple[str, str]  # the account and the secret that authenticated, to note when it was last used


class Refused(NamedTuple):
    refusal: Refusal
    event: str | None


class Explained(NamedTuple):
    told: dict[str, Any]
    event: str


class Standing(NamedTuple):
    """A request that the definitions allow. It follows from them alone, so it is remembered until one changes."""

    known: Known
    draft: Draft
    key: SigningKey
    subject: str
    extra: dict[str, Any]


def answer(
    tx: Tx, service: Service, presented: Presented, asked: Request | Refusal, request: str, source: str
) -> Issued | Refused | Explained:
    origin = Origin(presented.client, request, source)
    if not tx.throttling:
        standing = tx.derived((presented, asked), lambda: _standing(tx, service, presented, asked))
        if standing is not None and standing.known.holds(tx.at):
            return _issue(tx, standing, origin)
    known = authenticate.client(tx, service, presented, origin)
    if isinstance(known, Refusal):
        return Refused(known, None)
    if isinstance(asked, Refusal):
        return _refuse(tx, known, asked, origin, {})
    if asked.grant_type not in GRANTS:
        refusal = Refusal("unsupported_grant_type", f"grant_type: must be one of {', '.join(GRANTS)}", "grant_type")
        return _refuse(tx, known, refusal, origin, {"grant_type": asked.grant_type[:128]})
    decided = _decide(tx, service, known, asked)
    if asked.explain and GRANTS[asked.grant_type].explainable:
        return _explain(tx, service, known, asked, decided, origin)
    if isinstance(decided, Refusal):
        return _refuse(tx, known, decided, origin, {"grant_type": asked.grant_type, "scope": " ".join(asked.scope)})
    return _issue(tx, decided, origin)


def _standing(tx: Tx, service: Service, presented: Presented, asked: Request | Refusal) -> Standing | None:
    """Only what a secret shows can be remembered: an assertion is new each time."""
    if isinstance(asked, Refusal) or asked.explain or asked.grant_type not in GRANTS:
        return None
    known = authenticate.by_secret(tx, presented)
    decided = _decide(tx, service, known, asked) if known else None
    return decided if isinstance(decided, Standing) else None


def _decide(tx: Tx, service: Service, known: Known, asked: Request) -> Standing | Refusal:
    way = GRANTS[asked.grant_type]
    decided = decide(Draft(asked, known.account, known.client, service.base_url), tx, way.rules)
    if isinstance(decided, Refusal):
        return decided
    key = _active_key(tx, service, known.account)
    return Standing(known, decided, key, way.subject(decided), way.extra_claims(decided))


def _issue(tx: Tx, standing: Standing, origin: Origin) -> Issued:
    """The token, and the entry that has its id."""
    known, account = standing.known, standing.known.account
    raw = ids.fresh()
    token = mint(standing.draft, standing.key, token=raw, subject=standing.subject, extra=standing.extra, at=tx.at)
    tx.record(
        new(
            "oauth.token.issued",
            account=account.id,
            origin=origin,
            subject=token.id,
            data={
                "grant_type": standing.draft.request.grant_type,
                "grant": token.grant,
                "sub": standing.subject,
                "aud": token.audience,
                "scope": token.scope,
                "expires_at": token.expires_at,
                "kid": token.key.id,
                "by": known.by,
            },
            at=tx.at,
            keep_days=account.seconds("audit_retention") // 86400,
            raw_id=raw,
        )
    )
    return Issued(token, ids.retitle("evt", token.id), (account.id, known.by))


def _active_key(tx: Tx, service: Service, account: Account) -> SigningKey:
    alg = account["signing_alg"]
    for wrapped in tx.signing_keys():
        if wrapped.key.alg == alg and wrapped.key.status == "active":
            service.ring.take(wrapped)
            return wrapped.key
    raise LookupError(f"no active {alg} key")


def _refuse(tx: Tx, known: Known, refusal: Refusal, origin: Origin, asked: dict[str, Any]) -> Refused:
    data = asked | {"error": refusal.code, "error_description": refusal.detail, "by": known.by}
    if refusal.rule:
        data["rule"] = refusal.rule
    entry = record(tx, known.account, "oauth.token.refused", origin, known.client.id, data)
    return Refused(refusal, entry.name)


def _explain(
    tx: Tx, service: Service, known: Known, asked: Request, decided: Standing | Refusal, origin: Origin
) -> Explained:
    """`Prefer: explain`: what would be answered and by which rule, with nothing issued."""
    draft = Draft(asked, known.account, known.client, service.base_url)
    told: dict[str, Any] = {
        "decision": "refuse" if isinstance(decided, Refusal) else "issue",
        "rules": explain(draft, tx, GRANTS[asked.grant_type].rules),
    }
    if isinstance(decided, Refusal):
        why = {"rule": decided.rule, "error": decided.code}
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
    entry = record(tx, known.account, "oauth.token.explained", origin, known.client.id, data)
    return Explained(told, entry.name)
