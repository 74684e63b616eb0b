"""Who is calling: clients at the token endpoint, bearers of our own tokens at the operations."""

import math
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core.errors import Refusal
from gatepost.core.jose import Unreadable, audiences, instant, is_live, peek, read
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS, STRICT_ALGORITHMS
from gatepost.core.secrets import same
from gatepost.ledger.entries import Origin
from gatepost.ledger.operations import Caller
from gatepost.ledger.record import record
from gatepost.oauth import access_tokens as live_units
from gatepost.oauth import client_rows, refusal_counts, refusals, used_assertions
from gatepost.oauth.access_tokens import Live
from gatepost.oauth.clients import SECRET_METHODS, Client
from gatepost.oauth.dpop import KEPT, Proof, too_weak
from gatepost.oauth.refusal_counts import RefusalCount
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx

UNKNOWN = "unknown"
ASSERTION_LIFE = timedelta(minutes=5)
ASSERTION_TYPES = (None, "JWT", "client-authentication+jwt")


class Presented(NamedTuple):
    """What a client showed to prove who it is."""

    client: str
    method: str
    digest: bytes = b""  # of the secret, under the server's key
    assertion: str = ""
    endpoint: str = ""  # where it was shown


class Shown(NamedTuple):
    """An access token as it was sent, with the proof that came with it."""

    token: str
    proof: Proof | Refusal | None = None


class Known(NamedTuple):
    """A client that authenticated, and by what."""

    client: Client
    account: Account
    by: str
    until: datetime | None = None  # when what it authenticated by ends

    def holds(self, at: datetime) -> bool:
        return self.until is None or at < self.until


def client(tx: Tx, service: Service, presented: Presented, origin: Origin) -> Known | Refusal:
    """Authenticate. Every failure looks the same; those of a known client are in its account's ledger.

    Credentials are always checked: the throttle changes only the answer to further failures. So nobody who guesses can
    lock out a client that has the right credentials and the same address.
    """
    found = client_rows.load(tx, presented.client)
    account = account_rows.load(tx, found.account) if found else None
    reason = UNKNOWN
    if found and account:
        checked = _check(tx, service, found, account, presented)
        if isinstance(checked, Known):
            return checked
        reason = checked
    pair = refusals.pair(presented.client, origin.source)
    failure = RefusalCount(pair, account.id if account else None, found.id if found else "", origin.source)
    counted = refusal_counts.count_failure(tx, failure, refusals.WINDOW)
    refusals.sum_up(tx, counted.ended)
    throttled = counted.number > refusals.LIMIT
    if account and not throttled:
        data = {"error": "invalid_client", "rule": reason, "method": presented.method}
        record(tx, account, "oauth.token.refused", origin, presented.client, data)
    who = "known" if account else UNKNOWN  # for our own count and log: the answers do not show it
    if throttled:
        wait = max(1, math.ceil((counted.since + refusals.WINDOW - tx.at).total_seconds()))
        return Refusal("too_many_failures", "too many failed authentications; wait", retry_after=wait, rule=who)
    return Refusal("invalid_client", "client authentication failed", rule=who)


def by_secret(tx: Tx, presented: Presented) -> Known | None:
    """The client whose secret was shown, with nothing counted or recorded when it is not."""
    found = client_rows.load(tx, presented.client) if presented.method in SECRET_METHODS else None
    account = account_rows.load(tx, found.account) if found else None
    checked = _check_secret(tx, found, account, presented) if found and account else None
    return checked if isinstance(checked, Known) and not _stopped(checked.client, checked.account) else None


def _check(tx: Tx, service: Service, found: Client, account: Account, presented: Presented) -> Known | str:
    """The client as known, or why not: a word for the ledger."""
    checked: Known | str = Known(found, account, "")
    if presented.method != found.token_endpoint_auth_method:
        return f"method_is_{found.token_endpoint_auth_method}"
    if presented.method in SECRET_METHODS:
        checked = _check_secret(tx, found, account, presented)
    elif presented.method == "private_key_jwt":
        by, reason = _check_assertion(tx, service, found, account, presented)
        checked = reason or Known(found, account, by)
    return checked if isinstance(checked, str) else _stopped(found, account) or checked


def _check_secret(tx: Tx, found: Client, account: Account, presented: Presented) -> Known | str:
    if presented.method != found.token_endpoint_auth_method:
        return f"method_is_{found.token_endpoint_auth_method}"
    for secret in found.secrets:
        if secret.live(tx.at) and same(secret.hash, presented.digest):
            return Known(found, account, secret.id, secret.expires_at)
    return "wrong_secret"


