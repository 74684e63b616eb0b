"""An API that takes Gatepost's access tokens. It verifies each by itself, with the key set, and asks nobody.

    python examples/resource_server.py      GET /things needs the scope things:read, POST /things needs things:write

Its address is its name: the `resource` of its scopes, and so the `aud` of its tokens. A token that is bound to a key
(`cnf`) is taken only with a DPoP proof of that key. What is refused is told as RFC 6750 and RFC 9449 say.
"""
# ruff: noqa: S310, TID251

import argparse
import hashlib
import json
import re
import threading
import time
import warnings
from base64 import urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import urlopen

from joserfc import jws, jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey

# RFC 9864 renames EdDSA to Ed25519. Proofs by either name are taken, and the library need not warn of it each time.
warnings.filterwarnings("ignore", "EdDSA is deprecated", SecurityWarning)

NEEDED = {"GET": "things:read", "POST": "things:write"}
ALGORITHMS = ["ES256"]  # the account's signing_alg
PROOF_ALGORITHMS = ["ES256", "EdDSA", "Ed25519", "PS256", "RS256"]
PROOF_KEYS: dict[str, type[ECKey | OKPKey | RSAKey]] = {"EC": ECKey, "OKP": OKPKey, "RSA": RSAKey}
PROOF_LIFE = 60  # seconds either way
METADATA = "/.well-known/oauth-protected-resource"


class Refused(Exception):
    def __init__(self, error: str, description: str = "", *, status: int = 401, scheme: str = "Bearer") -> None:
        super().__init__(description)
        self.error, self.description, self.status, self.scheme = error, description, status, scheme


class Keys:
    """The issuer's key set: fetched again after 15 minutes, or for an unknown key, though not for each of them."""

    def __init__(self, issuer: str) -> None:
        self._url, self._lock = f"{issuer}/oauth/jwks", threading.Lock()
        self._found, self._tried_at = KeySet([]), 0.0

    def holding(self, kid: str) -> KeySet:
        with self._lock:
            age, names = time.monotonic() - self._tried_at, [key.kid for key in self._found.keys]
            if not names or age > (900 if kid in names else 10):
                self._tried_at = time.monotonic()
                try:
                    with urlopen(self._url, timeout=10) as answer:
                        self._found = KeySet.import_key_set(json.load(answer))
                except OSError:
                    if not names:  # else those known go on being used
                        raise
            return self._found


class Verifier:
    def __init__(self, issuer: str, resource: str) -> None:
        self._keys, self._lock, self._used = Keys(issuer), threading.Lock(), dict[str, float]()
        wanted = {"iss": issuer, "aud": resource}
        rules: Any = {name: {"essential": True, "value": value} for name, value in wanted.items()}
        rules |= {name: {"essential": True} for name in ("exp", "iat", "sub", "client_id", "jti", "scope")}
        self._rules = rules

    def check(self, method: str, url: str, authorization: list[str], proofs: list[str]) -> dict[str, Any]:
        """The claims of the token, if it is good for this request; else Refused."""
        scheme, _, token = authorization[0].partition(" ") if authorization else ("", "", "")
        if len(authorization) > 1 or (authorization and scheme.lower() not in ("bearer", "dpop")):
            raise Refused("invalid_request", "send one Authorization header, Bearer or DPoP", status=400)
        if not authorization:
            raise Refused("")  # RFC 6750, section 3.1: who sent nothing is told no error
        claims = self._claims(token.strip())
        bound = claims.get("cnf", {}).get("jkt")
        if bound:
            if scheme.lower() != "dpop":  # RFC 9449, section 7.2: no downgrade
                raise Refused("invalid_token", "the token is bound to a key: send it as DPoP", scheme="DPoP")
            self._check_proof(proofs, method, url, token.strip(), bound)
        elif scheme.lower() == "dpop":
            raise Refused("invalid_token", "the token is not bound to a key: send it as Bearer")
        if NEEDED[method] not in claims["scope"].split(" "):
            raise Refused("insufficient_scope", f"this needs {NEEDED[method]}", status=403, scheme=scheme)
        return claims

    def _claims(self, token: str) -> dict[str, Any]:
        try:
            kid = jws.extract_compact(token.encode()).headers().get("kid", "")
            found = jwt.decode(token, self._keys.holding(kid), algorithms=ALGORITHMS)
            jwt.JWTClaimsRegistry(leeway=10, **self._rules).validate(found.claims)
        except (JoseError, ValueError) as error:
            raise Refused("invalid_token", f"the access token is not good here ({error})") from None
        if found.header.get("typ") != "at+jwt":  # RFC 9068, section 4: no other kind of JWT
            raise Refused("invalid_token", "not an access token")
        return found.claims

    def _check_proof(self, proofs: list[str], method: str, url: str, token: str, bound: str) -> None:
        """RFC 9449, section 4.3."""
        try:
            [proof] = proofs
            key = proof_key(jws.extract_compact(proof.encode(), registry=PROOFS).headers()["jwk"])
            found = jwt.decode(proof, key, registry=PROOFS)
            said, age = found.claims, time.time() - found.claims["iat"]
            right = {"htm": method, "htu": normalized(url), "ath": hashed(token)}
            told = said | {"htu": normalized(said["htu"])}
            wrong = [name for name, value in right.items() if told.get(name) != value]
            wrong += ["typ"] if found.header.get("typ") != "dpop+jwt" else []
            wrong += ["jwk"] if key.is_private or key.thumbprint() != bound else []
            wrong += ["iat"] if not -PROOF_LIFE < age < PROOF_LIFE else []
            wrong += ["jti"] if not wrong and not self._is_first(f"{bound} {said['jti']}") else []
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise Refused("invalid_dpop_proof", f"send one good proof ({error})", scheme="DPoP") from None
        if wrong:
            raise Refused("invalid_dpop_proof", f"not good here: {', '.join(wrong)}", scheme="DPoP")

    def _is_first(self, proof: str) -> bool:
        """Each proof once. With several processes this belongs in a store that they share."""
        now = time.monotonic()
        with self._lock:
            self._used = {each: until for each, until in self._used.items() if until > now}
            first = proof not in self._used
            self._used[proof] = now + 2 * PROOF_LIFE
        return first


