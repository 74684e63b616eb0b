"""An account with a login application, a browser that keeps cookies, and the requests of an OAuth client.

Tokens and requests are written out here, without the code of the service.
"""

import hashlib
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests
from joserfc.jwk import ECKey, Key

from gatepost.core import ids
from tests.assertions import signed
from tests.service import Client, Service

LOGIN_URL = "https://login.example/start"
CALLBACK = "https://app.example/callback"
API = "https://api.{name}.example"
VERIFIER = "v" * 43
SCOPES = "openid offline_access profile things:read things:write"
CLAIMS = {"name": "Ada Lovelace", "given_name": "Ada", "email": "ada@example.com", "picture": "https://example.com/a"}


def challenge(verifier: str = VERIFIER) -> str:
    return b64(hashlib.sha256(verifier.encode()).digest())


def b64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_jwt(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the unverified header and claims of a JWT."""
    head, claims, _ = (each + "=" * (-len(each) % 4) for each in token.split("."))
    return json.loads(urlsafe_b64decode(head)), json.loads(urlsafe_b64decode(claims))


@dataclass
class Browser:
    """Keeps cookies and follows no redirects, so that tests can check each response."""

    session: requests.Session = field(default_factory=requests.Session)

    def open(self, url: str, parameters: Any = None, **options: Any) -> requests.Response:
        return self.session.get(url, params=parameters, allow_redirects=False, **options)

    def send(self, url: str, form: Any) -> requests.Response:
        return self.session.post(url, data=form, allow_redirects=False)


def redirect_target(answer: requests.Response) -> tuple[str, dict[str, str]]:
    """Return the target of a redirect, without its query, and the parameters of the query."""
    assert answer.status_code == 303, (answer.status_code, answer.text)
    url = urlsplit(answer.headers["Location"])
    return f"{url.scheme}://{url.netloc}{url.path}", dict(parse_qsl(url.query, keep_blank_values=True))


class Platform:
    """An account with a login application, the scopes of one API, and a confidential client with all scopes."""

    def __init__(self, gatepost: Service, name: str, *settings: str, key: Key | None = None) -> None:
        self.gatepost, self.url, self.name = gatepost, gatepost.url, name
        self.key = key or ECKey.generate_key("P-256", {"kid": f"login-{name}"})
        jwks = json.dumps({"keys": [self.key.as_dict(private=False)]})
        self.account, self.first = gatepost.account(name, f"login_url={LOGIN_URL}", f"login_jwks={jwks}", *settings)
        self.admin = gatepost.token(self.first, "gatepost:clients gatepost:scopes")
        self.api = API.format(name=name)
        for scope in ("things:read", "things:write"):
            self.define_scope(name=scope, resource=self.api, description=f"May {scope}")
        self.define_scope(name="profile")
        self.client = self.define()

    def define_scope(self, **members: Any) -> None:
        answer = self.gatepost.post("/oauth/scopes", self.admin, members)
        assert answer.status_code in (200, 201), answer.text

    def define(self, **members: Any) -> Client:
        body: dict[str, Any] = {
            "grant_types": ["authorization_code", "refresh_token"],
            "redirect_uris": [CALLBACK],
            "scope": SCOPES,
            "client_name": "The app",
        }
        return self.gatepost.define_client(self.admin, **(body | members))

    # --- requests of the client

    def auth_request(self, client: Client | None = None, **changes: Any) -> dict[str, Any]:
        """Return the parameters of a valid authorization request. A change to None omits a parameter."""
        right = {
            "client_id": (client or self.client).id,
            "response_type": "code",
            "redirect_uri": CALLBACK,
            "scope": "openid offline_access things:read",
            "state": "a state",
            "nonce": "a nonce",
            "code_challenge": challenge(),
            "code_challenge_method": "S256",
        }
        return {name: value for name, value in (right | changes).items() if value is not None}

    def authorize(self, browser: Browser, parameters: Any) -> requests.Response:
        return browser.open(f"{self.url}/oauth/authorize", parameters)

    def interaction(self, browser: Browser, parameters: Any) -> dict[str, Any]:
        """Request authorization, and return the claims of the interaction that the login application receives."""
        target, query = redirect_target(self.authorize(browser, parameters))
        assert target == LOGIN_URL
        assert set(query) == {"interaction"}
        return decode_jwt(query["interaction"])[1]

    def handoff(self, interaction: dict[str, Any], key: Key | None = None, header: Any = None, **changes: Any) -> str:
        """Return the handoff that the login application signs. A change to None omits a claim."""
        now = int(time.time())
        asked = " ".join(each["name"] for each in interaction["scopes"])
        right = {
            "iss": self.account, "aud": self.url, "interaction": interaction["jti"], "sub": "ada", "auth_time": now,
            "scope": asked, "claims": CLAIMS, "iat": now, "exp": now + 60, "jti": ids.new("jti"),
        }  # fmt: skip
        claims = {name: value for name, value in (right | changes).items() if value is not None}
        return signed(key or self.key, claims, **({"typ": "gatepost-handoff+jwt"} | (header or {})))

    def submit_handoff(self, browser: Browser, handoff: str) -> requests.Response:
        return browser.open(f"{self.url}/oauth/authorize", {"handoff": handoff})

    def code(self, parameters: Any = None, browser: Browser | None = None, **handoff: Any) -> str:
        """Complete an authorization, and return the code that the client receives."""
        browser = browser or Browser()
        interaction = self.interaction(browser, parameters or self.auth_request())
        _, query = redirect_target(self.submit_handoff(browser, self.handoff(interaction, **handoff)))
        assert "code" in query, query
        assert query["iss"] == self.url
        return query["code"]

    def redeem(self, code: str, client: Client | None = None, **changes: Any) -> requests.Response:
        right = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
        return self.ask(client, **(right | changes))

    def refresh(self, token: str, client: Client | None = None, **changes: Any) -> requests.Response:
        return self.ask(client, **({"grant_type": "refresh_token", "refresh_token": token} | changes))

    def ask(self, client: Client | None = None, headers: Any = None, **form: Any) -> requests.Response:
        """Send a token request. A client without a secret sends it as a public client."""
        return self.post("tokens", client, headers, **form)

    def post(self, path: str, client: Client | None = None, headers: Any = None, **form: Any) -> requests.Response:
        client = client or self.client
        sent = {name: value for name, value in form.items() if value is not None}
        sent |= {} if client.secret else {"client_id": client.id}
        own = {"Authorization": client.basic} if client.secret else {}
        return self.gatepost.session.post(f"{self.url}/oauth/{path}", data=sent, headers=own | dict(headers or {}))

    def tokens(self, parameters: Any = None, client: Client | None = None, **handoff: Any) -> dict[str, Any]:
        """Complete an authorization, and return the token response."""
        answer = self.redeem(self.code(parameters, **handoff), client)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def introspect(self, token: str, client: Client | None = None) -> dict[str, Any]:
        answer = self.post("introspect", client, token=token)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def entries(self, *types: str) -> list[dict[str, Any]]:
        """Return the ledger entries of the account with these types, newest first."""
        return [each for each in self.gatepost.entries(self.account, 500) if not types or each["type"] in types]
