"""A program that calls an API for itself: the client_credentials grant, with a secret or with a key of its own.

    CLIENT_SECRET=gps_… python examples/machine_client.py --client cli_… --scope things:read URL
    python examples/machine_client.py --credentials robot.json --scope things:read URL
    python examples/machine_client.py --client cli_… --scope things:read --key key.json URL
    python examples/machine_client.py --key key.json --jwks      print the public key set, to define the client with

`Tokens` is the part to take along: it asks for a token once and keeps it until shortly before it expires.
"""
# ruff: noqa: S310, TID251

import argparse
import json
import os
import secrets
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from joserfc import jwt
from joserfc.jwk import ECKey

EARLY = 30  # seconds before its end in which a token is not used any more
BY_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

Headers = dict[str, str]
Authenticate = Callable[[], tuple[Headers, dict[str, str]]]  # what to add to a request, anew for each


def by_secret(client: str, secret: str) -> Authenticate:
    """client_secret_basic."""
    basic = b64encode(f"{client}:{secret}".encode()).decode()
    return lambda: ({"authorization": f"Basic {basic}"}, {})


def by_key(client: str, key: ECKey, issuer: str) -> Authenticate:
    """private_key_jwt, RFC 7523: each assertion is used once, and nobody but us ever has what signs it."""

    def sign() -> tuple[Headers, dict[str, str]]:
        now = int(time.time())
        claims = {"iss": client, "sub": client, "aud": issuer, "iat": now, "exp": now + 60}
        claims["jti"] = secrets.token_urlsafe()
        assertion = jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)
        return {}, {"client_assertion_type": BY_ASSERTION, "client_assertion": assertion}

    return sign


class Tokens:
    """One access token, kept until shortly before it expires. Threads may share it."""

    def __init__(
        self, issuer: str, scope: str, authenticate: Authenticate, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._url, self._scope, self._authenticate, self._now = f"{issuer}/oauth/tokens", scope, authenticate, now
        self._lock, self._token, self._ends = threading.Lock(), "", 0.0

    def get(self) -> str:
        with self._lock:  # so that many threads ask once
            asked_at = self._now()
            if not self._token or asked_at >= self._ends:
                headers, form = self._authenticate()
                answer = ask(self._url, headers, form | {"grant_type": "client_credentials", "scope": self._scope})
                self._token, self._ends = answer["access_token"], asked_at + answer["expires_in"] - EARLY
            return self._token

    def drop(self, token: str) -> None:
        """The API refused it, though it has not expired: signing keys may have been revoked."""
        with self._lock:
            self._token = "" if self._token == token else self._token


def ask(url: str, headers: Headers, form: dict[str, str]) -> dict[str, Any]:
    try:
        with urlopen(Request(url, urlencode(form).encode(), headers), timeout=10) as answer:
            return dict(json.load(answer))
    except HTTPError as error:
        told = json.load(error)
        entry = error.headers.get("gatepost-event", "none")  # the operator finds the refusal by this
        raise SystemExit(f"no token: {told['error']}: {told['error_description']} (entry {entry})") from None


def call(url: str, tokens: Tokens) -> dict[str, Any]:
    """With a token; once more with another if the API says that the first is not good."""
    for last in (False, True):
        token = tokens.get()
        try:
            with urlopen(Request(url, headers={"authorization": f"Bearer {token}"}), timeout=10) as answer:
                return dict(json.load(answer))
        except HTTPError as error:
            told = error.headers.get("www-authenticate", "")
            if last or error.code != 401 or 'error="invalid_token"' not in told:
                raise SystemExit(f"{url}: {error.code} {told}") from None
            tokens.drop(token)
    raise AssertionError("the second try returns or raises")


def own_key(file: Path) -> ECKey:
    """Made once. The client is defined with its public half."""
    if not file.exists():
        file.touch(0o600)
        file.write_text(json.dumps(ECKey.generate_key("P-256", auto_kid=True).as_dict(private=True)))
    return ECKey.import_key(json.loads(file.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="*", metavar="URL", help="what to call, in turn")
    parser.add_argument("--issuer", default="http://127.0.0.1:8080", help="the base URL of Gatepost")
    parser.add_argument("--client", default="", help="the client's id, cli_…")
    parser.add_argument("--credentials", type=Path, help="file with client_id and client_secret, as --save writes it")
    parser.add_argument("--scope", default="", help="what to ask for")
    parser.add_argument("--key", type=Path, help="file of a key to authenticate with, in place of CLIENT_SECRET")
    parser.add_argument("--jwks", action="store_true", help="print the public half of the key, and no more")
    given = parser.parse_args()
    if given.jwks:
        print(json.dumps({"keys": [own_key(given.key or Path("key.json")).as_dict(private=False)]}))
        return
    authenticate = by_secret(given.client, os.environ.get("CLIENT_SECRET", ""))
    if given.credentials:
        saved = json.loads(given.credentials.read_text("utf-8"))
        authenticate = by_secret(saved["client_id"], saved["client_secret"])
    if given.key:
        authenticate = by_key(given.client, own_key(given.key), given.issuer)
    tokens = Tokens(given.issuer, given.scope, authenticate)
    for url in given.urls:
        print(json.dumps(call(url, tokens)))


if __name__ == "__main__":
    main()
