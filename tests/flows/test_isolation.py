"""Two accounts on one service: what belongs to one behaves, for the other, as if it did not exist."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jwt
import pytest
import requests
from joserfc.jwk import ECKey

from gatepost.core import ids
from gatepost.ledger.operations import OPERATIONS
from gatepost.web.app import ROUTES
from gatepost.web.tokens import ASSERTION_TYPE
from tests.assertions import assertion
from tests.service import Client, Service
from tests.waiting import LIMIT
from tests.wire import check_refusal, session_from_new_address

SIX = [path for path, route in ROUTES.items() if route.kind == "operation"]


class Tenant:
    """An account with one of everything, and every text by which another could know it."""

    def __init__(self, gatepost: Service, name: str) -> None:
        self.gatepost, self.name = gatepost, name
        self.account, self.admin = gatepost.account(name)
        self.token = gatepost.token(self.admin, " ".join(OPERATIONS))
        self.scope, self.resource = f"{name}.read", f"https://api.{name}.example"
        scope = self.post("/oauth/scopes", {"name": self.scope, "resource": self.resource, "description": f"of {name}"})
        self.key = ECKey.generate_key("P-256", {"kid": f"key-of-{name}"})
        keyed = {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [self.key.as_dict(private=False)]}}
        machine = {"grant_types": ["client_credentials"], "scope": self.scope, "client_name": f"machine of {name}"}
        made = self.post("/oauth/clients", machine | {"serves": [self.resource]}, Idempotency_Key=f"key-{name}")
        shown = made.json()
        self.client = Client(shown["client_id"], shown["client_secret"])
        self.keyed = self.post("/oauth/clients", machine | keyed).json()["client_id"]
        issued = gatepost.token_answer(self.client, self.scope)
        self.machine_token = issued.json()["access_token"]
        self.ids = {
            "account": self.account,
            "client": self.client.id,
            "keyed client": self.keyed,
            "first client": self.admin.id,
            "secret": shown["secrets"][0]["id"],
            "grant": shown["grants"][0]["id"],
            "scope": self.scope,
            "resource": self.resource,
            "default resource": f"urn:gatepost:{self.account}",
            "event": issued.headers["Gatepost-Event"],
            "definition event": scope.headers["Gatepost-Event"],
            "token": jwt.decode(self.machine_token, options={"verify_signature": False})["jti"],
            "request": issued.headers["X-Request-Id"],
        }

    def post(self, path: str, body: Any, **headers: str) -> requests.Response:
        return self.gatepost.post(path, self.token, body, **headers)

    def traces(self) -> set[str]:
        return {*self.ids.values(), self.name, self.admin.secret, self.client.secret, self.token, self.machine_token}


class Two:
    def __init__(self, gatepost: Service) -> None:
        self.a, self.b = Tenant(gatepost, "isolated-a"), Tenant(gatepost, "isolated-b")


@pytest.fixture(scope="module")
def two(gatepost: Service) -> Two:
    return Two(gatepost)


Attempt = Callable[[Tenant, str], requests.Response]


def posted(path: str, body: Callable[[Tenant, str], dict[str, Any]]) -> Attempt:
    return lambda mine, theirs: mine.post(path, body(mine, theirs))


def token_request(form: Callable[[Tenant, str], dict[str, str]]) -> Attempt:
    def attempt(mine: Tenant, theirs: str) -> requests.Response:
        body = {"grant_type": "client_credentials", "scope": mine.scope} | form(mine, theirs)
        with session_from_new_address() as session:
            headers = {} if "client_secret" in body else {"Authorization": mine.client.basic}
            return session.post(f"{mine.gatepost.url}/oauth/tokens", data=body, headers=headers)

    return attempt


def machine(**members: Any) -> dict[str, Any]:
    return {"grant_types": ["client_credentials"]} | members


def listed(query: str) -> Attempt:
    def attempt(mine: Tenant, theirs: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {mine.token}"}
        url = f"{mine.gatepost.url}/webhooks/deliveries"
        return mine.gatepost.session.get(url, params={query: theirs}, headers=headers)

    return attempt


# Every place of every operation where an id or a name can stand.
PLACES: dict[str, dict[str, Attempt]] = {
    "/oauth/clients": {
        "read": posted("/oauth/clients", lambda _, x: {"client_id": x}),
        "rename": posted("/oauth/clients", lambda _, x: {"client_id": x, "client_name": "mine now"}),
        "disable": posted("/oauth/clients", lambda _, x: {"client_id": x, "status": "disabled"}),
        "rotate": posted("/oauth/clients", lambda _, x: {"client_id": x, "rotate_secret": {"overlap": 0}}),
        "re-key": posted(
            "/oauth/clients", lambda mine, x: {"client_id": x, "jwks": {"keys": [mine.key.as_dict(private=False)]}}
        ),
        "scope": posted("/oauth/clients", lambda _, x: machine(scope=x)),
        "serves": posted("/oauth/clients", lambda _, x: machine(serves=[x])),
        "grant id": posted(
            "/oauth/clients", lambda _, x: machine(grants=[{"id": x, "grant_type": "client_credentials", "scopes": []}])
        ),
        "grant scopes": posted(
            "/oauth/clients", lambda _, x: machine(grants=[{"grant_type": "client_credentials", "scopes": [x]}])
        ),
        "scope of my client": posted("/oauth/clients", lambda mine, x: {"client_id": mine.client.id, "scope": x}),
    },
    "/oauth/scopes": {
        "account": posted("/oauth/scopes", lambda _, x: {"name": "other", "account": x}),
    },
    "/oauth/tokens": {
        "scope": token_request(lambda _, x: {"scope": x}),
        "scope beside mine": token_request(lambda mine, x: {"scope": f"{mine.scope} {x}"}),
        "resource": token_request(lambda _, x: {"resource": x}),
        "client": token_request(lambda mine, x: {"client_id": x, "client_secret": mine.client.secret}),
        "secret": token_request(lambda mine, x: {"client_id": mine.client.id, "client_secret": x}),
    },
    "/webhooks/endpoints": {"id": posted("/webhooks/endpoints", lambda _, x: {"id": x})},
    "/webhooks/subscriptions": {
        "id": posted("/webhooks/subscriptions", lambda _, x: {"id": x}),
        "endpoint": posted("/webhooks/subscriptions", lambda _, x: {"endpoint_id": x, "events": ["*"]}),
    },
    "/webhooks/deliveries": {
        name: listed(name) for name in ("id", "endpoint_id", "subscription_id", "event_id", "cursor")
    },
}
KINDS = (
    "account", "client", "keyed client", "first client", "secret", "grant", "scope", "resource", "default resource",
    "event", "definition event", "token", "request",
)  # fmt: skip


def unknown_like(text: str) -> str:
    """Return an id of the same form that does not exist."""
    return re.sub(r"[a-z]{3}_[0-9a-v]{26}", lambda found: ids.new(found[0][:3]), text).replace("isolated-b", "nobody")


def comparable(answer: requests.Response, tried: str) -> tuple[int, str, dict[str, str]]:
    """Everything that an answer tells, but its own ids and what was sent."""
    own = ("x-request-id", "gatepost-event", "date", "content-length")
    headers = {name.lower(): value.replace(tried, "…") for name, value in answer.headers.items()}
    return answer.status_code, answer.text.replace(tried, "…"), {n: v for n, v in headers.items() if n not in own}


def test_every_operation_is_tried_with_every_id(two: Two) -> None:
    assert set(PLACES) == set(SIX)
    assert set(KINDS) == set(two.b.ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("path", "place"), [(path, place) for path, places in PLACES.items() for place in places])
def test_an_id_of_another_account_is_an_unknown_id(two: Two, path: str, place: str, kind: str) -> None:
    theirs = two.b.ids[kind]
    nobodys = unknown_like(theirs)
    assert nobodys != theirs
    answer = PLACES[path][place](two.a, theirs)
    if answer.status_code == 200:  # a filter that finds nothing
        assert (path, answer.json()) == ("/webhooks/deliveries", {"data": [], "next_cursor": None})
    else:
        assert answer.status_code in (400, 401, 404), answer.text
    assert comparable(answer, theirs) == comparable(PLACES[path][place](two.a, nobodys), nobodys)
    shown = answer.text.replace(theirs, "") + str(answer.headers).replace(theirs, "")
    assert not [trace for trace in two.b.traces() if trace in shown]


def test_nothing_changed_for_the_other_account(two: Two) -> None:
    shown = two.b.post("/oauth/clients", {"client_id": two.b.client.id}).json()
    assert (shown["client_name"], shown["status"], len(shown["secrets"])) == ("machine of isolated-b", "active", 1)
    assert two.b.gatepost.token_answer(two.b.client, two.b.scope).status_code == 200


def test_what_an_account_makes_is_its_own(two: Two) -> None:
    """The same names may exist in both accounts, and mean nothing to the other."""
    made = two.a.post("/oauth/scopes", {"name": two.b.scope})
    assert made.status_code == 201
    assert made.json()["account"] == two.a.account
    client = two.a.gatepost.define_client(two.a.token, scope=two.b.scope)
    claims = jwt.decode(two.a.gatepost.token(client, two.b.scope), options={"verify_signature": False})
    assert (claims["account"], claims["aud"]) == (two.a.account, f"urn:gatepost:{two.a.account}")


@pytest.mark.parametrize("spelling", ["{}", "{}/", "{}//"])
def test_a_resource_belongs_to_one_account(two: Two, spelling: str) -> None:
    """So nobody else gets a token whose audience that account's API accepts, be it lenient about a slash."""
    theirs = spelling.format(two.b.resource)
    for body in (
        {"name": f"a.{spelling}", "resource": theirs},
        {"name": two.a.scope, "resource": theirs, "redefine": True},
    ):
        check_refusal(two.a.post("/oauth/scopes", body), "/oauth/scopes", "invalid_request", "resource:")
    serving = two.a.post("/oauth/clients", machine(serves=[theirs]))
    check_refusal(serving, "/oauth/clients", "invalid_client_metadata", "serves:")
    asked_for = two.a.gatepost.token_answer(two.a.client, two.a.scope, None, resource=theirs)
    check_refusal(asked_for, "/oauth/tokens", "invalid_target", "resource:")


