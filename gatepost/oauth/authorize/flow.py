"""Authorizations: a request is pushed or opened, goes through the login application, and ends with a code."""

import hashlib
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.jose import InvalidJwt, audiences, decode_unverified, verify_jws
from gatepost.core.jwk_sets import assertion_algorithms
from gatepost.core.secrets import random_text
from gatepost.ledger.entries import Origin
from gatepost.ledger.record import record
from gatepost.oauth import (
    client_authentication,
    client_rows,
    consent_rows,
    dpop,
    key_rows,
    redirect_uris,
    refusals,
    scopes,
    used_assertions,
)
from gatepost.oauth.authorize import codes, handoff, interactions, pushed_requests, request
from gatepost.oauth.authorize.codes import Code, CodeBinding, code_id
from gatepost.oauth.authorize.handoff import (
    HANDOFF_TYPE,
    INTERACTION_LIFE,
    INTERACTION_TYPE,
    MAX_INTERACTION,
    Denied,
    Granted,
    invalid_handoff,
)
from gatepost.oauth.authorize.interactions import Interaction
from gatepost.oauth.authorize.request import Authorization, AuthorizationRequest
from gatepost.oauth.client_authentication import AuthenticatedClient, ClientCredentials, RefusedRequest
from gatepost.oauth.clients import Client
from gatepost.oauth.consents import LONGEST_ACCESS, Consent
from gatepost.oauth.dpop import Proof
from gatepost.oauth.revocation import login_keys, person
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import SigningKey
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx

PUSHED_PREFIX = "urn:ietf:params:oauth:request_uri:"
PUSHED_LIFE = 300  # seconds in which a pushed request can be opened
# Limits of unfinished interactions and pushed requests. Beyond a limit the oldest one is deleted: if new ones were
# refused instead, one caller could block all others behind the same address.
MAX_PER_BROWSER = 20  # interactions of one cookie
MAX_FIRST_VISITS = 1_000  # interactions of one client and address, of browsers without a cookie
MAX_RETURNING = 10_000  # interactions of one client and address, of browsers with a cookie, which callers can invent
MAX_PUSHED = 1_000  # requests that one public client pushed from one address
MAX_PUSHED_AUTHENTICATED = 10_000  # requests that one client that authenticates pushed from one address
STRICT_CODE_LIFE = 60  # seconds

_authorization = msgspec.json.Decoder(Authorization)
_encode = msgspec.json.Encoder().encode


class Parameters(NamedTuple):
    """The parameters of an authorization request."""

    parameters: dict[str, str]
    resources: tuple[str, ...] = ()
    repeated: str = ""  # the name of a parameter that was sent more than once and must not be


class Visit(NamedTuple):
    """A browser that may open an interaction: the hash of its cookie, and whether it came without one."""

    browser: bytes
    source: str
    first: bool


class ValidRequest(NamedTuple):
    """The request is valid. It was sent by HEAD, so no interaction is opened."""

    login_url: str


class LoginRedirect(NamedTuple):
    """The browser is redirected to the login application with these claims, signed with the key."""

    login_url: str
    claims: dict[str, Any]
    key: SigningKey


class ClientRedirect(NamedTuple):
    """The browser is redirected to the client with these parameters."""

    authorization: Authorization
    parameters: dict[str, str]


# --- pushed requests


def push(
    tx: Tx, service: Service, credentials: ClientCredentials, sent: Parameters | Refusal, proof: Proof | Refusal | None,
    request_id: str, source: str,
) -> str | RefusedRequest:  # fmt: skip
    """Store the request of an authenticated client and return its `request_uri`. RFC 9126, section 2."""
    origin = Origin(credentials.client, request_id, source)
    authenticated = client_authentication.authenticate(tx, service, credentials, origin)
    if isinstance(authenticated, Refusal):
        return RefusedRequest(authenticated, authenticated=False)
    stored = _check_pushed(tx, service, authenticated, sent, proof)
    if isinstance(stored, Refusal):
        return client_authentication.refuse(tx, authenticated, stored, origin, "oauth.request.refused", {"at": "par"})
    name = random_text()
    account, client, network = authenticated.account.id, authenticated.client, refusals.network(source)
    pushed_requests.add(
        tx, account, _pushed_id(name), client.id, network, _encode([stored.parameters, stored.resources]),
        service.keys.data, _after(tx, PUSHED_LIFE),
    )  # fmt: skip
    pushed_requests.evict(tx, account, client.id, network, MAX_PUSHED if client.public else MAX_PUSHED_AUTHENTICATED)
    return PUSHED_PREFIX + name


