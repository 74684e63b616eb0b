"""Clients prove who they are in the one way they are registered for; failures look the same, and many are slowed."""

from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
import requests
from joserfc.jwk import ECKey

from gatepost.core import ids
from tests.assertions import assertion, form
from tests.service import Client, Service
from tests.wire import check_refusal, session_from_new_address

SCOPE = "things.read"
ASKING = {"grant_type": "client_credentials", "scope": SCOPE}
METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")


class Setting:
    """An account with a client for each way to authenticate, all with the same key."""

    def __init__(self, gatepost: Service, name: str) -> None:
        self.gatepost, self.name, self.url = gatepost, name, f"{gatepost.url}/oauth/tokens"
        _, first = gatepost.account(name)
        self.token = gatepost.token(first, "gatepost:clients gatepost:scopes")
        assert gatepost.post("/oauth/scopes", self.token, {"name": SCOPE}).status_code == 201
        self.key = ECKey.generate_key("P-256", {"kid": "one"})
        self.clients = {method: self.define(token_endpoint_auth_method=method) for method in METHODS}

    def define(self, **members: Any) -> Client:
        public = members.get("token_endpoint_auth_method") == "none"
        body = {"grant_types": ["authorization_code" if public else "client_credentials"], "scope": SCOPE} | members
        body |= {"redirect_uris": ["https://app.example.com/cb"], "jwks": {"keys": [self.key.as_dict(private=False)]}}
        return self.gatepost.define_client(self.token, **body)

    def redefine(self, client: Client, **members: Any) -> None:
        answer = self.gatepost.post("/oauth/clients", self.token, {"client_id": client.id} | members)
        assert answer.status_code == 200, answer.text

    def refusals(self, client: Client) -> list[dict[str, Any]]:
        asked = ("audit", "list", "--account", self.name, "--type", "oauth.token.refused", "--subject", client.id)
        return list(self.gatepost.cli_json(*asked, "--limit", "100"))


@pytest.fixture(scope="module")
def setting(gatepost: Service) -> Setting:
    return Setting(gatepost, "authentication")


@pytest.fixture(scope="module")
def sqlite_setting(sqlite_gatepost: Service) -> Setting:
    """For rules that no store can change."""
    return Setting(sqlite_gatepost, "authentication-sqlite")


def sent(setting: Setting, client: Client, method: str) -> dict[str, Any]:
    """A request for a token that authenticates in this way."""
    headers, body = {}, dict(ASKING)
    match method:
        case "client_secret_basic":
            headers["Authorization"] = client.basic
        case "client_secret_post":
            body |= {"client_id": client.id, "client_secret": client.secret or "gps_none"}
        case "private_key_jwt":
            body = form(SCOPE, assertion(setting.key, client.id, setting.gatepost.url))
        case "none":
            body["client_id"] = client.id
    return {"data": body, "headers": headers}


def show(setting: Setting, client: Client, method: str, session: requests.Session | None = None) -> requests.Response:
    """Ask for a token and authenticate in this way."""
    return (session or setting.gatepost.session).post(setting.url, **sent(setting, client, method))


