"""Introspection (RFC 7662): which callers may introspect a token, what they get, and the end of a token."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from joserfc.jwk import ECKey

from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.oauth import account_admin, client_rows, introspection
from gatepost.oauth.client_authentication import AuthenticatedClient
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import Tx
from gatepost.web.tokens import ASSERTION_TYPE
from gatepost.webhooks.fanout import create_deliveries
from tests import service
from tests.assertions import assertion, signed
from tests.login import Platform, decode_jwt
from tests.proofs import Prover
from tests.service import Client, Service
from tests.waiting import LIMIT
from tests.web_beside import web_beside
from tests.wire import check_refusal, session_from_new_address

INACTIVE = {"active": False}


class Setting(Platform):
    """A platform with a client that serves its API, and machines."""

    def __init__(self, gatepost: Service, name: str, *settings: str) -> None:
        super().__init__(gatepost, name, *settings)
        self.server = self.machine(serves=[self.api])
        self.stranger = self.machine()

    def machine(self, **members: Any) -> Client:
        return self.gatepost.define_client(self.admin, **({"scope": "things:read"} | members))

    def redefine(self, client: Client, **members: Any) -> None:
        answer = self.gatepost.post("/oauth/clients", self.admin, {"client_id": client.id} | members)
        assert answer.status_code == 200, answer.text

    def known(self, tx: Tx, client: Client) -> AuthenticatedClient:
        found, account = client_rows.load(tx, client.id), account_rows.load(tx, self.account)
        assert found is not None
        assert account is not None
        return AuthenticatedClient(found, account, "")

    def told(self, tx: Tx, token: str) -> dict[str, Any]:
        """By the unit itself, as the client that everybody's tokens here are of."""
        return introspection.introspect(tx, self.gatepost.opened.service, self.known(tx, self.client), token)


@pytest.fixture(scope="module")
def setting(gatepost: Service) -> Setting:
    return Setting(gatepost, "introspection")


@pytest.fixture
def own(gatepost: Service, account_name: str) -> Setting:
    """An account that no other test uses."""
    return Setting(gatepost, f"introspection-{account_name}")


# --- who may


def test_the_client_that_a_token_was_issued_to(setting: Setting) -> None:
    token = setting.tokens()["access_token"]
    answer = setting.post("introspect", token=token)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json() == {"active": True, "token_type": "Bearer"} | decode_jwt(token)[1]
    own = setting.gatepost.token(setting.stranger, "things:read")
    assert setting.introspect(own, setting.stranger) == {"active": True, "token_type": "Bearer"} | decode_jwt(own)[1]


def test_a_client_that_serves_the_audience(setting: Setting) -> None:
    for token in (
        setting.tokens()["access_token"],
        setting.tokens(setting.auth_request(scope="things:write"))["access_token"],
        setting.gatepost.token(setting.stranger, "things:read"),
    ):
        assert (
            setting.introspect(token, setting.server) == {"active": True, "token_type": "Bearer"} | decode_jwt(token)[1]
        )


def test_other_clients_see_an_inactive_token(setting: Setting) -> None:
    setting.define_scope(name="orders:read", resource="https://orders.example/introspection")
    beside = setting.machine(serves=["https://orders.example/introspection"], scope="orders:read")
    tokens = setting.tokens()
    for token in (tokens["access_token"], tokens["refresh_token"]):
        for other in (setting.stranger, beside, setting.first):
            assert setting.introspect(token, other) == INACTIVE
    admin = setting.gatepost.token(setting.first, "gatepost:clients")
    assert setting.introspect(admin, setting.first)["active"]
    assert setting.introspect(admin, setting.server) == INACTIVE


def test_clients_of_other_accounts_see_an_inactive_token(setting: Setting, own: Setting) -> None:
    token = setting.tokens()["access_token"]
    for other in (own.client, own.server, own.first):
        assert own.introspect(token, other) == INACTIVE
    answer = own.gatepost.post("/oauth/clients", own.admin, {"client_id": own.server.id, "serves": [setting.api]})
    check_refusal(answer, "/oauth/clients", "invalid_client_metadata", "serves")


def test_a_resource_that_accounts_share_is_served_to_ones_own_account_alone(sqlite_gatepost: Service) -> None:
    shared = "https://platform.example"
    setting = json.dumps({shared: {"scopes": ["platform"]}})
    with web_beside(sqlite_gatepost, shared_resources=setting) as running:
        one, other = Setting(running, "one"), Setting(running, "other")
        tokens = {}
        for each in (one, other):
            each.server = each.machine(serves=[shared], scope="platform")
            tokens[each.name] = running.token(each.machine(scope="platform"), "platform")
        assert one.introspect(tokens["one"], one.server)["active"]
        assert one.introspect(tokens["other"], one.server) == INACTIVE
        assert other.introspect(tokens["one"], other.server) == INACTIVE


