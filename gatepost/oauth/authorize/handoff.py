"""The two signed JWTs that pass through the browser: the interaction that Gatepost sends, and the handoff in return.

Pure: the claims of an interaction, and the checks of a handoff whose signature was verified.
"""

import re
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.core.jose import CLOCK_SKEW, InvalidJwt, audiences, is_time_valid, numeric_date
from gatepost.oauth import scopes
from gatepost.oauth.authorize.request import Authorization
from gatepost.oauth.clients import Client
from gatepost.oauth.consents import ConsentDetails
from gatepost.oauth.scopes import PROTOCOL_CLAIMS

INTERACTION_TYPE = "gatepost-interaction+jwt"
HANDOFF_TYPE = "gatepost-handoff+jwt"
REVOKE_TYPE = "gatepost-revoke+jwt"
INTERACTION_LIFE = timedelta(minutes=10)
HANDOFF_LIFE = 300  # the longest lifetime, in seconds
MAX_INTERACTION = 6 * 1024
MAX_HANDOFF = 8 * 1024
_encode = msgspec.json.Encoder().encode

# The errors that the login application may return. OIDC Core 1.0, section 3.1.2.6, and RFC 6749.
ERRORS = (
    "access_denied", "login_required", "consent_required", "interaction_required", "account_selection_required",
    "unmet_authentication_requirements", "temporarily_unavailable",
)  # fmt: skip


class Granted(NamedTuple):
    """The person gave consent."""

    details: ConsentDetails


class Denied(NamedTuple):
    """The authorization ends with this error for the client."""

    code: str
    description: str


def interaction_claims(
    authorization: Authorization, client: Client, *, interaction: str, descriptions: dict[str, str], base_url: str,
    login_url: str, at: datetime,
) -> dict[str, Any]:  # fmt: skip
    """The claims of the interaction, which the login application reads."""
    requested = {
        "prompt": " ".join(authorization.prompt),
        "sub": authorization.hint,
        "max_age": authorization.max_age,
        "login_hint": authorization.login_hint,
        "acr_values": authorization.acr_values,
        "ui_locales": authorization.ui_locales,
        "display": authorization.display,
        "claims": authorization.claims,
    }
    return {
        "iss": base_url,
        "aud": login_url,
        "jti": interaction,
        "iat": clock.seconds(at),
        "exp": clock.seconds(at + INTERACTION_LIFE),
        "account": client.account,
        "client_id": client.id,
        "client_name": client.client_name or client.id,
        "scopes": [{"name": name, "description": descriptions.get(name, "")} for name in authorization.scope],
        **{name: value for name, value in requested.items() if value not in (None, "")},
    }


def shortened(claims: dict[str, Any], max_bytes: int) -> dict[str, Any] | None:
    """The claims of an interaction with as many descriptions of scopes as fit; None if they do not fit without any.

    The longest descriptions are left out first. The names of the scopes always remain.
    """
    described = list(claims["scopes"])
    claims = claims | {"scopes": described}
    excess = len(_encode(claims)) - max_bytes
    sizes = [len(_encode(scope["description"])) - len('""') for scope in described]
    for index in sorted(range(len(described)), key=sizes.__getitem__, reverse=True):
        if excess <= 0:
            break
        described[index] = described[index] | {"description": ""}
        excess -= sizes[index]
    return claims if excess <= 0 else None


def envelope_problem(claims: dict[str, Any], *, account: str, base_url: str, at: datetime) -> str:
    """What is wrong with the issuer, audience, times or id of a verified JWT of the login application; or empty."""
    issued, expires = numeric_date(claims, "iat"), numeric_date(claims, "exp")
    if claims.get("iss") != account:
        return "iss must be the account's id"
    if audiences(claims) != [base_url]:
        return f"aud must be {base_url}"
    if not is_time_valid(claims, at) or issued is None or expires is None:
        return "it is expired or not yet valid; it needs iat and exp"
    if expires - issued > HANDOFF_LIFE or expires > at.timestamp() + HANDOFF_LIFE + CLOCK_SKEW.total_seconds():
        return "its lifetime must be at most 5 minutes"
    if not isinstance(claims.get("jti"), str) or not claims["jti"]:
        return "jti is missing"
    return ""