def looks(answer: requests.Response) -> tuple[int, bytes, dict[str, str]]:
    """All that an answer shows, but what is different in every answer."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return answer.status_code, answer.content, {n: v for n, v in headers.items() if n not in ("x-request-id", "date")}


@pytest.mark.parametrize("method", METHODS[:3])
def test_a_client_authenticates_by_its_registered_method(sqlite_setting: Setting, method: str) -> None:
    answer = show(sqlite_setting, sqlite_setting.clients[method], method)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Gatepost-Event"].startswith("evt_")


def test_a_public_client_gets_no_token_for_itself(setting: Setting) -> None:
    answer = show(setting, setting.clients["none"], "none")
    check_refusal(answer, "/oauth/tokens", "unauthorized_client")
    assert answer.headers["Gatepost-Event"].startswith("evt_")


OTHERS = [(registered, shown) for registered in METHODS for shown in METHODS if registered != shown]


@pytest.mark.parametrize(("registered", "shown"), OTHERS)
def test_other_authentication_methods_are_refused(sqlite_setting: Setting, registered: str, shown: str) -> None:
    with session_from_new_address() as session:
        answer = show(sqlite_setting, sqlite_setting.clients[registered], shown, session)
    check_refusal(answer, "/oauth/tokens", "invalid_client", "client authentication failed")


def test_id_and_secret_may_be_encoded_inside_basic(setting: Setting) -> None:
    """RFC 6749, section 2.3.1."""
    client = setting.clients["client_secret_basic"]
    encoded = ":".join("".join(f"%{ord(char):02X}" for char in part) for part in (client.id, client.secret))
    for credentials in (encoded, f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"):
        headers = {"Authorization": "basic " + b64encode(credentials.encode()).decode()}
        assert setting.gatepost.session.post(setting.url, data=ASKING, headers=headers).status_code == 200


def test_a_secret_is_not_accepted_once_the_client_has_a_key(setting: Setting) -> None:
    client = setting.define()
    setting.redefine(client, token_endpoint_auth_method="private_key_jwt")
    assert show(setting, client, "client_secret_basic").status_code == 401
    assert show(setting, client, "private_key_jwt").status_code == 200
    both = form(SCOPE, "e30.e30.", client_id=client.id, client_secret=client.secret)
    check_refusal(
        setting.gatepost.session.post(setting.url, data=both), "/oauth/tokens", "invalid_request", "one method"
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("invalid", ["scope=other", "more=%00", "x=%ff", "&".join(f"x{n}=1" for n in range(100))])
def test_an_invalid_form_is_recorded_however_its_client_authenticates(
    sqlite_setting: Setting, method: str, invalid: str
) -> None:
    client = sqlite_setting.clients[method]
    request = requests.Request("POST", sqlite_setting.url, **sent(sqlite_setting, client, method)).prepare()
    request.prepare_body(f"{request.body!s}&{invalid}", None)
    answer = sqlite_setting.gatepost.session.send(request)
    check_refusal(answer, "/oauth/tokens", "invalid_request")
    assert sqlite_setting.refusals(client)[0]["id"] == answer.headers["Gatepost-Event"]


def test_an_invalid_form_with_wrong_credentials_is_a_failed_authentication(sqlite_setting: Setting) -> None:
    client = sqlite_setting.clients["client_secret_post"]
    for secret in ("wrong", "\0"):
        form = [*ASKING.items(), ("scope", "other"), ("client_id", client.id), ("client_secret", secret)]
        with session_from_new_address() as session:
            check_refusal(session.post(sqlite_setting.url, data=form), "/oauth/tokens", "invalid_client")


# --- failures


def disabled(setting: Setting) -> Client:
    client = setting.define()
    assert show(setting, client, "client_secret_basic").status_code == 200
    setting.redefine(client, status="disabled")
    return client


def suspended(setting: Setting) -> Client:
    other = Setting(setting.gatepost, f"{setting.name}-suspended")
    client = other.clients["client_secret_basic"]
    assert show(other, client, "client_secret_basic").status_code == 200
    setting.gatepost.cli("account", "suspend", other.name)
    return client


FAILING: dict[str, Callable[[Setting], Client]] = {
    "wrong secret": lambda setting: Client(setting.define().id, "gps_wrong"),
    "empty secret": lambda setting: Client(setting.define().id, ""),
    "secret of another": lambda setting: Client(setting.define().id, setting.define().secret),
    "unknown": lambda _: Client(ids.new("cli"), "gps_wrong"),
    "malformed": lambda _: Client("nobody", "gps_wrong"),
    "upper case": lambda setting: upper(setting.define()),
    "account": lambda _: Client(ids.new("acc"), "gps_wrong"),
    "disabled": disabled,
    "disabled, wrong secret": lambda setting: Client(disabled(setting).id, "gps_wrong"),
    "another method": lambda setting: setting.clients["client_secret_post"],
    "public": lambda setting: setting.clients["none"],
    "suspended": suspended,
}


def upper(client: Client) -> Client:
    return Client(client.id.upper(), client.secret)


def test_every_failure_looks_the_same(setting: Setting) -> None:
    """The responses are identical, so that they do not reveal which clients exist."""
    answers = {name: show(setting, make(setting), "client_secret_basic") for name, make in FAILING.items()}
    seen = {name: looks(answer) for name, answer in answers.items()}
    assert seen == dict.fromkeys(seen, seen["unknown"])
    check_refusal(answers["unknown"], "/oauth/tokens", "invalid_client")
    assert answers["unknown"].headers["WWW-Authenticate"] == 'Basic realm="gatepost"'
    assert "Gatepost-Event" not in answers["unknown"].headers


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (FAILING["wrong secret"], "wrong_secret"),
        (disabled, "client_disabled"),
        (
            lambda setting: setting.define(token_endpoint_auth_method="client_secret_post"),
            "method_is_client_secret_post",
        ),
    ],
)
def test_a_failure_of_a_known_client_is_in_the_ledger(
    setting: Setting, make: Callable[[Setting], Client], rule: str
) -> None:
    client = make(setting)
    answer = show(setting, client, "client_secret_basic")
    assert answer.status_code == 401
    [entry] = setting.refusals(client)
    assert entry["data"] == {"error": "invalid_client", "rule": rule, "method": "client_secret_basic"}
    assert (entry["actor"], entry["source"]) == (client.id, "127.0.0.1")
    assert entry["request"] == answer.headers["X-Request-Id"]


# --- the throttle


def test_the_eleventh_failure_in_a_minute_is_429(setting: Setting) -> None:
    """Whether the client exists or not. Further failures of that client and address are 429, and only those."""
    known = setting.define()
    stranger = Client(ids.new("cli"), "gps_wrong")
    with session_from_new_address() as here, session_from_new_address() as there:
        result = {}
        for client in (Client(known.id, "gps_wrong"), stranger):
            answers = [show(setting, client, "client_secret_basic", here) for _ in range(12)]
            assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 2
            check_refusal(answers[-1], "/oauth/tokens", "too_many_failures")
            assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
            assert "Gatepost-Event" not in answers[-1].headers
            status, body, headers = looks(answers[-1])
            result[client.id] = (
                status,
                body,
                {name: value for name, value in headers.items() if name != "retry-after"},
            )
        assert result[known.id] == result[stranger.id]
        for method in ("client_secret_post", "private_key_jwt"):  # not the method it is registered for
            assert show(setting, known, method, here).status_code == 429
        assert show(setting, Client(known.id, "gps_wrong"), "client_secret_basic", there).status_code == 401
        assert show(setting, setting.clients["client_secret_post"], "client_secret_post", here).status_code == 200
    assert len(setting.refusals(known)) == 11


@pytest.mark.parametrize("method", METHODS[:3])
def test_correct_credentials_pass_after_failures(setting: Setting, method: str) -> None:
    """Nobody who guesses from the same address can lock a client out."""
    client = setting.define(token_endpoint_auth_method=method)
    wrong = Client(client.id, "gps_wrong")
    with session_from_new_address() as here:
        for _ in range(3):
            failed = [show(setting, wrong, "none", here) for _ in range(5)]
            answer = show(setting, client, method, here)
            assert answer.status_code == 200, answer.text
            assert answer.headers["Gatepost-Event"].startswith("evt_")
        assert [each.status_code for each in failed] == [429] * 5
        for path in ("introspect", "revoke"):
            sent, headers = {"token": "x"}, {}
            if method == "private_key_jwt":
                sent = form(SCOPE, assertion(setting.key, client.id, setting.gatepost.url), token="x")
            elif method == "client_secret_post":
                sent |= {"client_id": client.id, "client_secret": client.secret}
            else:
                headers = {"Authorization": client.basic}
            answer = here.post(f"{setting.gatepost.url}/oauth/{path}", data=sent, headers=headers)
            assert answer.status_code == 200, answer.text


def test_a_replayed_assertion_is_a_failure_like_any_other(setting: Setting) -> None:
    client = setting.clients["private_key_jwt"]
    sent = form(SCOPE, assertion(setting.key, client.id, setting.gatepost.url))
    with session_from_new_address() as here:
        statuses = [here.post(setting.url, data=sent).status_code for _ in range(12)]
        assert statuses == [200] + [401] * 10 + [429]
        assert show(setting, client, "private_key_jwt", here).status_code == 200


def test_all_kinds_of_failures_count_together(setting: Setting) -> None:
    client = setting.define()
    wrong = Client(client.id, "gps_wrong")
    with session_from_new_address() as here:
        ways = ["client_secret_basic", "client_secret_post", "private_key_jwt", "none", "client_secret_basic"] * 2
        assert {show(setting, wrong, way, here).status_code for way in ways} == {401}
        assert show(setting, wrong, "client_secret_basic", here).status_code == 429


def test_concurrent_failures_do_not_avoid_the_limit(setting: Setting) -> None:
    client = setting.define()
    with session_from_new_address() as here, ThreadPoolExecutor(25) as pool:
        wrong = Client(client.id, "gps_wrong")
        answers = list(pool.map(lambda _: show(setting, wrong, "client_secret_basic", here), range(60)))
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(401), statuses.count(429)) == (10, 50)
        assert show(setting, client, "client_secret_basic", here).status_code == 200
    assert len(setting.refusals(client)) == 10


def test_a_forwarded_address_is_not_trusted(setting: Setting) -> None:
    wrong = Client(setting.define().id, "gps_wrong")
    with session_from_new_address() as here:
        for number in range(10):
            here.headers["X-Forwarded-For"] = f"198.51.100.{number}"
            here.headers["Forwarded"] = f"for=198.51.100.{number}"
            assert show(setting, wrong, "client_secret_basic", here).status_code == 401
        assert show(setting, wrong, "client_secret_basic", here).status_code == 429