def test_a_public_client_is_refused(setting: Setting) -> None:
    public = setting.define(token_endpoint_auth_method="none")
    body = setting.redeem(setting.code(setting.auth_request(public)), public).json()
    for token in (body["access_token"], body["refresh_token"], "x"):
        answer = setting.post("introspect", public, token=token)
        check_refusal(answer, "/oauth/introspect", "invalid_client", "client that authenticates")
        assert answer.headers["Gatepost-Event"].startswith("evt_")
    assert setting.introspect(body["access_token"], setting.server)["active"]


def test_a_client_with_a_key(setting: Setting) -> None:
    key = ECKey.generate_key("P-256", {"kid": "one"})
    client = setting.machine(
        token_endpoint_auth_method="private_key_jwt", jwks={"keys": [key.as_dict(private=False)]}, serves=[setting.api]
    )
    token = setting.tokens()["access_token"]
    url = f"{setting.url}/oauth/introspect"
    for audience in (setting.url, url):
        form = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion(key, client.id, audience)}
        first, again = (requests.post(url, data=form | {"token": token}, timeout=LIMIT) for _ in range(2))
        assert first.json()["active"]
        check_refusal(again, "/oauth/introspect", "invalid_client")


# --- what of it


def test_a_refresh_token_as_its_own_client_sees_it(setting: Setting) -> None:
    tokens = setting.tokens()
    shown = setting.introspect(tokens["refresh_token"])
    assert abs(shown.pop("iat") - time.time()) < 60
    assert shown.pop("exp") > time.time() + 29 * 86_400
    assert shown == {
        "active": True,
        "token_type": "refresh_token",
        "iss": setting.url,
        "client_id": setting.client.id,
        "sub": f"{setting.account}.ada",
        "scope": "openid offline_access things:read",
        "account": setting.account,
    }
    assert setting.introspect(tokens["refresh_token"], setting.server) == INACTIVE
    second = setting.refresh(tokens["refresh_token"]).json()
    assert setting.introspect(tokens["refresh_token"]) == INACTIVE
    assert setting.introspect(second["refresh_token"])["active"]


def test_a_token_that_is_bound_to_a_key(setting: Setting) -> None:
    prover = Prover(setting.url)
    body = setting.redeem(setting.code(), headers=prover.headers()).json()
    shown = setting.introspect(body["access_token"], setting.server)
    assert (shown["token_type"], shown["cnf"]) == ("DPoP", {"jkt": prover.thumbprint})


@pytest.mark.parametrize("hint", ["access_token", "refresh_token", "nonsense", ""])
def test_a_hint_changes_nothing(setting: Setting, hint: str) -> None:
    tokens = setting.tokens()
    for token in (tokens["access_token"], tokens["refresh_token"]):
        assert setting.post("introspect", token=token, token_type_hint=hint).json()["active"]


# --- inactive at once, though it was looked at just before


def ended_by_login(setting: Setting, _: dict[str, Any]) -> None:
    now = int(time.time())
    claims = {
        "iss": setting.account,
        "aud": setting.url,
        "sub": "ada",
        "iat": now,
        "exp": now + 60,
        "jti": ids.new("j"),
    }
    left = signed(setting.key, claims, typ="gatepost-revoke+jwt")
    assert setting.gatepost.session.post(f"{setting.url}/oauth/revoke", data={"token": left}).status_code == 200


def change(setting: Setting, unit: Callable[..., Any], *arguments: Any) -> None:
    setting.gatepost.opened.store.run_now(lambda tx: unit(tx, *arguments))


def reuse(setting: Setting, told: dict[str, Any]) -> None:
    second = setting.refresh(told["refresh_token"]).json()
    setting.refresh(second["refresh_token"])
    assert setting.refresh(told["refresh_token"]).status_code == 400


def end_consents(setting: Setting, _: dict[str, Any]) -> None:
    for each in setting.gatepost.cli_json("consent", "list", "--account", setting.name):
        setting.gatepost.cli("consent", "revoke", each["id"], "--account", setting.name)


def code_again(setting: Setting, told: dict[str, Any]) -> None:
    assert setting.redeem(told["code"]).status_code == 400