def test_of_two_accounts_that_define_a_resource_at_once_one_wins(two: Two) -> None:
    for number in range(5):
        body = {"name": f"race.{number}", "resource": f"https://race-{number}.{two.a.name}.example"}
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(partial(post_alone, body), [two.a, two.b] * 2))
        winners = {account for account, status in outcomes if status in (200, 201)}
        assert len(winners) == 1, outcomes
        assert {status for account, status in outcomes if account not in winners} == {400}


def post_alone(body: dict[str, Any], tenant: Tenant) -> tuple[str, int]:
    headers = {"Authorization": f"Bearer {tenant.token}"}
    answer = requests.post(f"{tenant.gatepost.url}/oauth/scopes", json=body, headers=headers, timeout=LIMIT)
    return tenant.account, answer.status_code


# --- credentials


def test_credentials_do_not_mix(two: Two) -> None:
    """An id of one account with the secret or the key of another is as good as any wrong secret."""
    a, b = two.a, two.b
    url = a.gatepost.url
    wrong = a.gatepost.token_answer(Client(a.client.id, "gps_wrong"), a.scope)
    for mixed in (Client(a.client.id, b.client.secret), Client(b.client.id, a.client.secret)):
        answer = a.gatepost.token_answer(mixed, a.scope)
        assert comparable(answer, mixed.id) == comparable(wrong, a.client.id)
    for client, key in ((a.keyed, b.key), (b.keyed, a.key)):
        signed = assertion(key, client, url)
        form = {"grant_type": "client_credentials", "scope": a.scope, "client_assertion_type": ASSERTION_TYPE}
        answer = a.gatepost.session.post(f"{url}/oauth/tokens", data=form | {"client_assertion": signed})
        assert comparable(answer, client) == comparable(wrong, a.client.id)