def _check_pushed(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, sent: Parameters | Refusal,
    proof: Proof | Refusal | None,
) -> Parameters | Refusal:  # fmt: skip
    """What is stored of a pushed request: known parameters, lists without repetitions, no credentials."""
    if isinstance(sent, Refusal):
        return sent
    if isinstance(proof, Refusal):
        return proof
    client, account, parameters = authenticated.client, authenticated.account, dict(sent.parameters)
    if proof is not None:  # RFC 9449, section 10.1
        if parameters.setdefault("dpop_jkt", proof.thumbprint) != proof.thumbprint:
            return Refusal("invalid_dpop_proof", "DPoP: dpop_jkt must be the thumbprint of the proof's key", "dpop_jkt")
        weak = dpop.too_weak(proof) if account.strict else None
        if weak is not None:
            return weak
    authorization = _validate(tx, service, client, account, Parameters(parameters, sent.resources), pushed=True)
    if isinstance(authorization, _InvalidRequest):
        return authorization.refusal
    # Anybody can push for a public client, so the ids of its proofs are not stored. A replay gains nothing, because the
    # request is bound to the proof's key.
    replayed = dpop.use(tx, client.id, proof) if proof is not None and not client.public else None
    if replayed is not None:
        return replayed
    stored = {name: parameters[name] for name in request.PARAMETERS if name in parameters}
    lists = {"scope": authorization.scope, "prompt": authorization.prompt}
    stored |= {name: " ".join(values) for name, values in lists.items() if name in stored}
    return Parameters(stored, tuple(authorization.resources))


def _pushed_id(name: str) -> bytes:
    return hashlib.sha256(b"pushed\0" + name.encode("utf-8", "surrogatepass")).digest()


def _after(tx: Tx, seconds: int) -> datetime:
    return tx.at + timedelta(seconds=seconds)


# --- from the client to the login application


class _InvalidRequest(NamedTuple):
    """A refusal, and where it may be redirected to, if anywhere."""

    refusal: Refusal
    target: Authorization | None


def begin(
    tx: Tx, service: Service, sent: Parameters, visit: Visit | None
) -> LoginRedirect | ValidRequest | ClientRedirect | Refusal:
    """Open an interaction for a valid request, and redirect the browser to the login application.

    Without a visit the request is only checked.
    """
    client = client_rows.load(tx, sent.parameters.get("client_id", ""))
    account = account_rows.load(tx, client.account) if client else None
    if client is None or account is None or not account.active or not client.active:
        return Refusal("invalid_request", "client_id: no such client", "client_id")
    pushed: bytes | None = None
    request_uri = sent.parameters.get("request_uri")
    if request_uri is not None:
        pushed = _pushed_id(request_uri.removeprefix(PUSHED_PREFIX))
        stored = pushed_requests.load(tx, account.id, pushed, client.id, service.keys.data)
        if stored is None or not request_uri.startswith(PUSHED_PREFIX):
            detail = "request_uri: unknown, expired, used, or of another client; push the request again"
            return Refusal("invalid_request", detail, "request_uri")
        parameters, resources = msgspec.json.decode(stored)
        if "request" in sent.parameters:  # OIDC Core 1.0, section 6: never both
            parameters["request"] = sent.parameters["request"]
        sent = Parameters(parameters, tuple(resources))
    authorization = _validate(tx, service, client, account, sent, pushed=pushed is not None)
    if isinstance(authorization, _InvalidRequest):
        refusal, target = authorization
        return refusal if target is None else error_redirect(service, target, refusal.code, refusal.detail)
    login_url = account["login_url"]
    if not login_url or not account["login_jwks"]:
        detail = "the account has no login application: set login_url and login_jwks (gatepost account set)"
        return error_redirect(service, authorization, "server_error", detail)
    if visit is None:
        return ValidRequest(login_url)
    interaction = Interaction(
        account.id, ids.new("int"), client.id, visit.browser, pushed, _encode(authorization), tx.at + INTERACTION_LIFE
    )  # fmt: skip
    defined = {name: scope for name in authorization.scope if (scope := service.scope(tx, account.id, name))}
    claims = handoff.interaction_claims(
        authorization, client, interaction=interaction.id,
        descriptions=scopes.PROTOCOL_SCOPES | {name: scope.description for name, scope in defined.items()},
        base_url=service.base_url, login_url=login_url, at=tx.at,
    )  # fmt: skip
    key = service.active_key(tx, account["signing_alg"])
    fitting = handoff.shortened(claims, service.ring.max_claims(key, INTERACTION_TYPE, MAX_INTERACTION))
    if fitting is None:
        detail = "the request is too large for the login application; request fewer scopes or claims"
        return error_redirect(service, authorization, "invalid_request", detail)
    _store_interaction(tx, service, interaction, visit)
    return LoginRedirect(login_url, fitting, key)


