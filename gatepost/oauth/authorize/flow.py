"""Authorizations: a request is pushed or opened, goes through the login application, and ends with a code."""

import hashlib
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.jose import Unreadable, audiences, peek, read
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS
from gatepost.core.secrets import random_text, same
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
from gatepost.oauth.authorize.handoff import HANDOFF_TYPE, INTERACTION_LIFE, Denied, Granted
from gatepost.oauth.authorize.interactions import Interaction
from gatepost.oauth.authorize.request import Authorization, AuthorizationRequest
from gatepost.oauth.client_authentication import AuthenticatedClient, ClientCredentials
from gatepost.oauth.clients import Client
from gatepost.oauth.consents import LONGEST_ACCESS, Consent
from gatepost.oauth.dpop import Proof, too_weak
from gatepost.oauth.revocation import login_keys, person
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import PUBLISHED, SigningKey
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx

PUSHED_PREFIX = "urn:ietf:params:oauth:request_uri:"
PUSHED_LIFE = 300  # seconds in which a pushed request can be opened
# Unfinished interactions and pushed requests, of which the oldest makes room. A refusal in its place would let one
# caller stop all others behind the same address.
MAX_PER_BROWSER = 20  # interactions of one cookie
MAX_FIRST_VISITS = 1_000  # interactions of one client and address, of browsers without a cookie
MAX_RETURNING = 10_000  # the same of browsers with one: callers choose their cookies
MAX_PUSHED = 1_000  # requests that one public client pushed from one address
MAX_PUSHED_AUTHENTICATED = 10_000  # the same of a client that authenticates
STRICT_CODE_LIFE = 60

_authorization = msgspec.json.Decoder(Authorization)
_encode = msgspec.json.Encoder().encode


class Parameters(NamedTuple):
    """The parameters of an authorization request, as they came."""

    parameters: dict[str, str]
    resources: tuple[str, ...] = ()
    repeated: str = ""  # one that was sent more than once and must not be


class Visit(NamedTuple):
    """A browser that may open an interaction: the hash of its cookie, and whether it came without one."""

    browser: bytes
    source: str
    first: bool


class Pushed(NamedTuple):
    request_uri: str
    expires_in: int


class RefusedRequest(NamedTuple):
    """A refusal of a client, with the entry that records it, if one does."""

    refusal: Refusal
    event: str | None
    authenticated: bool = True


class ValidRequest(NamedTuple):
    """A request by HEAD is in order. It opens nothing."""

    login_url: str


class LoginRedirect(NamedTuple):
    """The browser goes to the login application with these claims, signed."""

    login_url: str
    claims: dict[str, Any]
    key: SigningKey
    back_to: Authorization


class ClientRedirect(NamedTuple):
    """The browser goes back to the client with these parameters."""

    to: Authorization
    parameters: dict[str, str]


# --- pushing


def push(
    tx: Tx, service: Service, credentials: ClientCredentials, sent: Parameters | Refusal, proof: Proof | Refusal | None,
    request_id: str, source: str,
) -> Pushed | RefusedRequest:  # fmt: skip
    """RFC 9126: an authenticated client leaves its request here and gets a name for it."""
    origin = Origin(credentials.client, request_id, source)
    authenticated = client_authentication.authenticate(tx, service, credentials, origin)
    if isinstance(authenticated, Refusal):
        return RefusedRequest(authenticated, None, authenticated=False)
    checked = _check_pushed(tx, service, authenticated, sent, proof)
    if isinstance(checked, Refusal):
        return refuse_request(tx, authenticated, checked, origin, "par")
    name = random_text()
    account, client, network = authenticated.account.id, authenticated.client, refusals.network(source)
    kept = _encode([checked.parameters, checked.resources])
    expires_at = _later(tx, PUSHED_LIFE)
    pushed_requests.add(tx, account, _pushed_id(name), client.id, network, kept, service.keys.data, expires_at)
    pushed_requests.evict(tx, account, client.id, network, MAX_PUSHED if client.public else MAX_PUSHED_AUTHENTICATED)
    return Pushed(PUSHED_PREFIX + name, PUSHED_LIFE)


def refuse_request(
    tx: Tx, authenticated: AuthenticatedClient, refusal: Refusal, origin: Origin, at: str
) -> RefusedRequest:
    data = {"at": at, "error": refusal.code, "error_description": refusal.detail, "by": authenticated.by}
    if refusal.rule:
        data["rule"] = refusal.rule
    return RefusedRequest(
        refusal, refusals.ledger(tx, authenticated.account, authenticated.client, "oauth.request.refused", origin, data)
    )


