"""The authorization request: an ordered table of small pure checks, each of which reads one part of it or refuses.

What comes before a redirect URI is trusted is `addressee`; every refusal after it may be sent there.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.core.jose import peek
from gatepost.core.strict_json import read_json
from gatepost.oauth import redirect_uris, scopes
from gatepost.oauth.clients import Client
from gatepost.oauth.dpop import is_thumbprint
from gatepost.oauth.pkce import CHALLENGE
from gatepost.oauth.scopes import Scope

RESPONSE_MODES = ("query", "form_post")
PROMPTS = ("none", "login", "consent", "select_account")
DISPLAYS = ("page", "popup", "touch", "wap")
# Passed on to the login application as they are, up to so many characters.
PASSED_ON = {"login_hint": 512, "acr_values": 512, "ui_locales": 256}
LONGEST = {"state": 2048, "nonce": 512, "claims": 4096, "id_token_hint": 8192} | PASSED_ON


# All that the checks read, but for what they refuse. Of a pushed request only these are stored.
PARAMETERS = (
    "client_id", "redirect_uri", "response_type", "response_mode", "state", "scope", "code_challenge",
    "code_challenge_method", "nonce", "dpop_jkt", "prompt", "max_age", "display", "claims", "id_token_hint", *PASSED_ON,
)  # fmt: skip


class Definitions(Protocol):
    def scope(self, account: str, name: str) -> Scope | None: ...


class AuthorizationRequest(NamedTuple):
    """What was sent, and what is known about it."""

    parameters: dict[str, str]
    resources: tuple[str, ...]
    client: Client
    account: Account
    definitions: Definitions
    pushed: bool = False
    hint: str | Refusal = ""  # the person an id_token_hint names

    def get(self, name: str) -> str:
        return self.parameters.get(name, "")


class Authorization(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that is in order, as it is kept until the login application answers."""

    redirect_uri: str
    response_mode: str = "query"
    state: str | None = None
    scope: list[str] = []
    resources: list[str] = []
    challenge: str = ""
    thumbprint: str = ""
    nonce: str | None = None
    prompt: list[str] = []
    max_age: int | None = None
    display: str | None = None
    login_hint: str | None = None
    acr_values: str | None = None
    ui_locales: str | None = None
    claims: dict[str, Any] | None = None
    hint: str = ""


Check = Callable[[Authorization, AuthorizationRequest], Authorization | Refusal]


def addressee(parameters: dict[str, str], client: Client | None) -> Authorization | Refusal:
    """Where the answer goes. Until this holds nothing is sent anywhere: RFC 6749, section 4.1.2.1."""
    if client is None or not client.active:
        return Refusal("invalid_request", "client_id: no such client", "client_id")
    sent = parameters.get("redirect_uri")
    if sent is None:
        return Refusal("invalid_request", "redirect_uri: missing", "redirect_uri")
    if not any(redirect_uris.matches(sent, each) for each in client.redirect_uris):
        return Refusal("invalid_request", "redirect_uri: not one of the client's", "redirect_uri")
    state = parameters.get("state")
    return Authorization(sent, _response_mode(parameters), None if state is None else state[:2048])


def _response_mode(parameters: dict[str, str]) -> str:
    """How the answer is sent. The refusal of a request object is sent the way that the object asks for.

    OIDC Core 1.0, section 6.1, lets a client put `response_mode` into the object alone. Nothing else of it is read.
    """
    mode: Any = parameters.get("response_mode")
    if mode is None and "request" in parameters:
        mode = peek(parameters["request"])[1].get("response_mode")
    return mode if mode in RESPONSE_MODES else "query"


