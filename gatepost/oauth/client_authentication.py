"""Client authentication: RFC 6749, section 2.3, and RFC 7523, section 2.2. Every endpoint uses `authenticate`."""

import math
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any, NamedTuple

from gatepost.accounts import Account, account_rows
from gatepost.core.errors import Refusal
from gatepost.core.jose import InvalidJwt, decode_unverified, is_time_valid, numeric_date, verify_jws
from gatepost.core.jwk_sets import assertion_algorithms
from gatepost.ledger.entries import Origin
from gatepost.ledger.record import record
from gatepost.oauth import client_rows, refusal_counts, refusals, used_assertions
from gatepost.oauth.clients import SECRET_METHODS, Client
from gatepost.oauth.quotas import Quotas, quotas_of
from gatepost.oauth.refusal_counts import RefusalCount
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx

UNKNOWN = "unknown"
ASSERTION_LIFE = timedelta(minutes=5)
ASSERTION_TYPES = (None, "JWT", "client-authentication+jwt")


class ClientCredentials(NamedTuple):
    """What a client sent to authenticate itself."""

    client: str
    method: str
    digest: bytes = b""  # of the secret, under the server's key
    assertion: str = ""
    endpoint: str = ""  # the URL that an assertion was sent to


class AuthenticatedClient(NamedTuple):
    """A client that has authenticated, or a public client that was identified."""

    client: Client
    account: Account
    by: str  # the id of the secret, or the method
    expires_at: datetime | None = None  # of the secret
    quotas: Quotas = Quotas()

    def is_valid(self, at: datetime) -> bool:
        return self.expires_at is None or at < self.expires_at


class RefusedRequest(NamedTuple):
    """A refused request of a client, with the id of the ledger entry that records the refusal, if there is one."""

    refusal: Refusal
    event: str | None = None
    authenticated: bool = True
    quotas: Quotas | None = None  # of the client, if it has authenticated


class _Failure(NamedTuple):
    """Why authentication failed. The ledger has the reason; the response never does."""

    reason: str
    client: str = ""
    account: Account | None = None


def authenticate(
    tx: Tx, service: Service, credentials: ClientCredentials, origin: Origin
) -> AuthenticatedClient | Refusal:
    """Authenticate a client. All failures get the same response; those of a known client are recorded in the ledger.

    Credentials are always checked: the throttle changes only the response to further failures. So guessing cannot lock
    out a client that has the correct credentials and the same address.
    """
    checked = authenticate_by_secret(tx, service, credentials) or _check(tx, service, credentials)
    if isinstance(checked, AuthenticatedClient):
        return checked
    account, pair = checked.account, refusals.pair(credentials.client, origin.source)
    failure = RefusalCount(pair, account.id if account else None, checked.client, origin.source)
    counted = refusal_counts.count_failure(tx, failure, refusals.WINDOW)
    refusals.sum_up(tx, counted.ended)
    throttled = counted.number > refusals.LIMIT
    if account and not throttled:
        data = {"error": "invalid_client", "rule": checked.reason, "method": credentials.method}
        record(tx, account, "oauth.token.refused", origin, credentials.client, data)
    rule = "known" if account else UNKNOWN  # for the metric and the log; the response does not contain it
    if throttled:
        wait = max(1, math.ceil((counted.since + refusals.WINDOW - tx.at).total_seconds()))
        return Refusal("too_many_failures", "too many failed authentications; wait", retry_after=wait, rule=rule)
    return Refusal("invalid_client", "client authentication failed", rule=rule)


def refuse(
    tx: Tx, authenticated: AuthenticatedClient, refusal: Refusal, origin: Origin, type_: str, data: dict[str, Any]
) -> RefusedRequest:
    """Record that the request of an authenticated client is refused, in a ledger entry of this type."""
    data = data | {"error": refusal.code, "error_description": refusal.detail, "by": authenticated.by}
    if refusal.rule:
        data["rule"] = refusal.rule
    event = refusals.record_refusal(tx, authenticated.account, authenticated.client, type_, origin, data)
    return RefusedRequest(refusal, event, quotas=authenticated.quotas)