class ProofRegistry(jws.JWSRegistry):
    """The header of a proof holds a public key, and an RSA key is larger than the library's limit for headers."""

    max_header_length = 4096


PROOFS = ProofRegistry(algorithms=PROOF_ALGORITHMS)


def proof_key(jwk: Any) -> Key:
    """The public key in the header of a proof: P-256, Ed25519, or RSA of 2048 bits or more."""
    key = PROOF_KEYS[jwk["kty"]].import_key(dict(jwk))
    if isinstance(key, RSAKey) and key.raw_value.key_size < 2048:
        raise ValueError("an RSA key needs 2048 bits or more")
    return key


def normalized(uri: str) -> str:
    """RFC 9449, section 4.3: without query and fragment, normalised as RFC 3986, sections 6.2.2 and 6.2.3, say."""
    parts = urlsplit(uri)
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if scheme not in ("http", "https") or not host or "@" in parts.netloc or not uri.isascii():
        raise ValueError("htu must be an http or https URI with a host")
    port = "" if parts.port in (None, {"http": 80, "https": 443}[scheme]) else f":{parts.port}"
    netloc = (f"[{host}]" if ":" in host else host) + port
    kept: list[str] = []
    segments = re.sub(r"%([0-9A-Fa-f]{2})", _percent, parts.path).split("/")[1:]
    for segment in segments:  # RFC 3986, section 5.2.4
        if segment == "..":
            kept = kept[:-1]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in (".", ".."):
        kept.append("")
    return f"{scheme}://{netloc}/{'/'.join(kept)}"


def _percent(escaped: re.Match[str]) -> str:
    """An unreserved character needs no escape; the hexadecimal digits of all others are in upper case."""
    character = chr(int(escaped[1], 16))
    return character if re.fullmatch(r"[A-Za-z0-9._~-]", character) else escaped[0].upper()


def hashed(token: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()


class Things(BaseHTTPRequestHandler):
    issuer = resource = ""
    verifier: ClassVar[Verifier]
    things: ClassVar[list[str]] = ["a lamp", "a chair"]

    def do_GET(self) -> None:
        if self.path == METADATA:  # RFC 9728
            told = {"resource": self.resource, "authorization_servers": [self.issuer]}
            return self.answer(200, told | {"scopes_supported": list(NEEDED.values())})
        return self.serve()

    def do_POST(self) -> None:
        self.serve()

    def serve(self) -> None:
        path = urlsplit(self.path).path
        if path != "/things":
            return self.answer(404, {"error": "not_found"})
        sent = {name: self.headers.get_all(name, []) for name in ("authorization", "dpop")}
        try:
            claims = self.verifier.check(self.command, self.resource + path, sent["authorization"], sent["dpop"])
        except Refused as why:
            return self.refuse(why)
        except OSError:
            return self.answer(503, {"error": "temporarily_unavailable"})
        if self.command == "POST":
            self.things.append(self.rfile.read(min(int(self.headers.get("content-length", 0)), 1000)).decode())
        acts = {"by": claims["act"]["sub"]} if "act" in claims else {}  # somebody acts for the subject
        return self.answer(200, {"for": claims["sub"], **acts, "things": self.things})

    def refuse(self, why: Refused) -> None:
        told = {"error": why.error, "error_description": why.description} if why.error else {}
        more = {"scope": NEEDED[self.command], "resource_metadata": self.resource + METADATA}
        members = ", ".join(f'{name}="{quoted(value)}"' for name, value in (told | more).items())
        algs = f'algs="{" ".join(PROOF_ALGORITHMS)}"'
        challenges = [f"DPoP {members}, {algs}"] if why.scheme.lower() == "dpop" else [f"Bearer {members}"]
        self.answer(why.status, told, *challenges, *([] if why.error else [f"DPoP {algs}"]))

    def answer(self, status: int, body: dict[str, Any], *challenges: str) -> None:
        self.send_response(status)
        for each in challenges:
            self.send_header("www-authenticate", each)
        self.send_header("cache-control", "no-store")
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def quoted(text: str) -> str:
    """As RFC 6750, section 3 has it: printable ASCII without quote and backslash."""
    return "".join(each if " " <= each <= "~" and each not in '"\\' else "'" for each in text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--issuer", default="http://127.0.0.1:8080", help="the base URL of Gatepost")
    parser.add_argument("--port", type=int, default=8091)
    given = parser.parse_args()
    Things.issuer, Things.resource = given.issuer, f"http://127.0.0.1:{given.port}"
    Things.verifier = Verifier(Things.issuer, Things.resource)
    server = ThreadingHTTPServer(("127.0.0.1", given.port), Things)
    print(f"serving {Things.resource}/things", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
