"""What a bad request is: a right one with something changed, and how it is sent to one side or the other."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gatepost.web.tokens import ASSERTION_TYPE
from tests.differential.sides import Answer, Side
from tests.login import CALLBACK, VERIFIER

FORM = "application/x-www-form-urlencoded"
Value = str | list[str] | Callable[[Side], Any] | None  # several, made for this request, or left out


class Shown(NamedTuple):
    """How a client shows who it is."""

    headers: tuple[tuple[str, str], ...] = ()
    form: Mapping[str, Value] = {}


By = Callable[[Side], Shown]
OWN = ("headers", "method", "media_type", "body", "in_query")


class Bad(NamedTuple):
    path: str
    parameters: Mapping[str, Value]
    by: By
    headers: tuple[tuple[str, Value], ...] = ()
    method: str = "POST"
    media_type: str = FORM
    body: bytes | None = None  # in place of the parameters
    in_query: bool = False
    role: str = "basic"


# --- clients showing who they are


def unauthenticated(_side: Side) -> Shown:
    return Shown()


def basic(role: str = "basic", secret: str | None = None, **form: Value) -> By:
    """With its own secret, or with another."""

    def show(side: Side) -> Shown:
        client = side.clients[role]
        return header(f"{client.id}:{client.secret if secret is None else secret}")(side)._replace(form=form)

    return show


def header(credentials: str | bytes, scheme: str = "Basic ") -> By:
    """Credentials as they are, in base64."""
    raw = credentials if isinstance(credentials, bytes) else credentials.encode()
    return authorization(scheme + b64encode(raw).decode())


def authorization(*values: str) -> By:
    return lambda _side: Shown(tuple(("Authorization", value) for value in values))


def post(role: str = "post", secret: str | None = None, **form: Value) -> By:
    def show(side: Side) -> Shown:
        client = side.clients[role]
        return Shown(form={"client_id": client.id, "client_secret": secret or client.secret} | form)

    return show


def named(role: str, **form: Value) -> By:
    """Says who it is and shows nothing."""
    return lambda side: Shown(form={"client_id": side.clients[role].id} | form)


def key(made: Callable[[Side], str] = Side.assertion, **form: Value) -> By:
    """By an assertion, made for this request."""
    return lambda side: Shown(form={"client_assertion_type": ASSERTION_TYPE, "client_assertion": made(side)} | form)


# --- the right requests, which the bad ones differ from

MACHINE: dict[str, Value] = {
    "grant_type": "client_credentials",
    "scope": "things:read",
    "resource": lambda side: side.api,
}
CODE: dict[str, Value] = {
    "grant_type": "authorization_code",
    "code": Side.code,
    "redirect_uri": CALLBACK,
    "code_verifier": VERIFIER,
}
REFRESH: dict[str, Value] = {
    "grant_type": "refresh_token",
    "refresh_token": lambda side: side.tokens()["refresh_token"],
}


def token(base: Mapping[str, Value] = MACHINE, by: By | None = None, **changes: Any) -> Bad:
    return _changed(Bad("/oauth/tokens", base, by or basic()), changes)


def authorize(role: str = "basic", **changes: Any) -> Bad:
    asked = {name: _part(role, name) for name in _ASKED}
    return _changed(Bad("/oauth/authorize", asked, unauthenticated, method="GET", in_query=True, role=role), changes)


def par(role: str = "basic", by: By | None = None, **changes: Any) -> Bad:
    asked = {name: _part(role, name) for name in _ASKED}
    return _changed(Bad("/oauth/par", asked, by or basic(role), role=role), changes)


_ASKED = (
    "client_id", "response_type", "redirect_uri", "scope", "resource", "prompt", "state", "nonce", "code_challenge",
    "code_challenge_method",
)  # fmt: skip


def _part(role: str, name: str) -> Value:
    return lambda side: side.auth_request(role)[name]


def about(path: str, of: Value, by: By | None = None, **changes: Any) -> Bad:
    """Introspection or revocation of a token."""
    return _changed(Bad(f"/oauth/{path}", {"token": of}, by or basic()), changes)


def userinfo(by: By = unauthenticated, **changes: Any) -> Bad:
    return _changed(Bad("/oauth/userinfo", {}, by, method="GET"), changes)


def bearer(made: Callable[[Side], str], scheme: str = "Bearer ") -> By:
    return lambda side: Shown((("Authorization", scheme + made(side)),))


def _changed(right: Bad, changes: dict[str, Any]) -> Bad:
    """Names of a request's own parts change it, all others its parameters."""
    own = {
        name: changes.pop(name) for name in ("headers", "method", "media_type", "body", "in_query") if name in changes
    }
    return right._replace(parameters={**right.parameters, **changes}, **own)


# --- sending


def answer(side: Side, bad: Bad) -> Answer:
    by = bad.by(side)
    pairs = [pair for name, value in {**bad.parameters, **by.form}.items() for pair in _pairs(side, name, value)]
    headers = [*by.headers, *(pair for name, value in bad.headers for pair in _pairs(side, name, value))]
    path, body = bad.path, urlencode(pairs).encode() if bad.body is None else bad.body
    if bad.in_query:
        path, body = f"{path}?{body.decode('latin-1')}", b""
    if bad.media_type and bad.method != "GET":
        headers.append(("Content-Type", bad.media_type))
    return side.answer(bad.method, path, headers, body)


def _pairs(side: Side, name: str, value: Value) -> list[tuple[str, str]]:
    made = value(side) if callable(value) else value
    if made is None:
        return []
    return [(name, str(each)) for each in made] if isinstance(made, list) else [(name, str(made))]