def _check_pushed(
    tx: Tx,
    service: Service,
    authenticated: AuthenticatedClient,
    sent: Parameters | Refusal,
    proof: Proof | Refusal | None,
) -> Parameters | Refusal:
    if isinstance(sent, Refusal):
        return sent
    if isinstance(proof, Refusal):
        return proof
    parameters = dict(sent.parameters)
    if proof is not None:  # RFC 9449, section 10.1
        if parameters.setdefault("dpop_jkt", proof.thumbprint) != proof.thumbprint:
            return Refusal("invalid_dpop_proof", "DPoP: the proof is of another key than dpop_jkt", "dpop_jkt")
        weak = too_weak(proof) if authenticated.account.strict else None
        if weak is not None:
            return weak
    authorization = _checked(
        tx,
        service,
        authenticated.client,
        authenticated.account,
        Parameters(parameters, sent.resources),
        pushed=True,
    )
    if isinstance(authorization, _InvalidRequest):
        return authorization.refusal
    replayed = dpop.use(tx, authenticated.client.id, proof) if proof is not None else None
    if replayed is not None:
        return replayed
    return _to_store(parameters, authorization)


def _to_store(parameters: dict[str, str], checked: Authorization) -> Parameters:
    """What is kept of a pushed request: known parameters, lists without repetitions, no credentials."""
    stored = {name: parameters[name] for name in request.PARAMETERS if name in parameters}
    lists = {"scope": checked.scope, "prompt": checked.prompt}
    stored |= {name: " ".join(values) for name, values in lists.items() if name in stored}
    return Parameters(stored, tuple(checked.resources))


def _pushed_id(name: str) -> bytes:
    return hashlib.sha256(b"pushed\0" + name.encode("utf-8", "surrogatepass")).digest()


def _later(tx: Tx, seconds: int) -> datetime:
    return tx.at + timedelta(seconds=seconds)


# --- opening


class _InvalidRequest(NamedTuple):
    """A refusal, and where it may be sent, if anywhere."""

    refusal: Refusal
    to: Authorization | None


def begin(
    tx: Tx, service: Service, sent: Parameters, visit: Visit | None
) -> LoginRedirect | ValidRequest | ClientRedirect | Refusal:
    """A browser comes with a request: it goes on to the login application, or back to the client with an error.

    Without a visit the request is only checked.
    """
    client = client_rows.load(tx, sent.parameters.get("client_id", ""))
    account = account_rows.load(tx, client.account) if client else None
    if client is None or account is None or not account.active or not client.active:
        return Refusal("invalid_request", "client_id: no such client", "client_id")
    pushed: bytes | None = None
    if "request_uri" in sent.parameters:
        name = sent.parameters["request_uri"].removeprefix(PUSHED_PREFIX)
        pushed = _pushed_id(name)
        kept = pushed_requests.load(tx, account.id, pushed, client.id, service.keys.data)
        if kept is None or not sent.parameters["request_uri"].startswith(PUSHED_PREFIX):
            words = "request_uri: unknown, expired, used, or of another client; push the request again"
            return Refusal("invalid_request", words, "request_uri")
        parameters, resources = msgspec.json.decode(kept)
        if "request" in sent.parameters:  # OIDC Core 1.0, section 6: never both
            parameters["request"] = sent.parameters["request"]
        sent = Parameters(parameters, tuple(resources))
    checked = _checked(tx, service, client, account, sent, pushed=pushed is not None)
    if isinstance(checked, _InvalidRequest):
        return checked.refusal if checked.to is None else error_redirect(service, checked.to, checked.refusal)
    if not account["login_url"] or not account["login_jwks"]:
        words = "the account has no login application: set login_url and login_jwks (gatepost account set)"
        return error_redirect(service, checked, Refusal("server_error", words))
    if visit is None:
        return ValidRequest(account["login_url"])
    opened = Interaction(
        account.id, ids.new("int"), client.id, visit.browser, pushed, _encode(checked), tx.at + INTERACTION_LIFE
    )  # fmt: skip
    _open(tx, service, opened, visit)
    claims = handoff.interaction(
        checked, client, interaction=opened.id, descriptions=_descriptions(tx, service, account, checked),
        base_url=service.base_url, login_url=account["login_url"], at=tx.at,
    )  # fmt: skip
    return LoginRedirect(account["login_url"], claims, service.active_key(tx, account["signing_alg"]), checked)


