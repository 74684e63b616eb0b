"""GET and POST /oauth/authorize, and POST /oauth/par: browsers pass through without a login page.

Two answers are HTML: the self-posting form of OAuth 2.0 Form Post Response Mode, and `error_page`.
"""

import hashlib
from base64 import b64encode
from html import escape
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from gatepost.core.errors import Refusal
from gatepost.core.secrets import random_text
from gatepost.oauth.authorize import flow
from gatepost.oauth.authorize.flow import (
    ClientRedirect,
    LoginRedirect,
    Parameters,
    ValidRequest,
    Visit,
    error_redirect,
)
from gatepost.oauth.authorize.handoff import INTERACTION_TYPE, MAX_HANDOFF, MAX_INTERACTION
from gatepost.oauth.authorize.request import Authorization
from gatepost.oauth.client_authentication import RefusedRequest
from gatepost.web import bearer
from gatepost.web.context import Context
from gatepost.web.requests import Request, form, parameters
from gatepost.web.responses import NO_STORE, Header, Reply, ascii_text, json, oauth_error
from gatepost.web.tokens import form_of_client, note_failed_authentication, refuse_client

_encode = msgspec.json.Encoder().encode
_SCRIPT: Final = "document.forms[0].submit()"
_SCRIPT_HASH: Final = b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_MUST_BE_SURE: Final = ("client_id", "redirect_uri", "request_uri", "handoff")  # before anything is sent anywhere
_PLAIN: Final = "default-src 'none'; frame-ancestors 'none'"


async def answer(context: Context, request: Request) -> Reply:
    sent = parameters(request.query.encode("latin-1"), repeatable=None)
    if request.method == "POST":
        sent = form(request, repeatable=None)
    if isinstance(sent, Refusal):
        return _plain(sent)
    twice = [name for name, values in sent.items() if len(values) > 1 and name != "resource"]
    unsure = next((name for name in twice if name in _MUST_BE_SURE), None)
    if unsure is not None:
        return _plain(Refusal("invalid_request", f"{unsure}: sent more than once", unsure))
    if "handoff" in sent:
        return await _come_back(context, request, sent)
    known = browser(context, request)
    cookie = known or random_text()
    visit = None if request.method == "HEAD" else Visit(_hash(cookie), request.source, first=known is None)
    single = {name: values[0] for name, values in sent.items() if name not in ("resource", *twice)}
    asked = Parameters(single, tuple(sent.get("resource", ())), twice[0] if twice else "")
    outcome = await context.run(lambda tx: flow.begin(tx, context.service, asked, visit))
    match outcome:
        case Refusal():
            return _plain(outcome)
        case ClientRedirect():
            return _back(outcome)
        case ValidRequest():
            return _redirect(outcome.login_url)
        case LoginRedirect():
            signed = context.service.ring.sign(outcome.key, _encode(outcome.claims), INTERACTION_TYPE).decode()
            if len(signed) > MAX_INTERACTION:
                detail = "the request is too large to be passed on; name fewer claims"
                return _back(error_redirect(context.service, outcome.authorization, "invalid_request", detail))
            return _redirect(_joined(outcome.login_url, {"interaction": signed}), _cookie(context, cookie))


async def _come_back(context: Context, request: Request, sent: dict[str, list[str]]) -> Reply:
    if request.method == "HEAD":  # a safe method completes nothing: RFC 9110, section 9.2.1
        return _plain(Refusal("invalid_request", "handoff: send it by GET or POST", "handoff"))
    if len(sent) > 1 or (request.method == "POST" and request.query):
        return _plain(Refusal("invalid_request", "handoff: must come alone", "handoff"))
    token = sent["handoff"][0]
    if len(token) > MAX_HANDOFF:
        return _plain(Refusal("invalid_request", f"handoff: may have at most {MAX_HANDOFF} bytes", "handoff"))
    cookie = browser(context, request)
    hashed = b"" if cookie is None else _hash(cookie)
    outcome = await context.run(lambda tx: flow.finish(tx, context.service, token, hashed, request.id, request.source))
    return _plain(outcome) if isinstance(outcome, Refusal) else _back(outcome)


