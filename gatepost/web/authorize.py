"""GET and POST /oauth/authorize, and POST /oauth/par. Gatepost has no login page: it redirects to the operator's.

Two responses are HTML: the self-submitting form of OAuth 2.0 Form Post Response Mode, and `error_page`.
"""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from gatepost.core.errors import Refusal
from gatepost.core.secrets import random_text
from gatepost.oauth.authorize import flow
from gatepost.oauth.authorize.flow import ClientRedirect, LoginRedirect, Parameters, ValidRequest, Visit
from gatepost.oauth.authorize.handoff import INTERACTION_TYPE, MAX_HANDOFF
from gatepost.oauth.authorize.request import Authorization
from gatepost.oauth.client_authentication import RefusedRequest
from gatepost.web import bearer
from gatepost.web.context import Context
from gatepost.web.requests import Request, form, parameters
from gatepost.web.responses import NO_STORE, Header, Reply, ascii_text, json, oauth_error
from gatepost.web.tokens import read_client_form, refuse_client

_encode = msgspec.json.Encoder().encode
_SCRIPT: Final = "document.forms[0].submit()"
_SCRIPT_HASH: Final = b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
# If one of these is repeated, it is not certain where to send the error: the browser gets it.
_NEVER_REPEATED: Final = ("client_id", "redirect_uri", "request_uri", "handoff")
_NO_CONTENT: Final[Header] = ("content-security-policy", "default-src 'none'; frame-ancestors 'none'")


async def answer(context: Context, request: Request) -> Reply:
    """Answer an authorization request (RFC 6749, section 3.1), or a browser that returns from the login page."""
    if request.method == "POST":
        sent = form(request, repeatable=None)
    else:
        sent = parameters(request.query.encode("latin-1"), repeatable=None)
    if isinstance(sent, Refusal):
        return _refuse(sent)
    repeated = [name for name, values in sent.items() if len(values) > 1 and name != "resource"]
    for name in repeated:
        if name in _NEVER_REPEATED:
            return _refuse(Refusal("invalid_request", f"{name}: sent more than once", name))
    if "handoff" in sent:
        return await _finish(context, request, sent)
    known = browser_cookie(context, request)
    cookie = known or random_text()
    visit = None if request.method == "HEAD" else Visit(_hash(cookie), request.source, first=known is None)
    asked = _parameters(sent, repeated)
    outcome = await context.run(lambda tx: flow.begin(tx, context.service, asked, visit))
    match outcome:
        case Refusal():
            return _refuse(outcome)
        case ClientRedirect():
            return _redirect_to_client(outcome)
        case ValidRequest():
            return _redirect(outcome.login_url)
        case LoginRedirect():
            signed = context.service.ring.sign(outcome.key, _encode(outcome.claims), INTERACTION_TYPE).decode()
            return _redirect(_with_query(outcome.login_url, {"interaction": signed}), _set_cookie(context, cookie))


def _parameters(sent: dict[str, list[str]], repeated: Sequence[str] = ()) -> Parameters:
    single = {name: values[0] for name, values in sent.items() if name not in ("resource", *repeated)}
    return Parameters(single, tuple(sent.get("resource", ())), repeated[0] if repeated else "")


async def _finish(context: Context, request: Request, sent: dict[str, list[str]]) -> Reply:
    """Finish an authorization with the handoff of the login application."""
    token = sent["handoff"][0]
    if request.method == "HEAD":  # a safe method completes nothing: RFC 9110, section 9.2.1
        problem = "send it by GET or POST"
    elif len(sent) > 1 or (request.method == "POST" and request.query):
        problem = "must come alone"
    elif len(token) > MAX_HANDOFF:
        problem = f"may have at most {MAX_HANDOFF} bytes"
    else:
        cookie = browser_cookie(context, request)
        hashed = b"" if cookie is None else _hash(cookie)
        outcome = await context.run(
            lambda tx: flow.finish(tx, context.service, token, hashed, request.id, request.source)
        )
        return _refuse(outcome) if isinstance(outcome, Refusal) else _redirect_to_client(outcome)
    return _refuse(Refusal("invalid_request", f"handoff: {problem}", "handoff"))