def _open(tx: Tx, service: Service, opened: Interaction, visit: Visit) -> None:
    """Store an interaction. Where there are too many, the oldest make room."""
    network = refusals.network(visit.source)
    interactions.add(tx, opened, network, service.keys.data, first_visit=visit.first)
    if not visit.first:
        interactions.evict_of_browser(tx, opened.account, opened.browser, MAX_PER_BROWSER)
    most = MAX_FIRST_VISITS if visit.first else MAX_RETURNING
    interactions.evict(tx, opened.account, opened.client, network, most, first_visit=visit.first)


def _checked(
    tx: Tx, service: Service, client: Client, account: Account, sent: Parameters, *, pushed: bool
) -> Authorization | _InvalidRequest:
    to = request.addressee(sent.parameters, client)
    if isinstance(to, Refusal):
        return _InvalidRequest(to, None)
    if sent.repeated:
        return _InvalidRequest(
            Refusal("invalid_request", f"{sent.repeated[:64]}: sent more than once", sent.repeated[:64]), to
        )
    hint = _hint(tx, service, client, sent.parameters.get("id_token_hint", ""))
    asked = AuthorizationRequest(
        sent.parameters, sent.resources, client, account, service.definitions(tx), pushed, hint
    )
    decided = request.decide(to, asked)
    return _InvalidRequest(decided, to) if isinstance(decided, Refusal) else decided


def _hint(tx: Tx, service: Service, client: Client, token: str) -> str | Refusal:
    """The person whom an ID token of ours, given to this client, is about; it may have expired."""
    if not token:
        return ""
    published = [each.key for each in key_rows.load(tx) if each.key.status in PUBLISHED]
    try:
        claims = service.ring.read(token, published, "JWT")
        account, _, subject = str(claims["sub"]).partition(".")
        right = claims["iss"] == service.base_url and client.id in audiences(claims) and account == client.account
    except (Unreadable, KeyError):
        right = False
    return (
        subject
        if right
        else Refusal("invalid_request", "id_token_hint: not an ID token of this client's", "id_token_hint")
    )


def _descriptions(tx: Tx, service: Service, account: Account, authorization: Authorization) -> dict[str, str]:
    told = dict(scopes.BY_CODE)
    for name in authorization.scope:
        found = service.scope(tx, account.id, name)
        if found is not None:
            told[name] = found.description
    return told


def error_redirect(service: Service, to: Authorization, refusal: Refusal) -> ClientRedirect:
    """An error for the client: RFC 6749, section 4.1.2.1; RFC 9207, section 2."""
    return _back(service, to, {"error": refusal.code, "error_description": refusal.detail})


def _back(service: Service, to: Authorization, parameters: dict[str, str]) -> ClientRedirect:
    state = {"state": to.state} if to.state is not None else {}
    return ClientRedirect(
        to, {name: value for name, value in parameters.items() if value} | state | {"iss": service.base_url}
    )


# --- coming back from the login application


def finish(
    tx: Tx, service: Service, token: str, browser: bytes, request_id: str, source: str
) -> ClientRedirect | Refusal:
    """A browser comes back with a handoff. What is wrong with that is said here, and nobody is redirected."""
    _, unverified = peek(token)
    whose, name = str(unverified.get("iss")), str(unverified.get("interaction"))
    account = account_rows.load(tx, whose) if ids.parse("acc", whose) else None
    opened = interactions.load(tx, account.id, name, service.keys.data) if account else None
    if account is None or not account.active or opened is None:
        return _bad("no such interaction of this account, or it is over; start again at the application")
    if opened.done_at is not None or tx.at >= opened.expires_at:
        return _bad("the interaction is over: used or expired; start again at the application")
    if browser and not same(opened.browser, browser):
        return _bad("the interaction was begun in another browser")
    try:
        keys = login_keys(tx, service, account, token)
        claims = read(token, keys, algorithms=ASSERTION_ALGORITHMS, typ=(HANDOFF_TYPE,))
        problem = handoff.signed_by(claims, account=account.id, base_url=service.base_url, at=tx.at)
        if problem is not None:
            return problem
        authorization = _authorization.decode(opened.request)
        asked_at = ids.made_at(ids.raw(opened.id))
        outcome = handoff.check(claims, authorization, asked_at=asked_at, at=tx.at)
    except Unreadable as error:
        return _bad(f"it cannot be verified with a key of the account's login_jwks ({error})")
    if isinstance(outcome, Refusal):
        return outcome
    if not browser and authorization.prompt != ["none"]:
        return _bad("this browser began no authorization here, or keeps no cookie; a frame of another site does not")
    if not browser:  # such a frame: the client learns no more than that
        outcome = Denied("login_required", "the browser keeps no cookie here, as in a frame of another site")
    return _end(tx, service, account, opened, authorization, outcome, Origin("login application", request_id, source))


