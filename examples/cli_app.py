"""An app for the command line that acts for a person: authorization code with PKCE, on a loopback port (RFC 8252).

    python examples/cli_app.py --client cli_… URL          sign in if need be, and call the API at URL
    python examples/cli_app.py --client cli_… --sign-out

It is a public client: it has no secret to keep. In place of one, its tokens are bound to a key of its own (DPoP, RFC
9449) that never leaves the machine. The key and the refresh token are in the file `--keep`, for its owner alone.
"""
# ruff: noqa: S310, TID251

import argparse
import hashlib
import json
import secrets
import threading
import time
import webbrowser
from base64 import urlsafe_b64encode
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import Request, urlopen

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

PATIENCE = 300  # seconds for the person to sign in


class App:
    def __init__(self, issuer: str, client: str, file: Path, *, browser: bool) -> None:
        self._issuer, self._client, self._file, self._browser = issuer, client, file, browser
        self._kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self._key = ECKey.import_key(self._kept["key"]) if self._kept else ECKey.generate_key("P-256")
        self._nonces: dict[str, str] = {}  # by server
        self._server = load(f"{issuer}/.well-known/openid-configuration")
        if self._server["issuer"] != issuer:
            raise SystemExit(f"{issuer} says that it is {self._server['issuer']}")

    # --- tokens

    def access_token(self, scope: str) -> str:
        """By the refresh token that was kept; else the person signs in."""
        if self._kept:
            form = {"grant_type": "refresh_token", "refresh_token": self._kept["refresh_token"]}
            status, told = self._ask("token_endpoint", form)
            if status == 200:
                return self._keep(told)
            if told.get("error") != "invalid_grant":
                raise SystemExit(f"no token: {told}")
            print(f"The session has ended: {told['error_description']}")
        return self._sign_in(scope)

    def _sign_in(self, scope: str) -> str:
        verifier, nonce = secrets.token_urlsafe(32), secrets.token_urlsafe()
        with closing(Callback()) as callback:
            asked = {
                "client_id": self._client, "response_type": "code", "redirect_uri": callback.url, "scope": scope,
                "state": callback.state, "nonce": nonce, "dpop_jkt": self._key.thumbprint(),
                "code_challenge": hashed(verifier), "code_challenge_method": "S256",
                "claims": json.dumps({"id_token": {"name": None}}),  # OIDC Core 1.0, section 5.5: else userinfo has it
            }  # fmt: skip
            url = f"{self._server['authorization_endpoint']}?{urlencode(asked)}"
            print(f"Sign in at {url}", flush=True)
            if self._browser:
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
            told = callback.wait()
        if told.get("iss") != self._issuer:  # RFC 9207
            raise SystemExit("the answer is of another server than was asked")
        if "code" not in told:
            raise SystemExit(f"not signed in: {told.get('error')}: {told.get('error_description')}")
        form = {"grant_type": "authorization_code", "code": told["code"], "redirect_uri": callback.url}
        status, answer = self._ask("token_endpoint", form | {"code_verifier": verifier})
        if status != 200:
            raise SystemExit(f"no token: {answer}")
        who = self._identity(answer["id_token"], nonce)
        print(f"Signed in as {who.get('name', who['sub'])}")
        return self._keep(answer)

    def _identity(self, id_token: str, nonce: str) -> dict[str, Any]:
        """OIDC Core 1.0, section 3.1.3.7."""
        keys: Any = load(self._server["jwks_uri"])
        found = jwt.decode(id_token, KeySet.import_key_set(keys), algorithms=["ES256"])
        wanted = {"iss": self._issuer, "aud": self._client, "nonce": nonce}
        rules: Any = {name: {"essential": True, "value": value} for name, value in wanted.items()}
        jwt.JWTClaimsRegistry(leeway=10, exp={"essential": True}, **rules).validate(found.claims)
        return found.claims

    def _keep(self, answer: dict[str, Any]) -> str:
        """A refresh token is good once: the next one is on the disk before anything else is done."""
        if "refresh_token" in answer:
            self._kept = {"key": self._key.as_dict(private=True), "refresh_token": answer["refresh_token"]}
            new = self._file.with_suffix(".new")
            new.touch(0o600)
            new.write_text(json.dumps(self._kept))
            new.replace(self._file)
        return str(answer["access_token"])

    def sign_out(self) -> None:
        """RFC 7009: ends the refresh token, and every access token that came of it."""
        if self._kept:
            status, told = self._ask("revocation_endpoint", {"token": self._kept["refresh_token"]})
            if status != 200:
                raise SystemExit(f"still signed in: {told}")
        self._file.unlink(missing_ok=True)

    # --- requests, each with a proof of the key

    def _ask(self, endpoint: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        return self.send(self._server[endpoint], urlencode(form | {"client_id": self._client}).encode())

    def send(self, url: str, body: bytes | None = None, token: str = "") -> tuple[int, dict[str, Any]]:
        """A server may say which nonce it wants in a proof: then once more, with that."""
        server = urlsplit(url).netloc
        for _ in range(2):
            known = self._nonces.get(server)
            headers = {"dpop": self._proof("POST" if body else "GET", url, token, known)}
            headers |= {"authorization": f"DPoP {token}"} if token else {}
            try:
                answer = urlopen(Request(url, body, headers), timeout=10)
            except HTTPError as error:
                answer = error
            with answer:
                told = dict(json.load(answer))
            self._nonces[server] = answer.headers.get("dpop-nonce") or known or ""
            if told.get("error") != "use_dpop_nonce":
                break
        return answer.status, told

    def _proof(self, method: str, url: str, token: str, nonce: str | None) -> str:
        """RFC 9449, section 4.2."""
        bare = urlsplit(url)._replace(query="", fragment="").geturl()
        claims = {"htm": method, "htu": bare, "iat": int(time.time()), "jti": secrets.token_urlsafe()}
        claims |= ({"ath": hashed(token)} if token else {}) | ({"nonce": nonce} if nonce else {})
        head = {"alg": "ES256", "typ": "dpop+jwt", "jwk": self._key.as_dict(private=False)}
        return jwt.encode(head, claims, self._key)


class Callback:
    """Listens on any free port of loopback until the browser comes back with the state that was sent out."""

    def __init__(self) -> None:
        self.state = state = secrets.token_urlsafe(32)
        self._told: Queue[dict[str, str]] = Queue()
        tell = self._told.put

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                told = dict(parse_qsl(url.query))
                right = url.path == "/callback" and told.get("state") == state
                self.send_response(200 if right else 400)
                self.send_header("content-type", "text/plain; charset=utf-8")
                self.end_headers()
                self.wfile.write(b"Done. You may close this window." if right else b"Nobody waits for this.")
                if right:
                    tell(told)

            def log_message(self, *_: Any) -> None:
                """Not the addresses: they hold codes."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.url = f"http://127.0.0.1:{self._server.server_port}/callback"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def wait(self) -> dict[str, str]:
        try:
            return self._told.get(timeout=PATIENCE)
        except Empty:
            raise SystemExit("nobody signed in") from None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def load(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=10) as answer:
        return dict(json.load(answer))


def hashed(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="what to call")
    parser.add_argument("--issuer", default="http://127.0.0.1:8080", help="the base URL of Gatepost")
    parser.add_argument("--client", required=True, help="the client's id, cli_…")
    parser.add_argument("--scope", default="openid offline_access profile things:read", help="what to ask for")
    parser.add_argument("--keep", type=Path, default=Path("cli-app.json"), help="file of what is kept between runs")
    parser.add_argument("--no-browser", action="store_true", help="only print where to sign in")
    parser.add_argument("--sign-out", action="store_true")
    given = parser.parse_args()
    app = App(given.issuer, given.client, given.keep, browser=not given.no_browser)
    if given.sign_out:
        app.sign_out()
        print("Signed out.")
    elif given.url:
        status, told = app.send(given.url, token=app.access_token(given.scope))
        print(f"{status} {json.dumps(told)}")


if __name__ == "__main__":
    main()
