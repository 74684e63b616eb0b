"""JWT bearer: a workload presents a token of an issuer that the account trusts. RFC 7523, section 2.1."""

from datetime import datetime, timedelta
from typing import Any

from gatepost.core.errors import Refusal
from gatepost.core.jose import InvalidJwt, audiences, decode_unverified, is_time_valid, numeric_date, verify_jws
from gatepost.core.jwk_sets import assertion_algorithms
from gatepost.ledger.entries import Origin
from gatepost.oauth import issuer_rows, scopes, used_assertions
from gatepost.oauth.client_authentication import AuthenticatedClient
from gatepost.oauth.grants.grant_type import NO_EXTRAS, GrantType, LoadedGrant, TokenExtras
from gatepost.oauth.issuers import Issuer
from gatepost.oauth.service import Service
from gatepost.oauth.token_rules import (
    NARROWING,
    Draft,
    GrantContext,
    TokenRequest,
    grant_is_configured,
    key_is_shown,
    scopes_are_agreed,
    scopes_are_named,
)
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx

RULES = (key_is_shown, grant_is_configured, scopes_are_named, scopes_are_agreed, *NARROWING)
TYPES = (None, "JWT", "jwt")
MAX_LIFETIME = 3600  # of an assertion, in seconds


def load(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, request: TokenRequest, _origin: Origin
) -> LoadedGrant | Refusal:
    """The issuer entry of the account that names this client, accepts the assertion and has the requested scopes."""
    assertion = request.parameter("assertion")
    if not assertion:
        return Refusal("invalid_request", "assertion: missing", "assertion")
    account, client, iss = authenticated.account, authenticated.client, decode_unverified(assertion)[1].get("iss")
    algorithms = assertion_algorithms(strict=account.strict)
    refusal = _invalid_assertion("its issuer is not trusted for this client")
    accepting: list[tuple[Issuer, GrantContext, dict[str, Any]]] = []
    for issuer in issuer_rows.load(tx, account.id):
        if issuer.issuer != iss or issuer.client != client.id:
            continue
        keys = service.foreign.keys_for(assertion, issuer.jwks_uri, tx.at, account=account.name)
        try:
            claims = verify_jws(assertion, keys, algorithms=algorithms, typ=TYPES)
            context = check_claims(issuer, claims, service.base_url, tx.at)
        except InvalidJwt as error:
            refusal = _invalid_assertion(f"it cannot be verified ({error})")
            continue
        if isinstance(context, Refusal):
            refusal = context
        else:
            accepting.append((issuer, context, claims))
    if not accepting:
        return refusal
    with_scopes = (entry for entry in accepting if scopes.first_beyond(request.scope, entry[1].scope) is None)
    issuer, context, claims = next(with_scopes, accepting[0])
    return _load_once(tx, issuer, context, claims) if issuer.once else LoadedGrant(context)


def _load_once(tx: Tx, issuer: Issuer, context: GrantContext, claims: dict[str, Any]) -> LoadedGrant | Refusal:
    """The insert, in the commit that issues the token, decides between two requests.

    So an assertion can be presented again after a refusal, or after an explanation.
    """
    used = (issuer.account, f"assertion of {issuer.issuer}", token_id(claims))
    if used_assertions.is_used(tx, *used):
        return _invalid_assertion("it was used before, and is accepted once")

    def complete(_draft: Draft) -> TokenExtras:
        expires_at = tx.at + timedelta(seconds=MAX_LIFETIME + 60)  # the assertion itself expires earlier
        if not used_assertions.use(tx, *used, expires_at):
            raise Again("another request used the assertion")
        return NO_EXTRAS

    return LoadedGrant(context, complete)


def check_claims(issuer: Issuer, claims: dict[str, Any], base_url: str, at: datetime) -> GrantContext | Refusal:
    """RFC 7523, section 3: what a verified token of this issuer allows."""
    if claims.get("iss") != issuer.issuer:
        return _invalid_assertion("iss is not that of the trusted issuer")
    if audiences(claims) != [base_url]:
        return _invalid_assertion(f"aud must be {base_url}, alone")
    issued, expires = numeric_date(claims, "iat"), numeric_date(claims, "exp")
    if not is_time_valid(claims, at) or expires is None:
        return _invalid_assertion("it is expired, not yet valid, or has no exp")
    if expires - (issued if issued is not None else at.timestamp()) > MAX_LIFETIME:
        return _invalid_assertion("its lifetime is longer than an hour")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= 512 or not subject.isprintable():
        return _invalid_assertion("sub must be 1 to 512 printable characters")
    if not issuer.matches(claims):
        return _invalid_assertion("its claims do not match the entry of the trusted issuer")
    if issuer.once and not token_id(claims):
        return _invalid_assertion("jti is missing; each token of this issuer is accepted once")
    data = {"issuer": issuer.name, "issuer_entry": issuer.identity}
    return GrantContext(issuer.subject(subject), tuple(issuer.scope), entry_data=data)


def token_id(claims: dict[str, Any]) -> str:
    """The `jti`, or an empty string if there is none that can be stored."""
    jti = claims.get("jti")
    return jti if isinstance(jti, str) and len(jti) <= 256 else ""


def _invalid_assertion(detail: str) -> Refusal:
    return Refusal("invalid_grant", f"assertion: {detail}", "assertion")


GRANT = GrantType(RULES, load, parameters=("assertion",), explainable=True)
