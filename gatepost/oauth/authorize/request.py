"""The authorization request: an ordered table of pure checks, each of which reads one part of it or refuses it.

Until `redirect_target` has accepted the redirect URI, errors go to the browser alone. Later errors go to the client.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.core.jose import decode_unverified
from gatepost.core.strict_json import read_json
from gatepost.oauth import redirect_uris, scopes
from gatepost.oauth.clients import Client
from gatepost.oauth.dpop import is_thumbprint
from gatepost.oauth.pkce import CHALLENGE
from gatepost.oauth.scopes import PROTOCOL_SCOPES, Scope
from gatepost.oauth.token_rules import Definitions

RESPONSE_MODES = ("query", "form_post")
PROMPTS = ("none", "login", "consent", "select_account")
DISPLAYS = ("page", "popup", "touch", "wap")
# Parameters that are forwarded to the login application unchanged, with their maximum lengths.
FORWARDED = {"login_hint": 512, "acr_values": 512, "ui_locales": 256}
MAX_LENGTHS = {"state": 2048, "nonce": 512, "claims": 4096, "id_token_hint": 8192} | FORWARDED

# Every parameter that a check accepts. No other parameters of a pushed request are stored.
PARAMETERS = (
    "client_id", "redirect_uri", "response_type", "response_mode", "state", "scope", "code_challenge",
    "code_challenge_method", "nonce", "dpop_jkt", "prompt", "max_age", "display", "claims", "id_token_hint", *FORWARDED,
)  # fmt: skip


class AuthorizationRequest(NamedTuple):
    """The parameters of a request, and the definitions that the checks compare them with."""

    parameters: dict[str, str]
    resources: tuple[str, ...]
    client: Client
    account: Account
    definitions: Definitions
    pushed: bool = False
    hint: str | Refusal = ""  # the subject of the id_token_hint

    def get(self, name: str) -> str:
        return self.parameters.get(name, "")

    def scope(self, name: str) -> Scope | None:
        """The definition of a scope; None if the account has none, or for a scope of the protocol."""
        return None if name in PROTOCOL_SCOPES else self.definitions.scope(self.account.id, name)


class Authorization(Struct, frozen=True, omit_defaults=True):
    """A valid request, as it is stored until the login application responds."""

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


def redirect_target(parameters: dict[str, str], client: Client | None) -> Authorization | Refusal:
    """Where the response goes. RFC 6749, section 4.1.2.1: an invalid redirect URI is never redirected to."""
    if client is None or not client.active:
        return _invalid("client_id", "no such client")
    redirect_uri = parameters.get("redirect_uri")
    if redirect_uri is None:
        return _invalid("redirect_uri", "missing")
    if not any(redirect_uris.matches(redirect_uri, registered) for registered in client.redirect_uris):
        return _invalid("redirect_uri", "is not registered for this client")
    return Authorization(redirect_uri, _response_mode(parameters), parameters.get("state"))


def _response_mode(parameters: dict[str, str]) -> str:
    """The response mode. The refusal of a request object uses the `response_mode` in that object.

    OIDC Core 1.0, section 6.1: a client may send `response_mode` in the object alone. No other member is read.
    """
    mode: Any = parameters.get("response_mode")
    if mode is None and "request" in parameters:
        mode = decode_unverified(parameters["request"])[1].get("response_mode")
    return mode if mode in RESPONSE_MODES else "query"


def decide(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The authorization that the last check returned, or the first refusal, with the name of its check."""
    for check in CHECKS:
        outcome = check(authorization, request)
        if isinstance(outcome, Refusal):
            return replace(outcome, rule=check.__name__)
        authorization = outcome
    return authorization


