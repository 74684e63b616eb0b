"""The bad requests, by name: to the other endpoints here, to the token endpoint in `token_requests`."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from tests.assertions import b64
from tests.differential.shape import (
    Bad,
    Value,
    about,
    authorization,
    authorize,
    basic,
    bearer,
    header,
    key,
    named,
    par,
    unauthenticated,
    userinfo,
)
from tests.differential.sides import OTHER_KEY, PROOF_KEY, Side, thumbprint
from tests.differential.token_requests import JSON, TOKEN_REQUESTS, refreshed, wrong
from tests.login import CALLBACK, challenge

PUSHED = "urn:ietf:params:oauth:request_uri:"


def nested(depth: int) -> str:
    return '{"userinfo":' * depth + "{}" + "}" * depth


def unsigned_request(side: Side) -> str:
    return f"{b64(json.dumps({'alg': 'none'}).encode())}.{b64(json.dumps(side.auth_request()).encode())}."


def opened_before(side: Side) -> str:
    """A pushed request whose authorization was completed."""
    pushed = side.pushed()
    side.complete({"client_id": side.clients["basic"].id, "request_uri": pushed})
    return pushed


# --- the authorization endpoint: first what must never lead anywhere, then what goes back to the client

REDIRECTS: dict[str, Bad] = {
    "nothing": authorize(body=b""),
    "no client_id": authorize(client_id=None),
    "an empty client_id": authorize(client_id=""),
    "an unknown client_id": authorize(client_id="nobody"),
    "client_id twice": authorize(client_id=lambda side: [side.clients["basic"].id] * 2),
    "a client without redirect_uris": authorize(client_id=lambda side: side.clients["machine"].id),
    "no redirect_uri": authorize(redirect_uri=None),
    "an empty redirect_uri": authorize(redirect_uri=""),
    "redirect_uri twice": authorize(redirect_uri=[CALLBACK, CALLBACK]),
    "two redirect_uris": authorize(redirect_uri=[CALLBACK, "https://evil.example/"]),
    "another redirect_uri": authorize(redirect_uri="https://evil.example/callback"),
    "redirect_uri on a longer path": authorize(redirect_uri=f"{CALLBACK}/more"),
    "redirect_uri with a slash after it": authorize(redirect_uri=f"{CALLBACK}/"),
    "redirect_uri with a query": authorize(redirect_uri=f"{CALLBACK}?x=1"),
    "redirect_uri with a question mark": authorize(redirect_uri=f"{CALLBACK}?"),
    "redirect_uri with a fragment": authorize(redirect_uri=f"{CALLBACK}#x"),
    "redirect_uri with an empty fragment": authorize(redirect_uri=f"{CALLBACK}#"),
    "redirect_uri with a path parameter": authorize(redirect_uri=f"{CALLBACK};x"),
    "redirect_uri in another case": authorize(redirect_uri="https://app.example/CALLBACK"),
    "redirect_uri with its host in capitals": authorize(redirect_uri="https://APP.example/callback"),
    "redirect_uri with its port": authorize(redirect_uri="https://app.example:443/callback"),
    "redirect_uri by http": authorize(redirect_uri="http://app.example/callback"),
    "redirect_uri of a subdomain": authorize(redirect_uri="https://evil.app.example/callback"),
    "redirect_uri of a longer host": authorize(redirect_uri="https://app.example.evil.example/callback"),
    "redirect_uri with a user": authorize(redirect_uri="https://app.example@evil.example/callback"),
    "redirect_uri with dots": authorize(redirect_uri="https://app.example/x/../callback"),
    "redirect_uri with encoded dots": authorize(redirect_uri="https://app.example/x/%2e%2e/callback"),
    "redirect_uri with dots and a parameter": authorize(redirect_uri="https://app.example/x/..;/callback"),
    "redirect_uri with a space before it": authorize(redirect_uri=f" {CALLBACK}"),
    "redirect_uri that is a script": authorize(redirect_uri="JavaScript:alert(1)"),
    "redirect_uri that is data": authorize(redirect_uri="data:text/html,x"),
    "redirect_uri that is a path": authorize(redirect_uri="/callback"),
    "redirect_uri of another client": authorize(redirect_uri="http://127.0.0.1/back?from=login"),
    "loopback on another path": authorize("native", redirect_uri="http://127.0.0.1:4000/other?from=login"),
    "loopback with another query": authorize("native", redirect_uri="http://127.0.0.1:4000/back?from=elsewhere"),
    "loopback without its query": authorize("native", redirect_uri="http://127.0.0.1:4000/back"),
    "loopback by name": authorize("native", redirect_uri="http://localhost:4000/back?from=login"),
    "loopback by another address": authorize("native", redirect_uri="http://127.0.0.2/back?from=login"),
    "loopback by https": authorize("native", redirect_uri="https://127.0.0.1/back?from=login"),
    "loopback with a user": authorize("native", redirect_uri="http://127.0.0.1:80@evil.example/back?from=login"),
    "bad scope, and another redirect_uri": authorize(scope="unknown", redirect_uri="https://evil.example/"),
    "bad response_type, and another redirect_uri": authorize(
        response_type="token", redirect_uri="https://evil.example/"
    ),
    "prompt none, and another redirect_uri": authorize(prompt="none", redirect_uri="https://evil.example/"),
    "a NUL": authorize(state="a\0b"),
    "a byte that is not UTF-8": authorize(body=b"client_id=%ff"),
    "by PUT": authorize(method="PUT"),
    "by DELETE": authorize(method="DELETE"),
    "by POST as JSON": authorize(method="POST", in_query=False, media_type=JSON, body=b"{}"),
    "by POST with a query alone": authorize(method="POST"),
}

AUTHORIZE: dict[str, Bad] = {
    "no response_type": authorize(response_type=None),
    "response_type token": authorize(response_type="token"),
    "response_type id_token": authorize(response_type="id_token"),
    "response_type code token": authorize(response_type="code token"),
    "response_type code id_token": authorize(response_type="code id_token"),
    "response_type none": authorize(response_type="none"),
    "response_type in capitals": authorize(response_type="CODE"),
    "response_type code code": authorize(response_type="code code"),
    "response_type twice": authorize(response_type=["code", "code"]),
    "response_mode fragment": authorize(response_mode="fragment"),
    "response_mode query.jwt": authorize(response_mode="query.jwt"),
    "response_mode web_message": authorize(response_mode="web_message"),
    "an unknown response_mode": authorize(response_mode="pigeon"),
    "an unknown prompt, answered by a form": authorize(response_mode="form_post", prompt="dance"),
    "no challenge, answered by a form": authorize(
        response_mode="form_post", code_challenge=None, code_challenge_method=None
    ),
    "no scope": authorize(scope=None, nonce=None),
    "an empty scope": authorize(scope="", nonce=None),
    "scope twice": authorize(scope=["openid", "things:read"]),
    "an unknown scope": authorize(scope="openid things:everything"),
    "only an unknown scope": authorize(scope="things:everything", nonce=None),
    "a scope that is not the client's": authorize("narrow", scope="openid things:write"),
    "only offline_access": authorize(scope="offline_access", nonce=None),
    "a scope of the service's own": authorize(scope="openid gatepost:clients"),
    "a quote in the scope": authorize(scope='openid "'),
    "scopes with two spaces between": authorize(scope="openid  things:read"),
    "a nonce without openid": authorize(scope="things:read"),
    "no challenge": authorize(code_challenge=None, code_challenge_method=None),
    "no challenge of a public client": authorize("public", code_challenge=None, code_challenge_method=None),
    "a plain challenge": authorize(code_challenge_method="plain"),
    "no code_challenge_method": authorize(code_challenge_method=None),
    "a method without a challenge": authorize(code_challenge=None),
    "an unknown code_challenge_method": authorize(code_challenge_method="S512"),
    "code_challenge_method in small letters": authorize(code_challenge_method="s256"),
    "a challenge too short": authorize(code_challenge="c" * 42),
    "a challenge too long": authorize(code_challenge="c" * 129),
    "a challenge longer than a hash": authorize(code_challenge="c" * 44),
    "a challenge with padding": authorize(code_challenge=challenge() + "="),
    "a challenge with other characters": authorize(code_challenge="c" * 42 + "!"),
    "code_challenge twice": authorize(code_challenge=[challenge(), challenge()]),
    "state twice": authorize(state=["a", "b"]),
    "a state too long": authorize(state="s" * 3000),
    "a nonce too long": authorize(nonce="n" * 600),
    "an unknown prompt": authorize(prompt="dance"),
    "prompt none and login": authorize(prompt="none login"),
    "prompt none": authorize(prompt="none"),
    "max_age below zero": authorize(max_age="-1"),
    "max_age is a word": authorize(max_age="soon"),
    "max_age with a point": authorize(max_age="1.5"),
    "max_age beyond all measure": authorize(max_age="9" * 30),
    "an unknown display": authorize(display="hologram"),
    "claims that are no JSON": authorize(claims="{"),
    "claims that are a list": authorize(claims="[]"),
    "claims of nothing": authorize(claims="{}"),
    "claims with a word for userinfo": authorize(claims='{"userinfo": "name"}'),
    "claims with a number for a claim": authorize(claims='{"id_token": {"name": 5}}'),
    "claims with a name twice": authorize(claims='{"id_token": {}, "id_token": {}}'),
    "claims nested deeply": authorize(claims=nested(200)),
    "an id_token_hint that is no JWT": authorize(id_token_hint="hint"),
    "the id_token_hint of another client": authorize(id_token_hint=lambda side: side.tokens("other")["id_token"]),
    "an access token as id_token_hint": authorize(id_token_hint=lambda side: side.tokens()["access_token"]),
    "an unsigned id_token_hint": authorize(id_token_hint=unsigned_request),
    "an unknown resource": authorize(resource="https://other.example"),
    "a relative resource": authorize(resource="/api"),
    "a resource with a fragment": authorize(resource=lambda side: f"{side.api}#part"),
    "a known and an unknown resource": authorize(resource=lambda side: [side.api, "https://other.example"]),
    "a dpop_jkt that is no thumbprint": authorize(dpop_jkt="key"),
    "a request object": authorize(request=unsigned_request),
    "a request object that is no JWT": authorize(request="object"),
    "a request and a request_uri": authorize(request=unsigned_request, request_uri=Side.pushed),
    "a registration": authorize(registration="{}"),
    "a request_uri nobody pushed": authorize(request_uri=f"{PUSHED}unknown"),
    "a request_uri on the web": authorize(request_uri="https://app.example/request"),
    "a request_uri that is no URI": authorize(request_uri="request"),
    "a request_uri of another client": authorize(request_uri=lambda side: side.pushed("other")),
    "a used request_uri": authorize(request_uri=opened_before),
    "request_uri twice": authorize(request_uri=lambda side: [side.pushed()] * 2),
    "a hundred parameters more": authorize(**{f"x{number}": "x" for number in range(100)}),
}


# --- pushed requests


def pushed_with(proof: Value, **changes: Any) -> Bad:
    return par(headers=(("DPoP", proof),), **changes)


PUSHES: dict[str, Bad] = {
    "nothing shown": par(by=unauthenticated),
    "nothing shown, and no client_id": par(by=unauthenticated, client_id=None),
    "a client nobody knows": par(by=header("nobody:secret"), client_id=None),
    "a wrong secret": par(by=wrong()),
    "a wrong assertion": par("key", key(lambda side: side.assertion(OTHER_KEY))),
    "another client_id": par(client_id=lambda side: side.clients["other"].id),
    "by GET": par(method="GET", in_query=True),
    "by PUT": par(method="PUT"),
    "as JSON": par(media_type=JSON, body=b"{}"),
    "nothing": par(body=b""),
    "client_id twice": par(client_id=lambda side: [side.clients["basic"].id] * 2),
    "no redirect_uri": par(redirect_uri=None),
    "another redirect_uri": par(redirect_uri="https://evil.example/callback"),
    "redirect_uri with a query": par(redirect_uri=f"{CALLBACK}?x=1"),
    "redirect_uri twice": par(redirect_uri=[CALLBACK, CALLBACK]),
    "no response_type": par(response_type=None),
    "response_type token": par(response_type="token"),
    "an unknown response_mode": par(response_mode="pigeon"),
    "no challenge": par(code_challenge=None, code_challenge_method=None),
    "a plain challenge": par(code_challenge_method="plain"),
    "a challenge too short": par(code_challenge="c" * 42),
    "no scope": par(scope=None, nonce=None),
    "an unknown scope": par(scope="openid things:everything"),
    "a scope that is not the client's": par("narrow", scope="openid things:write"),
    "an unknown prompt": par(prompt="dance"),
    "max_age is a word": par(max_age="soon"),
    "claims that are no JSON": par(claims="{"),
    "an id_token_hint that is no JWT": par(id_token_hint="hint"),
    "an unknown resource": par(resource="https://other.example"),
    "a request_uri": par(request_uri=Side.pushed),
    "a request object": par(request=unsigned_request),
    "a registration": par(registration="{}"),
    "a machine": par("basic", basic("machine"), client_id=lambda side: side.clients["machine"].id),
    "a dpop_jkt that is no thumbprint": par(dpop_jkt="key"),
    "a proof that is no JWT": pushed_with("proof"),
    "a proof for another path": pushed_with(lambda side: side.proof()),
    "a proof without a nonce": pushed_with(lambda side: side.proof("par", nonce=None)),
    "a proof of another key than dpop_jkt": pushed_with(
        lambda side: side.proof("par", key=OTHER_KEY), dpop_jkt=thumbprint(PROOF_KEY)
    ),
}

# --- introspection and revocation

SOME_TOKEN = Side.machine_token


def revoked_token(side: Side) -> str:
    found = side.machine_token()
    assert side.post("revoke", {"token": found}, "basic").status_code == 200
    return found


def of_revoked_family(side: Side) -> str:
    found = side.tokens()
    assert side.post("revoke", {"token": found["refresh_token"]}, "basic").status_code == 200
    return str(found["access_token"])


BOTH: dict[str, Callable[[str], Bad]] = {
    "nothing shown": lambda path: about(path, SOME_TOKEN, unauthenticated),
    "a client nobody knows": lambda path: about(path, SOME_TOKEN, header("nobody:secret")),
    "a wrong secret": lambda path: about(path, SOME_TOKEN, wrong()),
    "a wrong assertion": lambda path: about(path, SOME_TOKEN, key(lambda side: side.assertion(OTHER_KEY))),
    "a client with a secret that shows none": lambda path: about(path, SOME_TOKEN, named("basic")),
    "a bearer token instead of a client": lambda path: about(path, SOME_TOKEN, bearer(Side.machine_token)),
    "no token": lambda path: about(path, None),
    "an empty token": lambda path: about(path, ""),
    "token twice": lambda path: about(path, ["a", "b"]),
    "a token nobody knows": lambda path: about(path, "unknown"),
    "a JWT of somebody's": lambda path: about(path, lambda side: side.assertion(OTHER_KEY)),
    "the token of another client": lambda path: about(path, lambda side: side.machine_token("other")),
    "the refresh token of another client": lambda path: about(path, lambda side: side.tokens("other")["refresh_token"]),
    "a code": lambda path: about(path, Side.code),
    "an ID token": lambda path: about(path, lambda side: side.tokens()["id_token"]),
    "a revoked token": lambda path: about(path, revoked_token),
    "an unknown token_type_hint": lambda path: about(path, "unknown", token_type_hint="magic"),
    "token_type_hint twice": lambda path: about(path, "unknown", token_type_hint=["access_token", "refresh_token"]),
    "a public client": lambda path: about(path, "unknown", named("public")),
    "by GET": lambda path: about(path, SOME_TOKEN, method="GET", in_query=True),
    "by DELETE": lambda path: about(path, SOME_TOKEN, method="DELETE"),
    "as JSON": lambda path: about(path, SOME_TOKEN, media_type=JSON, body=b'{"token": "x"}'),
}
INTROSPECT: dict[str, Bad] = {name: made("introspect") for name, made in BOTH.items()} | {
    "a refresh token used before": about("introspect", lambda side: refreshed(side)[0]),
    "an access token whose refresh token was revoked": about("introspect", of_revoked_family),
    "the wrong token_type_hint": about("introspect", SOME_TOKEN, token_type_hint="refresh_token"),
}
REVOKE: dict[str, Bad] = {name: made("revoke") for name, made in BOTH.items()}

# --- userinfo


def user_token(side: Side) -> str:
    return str(side.tokens()["access_token"])


def bound_token(side: Side) -> str:
    return str(side.tokens(proof=side.proof())["access_token"])


def without_openid(side: Side) -> str:
    code = side.code(scope="things:read", nonce=None)
    return str(side.redeem("basic", code, resource=side.api).json()["access_token"])


def ended_token(side: Side) -> str:
    found = user_token(side)
    assert side.post("revoke", {"token": found}, "basic").status_code == 200
    return found


def ath(token: str) -> str:
    return b64(hashlib.sha256(token.encode()).digest())


def proved(change: Callable[[Side, str], Value], scheme: str = "DPoP ") -> Bad:
    """With a token bound to a key, and a proof made for that very token."""
    made: list[str] = []

    def shown(side: Side) -> str:
        made.append(bound_token(side))
        return made[-1]

    def proof(side: Side) -> Value:
        value = change(side, made[-1])
        return value(side) if callable(value) else value

    return userinfo(bearer(shown, scheme), headers=(("DPoP", proof),))


USERINFO: dict[str, Bad] = {
    "no token": userinfo(),
    "nothing after Bearer": userinfo(authorization("Bearer")),
    "a token nobody knows": userinfo(authorization("Bearer unknown")),
    "a client's own credentials": userinfo(basic()),
    "two words after Bearer": userinfo(authorization("Bearer a b")),
    "a machine's token": userinfo(bearer(Side.machine_token)),
    "a token without openid": userinfo(bearer(without_openid)),
    "a revoked token": userinfo(bearer(ended_token)),
    "a token whose refresh token was revoked": userinfo(bearer(of_revoked_family)),
    "a refresh token": userinfo(bearer(lambda side: side.tokens()["refresh_token"])),
    "an ID token": userinfo(bearer(lambda side: side.tokens()["id_token"])),
    "a code": userinfo(bearer(Side.code)),
    "a client assertion": userinfo(bearer(Side.assertion)),
    "one character of the token changed": userinfo(bearer(lambda side: user_token(side)[:-6] + "AAAAAA")),
    "the token in the query": userinfo(in_query=True, access_token=user_token),
    "the token in the header and in the body": userinfo(bearer(user_token), method="POST", access_token=user_token),
    "the token in the body": userinfo(method="POST", access_token=user_token),
    "a token nobody knows in the body": userinfo(method="POST", access_token="unknown"),
    "the token in the body as JSON": userinfo(method="POST", media_type=JSON, body=b'{"access_token": "x"}'),
    "by PUT": userinfo(bearer(user_token), method="PUT"),
    "by DELETE": userinfo(bearer(user_token), method="DELETE"),
    "a bound token as Bearer": userinfo(bearer(bound_token)),
    "a bound token as DPoP without a proof": userinfo(bearer(bound_token, "DPoP ")),
    "a bound token as Bearer with its proof": proved(
        lambda side, token: side.proof("userinfo", htm="GET", ath=ath(token)), "Bearer "
    ),
    "a token of nobody's key with a proof": userinfo(
        bearer(user_token, "DPoP "), headers=(("DPoP", lambda side: side.proof("userinfo", htm="GET", ath="x")),)
    ),
    "a proof without ath": proved(lambda side, token: side.proof("userinfo", htm="GET")),
    "a proof of another token": proved(lambda side, token: side.proof("userinfo", htm="GET", ath=ath("other"))),
    "a proof of another key": proved(
        lambda side, token: side.proof("userinfo", key=OTHER_KEY, htm="GET", ath=ath(token))
    ),
    "a proof for POST": proved(lambda side, token: side.proof("userinfo", ath=ath(token))),
    "a proof for another path": proved(lambda side, token: side.proof(htm="GET", ath=ath(token))),
    "a proof without a nonce": proved(
        lambda side, token: side.proof("userinfo", htm="GET", ath=ath(token), nonce=None)
    ),
    "a proof that is no JWT": proved(lambda side, token: "proof"),
}

REQUESTS: dict[str, Bad] = TOKEN_REQUESTS | {
    f"{area}: {name}": bad
    for area, table in {
        "redirect": REDIRECTS, "authorize": AUTHORIZE, "push": PUSHES, "introspect": INTROSPECT, "revoke": REVOKE,
        "userinfo": USERINFO,
    }.items()
    for name, bad in table.items()
}  # fmt: skip