def authenticate_by_secret(tx: Tx, service: Service, credentials: ClientCredentials) -> AuthenticatedClient | None:
    """Authenticate a client by its secret without a write: a failure is neither counted nor recorded.

    The result is cached, because it depends on definitions alone until the secret expires.
    """
    if credentials.method not in SECRET_METHODS:
        return None

    def check() -> AuthenticatedClient | None:
        checked = _check(tx, service, credentials)
        return checked if isinstance(checked, AuthenticatedClient) else None

    authenticated = tx.derived(("authenticated", credentials), check)
    return authenticated if authenticated is not None and authenticated.is_valid(tx.at) else None


def _check(tx: Tx, service: Service, credentials: ClientCredentials) -> AuthenticatedClient | _Failure:
    client = client_rows.load(tx, credentials.client)
    account = account_rows.load(tx, client.account) if client else None
    if client is None or account is None:
        return _Failure(UNKNOWN)
    by, reason, expires_at = "", "", None
    if credentials.method != client.token_endpoint_auth_method:
        reason = f"method_is_{client.token_endpoint_auth_method}"
    elif credentials.method in SECRET_METHODS:
        valid = (
            secret
            for secret in client.secrets
            if secret.is_active(tx.at) and compare_digest(secret.hash, credentials.digest)
        )
        secret = next(valid, None)
        if secret is None:
            reason = "wrong_secret"
        else:
            by, expires_at = secret.id, secret.expires_at
    elif credentials.method == "private_key_jwt":
        by, reason = "private_key_jwt", _check_assertion(tx, service, client, account, credentials)
    reason = reason or _inactive(client, account)
    if reason:
        return _Failure(reason, client.id, account)
    return AuthenticatedClient(client, account, by, expires_at, quotas_of(account, client))


def _inactive(client: Client, account: Account) -> str:
    if not client.active:
        return "client_disabled"
    return "" if account.active else "account_suspended"


def _check_assertion(
    tx: Tx, service: Service, client: Client, account: Account, credentials: ClientCredentials
) -> str:  # fmt: skip
    """RFC 7521, section 4.2; RFC 7523, section 3, with the audience of RFC 7523bis. Returns why it is not accepted."""
    assertion, keys = credentials.assertion, client.jwks or {}
    if client.jwks_uri:
        keys = service.foreign.keys_for(assertion, client.jwks_uri, tx.at, account=account.name, client=client.id)
    try:
        algorithms = assertion_algorithms(strict=account.strict)
        claims = verify_jws(assertion, keys, algorithms=algorithms, typ=ASSERTION_TYPES)
        if claims.get("iss") != client.id or claims.get("sub") != client.id:
            return "assertion_of_another"
        if claims.get("aud") not in _accepted_audiences(service, account, credentials):
            return "assertion_audience"
        if not is_time_valid(claims, tx.at):
            return "assertion_expired"
        issued, expires = numeric_date(claims, "iat"), numeric_date(claims, "exp")
    except InvalidJwt as error:
        return f"assertion_unreadable ({error})"
    now = tx.at.timestamp()
    longest = ASSERTION_LIFE.total_seconds()
    ends = min(expires or 0.0, math.inf if issued is None else issued + longest)
    if ends <= now or (issued is None and ends > now + longest):
        return "assertion_too_old"
    jti = claims.get("jti")
    if not isinstance(jti, str) or not 0 < len(jti) <= 256:
        return "assertion_without_jti"
    expires_at = tx.at + timedelta(seconds=ends - now + 60)
    return "" if used_assertions.use(tx, client.id, "client assertion", jti, expires_at) else "assertion_replayed"


def _accepted_audiences(service: Service, account: Account, credentials: ClientCredentials) -> list[Any]:
    """The issuer; outside fapi2 also the URL of the request and of the token endpoint (RFC 9126, section 2)."""
    if account.strict:
        return [service.base_url]
    urls = [service.base_url, f"{service.base_url}/oauth/tokens", credentials.endpoint or service.base_url]
    return [*urls, *([url] for url in urls)]


def client_named_in(assertion: str) -> str:
    """The client that an unverified assertion names, to find the keys that verify it."""
    subject = decode_unverified(assertion)[1].get("sub")
    return subject if isinstance(subject, str) else ""