# --- the browser's cookie


def cookie_name(base_url: str) -> str:
    """On an http issuer, which is on loopback, a cookie is shared by all ports: so the port is in its name."""
    url = urlsplit(base_url)
    return "__Host-gatepost" if url.scheme == "https" else f"gatepost_{url.port or 80}"


def browser(context: Context, request: Request) -> str | None:
    """What this browser was given before, if it is of a shape that we give; whatever others of our host gave it."""
    name = cookie_name(context.service.base_url)
    sent = (each.strip().partition("=") for each in request.headers.get("cookie", "").split(";"))
    return next((value for each, _, value in sent if each == name and len(value) == 43 and value.isascii()), None)


def _cookie(context: Context, value: str) -> Header:
    secure = context.service.base_url.startswith("https:")
    kind = "Secure; SameSite=None" if secure else "SameSite=Lax"
    return "set-cookie", f"{cookie_name(context.service.base_url)}={value}; Path=/; HttpOnly; {kind}"


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(b"browser\0" + cookie.encode()).digest()


# --- answers to a browser


def _plain(refusal: Refusal) -> Reply:
    return oauth_error(refusal, ("content-security-policy", _PLAIN))


def _redirect(location: str, *headers: Header) -> Reply:
    """303: never one that would send a form on. RFC 9700, section 4.12."""
    return Reply(
        303, b"", (("location", location), NO_STORE, ("content-security-policy", _PLAIN), *headers), "text/plain"
    )


def _back(back: ClientRedirect) -> Reply:
    told = back.parameters
    if "error_description" in told:
        told = told | {"error_description": ascii_text(told["error_description"])}
    if back.authorization.response_mode == "form_post":
        return _form(back.authorization, told)
    return _redirect(_joined(back.authorization.redirect_uri, told))


def _joined(uri: str, more: dict[str, str]) -> str:
    """RFC 6749, section 4.1.2: added to the query that is there."""
    return f"{uri}{'&' if '?' in uri else '?'}{urlencode(more, quote_via=quote)}"


def _form(to: Authorization, parameters: dict[str, str]) -> Reply:
    """OAuth 2.0 Form Post Response Mode, section 2."""
    inputs = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in parameters.items()
    )
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Going back</title>'
        f'<form method="post" action="{escape(to.redirect_uri)}">{inputs}'
        f"<noscript><button>Continue</button></noscript></form><script>{_SCRIPT}</script></html>"
    )
    # No form-action: browsers would hold the client's own redirects after the form to it.
    policy = f"default-src 'none'; script-src 'sha256-{_SCRIPT_HASH}'; "
    return Reply(
        200,
        page.encode(),
        (NO_STORE, ("content-security-policy", policy + "frame-ancestors 'none'")),
        "text/html; charset=utf-8",
    )


# --- pushing


async def push(context: Context, request: Request) -> Reply:
    found = form_of_client(context, request, repeatable=("resource",))
    if isinstance(found, Reply):
        return found
    credentials, sent = found
    asked: Parameters | Refusal = (
        sent
        if isinstance(sent, Refusal)
        else Parameters(
            {name: values[0] for name, values in sent.items() if name != "resource"}, tuple(sent.get("resource", ()))
        )
    )
    proof = bearer.proof(context, request)
    if isinstance(proof, Refusal) and bearer.is_nonce_challenge(proof) and not isinstance(asked, Refusal):
        return oauth_error(proof)
    outcome = await context.run(
        lambda tx: flow.push(tx, context.service, credentials, asked, proof, request.id, request.source)
    )
    if isinstance(outcome, RefusedRequest):
        if not outcome.authenticated:
            note_failed_authentication(request, outcome.refusal)
        return refuse_client(outcome.refusal, *([("gatepost-event", outcome.event)] if outcome.event else []))
    return json(201, {"request_uri": outcome, "expires_in": flow.PUSHED_LIFE}, NO_STORE)