ENDS: dict[str, Callable[[Setting, dict[str, Any]], Any]] = {
    "revoked": lambda s, told: s.post("revoke", token=told["access_token"]),
    "its refresh token is revoked": lambda s, told: s.post("revoke", token=told["refresh_token"]),
    "its refresh token is reused": reuse,
    "its code is used again": code_again,
    "its client is disabled": lambda s, _: s.redefine(s.client, status="disabled"),
    "its consent is ended": end_consents,
    "the person leaves": ended_by_login,
    "the operator revokes it": lambda s, told: s.gatepost.cli(
        "token", "revoke", "--id", decode_jwt(told["access_token"])[1]["jti"]
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_inactive_at_once(own: Setting, how: str) -> None:
    code = own.code()
    result = own.redeem(code).json() | {"code": code}
    assert own.introspect(result["access_token"])["active"]
    assert own.introspect(result["access_token"], own.server)["active"]
    ENDS[how](own, result)
    assert own.introspect(result["access_token"], own.server) == INACTIVE
    if how != "its client is disabled":
        assert own.introspect(result["access_token"]) == INACTIVE
        assert own.introspect(result["refresh_token"])["active"] == (how == "the operator revokes it")


def test_a_disabled_client_asks_nothing_and_its_tokens_come_back_with_it(own: Setting) -> None:
    tokens = own.tokens()
    own.redefine(own.client, status="disabled")
    check_refusal(own.post("introspect", token=tokens["access_token"]), "/oauth/introspect", "invalid_client")
    own.redefine(own.client, status="active")
    assert own.introspect(tokens["access_token"])["active"]
    assert own.introspect(tokens["refresh_token"])["active"]


def test_a_suspended_account_asks_nothing(own: Setting) -> None:
    tokens = own.tokens()
    assert own.introspect(tokens["access_token"], own.server)["active"]
    change(own, account_admin.suspend, own.name, "")
    for client in (own.client, own.server):
        check_refusal(
            own.post("introspect", client, token=tokens["access_token"]), "/oauth/introspect", "invalid_client"
        )
    change(own, account_admin.resume, own.name)
    assert own.introspect(tokens["access_token"], own.server)["active"]


def test_the_token_of_a_suspended_account_is_inactive_for_every_caller(own: Setting) -> None:
    tokens = own.tokens()
    change(own, account_admin.suspend, own.name, "")
    store = own.gatepost.opened.store
    assert store.read_now(lambda tx: own.told(tx, tokens["access_token"])) == INACTIVE


def test_it_expires_to_the_second(sqlite_gatepost: Service, account_name: str) -> None:
    setting = Setting(sqlite_gatepost, account_name)
    tokens = setting.tokens()
    ends = decode_jwt(tokens["access_token"])[1]["exp"]
    for before, active in ((timedelta(milliseconds=1), True), (timedelta(), False)):
        at = clock.from_milliseconds(ends * 1000) - before
        with closing(
            SqliteStore(sqlite_gatepost.directory / "gatepost.db", lambda at=at: at, create_deliveries)  # type: ignore[misc]
        ) as later:
            assert later.read_now(lambda tx: setting.told(tx, tokens["access_token"]))["active"] is active


# --- what is no token


@pytest.mark.parametrize(
    "wrong",
    ["x", "gpr_", "gpr_" + "A" * 84, "a.b.c", "...", "e30.e30.", "é", "\ud83d", "A" * 30_000],
    ids=["x", "prefix", "length", "dots", "only dots", "unsigned", "not ASCII", "half a character", "long"],
)  # fmt: skip
def test_garbage_is_inactive(setting: Setting, wrong: str) -> None:
    data = {"token": wrong.encode("utf-8", "replace")}
    headers = {"Authorization": setting.client.basic}
    answer = setting.gatepost.session.post(f"{setting.url}/oauth/introspect", data=data, headers=headers)
    assert (answer.status_code, answer.json()) == (200, INACTIVE)


def test_other_values_that_gatepost_issued_are_inactive(setting: Setting) -> None:
    code = setting.code()
    body = setting.redeem(code).json()
    jti = decode_jwt(body["access_token"])[1]["jti"]
    for wrong in (code, body["id_token"], jti, setting.client.id, setting.client.secret):
        assert setting.introspect(wrong) == INACTIVE


@pytest.mark.parametrize("alg", ["ES256", "RS256", "EdDSA"])
def test_every_truncation_and_every_bit_of_an_access_token(
    sqlite_gatepost: Service, account_name: str, alg: str
) -> None:
    setting = Setting(sqlite_gatepost, account_name, f"signing_alg={alg}")
    token = setting.tokens()["access_token"]
    raw = token.encode()
    changed = [token[:cut] for cut in range(len(token))] + [token[cut:] for cut in range(1, len(token))]
    changed += [token + more for more in ("A", "=", ".", "\0", "\n", " ")]
    for place in range(len(raw)):
        for bit in range(8):
            changed.append((raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]).decode("latin-1"))

    def active(tx: Tx) -> list[str]:
        assert setting.told(tx, token)["active"]
        return [each for each in changed if setting.told(tx, each) != INACTIVE]

    assert sqlite_gatepost.opened.store.read_now(active) == []
    head, claims, _ = token.split(".")
    for each in [token[:-1], f"{head}.{claims}.", f"{head}.{claims}", *changed[-40:]]:
        assert setting.introspect(each) == INACTIVE


def test_every_truncation_of_a_refresh_token(setting: Setting) -> None:
    tokens = setting.tokens()
    token = tokens["refresh_token"]
    assert [cut for cut in range(1, len(token)) if setting.introspect(token[:cut]) != INACTIVE] == []
    assert setting.introspect(token)["active"], "and looking does no harm"


# --- how it is asked


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"other": "x"}, "token: missing"),
        ({"token": ""}, "token: missing"),
        ({"token": ["a", "b"]}, "token: sent more than once"),
    ],
    ids=["none", "empty", "two"],
)
def test_one_token_must_be_sent(setting: Setting, form: dict[str, Any], words: str) -> None:
    answer = setting.post("introspect", **form)
    check_refusal(answer, "/oauth/introspect", "invalid_request", words)
    assert answer.headers["Gatepost-Event"].startswith("evt_")


