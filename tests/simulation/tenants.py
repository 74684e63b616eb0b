"""The tenants of the simulated service and the requests of their programs."""

import json
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from joserfc.jwk import ECKey

from gatepost.core import ids
from gatepost.oauth import account_admin
from tests.assertions import signed
from tests.login import CALLBACK, LOGIN_URL, VERIFIER, challenge, decode_jwt
from tests.simulation import script
from tests.simulation.deployment import BASE_URL, Deployment, Response, Running, Violation

ALL = "gatepost:clients gatepost:scopes gatepost:endpoints gatepost:subscriptions gatepost:deliveries gatepost:events"
SCHEDULE = "5s,1m,10m,2h,10h"
SUBSCRIBED = [["*"], ["*"], ["invoice.*"], ["invoice.paid"], ["order.placed", "invoice.*"]]


@dataclass
class Credentials:
    client: str
    secret: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": "Basic " + b64encode(f"{self.client}:{self.secret}".encode()).decode()}


@dataclass
class Family:
    """A token family, as its client knows it."""

    token: str  # the newest refresh token of the client
    previous: list[str] = field(default_factory=list)
    successors: dict[str, str] = field(default_factory=dict)  # by the token that was sent
    over: bool = False  # certainly ended: the client got a response to its revocation or to the reuse
    touched: int = 0  # the number of operations on the family
    access: list[str] = field(default_factory=list)


@dataclass
class PublishedEvent:
    """An event that the service accepted."""

    id: str
    name: str
    type: str
    matched: int
    deliveries: list[str]
    at: float