def check(
    claims: dict[str, Any], authorization: Authorization, *, started_at: datetime, at: datetime
) -> Granted | Denied | Refusal:
    """The result of the handoff. A refusal is an error of the login application, so nothing is sent to the client."""
    if "error" in claims:
        if claims["error"] not in ERRORS or "sub" in claims:
            return invalid_handoff(f"error must be one of {', '.join(ERRORS)}, in place of sub")
        description = claims.get("error_description")
        return Denied(claims["error"], description[:500] if isinstance(description, str) else "")
    details = _details(claims, at)
    if isinstance(details, Refusal):
        return details
    beyond = scopes.first_beyond(details.scope, authorization.scope)
    if beyond is not None:
        return invalid_handoff(f"scope: {scopes.problem_with(beyond, 'was not requested')}")
    if not details.scope:
        return invalid_handoff("scope: must name the scopes that were granted")
    if details.scope == [scopes.OFFLINE]:
        return invalid_handoff("scope: offline_access alone gives no access")
    denied = _unmet_requirement(details, authorization, started_at)
    if denied is not None:
        return denied
    requested = authorization.claims or {}
    return Granted(
        msgspec.structs.replace(
            details, refused=[name for name in authorization.scope if name not in details.scope],
            resources=authorization.resources, userinfo=list(requested.get("userinfo", {})),
            id_token=list(requested.get("id_token", {})),
        )
    )  # fmt: skip


def _details(claims: dict[str, Any], at: datetime) -> ConsentDetails | Refusal:
    subject, extra = claims.get("sub"), claims.get("claims", {})
    if not isinstance(subject, str) or not re.fullmatch(r"[ -~]{1,200}", subject):
        return invalid_handoff("sub must be 1 to 200 printable ASCII characters")
    if subject.startswith(f"{claims.get('iss')}."):  # a revocation may name the person with this prefix
        return invalid_handoff("sub must not begin with the account's id; tokens get this prefix by themselves")
    if not isinstance(claims.get("scope"), str):
        return invalid_handoff("scope: must name the scopes that were granted, separated by spaces")
    if not isinstance(extra, dict):
        return invalid_handoff("claims must be an object")
    if any(not 0 < len(name) <= 128 for name in extra):
        return invalid_handoff("claims must have names of 1 to 128 characters")
    reserved = sorted(PROTOCOL_CLAIMS.intersection(extra))
    if reserved:
        return invalid_handoff(f"claims must not set protocol claims ({', '.join(reserved)})")
    try:
        auth_time = numeric_date(claims, "auth_time")
    except InvalidJwt:
        auth_time = None
    if auth_time is None or auth_time > (at + CLOCK_SKEW).timestamp():
        return invalid_handoff("auth_time must be the time at which the person was authenticated")
    acr, amr = claims.get("acr"), claims.get("amr", [])
    if acr is not None and not (isinstance(acr, str) and 0 < len(acr) <= 256):
        return invalid_handoff("acr must be a string of 1 to 256 characters")
    if (
        not isinstance(amr, list)
        or not all(isinstance(value, str) and len(value) <= 64 for value in amr)
        or len(amr) > 20
    ):
        return invalid_handoff("amr must be a list of at most 20 strings of at most 64 characters")
    return ConsentDetails(
        subject, scopes.split(claims["scope"]), auth_time=int(auth_time), acr=acr, amr=amr, claims=extra
    )


def _unmet_requirement(details: ConsentDetails, authorization: Authorization, started_at: datetime) -> Denied | None:
    """The first requirement of the request that is not met. OIDC Core 1.0, sections 3.1.2.1 and 5.5.1.1."""
    started = clock.seconds(started_at)
    if "login" in authorization.prompt and details.auth_time < started - CLOCK_SKEW.total_seconds():
        return Denied("login_required", "prompt=login: the person was not authenticated again")
    if authorization.max_age is not None and details.auth_time < started - authorization.max_age:
        return Denied("login_required", "max_age: the person was authenticated too long ago")
    if authorization.hint and details.subject != authorization.hint:
        return Denied("login_required", "id_token_hint or claims: another person was authenticated")
    requested = (authorization.claims or {}).get("id_token", {}).get("acr") or {}
    if requested.get("essential") is True:
        values = [*requested.get("values", ()), *([requested["value"]] if "value" in requested else [])]
        if details.acr is None or (requested.keys() & {"value", "values"} and details.acr not in values):
            return Denied("unmet_authentication_requirements", "acr: is not one of the values that the client requires")
    return None


def invalid_handoff(detail: str) -> Refusal:
    """The refusal of a handoff that is not valid."""
    return Refusal("invalid_request", f"handoff: {detail}", "handoff")