def test_it_is_asked_by_a_form(setting: Setting) -> None:
    url, headers = f"{setting.url}/oauth/introspect", {"Authorization": setting.client.basic}
    answer = setting.gatepost.session.post(url, json={"token": "x"}, headers=headers)
    check_refusal(answer, "/oauth/introspect", "invalid_request")
    answer = setting.gatepost.session.get(url, params={"token": "x"}, headers=headers)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST, OPTIONS")


def test_introspection_requires_authentication(setting: Setting) -> None:
    token = setting.tokens()["access_token"]
    url = f"{setting.url}/oauth/introspect"
    with session_from_new_address() as session:
        for headers, form in (
            ({}, {}),
            ({"Authorization": f"Bearer {token}"}, {}),
            ({"Authorization": Client(setting.client.id, "gps_wrong").basic}, {}),
            ({"Authorization": Client(ids.new("cli"), "gps_wrong").basic}, {}),
            ({}, {"client_id": setting.client.id}),
            ({}, {"client_id": setting.client.id, "client_secret": setting.client.secret}),
        ):
            answer = session.post(url, data={"token": token} | form, headers=headers)
            check_refusal(answer, "/oauth/introspect", "invalid_client", "client authentication failed")
            assert answer.headers["WWW-Authenticate"] == 'Basic realm="gatepost"'
            assert "Gatepost-Event" not in answer.headers


def test_failures_count_together_with_those_of_the_token_endpoint(setting: Setting) -> None:
    client = setting.machine(serves=[setting.api])
    token = setting.tokens()["access_token"]
    forms = {
        "introspect": {"token": token},
        "revoke": {"token": token},
        "tokens": {"grant_type": "client_credentials", "scope": "things:read"},
    }

    def send(session: requests.Session, path: str, who: Client) -> requests.Response:
        return session.post(f"{setting.url}/oauth/{path}", data=forms[path], headers={"Authorization": who.basic})

    with session_from_new_address() as here, session_from_new_address() as there:
        wrong = Client(client.id, "gps_wrong")
        paths = ["introspect", "revoke", "tokens", "introspect", "introspect"] * 2
        assert [send(here, path, wrong).status_code for path in paths] == [401] * 10
        for path in forms:
            answer = send(here, path, wrong)
            check_refusal(answer, f"/oauth/{path}", "too_many_failures")
            assert 1 <= int(answer.headers["Retry-After"]) <= 60
            assert send(here, path, client).status_code == 200
            assert send(there, path, wrong).status_code == 401
    refusals = [each for each in setting.entries("oauth.token.refused") if each["subject"] == client.id]
    assert len(refusals) == 13
    assert setting.introspect(token, setting.server)["active"], "revoking was refused"


def test_a_secret_that_only_introspects_is_one_that_is_used(tmp_path: Path) -> None:
    """So that an operator who rotates secrets sees that the old one is still in use."""
    with service.running(tmp_path / "data", only="web") as running:
        setting = Setting(running, "used")
        by_look, by_giving_back, unused = (setting.machine() for _ in range(3))
        setting.introspect("x", by_look)
        setting.post("revoke", by_giving_back, token="x")
        assert running.stop() == 0

        def used(tx: Tx) -> list[bool]:
            return [
                bool(client_rows.secrets_used(tx, setting.known(tx, each).client))
                for each in (by_look, by_giving_back, unused)
            ]

        assert running.opened.store.read_now(used) == [True, True, False]