def _end(
    tx: Tx, service: Service, account: Account, opened: Interaction, authorization: Authorization,
    outcome: Granted | Denied, origin: Origin,
) -> ClientRedirect | Refusal:  # fmt: skip
    client = client_rows.load(tx, opened.client)
    if client is None or not client.active:
        return _bad("the client is not active any more")
    if not any(redirect_uris.matches(authorization.redirect_uri, each) for each in client.redirect_uris):
        return _bad("the redirect URI is not the client's any more")  # so neither a code nor an error goes there
    if isinstance(outcome, Granted):
        outcome = _still_allowed(tx, service, account, client, outcome)
    if not interactions.finish(tx, account.id, opened.id):
        raise Again("the interaction ended meanwhile")
    if opened.pushed is not None and not _spend_pushed(tx, account, client, opened.pushed):
        outcome = Denied("invalid_request", "request_uri: its authorization was completed before")
    if isinstance(outcome, Denied):  # without its words, which are the login application's: they may name somebody
        data = {"client": client.id, "error": outcome.code}
        record(tx, account, "oauth.consent.refused", origin, opened.id, data)
        return _back(service, authorization, {"error": outcome.code, "error_description": outcome.description})
    return _back(
        service, authorization, {"code": _consent(tx, service, account, client, authorization, outcome, origin)}
    )


def _spend_pushed(tx: Tx, account: Account, client: Client, pushed: bytes) -> bool:
    """True for the first authorization that completes. The request itself may have expired or made room by then."""
    pushed_requests.delete(tx, account.id, pushed)
    until = _later(tx, PUSHED_LIFE) + INTERACTION_LIFE  # no interaction of this request is open any longer
    return used_assertions.use(tx, client.id, "pushed request", pushed.hex(), until)


def _still_allowed(tx: Tx, service: Service, account: Account, client: Client, granted: Granted) -> Granted | Denied:
    """The definitions may have changed since the request was opened."""
    grant = client.grant("authorization_code")
    if grant is None:
        return Denied("unauthorized_client", "the client was changed meanwhile")
    for name in granted.details.scope:
        found = service.scope(tx, account.id, name)
        active = name in scopes.BY_CODE or (found is not None and found.status == "active")
        if name not in grant.scopes or not active:
            return Denied("invalid_scope", f"scope: {name} is not granted any more")
    return granted


def _consent(
    tx: Tx, service: Service, account: Account, client: Client, authorization: Authorization, granted: Granted,
    origin: Origin,
) -> str:  # fmt: skip
    """The consent, and the code that it is redeemed by."""
    details, box = granted.details, service.keys.data
    life = account.seconds("authorization_code_lifetime")
    expires_at = _later(tx, min(life, STRICT_CODE_LIFE) if account.strict else life)
    lasts = account.seconds("refresh_token_max_age") if scopes.OFFLINE in details.scope else 0
    consent = Consent(
        ids.new("con"), account.id, client.id, details, tx.at, _later(tx, life + lasts) + LONGEST_ACCESS
    )  # fmt: skip
    consent_rows.add(tx, consent, person(service, account.id, details.subject), box)
    code = random_text()
    bound = CodeBinding(
        authorization.redirect_uri, authorization.challenge, authorization.thumbprint, authorization.nonce
    )
    codes.add(tx, account.id, code_id(code), Code(client.id, consent.id, _encode(bound).decode(), expires_at))
    data = {"client": client.id, "scope": " ".join(details.scope)}
    record(tx, account, "oauth.consent.given", origin, consent.id, data)
    return code


def _bad(detail: str) -> Refusal:
    return Refusal("invalid_request", f"handoff: {detail}", "handoff")