def _stopped(found: Client, account: Account) -> str:
    if not found.active:
        return "client_disabled"
    return "" if account.active else "account_suspended"


def _check_assertion(
    tx: Tx, service: Service, found: Client, account: Account, presented: Presented
) -> tuple[str, str]:  # fmt: skip
    """RFC 7521, section 4.2; RFC 7523, section 3, with the audience of RFC 7523bis. Says by what, and why not."""
    assertion, keys = presented.assertion, found.jwks or {}
    if found.jwks_uri:
        keys = service.foreign.keys_for(assertion, found.jwks_uri, tx.at, account=account.name, client=found.id)
    try:
        algorithms = STRICT_ALGORITHMS if account.strict else ASSERTION_ALGORITHMS
        claims = read(assertion, keys, algorithms=algorithms, typ=ASSERTION_TYPES)
        if claims.get("iss") != found.id or claims.get("sub") != found.id:
            return "", "assertion_of_another"
        if claims.get("aud") not in _accepted(service, account, presented):
            return "", "assertion_audience"
        if not is_live(claims, tx.at):
            return "", "assertion_expired"
        issued, expires = instant(claims, "iat"), instant(claims, "exp")
    except Unreadable as error:
        return "", f"assertion_unreadable ({error})"
    now = tx.at.timestamp()
    ends = min(expires or 0, (issued + ASSERTION_LIFE.total_seconds()) if issued else expires or 0)
    if ends <= now or (issued is None and ends > now + ASSERTION_LIFE.total_seconds()):
        return "", "assertion_too_old"
    assertion_id = claims.get("jti")
    if not isinstance(assertion_id, str) or not 0 < len(assertion_id) <= 256:
        return "", "assertion_without_jti"
    if not used_assertions.use(
        tx, found.id, "client assertion", assertion_id, tx.at + timedelta(seconds=ends - now + 60)
    ):
        return "", "assertion_replayed"
    return "private_key_jwt", ""


def _accepted(service: Service, account: Account, presented: Presented) -> list[Any]:
    """Our issuer; outside fapi2 also the address it was sent to, and the token endpoint's (RFC 9126, section 2)."""
    if account.strict:
        return [service.base_url]
    named = [service.base_url, service.token_endpoint, presented.endpoint or service.base_url]
    return [*named, *([each] for each in named)]


def bearer(tx: Tx, service: Service, shown: Shown, *, use_up: bool = True) -> Caller | Refusal:
    """The caller whose access token, of our own making and for ourselves, this is. RFC 6750, RFC 9068 section 4.

    Without `use_up`, nothing is written: a DPoP proof can still be used once afterwards.
    """
    live = live_token(tx, service, shown, use_up=use_up)
    if isinstance(live, Refusal):
        return live
    if service.base_url not in audiences(live.claims):
        return Refusal("invalid_token", "the access token is expired or not for this service")
    held = frozenset(str(live.claims["scope"]).split(" "))
    return Caller(live.account.id, live.client.id, held, str(live.claims["jti"]))


def live_token(tx: Tx, service: Service, shown: Shown, *, use_up: bool = True) -> Live | Refusal:
    """A token of ours, shown as it must be: one bound to a key with a proof of that key, used once (RFC 9449)."""
    live = live_units.access_token(tx, service, shown.token)
    if isinstance(live, Refusal):
        return live
    bound = live.claims.get("cnf", {}).get("jkt", "")
    if isinstance(shown.proof, Refusal):
        return shown.proof
    if bound != (shown.proof.thumbprint if shown.proof else ""):
        words = "the access token is bound to a key: send it as DPoP, with a proof of that key"
        return Refusal("invalid_token", words if bound else "the access token is not bound to a key: send it as Bearer")
    weak = too_weak(shown.proof) if live.account.strict else None
    if weak is None and use_up and shown.proof and not use_proof(tx, live.client.id, shown.proof):
        weak = REPLAYED
    return msgspec.structs.replace(weak, status_here=401) if weak else live


REPLAYED = Refusal("invalid_dpop_proof", "DPoP: this proof was used before", "DPoP")


def use_proof(tx: Tx, client: str, proof: Proof) -> bool:
    """True for the first use: RFC 9449, section 11.1."""
    until = tx.at + timedelta(seconds=KEPT)
    return used_assertions.use(tx, client, f"dpop {proof.thumbprint}", proof.id, until)


def client_named_in(assertion: str) -> str:
    """The client an assertion claims to be of, unverified: only to look up the keys that verify it."""
    subject = peek(assertion)[1].get("sub")
    return subject if isinstance(subject, str) else ""