def test_an_assertion_is_for_the_client_that_it_names(two: Two) -> None:
    form = {"grant_type": "client_credentials", "scope": two.b.scope, "client_assertion_type": ASSERTION_TYPE}
    form["client_assertion"] = assertion(two.b.key, two.b.keyed, two.b.gatepost.url)
    url = f"{two.b.gatepost.url}/oauth/tokens"
    as_another = two.b.gatepost.session.post(url, data=form | {"client_id": two.a.keyed})
    check_refusal(as_another, "/oauth/tokens", "invalid_request", "client_id")
    answer = two.b.gatepost.session.post(url, data=form)
    claims = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
    assert (claims["account"], claims["client_id"]) == (two.b.account, two.b.keyed)


def test_a_token_acts_in_its_own_account_only(two: Two) -> None:
    """A machine token for an API is no token for the operations, in any account."""
    answer = two.a.gatepost.post("/oauth/clients", two.b.token, {"client_id": two.a.client.id})
    check_refusal(answer, "/oauth/clients", "not_found", "client_id")
    for path in SIX:
        if path not in ("/oauth/tokens", "/webhooks/deliveries"):
            refused = two.a.gatepost.post(path, two.b.machine_token, {})
            check_refusal(refused, path, "invalid_token", "not for this service")


# --- Idempotency-Key


def test_an_idempotency_key_is_of_one_account_client_and_operation(two: Two) -> None:
    """The key that B used, with the very body that B sent, gives everybody else an answer of their own."""
    body, key = machine(client_name="the same"), "shared-key"
    first = two.b.post("/oauth/clients", body, Idempotency_Key=key)
    again = two.b.post("/oauth/clients", body, Idempotency_Key=key)
    assert again.json()["client_id"] == first.json()["client_id"]
    assert "client_secret" not in again.json()
    other = two.b.gatepost.define_client(two.b.token, scope="gatepost:clients gatepost:scopes")
    theirs = two.b.gatepost.token(other, "gatepost:clients")
    for answer in (
        two.a.post("/oauth/clients", body, Idempotency_Key=key),
        two.b.gatepost.post("/oauth/clients", theirs, body, Idempotency_Key=key),
    ):
        assert answer.status_code == 201
        assert answer.json()["client_secret"]
        assert answer.json()["client_id"] != first.json()["client_id"]
    scope = two.b.post("/oauth/scopes", {"name": "other.operation"}, Idempotency_Key=key)
    assert (scope.status_code, scope.json()["name"]) == (201, "other.operation")
    reused = two.a.post("/oauth/clients", machine(client_name="another"), Idempotency_Key=key)
    check_refusal(reused, "/oauth/clients", "idempotency_key_reused", "another body")
    assert first.json()["client_id"] not in json.dumps(reused.json())