def parameters_are_of_a_size(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """No parameter exceeds its maximum length."""
    for name, limit in MAX_LENGTHS.items():
        if len(request.get(name)) > limit:
            return _invalid(name, f"must have at most {limit} characters")
    return authorization


def request_objects_are_left_out(
    authorization: Authorization, request: AuthorizationRequest
) -> Authorization | Refusal:
    """The request is sent as parameters or pushed: request objects are not supported. OIDC Core 1.0, section 6."""
    if request.get("request"):
        detail = "request: request objects are not supported; send parameters or push the request"
        return Refusal("request_not_supported", detail, "request")
    if request.get("request_uri"):  # RFC 9126, section 2.1: not inside a pushed request either
        return _invalid("request_uri", "must not be pushed")
    if request.get("registration"):
        detail = "registration: register the client before it sends requests"
        return Refusal("registration_not_supported", detail, "registration")
    return authorization


def response_is_a_code(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The response type is `code`. OAuth 2.1 has no implicit grant."""
    if not request.get("response_type"):
        return _invalid("response_type", "missing; must be code")
    if request.get("response_type") != "code":
        return Refusal("unsupported_response_type", "response_type: must be code", "response_type")
    return authorization


def response_mode_is_known(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The response mode is `query` or `form_post` (OAuth 2.0 Form Post Response Mode)."""
    if request.get("response_mode") not in ("", *RESPONSE_MODES):
        return _invalid("response_mode", f"must be one of {', '.join(RESPONSE_MODES)}")
    return authorization


def client_may_ask(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The client has an active `authorization_code` grant."""
    if request.client.grant("authorization_code") is None:
        return Refusal("unauthorized_client", "this client has no active authorization_code grant")
    return authorization


def is_pushed_where_it_must_be(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The profile `fapi2` requires a pushed request."""
    if request.account.strict and not request.pushed:
        return _invalid("request_uri", "push the request first (PAR): the account's profile is fapi2")
    return authorization


def challenge_is_there(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """PKCE with S256, RFC 7636; or a nonce, if the client's `require_pkce` is false and its `require_nonce` is not."""
    challenge, method = request.get("code_challenge"), request.get("code_challenge_method")
    if challenge or method:
        if method != "S256":  # without the parameter, the method would be plain
            return _invalid("code_challenge_method", "must be S256")
        if not CHALLENGE.fullmatch(challenge):
            return _invalid("code_challenge", "must be a SHA-256 hash in base64url, 43 characters")
    elif request.client.require_pkce or request.account.strict:
        return _invalid("code_challenge", "missing: PKCE is required")
    elif request.client.require_nonce and not request.get("nonce"):
        return _invalid("nonce", "required without a code_challenge, unless the client's require_nonce is false")
    return replace(authorization, challenge=challenge, nonce=request.parameters.get("nonce"))


def scopes_are_granted(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The request names its scopes, and each of them is in the client's grant and active."""
    names = scopes.split(request.get("scope"))
    if not names:
        return _invalid_scope("name the scopes you want; there is no default")
    grant = request.client.grant("authorization_code")
    beyond = scopes.first_beyond(names, grant.scopes if grant else ())
    if beyond is not None:
        return _invalid_scope(scopes.problem_with(beyond, "is not in the client's grant"))
    for name in names:
        scope = request.scope(name)
        if name not in PROTOCOL_SCOPES and (scope is None or scope.status != "active"):
            return _invalid_scope(f"{name} is not an active scope of the account")
    if names == [scopes.OFFLINE]:
        return _invalid_scope("offline_access alone gives no access")
    return replace(authorization, scope=names)


def resources_fit(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """Every `resource` is the resource of a requested scope. RFC 8707, section 2.1."""
    offered = {scope.resource for name in authorization.scope if (scope := request.scope(name))}
    if not offered.issuperset(request.resources):
        return Refusal("invalid_target", "resource: none of the requested scopes belongs to this resource", "resource")
    return replace(authorization, resources=list(dict.fromkeys(request.resources)))


def key_is_named_right(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """`dpop_jkt`, which binds the code to a key, is a JWK thumbprint. RFC 9449, section 10."""
    thumbprint = request.get("dpop_jkt")
    if thumbprint and not is_thumbprint(thumbprint):
        return _invalid("dpop_jkt", "must be a JWK SHA-256 thumbprint, 43 characters")
    return replace(authorization, thumbprint=thumbprint)


def prompt_is_known(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """Every value of `prompt` is known, and `none` is the only value if it is sent. OIDC Core 1.0, section 3.1.2.1."""
    prompt = scopes.split(request.get("prompt"))
    if not set(prompt).issubset(PROMPTS):
        return _invalid("prompt", f"must have only the values {', '.join(PROMPTS)}")
    if "none" in prompt and len(prompt) > 1:
        return _invalid("prompt", "none must be the only value")
    return replace(authorization, prompt=prompt)


def max_age_is_a_number(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """`max_age`, the allowed time since the person was authenticated, is a number of seconds."""
    text = request.get("max_age")
    if text and not re.fullmatch(r"[0-9]{1,9}", text):
        return _invalid("max_age", "must be a whole number of seconds")
    return replace(authorization, max_age=int(text) if text else None)


def claims_are_readable(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """The `claims` parameter is valid. OIDC Core 1.0, section 5.5."""
    if not request.get("claims"):
        return authorization
    parsed = read_json(request.get("claims").encode("utf-8", "surrogatepass"))
    claims = None if isinstance(parsed, Refusal) else parsed.value
    if not isinstance(claims, dict):
        return _invalid("claims", "must be a JSON object")
    requested = {place: claims[place] for place in ("userinfo", "id_token") if place in claims}
    for place, members in requested.items():
        if (
            not isinstance(members, dict)
            or len(members) > 50
            or not all(value is None or isinstance(value, dict) for value in members.values())
        ):
            return _invalid("claims", f"{place} must be an object of at most 50 claims, each null or an object")
        for name, value in members.items():
            if value and not (
                isinstance(value.get("essential", False), bool) and isinstance(value.get("values", []), list)
            ):
                return _invalid("claims", f"{name[:128]}: essential must be true or false, and values a list")
    return replace(authorization, claims=requested or None)


def hint_is_valid(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """`id_token_hint` is an ID token that this client got, expired or not, and `claims` names no other `sub`."""
    if isinstance(request.hint, Refusal):
        return request.hint
    hint = request.hint
    requested = ((authorization.claims or {}).get("id_token", {}).get("sub") or {}).get("value")
    if requested is not None:  # OIDC Core 1.0, section 3.1.2.2: only this person may be authenticated
        account, _, person = str(requested).partition(".")
        if account != request.account.id or not person or hint not in ("", person):
            return _invalid("claims", "sub must be that of a person of the account, and of the id_token_hint if sent")
        hint = person
    return replace(authorization, hint=hint)


def rest_is_passed_on(authorization: Authorization, request: AuthorizationRequest) -> Authorization | Refusal:
    """`display` has a known value. It is forwarded with the parameters that only the login application reads."""
    if request.get("display") not in ("", *DISPLAYS):
        return _invalid("display", f"must be one of {', '.join(DISPLAYS)}")
    return replace(authorization, **{name: request.parameters.get(name) for name in (*FORWARDED, "display")})


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


def _invalid(name: str, detail: str) -> Refusal:
    return Refusal("invalid_request", f"{name}: {detail}", name)


def _invalid_scope(detail: str) -> Refusal:
    return Refusal("invalid_scope", f"scope: {detail}", "scope")