def _store_interaction(tx: Tx, service: Service, interaction: Interaction, visit: Visit) -> None:
    """Store an interaction. Beyond the limits the oldest ones are deleted."""
    network = refusals.network(visit.source)
    interactions.add(tx, interaction, network, service.keys.data, first_visit=visit.first)
    if not visit.first:
        interactions.evict_of_browser(tx, interaction.account, interaction.browser, MAX_PER_BROWSER)
    limit = MAX_FIRST_VISITS if visit.first else MAX_RETURNING
    interactions.evict(tx, interaction.account, interaction.client, network, limit, first_visit=visit.first)


def _validate(
    tx: Tx, service: Service, client: Client, account: Account, sent: Parameters, *, pushed: bool
) -> Authorization | _InvalidRequest:
    target = request.redirect_target(sent.parameters, client)
    if isinstance(target, Refusal):
        return _InvalidRequest(target, None)
    if sent.repeated:
        name = sent.repeated[:64]
        return _InvalidRequest(Refusal("invalid_request", f"{name}: sent more than once", name), target)
    hint = _hinted_subject(tx, service, client, sent.parameters.get("id_token_hint", ""))
    checked = AuthorizationRequest(
        sent.parameters, sent.resources, client, account, service.definitions(tx), pushed, hint
    )
    decision = request.decide(target, checked)
    return _InvalidRequest(decision, target) if isinstance(decision, Refusal) else decision


def _hinted_subject(tx: Tx, service: Service, client: Client, token: str) -> str | Refusal:
    """The subject of an ID token that was issued to this client. The token may have expired."""
    if not token:
        return ""
    try:
        claims = service.ring.read(token, key_rows.load_published(tx), "JWT")
        account, _, subject = str(claims["sub"]).partition(".")
        if claims["iss"] == service.base_url and client.id in audiences(claims) and account == client.account:
            return subject
    except (InvalidJwt, KeyError):
        pass
    return Refusal("invalid_request", "id_token_hint: is not an ID token of this client", "id_token_hint")


def error_redirect(service: Service, target: Authorization, error: str, description: str) -> ClientRedirect:
    """Return an error to the client: RFC 6749, section 4.1.2.1."""
    parameters = {"error": error} | ({"error_description": description} if description else {})
    return _client_redirect(service, target, parameters)


def _client_redirect(service: Service, target: Authorization, parameters: dict[str, str]) -> ClientRedirect:
    """Add `state` and the issuer (RFC 9207, section 2) to the parameters."""
    state = {"state": target.state} if target.state is not None else {}
    return ClientRedirect(target, parameters | state | {"iss": service.base_url})


# --- from the login application to the client


def finish(
    tx: Tx, service: Service, token: str, browser: bytes, request_id: str, source: str
) -> ClientRedirect | Refusal:
    """Complete an interaction with a handoff. After an invalid handoff, the browser is not redirected."""
    _, unverified = decode_unverified(token)
    issuer, interaction_id = str(unverified.get("iss")), str(unverified.get("interaction"))
    account = account_rows.load(tx, issuer) if ids.parse("acc", issuer) else None
    interaction = interactions.load(tx, account.id, interaction_id, service.keys.data) if account else None
    if account is None or not account.active or interaction is None:
        return invalid_handoff("no such interaction of this account, or it was deleted; start again at the application")
    if interaction.done_at is not None or tx.at >= interaction.expires_at:
        return invalid_handoff("the interaction was completed or has expired; start again at the application")
    if browser and not compare_digest(interaction.browser, browser):
        return invalid_handoff("the interaction was started in another browser")
    algorithms = assertion_algorithms(strict=account.strict)
    try:
        keys = login_keys(tx, service, account, token)
        claims = verify_jws(token, keys, algorithms=algorithms, typ=(HANDOFF_TYPE,))
        problem = handoff.envelope_problem(claims, account=account.id, base_url=service.base_url, at=tx.at)
        if problem:
            return invalid_handoff(problem)
        authorization = _authorization.decode(interaction.request)
        started_at = ids.made_at(ids.raw(interaction.id))
        outcome = handoff.check(claims, authorization, started_at=started_at, at=tx.at)
    except InvalidJwt as error:
        return invalid_handoff(f"it cannot be verified with a key of the account's login_jwks ({error})")
    if isinstance(outcome, Refusal):
        return outcome
    if not browser and authorization.prompt != ["none"]:
        return invalid_handoff(
            "this browser sent no cookie: cookies are off, or the page is in a frame of another site"
        )
    if not browser:  # in a frame of another site; the client learns nothing else
        outcome = Denied("login_required", "the browser sent no cookie, as in a frame of another site")
    origin = Origin("login application", request_id, source)
    return _complete(tx, service, account, interaction, authorization, outcome, origin)


