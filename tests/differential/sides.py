"""The two servers that are compared: Gatepost, and node oidc-provider with the same paths, clients, secrets and keys.

Both are spoken to in the same way; only how the one person there is signs in differs.
"""

import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urljoin, urlsplit

import requests
from joserfc.jwk import ECKey, Key

from bench.peers import oidc_provider
from bench.peers.process import free_port, serving
from gatepost.core import ids
from tests.assertions import right_claims, signed
from tests.differential import PROVIDER
from tests.login import CALLBACK, LOGIN_URL, SCOPES, VERIFIER, Browser, Platform, challenge, decode_jwt, redirect_target
from tests.rsa_keys import rsa_key
from tests.service import Client, Service
from tests.waiting import LIMIT
from tests.wire import session_from_new_address

LOOPBACK = "http://127.0.0.1/back?from=login"
KEY = ECKey.generate_key("P-256", {"kid": "signs"})
RSA = rsa_key({"kid": "signs too"})
PROOF_KEY = ECKey.generate_key("P-256")
OTHER_KEY = ECKey.generate_key("P-256", {"kid": "signs"})
WEB = {"grant_types": ["authorization_code", "refresh_token", "client_credentials"], "redirect_uris": [CALLBACK]}
NO_SECRET = {"token_endpoint_auth_method": "none", "grant_types": ["authorization_code", "refresh_token"]}
JWKS = {"keys": [KEY.as_dict(private=False), RSA.as_dict(private=False)]}

# What the clients of both are, by the name that the requests know them by.
CLIENTS: dict[str, dict[str, Any]] = {
    "basic": WEB,
    "other": WEB,
    "post": WEB | {"token_endpoint_auth_method": "client_secret_post"},
    "key": WEB | {"token_endpoint_auth_method": "private_key_jwt", "jwks": JWKS},
    "public": WEB | NO_SECRET,
    "native": NO_SECRET | {"application_type": "native", "redirect_uris": [LOOPBACK]},
    "bound": WEB | {"dpop_bound_access_tokens": True},
    "narrow": WEB | {"scope": "openid things:read"},
    "machine": {"grant_types": ["client_credentials"], "redirect_uris": [], "scope": "things:read things:write"},
}

_sources = itertools.count(1)


class Answer(NamedTuple):
    """What came back, as far as it is compared; and where the browser is sent, if it is."""

    told: str
    to: str = ""