class Tenant:
    def __init__(self, deployment: Deployment, name: str, hold_limit: str) -> None:
        self.deployment, self.name = deployment, name
        self.key = ECKey.generate_key("P-256", {"kid": f"login-{name}"})
        self.endpoints: list[str] = []
        self.subscriptions: list[str] = []
        self.families: list[Family] = []
        self.events: list[PublishedEvent] = []
        self.answered_tokens: list[tuple[str, str]] = []  # entry and token of responses that are not yet checked
        self.suspended = False  # certainly
        self.may_be_refused = False  # suspended, about to be suspended, or resumed recently
        self.tokens = 0
        self._admin_token = ("", 0.0)
        self._numbers = 0
        settings = {
            "login_url": LOGIN_URL,
            "login_jwks": json.dumps({"keys": [self.key.as_dict(private=False)]}),
            "retention": "7d",
            "hold_limit": hold_limit,
            "audit_retention": "30d",
            "retry_schedule": SCHEDULE,
        }
        world = deployment.world
        assert world is not None
        made = world.store.run_now(lambda tx: account_admin.create(tx, world.service, name, settings))
        assert made.secret is not None
        self.id = made.account.id
        self.admin = Credentials(made.client, made.secret.reveal())
        self.machine = Credentials("", "")
        self.app = Credentials("", "")

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    # --- requests

    async def post(self, path: str, body: dict[str, Any]) -> Response | None:
        token = await self.admin_token()
        if token is None:
            return None
        return await self.deployment.request("POST", path, headers={"authorization": f"Bearer {token}"}, body=body)

    async def get_deliveries(self, **query: str) -> list[dict[str, Any]] | None:
        token = await self.admin_token()
        if token is None:
            return None
        answer = await self.deployment.request(
            "GET", "/webhooks/deliveries", headers={"authorization": f"Bearer {token}"}, query=query
        )
        return answer.json()["data"] if answer is not None and answer.status == 200 else None

    async def admin_token(self) -> str | None:
        token, until = self._admin_token
        now = self.deployment.loop.time()
        if now >= until:
            answer = await self.ask(self.admin, grant_type="client_credentials", scope=ALL)
            if answer is None or answer.status != 200:
                return None
            token = answer.json()["access_token"]
            self._admin_token = (token, now + 1800)
        return token

    async def ask(self, credentials: Credentials, **form: str) -> Response | None:
        """Send a token request. A token that the service returns must have its entry."""
        suspended = self.suspended
        answer = await self.deployment.request("POST", "/oauth/tokens", headers=credentials.headers, form=form)
        if answer is None:
            return None
        self.tokens += 1
        check(answer.status < 500 or answer.status == 503, f"token request answered {answer.status}: {answer.body!r}")
        if answer.status == 200:
            check(not (suspended and self.suspended), f"a suspended account was given a token: {answer.body!r}")
            self.answered_tokens.append((answer.headers["gatepost-event"], answer.json()["access_token"]))
        return answer

    # --- set-up

    async def define(self) -> None:
        """Define a scope, a machine client and a client with sign-in."""
        api = f"https://api.{self.name}.example"
        made = await self.post("/oauth/scopes", {"name": "things:read", "resource": api})
        assert made is not None
        assert made.status == 201, made
        machine = await self.post("/oauth/clients", {"grant_types": ["client_credentials"], "scope": "things:read"})
        assert machine is not None
        assert machine.status == 201, machine
        self.machine = Credentials(machine.json()["client_id"], machine.json()["client_secret"])
        application = await self.post(
            "/oauth/clients",
            {
                "grant_types": ["authorization_code", "refresh_token"],
                "redirect_uris": [CALLBACK],
                "scope": "openid offline_access things:read",
            },
        )
        assert application is not None
        assert application.status == 201, application
        self.app = Credentials(application.json()["client_id"], application.json()["client_secret"])

    async def define_endpoint(self, events: list[str] | None = None, **members: Any) -> str | None:
        """Define an endpoint with a subscription. Returns its URL if both are certainly defined."""
        url = f"https://receiver-{self.number()}.{self.name}.example/hooks"
        made = await self.post("/webhooks/endpoints", {"url": url} | members)
        if made is None or made.status != 201:
            return None
        endpoint = made.json()["id"]
        self.endpoints.append(endpoint)
        await self.subscribe(endpoint, events or script.random().choice(SUBSCRIBED))
        return url

    async def subscribe(self, endpoint: str, events: list[str]) -> str | None:
        made = await self.post("/webhooks/subscriptions", {"endpoint_id": endpoint, "events": events})
        if made is None or made.status != 201:
            return None
        subscription: str = made.json()["id"]
        self.subscriptions.append(subscription)
        return subscription

    # --- people

    async def sign_in(self) -> Family | None:
        """Complete an authorization with a handoff, and redeem the code."""
        asked = {
            "client_id": self.app.client, "response_type": "code", "redirect_uri": CALLBACK, "state": "s",
            "scope": "openid offline_access things:read", "nonce": "n", "code_challenge": challenge(),
            "code_challenge_method": "S256",
        }  # fmt: skip
        begun = await self.deployment.request("GET", "/oauth/authorize", query=asked)
        if begun is None or begun.status != 303:
            return None
        result = dict(parse_qsl(urlsplit(begun.headers["location"]).query))
        if "interaction" not in result:
            return None
        interaction = decode_jwt(result["interaction"])[1]
        now = self.deployment.milliseconds() // 1000
        claims = {
            "iss": self.id, "aud": BASE_URL, "interaction": interaction["jti"], "sub": "ada", "auth_time": now,
            "scope": asked["scope"], "iat": now, "exp": now + 60, "jti": ids.new("jti"),
        }  # fmt: skip
        handoff = signed(self.key, claims, typ="gatepost-handoff+jwt")
        cookie = begun.headers["set-cookie"].partition(";")[0]
        back = await self.deployment.request(
            "GET", "/oauth/authorize", query={"handoff": handoff}, headers={"cookie": cookie}
        )
        if back is None or back.status != 303:
            return None
        code = dict(parse_qsl(urlsplit(back.headers["location"]).query)).get("code")
        if code is None:
            return None
        given = await self.ask(
            self.app, grant_type="authorization_code", code=code, redirect_uri=CALLBACK, code_verifier=VERIFIER
        )
        if given is None or given.status != 200:
            return None
        family = Family(given.json()["refresh_token"], access=[given.json()["access_token"]])
        self.families.append(family)
        return family

    async def refresh(self, family: Family, token: str) -> Response | None:
        """Use a refresh token. It has one successor, however often it is used."""
        family.touched += 1
        answer = await self.ask(self.app, grant_type="refresh_token", refresh_token=token)
        if answer is not None and answer.status == 200:
            check(not family.over, "a refresh token of a family that was ended worked")
            successor: str = answer.json()["refresh_token"]
            known = family.successors.setdefault(token, successor)
            check(known == successor, "one refresh token had two successors: the family has two live leaves")
            family.access.append(answer.json()["access_token"])
            if token == family.token:
                family.previous.append(token)
                family.token = successor
        return answer

    async def introspect(self, token: str, web: Running | None = None) -> bool | None:
        answer = await self.deployment.request(
            "POST", "/oauth/introspect", headers=self.app.headers, form={"token": token}, web=web
        )
        return answer.json()["active"] if answer is not None and answer.status == 200 else None

    # --- events

    async def publish(self, type_: str, data: dict[str, Any]) -> PublishedEvent | None:
        """Publish with an id, and repeat the request until there is a response. None if the event was refused."""
        given = f"{self.name}-{self.number()}"
        event = {
            "specversion": "1.0",
            "id": given,
            "source": "/simulation",
            "type": type_,
            "data": {**data, "given": given},
        }
        for _ in range(60):
            token = await self.admin_token()
            answer = await self.deployment.publish(token, event) if token else None
            if answer is not None and answer.status == 200:
                body = answer.json()
                found = PublishedEvent(
                    body["id"], given, type_, body["matched"], body["deliveries"], self.deployment.loop.time()
                )
                check(len(found.deliveries) == found.matched, f"{found} does not name its deliveries")
                self.events.append(found)
                return found
            if answer is not None and answer.status != 503:
                check(answer.status == 401, f"publishing answered {answer.status}: {answer.body!r}")
                self._admin_token = ("", 0.0)  # the clock may have been set back: request a new token
            if self.may_be_refused:
                return None
            await self.deployment.sleep(1.0)
        raise Violation("publishing did not succeed in a minute of tries")


def check(holds: bool, problem: str) -> None:
    if not holds:
        raise Violation(problem)