def _complete(
    tx: Tx, service: Service, account: Account, interaction: Interaction, authorization: Authorization,
    outcome: Granted | Denied, origin: Origin,
) -> ClientRedirect | Refusal:  # fmt: skip
    client = client_rows.load(tx, interaction.client)
    if client is None or not client.active:
        return invalid_handoff("the client is no longer active")
    if not any(redirect_uris.matches(authorization.redirect_uri, registered) for registered in client.redirect_uris):
        return invalid_handoff("the redirect URI is no longer registered for the client")
    if isinstance(outcome, Granted):
        outcome = _check_definitions(tx, service, account, client, interaction, outcome)
    if not interactions.finish(tx, account.id, interaction.id):
        raise Again("another request completed the interaction")
    if interaction.pushed is not None and not _spend_pushed(tx, account, client, interaction.pushed):
        outcome = Denied("invalid_request", "request_uri: an authorization with it was completed before")
    if isinstance(outcome, Denied):  # The description is the login application's and may name a person: not recorded.
        data = {"client": client.id, "error": outcome.code}
        record(tx, account, "oauth.consent.refused", origin, interaction.id, data)
        return error_redirect(service, authorization, outcome.code, outcome.description)
    code = _issue_code(tx, service, account, client, authorization, outcome, origin)
    return _client_redirect(service, authorization, {"code": code})


def _spend_pushed(tx: Tx, account: Account, client: Client, pushed: bytes) -> bool:
    """True for the first authorization that completes, even if the request has expired or was evicted since."""
    pushed_requests.delete(tx, account.id, pushed)
    until = _after(tx, PUSHED_LIFE) + INTERACTION_LIFE  # by then every interaction of this request has expired
    return used_assertions.use(tx, client.id, "pushed request", pushed.hex(), until)


def _check_definitions(
    tx: Tx, service: Service, account: Account, client: Client, interaction: Interaction, granted: Granted
) -> Granted | Denied:  # fmt: skip
    """The account, the client and the scopes may have changed since the interaction was opened."""
    if account.strict and interaction.pushed is None:
        return Denied("invalid_request", "the account now requires requests that are pushed to /oauth/par")
    grant = client.grant("authorization_code")
    if grant is None:
        return Denied("unauthorized_client", "the client no longer has an active authorization_code grant")
    still_granted = frozenset(grant.scopes)
    for name in granted.details.scope:
        scope = service.scope(tx, account.id, name)
        active = name in scopes.PROTOCOL_SCOPES or (scope is not None and scope.status == "active")
        if name not in still_granted or not active:
            return Denied("invalid_scope", f"scope: {name} is no longer granted")
    return granted


def _issue_code(
    tx: Tx, service: Service, account: Account, client: Client, authorization: Authorization, granted: Granted,
    origin: Origin,
) -> str:  # fmt: skip
    """Store the consent, and a code that is redeemed for its tokens."""
    details = granted.details
    code_life = account.seconds("authorization_code_lifetime")
    refresh_life = account.seconds("refresh_token_max_age") if scopes.OFFLINE in details.scope else 0
    consent = Consent(
        ids.new("con"), account.id, client.id, details, tx.at, _after(tx, code_life + refresh_life) + LONGEST_ACCESS
    )  # fmt: skip
    consent_rows.add(tx, consent, person(service, account.id, details.subject), service.keys.data)
    code = random_text()
    binding = CodeBinding(
        authorization.redirect_uri, authorization.challenge, authorization.thumbprint, authorization.nonce
    )
    expires_at = _after(tx, min(code_life, STRICT_CODE_LIFE) if account.strict else code_life)
    codes.add(tx, account.id, code_id(code), Code(client.id, consent.id, _encode(binding).decode(), expires_at))
    data = {"client": client.id, "scope": " ".join(details.scope)}
    record(tx, account, "oauth.consent.given", origin, consent.id, data)
    return code