def decide(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    for check in CHECKS:
        outcome = check(authorization, request)
        if isinstance(outcome, Refusal):
            return msgspec.structs.replace(outcome, rule=check.__name__)
        authorization = outcome
    return authorization


def parameters_are_of_a_size(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """No parameter is longer than anybody needs."""
    for name, limit in LONGEST.items():
        if len(request.get(name)) > limit:
            return _bad(name, f"may have at most {limit} characters")
    return authorization


def request_objects_are_left_out(
    authorization: Authorization, request: AuthorizationRequest
) -> Authorization | Refusal:
    """Requests come as parameters or pushed; signed request objects are not taken. OIDC Core 1.0, section 6."""
    if request.get("request"):
        return Refusal("request_not_supported", "request: request objects are not taken; push the request", "request")
    if request.get("request_uri"):  # RFC 9126, section 2.1: not inside a pushed request either
        return Refusal("invalid_request", "request_uri: must not be pushed", "request_uri")
    if request.get("registration"):
        return Refusal("registration_not_supported", "registration: clients are registered before", "registration")
    return authorization


def response_is_a_code(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The one response type there is. OAuth 2.1 has no implicit grant."""
    if not request.get("response_type"):
        return _bad("response_type", "missing; must be code")
    if request.get("response_type") != "code":
        return Refusal("unsupported_response_type", "response_type: must be code", "response_type")
    return authorization


def response_mode_is_known(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """Query, or the form of OAuth 2.0 Form Post Response Mode."""
    if request.get("response_mode") not in ("", *RESPONSE_MODES):
        return _bad("response_mode", f"must be one of {', '.join(RESPONSE_MODES)}")
    return authorization


def client_may_ask(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The client has an active grant for codes."""
    if request.client.grant("authorization_code") is None:
        return Refusal("unauthorized_client", "this client has no active authorization_code grant")
    return authorization


def is_pushed_where_it_must_be(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """Under fapi2 only pushed requests are taken."""
    if request.account.strict and not request.pushed:
        return _bad("request_uri", "push the request first (PAR): the account's profile is fapi2")
    return authorization


def challenge_is_there(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """PKCE with S256, RFC 7636. A client with `require_pkce: false` sends a nonce instead, unless excused too."""
    challenge, method = request.get("code_challenge"), request.get("code_challenge_method")
    if challenge or method:
        if method != "S256":  # left out it would mean plain
            return _bad("code_challenge_method", "must be S256")
        if not CHALLENGE.fullmatch(challenge):
            return _bad("code_challenge", "must be the base64url of a SHA-256 hash, 43 characters")
    elif request.client.require_pkce or request.account.strict:
        return _bad("code_challenge", "missing: PKCE is required")
    elif request.client.require_nonce and not request.get("nonce"):
        return _bad("nonce", "needed where there is no code_challenge, unless the client's require_nonce is false")
    return msgspec.structs.replace(authorization, challenge=challenge, nonce=request.parameters.get("nonce"))


def scopes_are_granted(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """Every scope is named, in the client's grant, and active: nothing is silently left out."""
    names = scopes.split(request.get("scope"))
    if not names:
        return _scope("name the scopes you want; there is no default")
    grant = request.client.grant("authorization_code")
    for name in names:
        if grant is None or name not in grant.scopes:
            return _scope(f"{name[:128]} is not in the client's grant")
        found = request.definitions.scope(request.account.id, name) if name not in scopes.BY_CODE else None
        if name not in scopes.BY_CODE and (found is None or found.status != "active"):
            return _scope(f"{name} is not an active scope of the account")
    if names == [scopes.OFFLINE]:
        return _scope("offline_access alone opens nothing")
    return msgspec.structs.replace(authorization, scope=names)


def resources_fit(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """Each `resource` named is that of a scope asked for. RFC 8707, section 2.1."""
    offered = set()
    for name in authorization.scope:
        found = request.definitions.scope(request.account.id, name) if name not in scopes.BY_CODE else None
        if found is not None:
            offered.add(found.resource)
    for resource in request.resources:
        if resource not in offered:
            return Refusal("invalid_target", "resource: none of the scopes asked for is of this resource", "resource")
    return msgspec.structs.replace(authorization, resources=list(dict.fromkeys(request.resources)))


def key_is_named_right(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """`dpop_jkt` binds the code to a key. RFC 9449, section 10."""
    if request.get("dpop_jkt") and not is_thumbprint(request.get("dpop_jkt")):
        return _bad("dpop_jkt", "must be a JWK SHA-256 thumbprint, 43 characters")
    return msgspec.structs.replace(authorization, thumbprint=request.get("dpop_jkt"))


def prompt_is_known(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """OIDC Core 1.0, section 3.1.2.1: `none` stands alone."""
    prompt = scopes.split(request.get("prompt"))
    if any(each not in PROMPTS for each in prompt):
        return _bad("prompt", f"must be of {', '.join(PROMPTS)}")
    if "none" in prompt and len(prompt) > 1:
        return _bad("prompt", "none stands alone")
    return msgspec.structs.replace(authorization, prompt=prompt)


def max_age_is_a_number(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """Seconds since the person last gave proof of who they are."""
    text = request.get("max_age")
    if text and not re.fullmatch(r"[0-9]{1,9}", text):
        return _bad("max_age", "must be a whole number of seconds")
    return msgspec.structs.replace(authorization, max_age=int(text) if text else None)


def claims_are_readable(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The `claims` parameter, OIDC Core 1.0 section 5.5."""
    if not request.get("claims"):
        return authorization
    found = read_json(request.get("claims").encode("utf-8", "surrogatepass"))
    claims = found.value if not isinstance(found, Refusal) else None
    if not isinstance(claims, dict):
        return _bad("claims", "must be a JSON object")
    for place in ("userinfo", "id_token"):
        wanted = claims.get(place, {})
        right = isinstance(wanted, dict) and all(each is None or isinstance(each, dict) for each in wanted.values())
        if not right or len(wanted) > 50:
            return _bad("claims", f"{place} must be an object of claim names, each null or an object")
    kept = {place: claims[place] for place in ("userinfo", "id_token") if place in claims}
    return msgspec.structs.replace(authorization, claims=kept or None)


def hint_is_valid(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """An `id_token_hint` is an ID token of Gatepost for this client, expired or not; `claims` may name a `sub` too."""
    if isinstance(request.hint, Refusal):
        return request.hint
    hint = request.hint
    named = ((authorization.claims or {}).get("id_token", {}).get("sub") or {}).get("value")
    if named is not None:  # OIDC Core 1.0, section 3.1.2.2: then it is this person or nobody
        account, _, person = str(named).partition(".")
        if account != request.account.id or not person or hint not in ("", person):
            return _bad("claims", "sub is not that of a person of the account, or not that of the id_token_hint")
        hint = person
    return msgspec.structs.replace(authorization, hint=hint)


def rest_is_passed_on(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """What only the login application understands."""
    if request.get("display") not in ("", *DISPLAYS):
        return _bad("display", f"must be one of {', '.join(DISPLAYS)}")
    told = {name: request.parameters.get(name) for name in (*PASSED_ON, "display")}
    return msgspec.structs.replace(authorization, **told)


CHECKS: tuple[Check, ...] = (
    parameters_are_of_a_size,
    request_objects_are_left_out,
    response_is_a_code,
    response_mode_is_known,
    client_may_ask,
    is_pushed_where_it_must_be,
    challenge_is_there,
    scopes_are_granted,
    resources_fit,
    key_is_named_right,
    prompt_is_known,
    max_age_is_a_number,
    claims_are_readable,
    hint_is_valid,
    rest_is_passed_on,
)


def _bad(name: str, detail: str) -> Refusal:
    return Refusal("invalid_request", f"{name}: {detail}", name)


def _scope(detail: str) -> Refusal:
    return Refusal("invalid_scope", f"scope: {detail}", "scope")
