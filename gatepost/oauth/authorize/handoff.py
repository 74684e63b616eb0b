"""The two signed JWTs that pass through the browser: the interaction that we send, and the handoff that comes back.

Pure: what an interaction says, and what a handoff whose signature holds amounts to.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gatepost.core import clock
from gatepost.core.errors import Refusal
from gatepost.core.jose import CLOCK_SKEW, audiences, instant, is_live
from gatepost.oauth import scopes
from gatepost.oauth.authorize.request import Authorization
from gatepost.oauth.clients import Client
from gatepost.oauth.consents import ConsentDetails
from gatepost.oauth.scopes import PROTOCOL_CLAIMS

INTERACTION_TYPE = "gatepost-interaction+jwt"
HANDOFF_TYPE = "gatepost-handoff+jwt"
REVOKE_TYPE = "gatepost-revoke+jwt"
INTERACTION_LIFE = timedelta(minutes=10)
HANDOFF_LIFE = 300  # seconds, at most
MAX_INTERACTION = 6 * 1024
MAX_HANDOFF = 8 * 1024

# What the login application may answer instead of a person. OIDC Core 1.0, section 3.1.2.6, and RFC 6749.
ERRORS = (
    "access_denied", "login_required", "consent_required", "interaction_required", "account_selection_required",
    "unmet_authentication_requirements", "temporarily_unavailable",
)  # fmt: skip


class Granted(NamedTuple):
    details: ConsentDetails


class Denied(NamedTuple):
    """The person or the login application said no: the client is told."""

    code: str
    description: str


def interaction(
    authorization: Authorization, client: Client, *, interaction: str, descriptions: dict[str, str], base_url: str,
    login_url: str, at: datetime,
) -> dict[str, Any]:  # fmt: skip
    """What the login application is told."""
    told: dict[str, Any] = {
        "iss": base_url,
        "aud": login_url,
        "jti": interaction,
        "iat": clock.seconds(at),
        "exp": clock.seconds(at + INTERACTION_LIFE),
        "account": client.account,
        "client_id": client.id,
        "client_name": client.client_name or client.id,
        "scopes": [{"name": name, "description": descriptions.get(name, "")} for name in authorization.scope],
    }
    passed: dict[str, Any] = {
        "prompt": " ".join(authorization.prompt),
        "sub": authorization.hint,
        "max_age": authorization.max_age,
    }
    passed |= {name: getattr(authorization, name) for name in ("login_hint", "acr_values", "ui_locales", "display")}
    passed["claims"] = authorization.claims
    return told | {name: value for name, value in passed.items() if value not in (None, "")}


def signed_by(claims: dict[str, Any], *, account: str, base_url: str, at: datetime) -> Refusal | None:
    """What is wrong with the frame of a JWT from the login application; its signature and type hold."""
    issued, expires = instant(claims, "iat"), instant(claims, "exp")
    if claims.get("iss") != account:
        return _bad("iss must be the account's id")
    if audiences(claims) != [base_url]:
        return _bad(f"aud must be {base_url}")
    if not is_live(claims, at) or issued is None or expires is None:
        return _bad("it is expired or not yet valid; it needs iat and exp")
    if expires - issued > HANDOFF_LIFE or expires > at.timestamp() + HANDOFF_LIFE + CLOCK_SKEW.total_seconds():
        return _bad("it may live for 5 minutes at most")
    if not isinstance(claims.get("jti"), str) or not claims["jti"]:
        return _bad("jti is missing")
    return None


def check(
    claims: dict[str, Any], authorization: Authorization, *, asked_at: datetime, at: datetime
) -> Granted | Denied | Refusal:
    """What the handoff amounts to. A refusal is a fault of the login application's: nobody is redirected."""
    if "error" in claims:
        if claims["error"] not in ERRORS or "sub" in claims:
            return _bad(f"error must be one of {', '.join(ERRORS)}, in place of sub")
        words = claims.get("error_description")
        return Denied(claims["error"], words[:500] if isinstance(words, str) else "")
    details = _details(claims, at)
    if isinstance(details, Refusal):
        return details
    beyond = [name for name in details.scope if name not in authorization.scope]
    if beyond or not details.scope:
        return _bad(f"scope: {beyond[0][:128]} was not asked for" if beyond else "scope: say what was granted")
    if details.scope == [scopes.OFFLINE]:
        return _bad("scope: offline_access alone opens nothing")
    return _denied(details, authorization, asked_at) or Granted(_with_asked(details, authorization))


def _details(claims: dict[str, Any], at: datetime) -> ConsentDetails | Refusal:
    subject, extra = claims.get("sub"), claims.get("claims", {})
    if (
        not isinstance(subject, str)
        or not 0 < len(subject) <= 200
        or not subject.isascii()
        or not subject.isprintable()
    ):
        return _bad("sub must be 1 to 200 printable ASCII characters")
    if not isinstance(claims.get("scope"), str):
        return _bad("scope: say what was granted, as names separated by spaces")
    if not isinstance(extra, dict) or any(not 0 < len(name) <= 128 for name in extra):
        return _bad("claims must be an object")
    taken = sorted(PROTOCOL_CLAIMS.intersection(extra))
    if taken:
        return _bad(f"claims must not set protocol claims ({', '.join(taken)})")
    auth_time = instant(claims, "auth_time")
    if auth_time is None or auth_time > (at + CLOCK_SKEW).timestamp():
        return _bad("auth_time must say when the person was authenticated")
    acr, amr = claims.get("acr"), claims.get("amr", [])
    if acr is not None and not (isinstance(acr, str) and 0 < len(acr) <= 256):
        return _bad("acr must be a text")
    if not isinstance(amr, list) or not all(isinstance(each, str) and len(each) <= 64 for each in amr) or len(amr) > 20:
        return _bad("amr must be a list of texts")
    return ConsentDetails(
        subject, scopes.split(claims["scope"]), auth_time=int(auth_time), acr=acr, amr=amr, claims=extra
    )


def _denied(details: ConsentDetails, authorization: Authorization, asked_at: datetime) -> Denied | None:
    """Where the answer does not meet what the client asked for. OIDC Core 1.0, sections 3.1.2.1 and 5.5.1.1."""
    asked = clock.seconds(asked_at)
    if "login" in authorization.prompt and details.auth_time < asked - CLOCK_SKEW.total_seconds():
        return Denied("login_required", "prompt=login: the person was not asked to authenticate again")
    if authorization.max_age is not None and details.auth_time < asked - authorization.max_age:
        return Denied("login_required", "max_age: the person was authenticated too long ago")
    if authorization.hint and details.subject != authorization.hint:
        return Denied("login_required", "id_token_hint or claims: another person was authenticated")
    wanted = (authorization.claims or {}).get("id_token", {}).get("acr") or {}
    if wanted.get("essential") is True:
        values = wanted.get("values", [wanted["value"]] if "value" in wanted else None)
        if details.acr is None or (isinstance(values, list) and details.acr not in values):
            return Denied("unmet_authentication_requirements", "acr: not one that the client said is essential")
    return None


def _with_asked(details: ConsentDetails, authorization: Authorization) -> ConsentDetails:
    claims = authorization.claims or {}
    return msgspec.structs.replace(
        details, resources=authorization.resources, userinfo=list(claims.get("userinfo", {})),
        id_token=list(claims.get("id_token", {})),
    )  # fmt: skip


def _bad(detail: str) -> Refusal:
    return Refusal("invalid_request", f"handoff: {detail}", "handoff")
