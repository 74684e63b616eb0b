"""An account with the profile fapi2: clients use private_key_jwt, and tokens are DPoP-bound (RFC 9449)."""

import hashlib
import json
import time
from typing import Any

import requests
from joserfc.jwk import ECKey, Key

from gatepost.core import ids
from gatepost.oauth import account_admin
from gatepost.web.tokens import ASSERTION_TYPE
from tests.assertions import right_claims, signed
from tests.login import API, CALLBACK, LOGIN_URL, SCOPES, Browser, Platform, b64
from tests.service import Client, Service
from tests.waiting import LIMIT

ADMIN = "gatepost:clients gatepost:scopes gatepost:deliveries"
NONCE_KEPT = 60  # seconds; the nonces of the service are valid for longer


def key_set(*keys: Key, **members: str) -> dict[str, Any]:
    """Return the JWK set of the public keys, each with these additional members."""
    return {"keys": [key.as_dict(private=False) | members for key in keys]}


def proof(
    key: Key, method: str, url: str, *, nonce: str | None, token: str | None = None, header: Any = None, **changes: Any
) -> str:
    """Return a valid DPoP proof with these changes. A change to None omits a claim."""
    right = {
        "jti": ids.new("jti"), "htm": method, "htu": url, "iat": int(time.time()), "nonce": nonce,
        "ath": b64(hashlib.sha256(token.encode()).digest()) if token else None,
    }  # fmt: skip
    claims = {name: value for name, value in (right | changes).items() if value is not None}
    shown = {"typ": "dpop+jwt", "jwk": key.as_dict(private=False), "kid": None} | (header or {})
    return signed(key, claims, **shown)


class KeyHolder:
    """A key, with proofs that contain a current nonce of the service."""

    def __init__(self, url: str, key: Key | None = None) -> None:
        self.url, self.key = url, key or ECKey.generate_key("P-256")
        self._nonce, self._got = "", 0.0

    def nonce(self) -> str:
        """Return a current nonce. The service sends one in response to any proof, even an invalid one."""
        if not self._nonce or time.monotonic() > self._got + NONCE_KEPT:
            answer = requests.post(f"{self.url}/oauth/tokens", headers={"DPoP": "none yet"}, timeout=LIMIT)
            self._nonce, self._got = answer.headers["DPoP-Nonce"], time.monotonic()
        return self._nonce

    def proof(self, method: str, url: str, token: str | None = None, header: Any = None, **changes: Any) -> str:
        """Sign with PS256 if the key is an RSA key, unless the header names another algorithm."""
        shown = ({"alg": "PS256"} if self.key.key_type == "RSA" else {}) | (header or {})
        changes = {"nonce": self.nonce()} | changes
        return proof(self.key, method, url, token=token, header=shown, **changes)


class Fapi2Platform(Platform):
    """A platform with the profile fapi2: its requests contain an assertion and a proof."""

    def __init__(self, gatepost: Service, name: str, *settings: str, key: Key | None = None) -> None:
        self.gatepost, self.url, self.name = gatepost, gatepost.url, name
        self.api = API.format(name=name)
        self.key = ECKey.generate_key("P-256", {"kid": f"login-{name}"})
        self.holder = self._admins = KeyHolder(gatepost.url)
        first = key or ECKey.generate_key("P-256", {"kid": f"first-{name}"})
        changes = {"profile": "fapi2", "login_url": LOGIN_URL, "login_jwks": json.dumps(key_set(self.key))}
        changes |= dict(each.split("=", 1) for each in settings)
        store, service = gatepost.opened.store, gatepost.opened.service
        made = store.run_now(lambda tx: account_admin.create(tx, service, name, changes, key_set(first)))
        self.account, self.first = made.account.id, Client(made.client, "")
        self.keys = {self.first.id: first}
        self.admin = self.own_token(self.first, ADMIN)
        for scope in ("things:read", "things:write"):
            self.define_scope(name=scope, resource=self.api, description=f"May {scope}")
        self.define_scope(name="profile")
        self.client = self.define()

    def set(self, **changes: str) -> None:
        """Change settings as `account set` does."""
        store, service = self.gatepost.opened.store, self.gatepost.opened.service
        store.run_now(lambda tx: account_admin.change(tx, service, self.name, changes))

    def define_scope(self, **members: Any) -> None:
        answer = self.call("POST", "/oauth/scopes", json=members)
        assert answer.status_code in (200, 201), answer.text

    def define(self, key: Key | None = None, **members: Any) -> Client:
        key = key or ECKey.generate_key("P-256", {"kid": ids.new("kid")})
        body = self.defining(jwks=key_set(key)) | members
        answer = self.call("POST", "/oauth/clients", json=body)
        assert answer.status_code == 201, answer.text
        self.keys[answer.json()["client_id"]] = key
        return Client(answer.json()["client_id"], "")

    def defining(self, **members: Any) -> dict[str, Any]:
        """Return the members of a client that complies with the profile. A member that is None is omitted."""
        body: dict[str, Any] = {
            "grant_types": ["authorization_code", "refresh_token"],
            "redirect_uris": [CALLBACK],
            "scope": SCOPES,
            "token_endpoint_auth_method": "private_key_jwt",
        }
        return {name: value for name, value in (body | members).items() if value is not None}

    # --- requests of a client

    def assertion(self, client: Client | None = None, header: Any = None, **changes: Any) -> str:
        """Sign with PS256 if the key is an RSA key, unless the header names another algorithm."""
        client = client or self.client
        key = self.keys[client.id]
        shown = ({"alg": "PS256"} if key.key_type == "RSA" else {}) | (header or {})
        return signed(key, right_claims(client.id, self.url, **changes), **shown)

    def post(self, path: str, client: Client | None = None, headers: Any = None, **form: Any) -> requests.Response:
        """Send a form with an assertion and a proof. A parameter or header that is None is omitted."""
        url = f"{self.url}/oauth/{path}"
        right = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": self.assertion(client)}
        sent = {name: value for name, value in (right | form).items() if value is not None}
        shown = {"DPoP": self.holder.proof("POST", url)} | dict(headers or {})
        return self.gatepost.session.post(url, data=sent, headers=shown)

    def own_token(self, client: Client, scope: str) -> str:
        answer = self.ask(client, grant_type="client_credentials", scope=scope)
        assert answer.status_code == 200, answer.text
        assert answer.json()["token_type"] == "DPoP"
        return str(answer.json()["access_token"])

    def call(self, method: str, path: str, token: str = "", **options: Any) -> requests.Response:
        """Call an operation of the API with this token, by default one of the first client of the account."""
        url, holder, token = f"{self.url}{path}", self.holder if token else self._admins, token or self.admin
        headers = {"Authorization": f"DPoP {token}", "DPoP": holder.proof(method, url, token)}
        headers |= options.pop("headers", {})
        return self.gatepost.session.request(method, url, headers=headers, **options)

    def push(self, client: Client | None = None, headers: Any = None, **changes: Any) -> requests.Response:
        return self.post("par", client, headers, **self.auth_request(client, **changes))

    def pushed(self, client: Client | None = None, **changes: Any) -> dict[str, str]:
        """Push a request, and return the parameters of the authorization request that refers to it."""
        answer = self.push(client, **changes)
        assert answer.status_code == 201, answer.text
        return {"client_id": (client or self.client).id, "request_uri": answer.json()["request_uri"]}

    def code(self, parameters: Any = None, browser: Browser | None = None, **handoff: Any) -> str:
        return super().code(parameters or self.pushed(), browser, **handoff)