@dataclass
class Side:
    """One of the two servers. What a request needs that is right is made here, fresh for each request."""

    url: str
    api: str
    clients: dict[str, Client]
    signs_in: Callable[[Browser, requests.Response], str]

    # --- what a person allowed

    def auth_request(self, role: str = "basic", **changes: Any) -> dict[str, Any]:
        right = {
            "client_id": self.clients[role].id,
            "response_type": "code",
            "redirect_uri": CLIENTS[role]["redirect_uris"][0],
            "scope": "openid offline_access things:read",
            "resource": self.api,
            "prompt": "consent",  # without it oidc-provider drops offline_access
            "state": "a state",
            "nonce": "a nonce",
            "code_challenge": challenge(),
            "code_challenge_method": "S256",
        }
        return {name: value for name, value in (right | changes).items() if value is not None}

    def complete(self, parameters: dict[str, Any]) -> str:
        """A whole authorization, in a browser of its own: the code that comes of it."""
        browser = Browser(session_from_new_address())
        with browser.session:
            return self.signs_in(browser, browser.open(f"{self.url}/oauth/authorize", parameters))

    def code(self, role: str = "basic", **changes: Any) -> str:
        return self.complete(self.auth_request(role, **changes))

    def post(self, path: str, form: dict[str, Any], role: str = "", proof: str = "") -> requests.Response:
        """As this client; without one, as the form says."""
        client = self.clients[role] if role else Client("", "")
        sent = form | ({"client_id": client.id} if role and not client.secret else {})
        headers = {"Authorization": client.basic} if client.secret else {}
        headers |= {"DPoP": proof} if proof else {}
        with session_from_new_address() as session:
            return session.post(f"{self.url}/oauth/{path}", data=sent, headers=headers)

    def redeem(self, role: str, code: str, proof: str = "", **changes: Any) -> requests.Response:
        sent = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
        return self.post("tokens", sent | changes, role, proof)

    def tokens(self, role: str = "basic", proof: str = "", **changes: Any) -> dict[str, Any]:
        """What a code gives: with `resource` tokens of the API, without it one for userinfo too."""
        return self._told(self.redeem(role, self.code(role), proof, **changes))

    def machine(self, role: str = "basic", proof: str = "") -> requests.Response:
        form = {"grant_type": "client_credentials", "scope": "things:read", "resource": self.api}
        return self.post("tokens", form, role, proof)

    def machine_token(self, role: str = "basic") -> str:
        return str(self._told(self.machine(role))["access_token"])

    def pushed(self, role: str = "basic", **changes: Any) -> str:
        return str(self._told(self.post("par", self.auth_request(role, **changes), role))["request_uri"])

    @staticmethod
    def _told(answer: requests.Response) -> dict[str, Any]:
        assert answer.status_code in (200, 201), answer.text
        found: dict[str, Any] = answer.json()
        return found

    # --- what is signed

    def assertion(self, key: Key = KEY, header: Any = None, **changes: Any) -> str:
        return signed(key, right_claims(self.clients["key"].id, self.url, **changes), **(header or {}))

    def nonce(self) -> str:
        """Theirs comes with a refusal, ours with every answer to a proof."""
        return self.machine(proof=self.proof(nonce=None)).headers["DPoP-Nonce"]

    def proof(self, path: str = "tokens", *, key: Key = PROOF_KEY, header: Any = None, **changes: Any) -> str:
        """A DPoP proof (RFC 9449); a change to None leaves a claim out."""
        right = {
            "jti": ids.new("jti"), "htm": "POST", "htu": f"{self.url}/oauth/{path}", "iat": int(time.time()),
            **({} if "nonce" in changes else {"nonce": self.nonce()}),
        }  # fmt: skip
        claims = {name: value for name, value in (right | changes).items() if value is not None}
        shown = {"typ": "dpop+jwt", "jwk": key.as_dict(private=False), "kid": None}
        return signed(key, claims, **(shown | (header or {})))

    # --- requests

    def answer(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        """One request from an address of its own, so that no failure counts for another."""
        url = urlsplit(self.url)
        number = next(_sources)
        source = f"127.9.{number // 250}.{1 + number % 250}"
        connection = HTTPConnection(url.hostname or "", url.port, timeout=LIMIT, source_address=(source, 0))
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value.encode("latin-1", "replace"))
            if method != "GET":
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return self._read(connection.getresponse())
        finally:
            connection.close()

    def _read(self, response: HTTPResponse) -> Answer:
        status, text = response.status, response.read().decode("utf-8", "replace")
        location = response.headers.get("Location")
        if location is not None:
            to = urljoin(self.url, location)
            if to.startswith((LOGIN_URL, f"{self.url}/interaction/")):
                return Answer("303 login", LOGIN_URL)
            parts = urlsplit(to)
            result = dict(parse_qsl(parts.query)) | dict(parse_qsl(parts.fragment))
            return Answer(f"{status} to client: {result.get('error', 'code')}", to)
        kind = response.headers.get_content_type()
        if kind == "text/html":
            page = _Form()
            page.feed(text)
            return Answer(f"{status} form to client: {page.inputs.get('error', 'code')}", page.action)
        body = json.loads(text) if kind == "application/json" and text else {}
        if "active" in body:
            return Answer(f"{status} {'active' if body['active'] else 'inactive'}")
        return Answer(f"{status} {body['error']}" if "error" in body else str(status))


class _Form(HTMLParser):
    """Where a self-posting form goes, and with what."""

    def __init__(self) -> None:
        super().__init__()
        self.action, self.inputs = "", dict[str, str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = result["action"]
        elif tag == "input":
            self.inputs[result["name"]] = result["value"]


def ours(gatepost: Service) -> Side:
    platform = Platform(gatepost, "differs", "refresh_grace=60")
    clients = {role: platform.define(**({"scope": SCOPES} | members)) for role, members in CLIENTS.items()}

    def signs_in(browser: Browser, answer: requests.Response) -> str:
        _, query = redirect_target(answer)
        _, back = redirect_target(
            platform.submit_handoff(browser, platform.handoff(decode_jwt(query["interaction"])[1]))
        )
        return back["code"]

    return Side(gatepost.url, platform.api, clients, signs_in)


@contextmanager
def theirs(like: Side) -> Iterator[Side]:
    """Their clients have the ids, secrets and keys of ours."""
    clients = [
        {"client_id": like.clients[role].id, "scope": SCOPES, **members}
        | ({} if members["redirect_uris"] else {"response_types": []})
        | ({"client_secret": like.clients[role].secret} if like.clients[role].secret else {})
        for role, members in CLIENTS.items()
    ]
    result = {
        "clients": clients,
        "scopes": SCOPES.split(),
        "resource": {"uri": like.api, "scope": "things:read things:write"},
    }
    oidc_provider.install()
    port = free_port()
    command = ["node", "--no-warnings", shutil.copy(PROVIDER, oidc_provider.FOLDER), str(port), json.dumps(result)]

    def signs_in(browser: Browser, answer: requests.Response) -> str:
        while not answer.headers["Location"].startswith((CALLBACK, LOOPBACK)):
            answer = browser.open(urljoin(url, answer.headers["Location"]))
            assert answer.status_code == 303, answer.text
        return redirect_target(answer)[1]["code"]

    url = f"http://127.0.0.1:{port}"
    with serving(command, port, oidc_provider.FOLDER, {"NODE_ENV": "production"}):
        yield Side(url, like.api, like.clients, signs_in)


def thumbprint(key: Key) -> str:
    return str(key.thumbprint())