# --- the browser's cookie


def cookie_name(base_url: str) -> str:
    """The name of the cookie. With http, which is for loopback only, all ports share cookies, so it has the port."""
    url = urlsplit(base_url)
    return "__Host-gatepost" if url.scheme == "https" else f"gatepost_{url.port or 80}"


def browser_cookie(context: Context, request: Request) -> str | None:
    """The first cookie of this name that has the format of our own. Other services of the host may have set others."""
    expected = cookie_name(context.service.base_url)
    pairs = (pair.strip().partition("=") for pair in request.headers.get("cookie", "").split(";"))
    return next((value for name, _, value in pairs if name == expected and len(value) == 43 and value.isascii()), None)


def _set_cookie(context: Context, value: str) -> Header:
    secure = context.service.base_url.startswith("https:")
    kind = "Secure; SameSite=None" if secure else "SameSite=Lax"
    return "set-cookie", f"{cookie_name(context.service.base_url)}={value}; Path=/; HttpOnly; {kind}"


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(b"browser\0" + cookie.encode()).digest()


# --- responses to a browser


def _refuse(refusal: Refusal) -> Reply:
    return oauth_error(refusal, _NO_CONTENT)


def _redirect(location: str, *headers: Header) -> Reply:
    """Redirect with 303, so that a browser does not send the body of a form again. RFC 9700, section 4.12."""
    return Reply(303, b"", (("location", location), NO_STORE, _NO_CONTENT, *headers), "text/plain")


def _redirect_to_client(redirect: ClientRedirect) -> Reply:
    members = redirect.parameters
    if "error_description" in members:
        members = members | {"error_description": ascii_text(members["error_description"])}
    if redirect.authorization.response_mode == "form_post":
        return _form_post(redirect.authorization, members)
    return _redirect(_with_query(redirect.authorization.redirect_uri, members))


def _with_query(uri: str, members: dict[str, str]) -> str:
    """Add parameters to a URI, which may have a query. RFC 6749, section 4.1.2."""
    return f"{uri}{'&' if '?' in uri else '?'}{urlencode(members, quote_via=quote)}"


def _form_post(authorization: Authorization, members: dict[str, str]) -> Reply:
    """A form that submits itself. OAuth 2.0 Form Post Response Mode, section 2."""
    inputs = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in members.items()
    )
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Going back</title>'
        f'<form method="post" action="{escape(authorization.redirect_uri)}">{inputs}'
        f"<noscript><button>Continue</button></noscript></form><script>{_SCRIPT}</script></html>"
    )
    # There is no form-action: browsers would apply it to the redirects of the client that follow the form.
    policy = f"default-src 'none'; script-src 'sha256-{_SCRIPT_HASH}'; frame-ancestors 'none'"
    return Reply(200, page.encode(), (NO_STORE, ("content-security-policy", policy)), "text/html; charset=utf-8")


# --- pushed requests


async def push(context: Context, request: Request) -> Reply:
    """Answer a pushed authorization request. RFC 9126, section 2."""
    parsed = read_client_form(context, request, repeatable=("resource",))
    if isinstance(parsed, Reply):
        return parsed
    credentials, sent = parsed
    pushed = sent if isinstance(sent, Refusal) else _parameters(sent)
    proof = bearer.proof(context, request)
    if isinstance(proof, Refusal) and bearer.is_nonce_challenge(proof) and not isinstance(pushed, Refusal):
        return oauth_error(proof)
    outcome = await context.run(
        lambda tx: flow.push(tx, context.service, credentials, pushed, proof, request.id, request.source)
    )
    if isinstance(outcome, RefusedRequest):
        return refuse_client(request, outcome)
    return json(201, {"request_uri": outcome, "expires_in": flow.PUSHED_LIFE}, NO_STORE)
