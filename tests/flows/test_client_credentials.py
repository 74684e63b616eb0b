"""The client-credentials grant, end to end: explicit scopes, audiences, lifetimes, explanations and the ledger."""

from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.service import Client, Service, running

API, OTHER = "https://api.{}.example", "https://other.{}.example"


class Setting:
    """An account with two resources, three scopes and one client that may have them."""

    def __init__(self, gatepost: Service, name: str, **members: Any) -> None:
        self.gatepost, self.name = gatepost, name
        self.api, self.other = API.format(name), OTHER.format(name)
        self.account, self.admin = gatepost.account(name)
        self.token = gatepost.token(self.admin, "gatepost:clients gatepost:scopes")
        self.scope(name="read", resource=self.api)
        self.scope(name="write", resource=self.api, max_lifetime=300)
        self.scope(name="elsewhere", resource=self.other)
        self.client = gatepost.define_client(self.token, scope="read write elsewhere", **members)

    def scope(self, **body: Any) -> None:
        answer = self.gatepost.post("/oauth/scopes", self.token, body)
        assert answer.status_code in (200, 201), answer.text

    def redefine(self, **members: Any) -> dict[str, Any]:
        answer = self.gatepost.post("/oauth/clients", self.token, {"client_id": self.client.id} | members)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def claims(self, scope: str, **form: str) -> dict[str, Any]:
        token = self.gatepost.token(self.client, scope, **form)
        return jwt.decode(token, options={"verify_signature": False})

    def error(self, scope: str | None, **form: str) -> tuple[int, str, str]:
        answer = self.gatepost.token_answer(self.client, scope, None, **form)
        body = answer.json()
        return answer.status_code, body["error"], body["error_description"]

    def entry(self, event: str) -> dict[str, Any]:
        return next(each for each in self.gatepost.entries(self.account) if each["id"] == event)


@pytest.fixture
def setting(gatepost: Service, account_name: str) -> Setting:
    return Setting(gatepost, account_name)


def test_a_response_describes_the_token(setting: Setting) -> None:
    answer = setting.gatepost.token_answer(setting.client, "read")
    assert answer.status_code == 200
    assert set(answer.json()) == {"access_token", "token_type", "expires_in", "scope"}
    assert answer.json()["scope"] == "read"
    assert answer.headers["Cache-Control"] == "no-store"
    header = jwt.get_unverified_header(answer.json()["access_token"])
    assert header["typ"] == "at+jwt"
    assert header["alg"] == "ES256"


def test_a_token_is_one_entry_with_its_id(setting: Setting) -> None:
    answer = setting.gatepost.token_answer(setting.client, "read")
    claims = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
    event = answer.headers["Gatepost-Event"]
    assert claims["jti"].removeprefix("tok_") == event.removeprefix("evt_")
    entry = setting.entry(event)
    assert entry["type"] == "oauth.token.issued"
    assert entry["actor"] == setting.client.id
    assert entry["subject"] == claims["jti"]
    assert entry["data"]["aud"] == setting.api
    assert entry["data"]["expires_at"] == claims["exp"]
    assert entry["data"]["grant"] == claims["grant"]
    assert entry["request"] == answer.headers["X-Request-Id"]
    assert answer.json()["access_token"] not in str(entry)


@pytest.mark.parametrize("scope", [None, ""])
def test_there_is_no_default_scope(setting: Setting, scope: str | None) -> None:
    assert setting.error(scope)[:2] == (400, "invalid_scope")


@pytest.mark.parametrize("scope", ["admin", "read admin", "*", "openid", "offline_access", "gatepost:clients", "READ"])
def test_a_scope_beyond_the_grant_refuses_the_request(setting: Setting, scope: str) -> None:
    status, error, description = setting.error(scope)
    assert (status, error) == (400, "invalid_scope")
    assert next(name for name in scope.split() if name != "read") in description


def test_a_refusal_is_recorded_with_its_rule(setting: Setting) -> None:
    answer = setting.gatepost.token_answer(setting.client, "admin")
    entry = setting.entry(answer.headers["Gatepost-Event"])
    assert entry["type"] == "oauth.token.refused"
    assert entry["data"]["rule"] == "scopes_are_granted"
    assert entry["data"]["error"] == "invalid_scope"


def test_the_audience_follows_from_the_scopes(setting: Setting) -> None:
    assert setting.claims("read write")["aud"] == setting.api
    assert setting.claims("elsewhere")["aud"] == setting.other
    assert setting.error("read elsewhere")[:2] == (400, "invalid_scope")


def test_a_resource_picks_one_of_several(setting: Setting) -> None:
    picked = setting.claims("read elsewhere", resource=setting.other)
    assert (picked["aud"], picked["scope"]) == (setting.other, "elsewhere")
    assert setting.error("read", resource=setting.other)[:2] == (400, "invalid_target")
    assert setting.error("read", resource="https://nobody.example")[:2] == (400, "invalid_target")


def test_the_shortest_lifetime_wins(setting: Setting) -> None:
    def life(scope: str) -> int:
        claims = setting.claims(scope)
        return int(claims["exp"] - claims["iat"])

    assert life("read") == 3600
    assert life("read write") == 300
    setting.redefine(access_token_lifetime=120)
    assert life("read write") == 120
    setting.redefine(
        grants=[
            {"grant_type": "client_credentials", "scopes": ["read", "write", "elsewhere"], "access_token_lifetime": 90}
        ]
    )
    assert life("read") == 90
    setting.gatepost.cli("account", "set", setting.name, "access_token_lifetime=60s")
    assert life("read") == 60


def test_fixed_claims_are_in_machine_tokens(gatepost: Service, account_name: str) -> None:
    setting = Setting(gatepost, account_name, claims={"team": "blue", "limits": {"rps": 5}})
    claims = setting.claims("read")
    assert claims["team"] == "blue"
    assert claims["limits"] == {"rps": 5}


def test_a_retired_scope_is_no_longer_granted(setting: Setting) -> None:
    assert setting.claims("read")
    setting.scope(name="read", status="retired", redefine=True)
    assert setting.error("read")[:2] == (400, "invalid_scope")


def test_a_disabled_client_gets_nothing_at_once(setting: Setting) -> None:
    assert setting.claims("read")
    setting.redefine(status="disabled")
    assert setting.error("read")[:2] == (401, "invalid_client")
    setting.redefine(status="active")
    assert setting.claims("read")


def test_a_command_beside_the_server_takes_effect_at_once(setting: Setting) -> None:
    assert setting.claims("read")
    setting.gatepost.cli("client", "disable", setting.client.id)
    assert setting.error("read")[:2] == (401, "invalid_client")


def test_a_suspended_account_gets_nothing_and_its_tokens_stop_working(setting: Setting) -> None:
    admin = setting.gatepost.token(setting.admin, "gatepost:scopes")
    setting.gatepost.cli("account", "suspend", setting.name)
    assert setting.error("read")[:2] == (401, "invalid_client")
    answer = setting.gatepost.post("/oauth/scopes", admin, {"name": "more"})
    assert answer.status_code == 401
    setting.gatepost.cli("account", "resume", setting.name)
    assert setting.claims("read")
    assert setting.gatepost.post("/oauth/scopes", admin, {"name": "more"}).status_code == 201


def test_an_unconfigured_grant_is_refused(setting: Setting) -> None:
    answer = setting.gatepost.session.post(
        f"{setting.gatepost.url}/oauth/tokens",
        data={"grant_type": "password", "username": "a", "password": "b", "scope": "read"},
        headers={"Authorization": setting.client.basic},
    )
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_grant_type")
    assert "authorization_code" in answer.json()["error_description"]
    assert "Gatepost-Event" in answer.headers


def test_the_refusal_of_a_grant_names_only_those_that_are_offered(tmp_path: Path) -> None:
    with running(tmp_path / "data", protocol="six", only="web") as gatepost:
        metadata = gatepost.session.get(f"{gatepost.url}/.well-known/oauth-authorization-server").json()
        assert gatepost.first is not None
        answer = gatepost.session.post(
            f"{gatepost.url}/oauth/tokens",
            data={"grant_type": "password"},
            headers={"Authorization": gatepost.first.basic},
        )
    names = ", ".join(metadata["grant_types_supported"])
    assert "client_credentials" in names
    assert "authorization_code" not in names
    assert answer.json()["error_description"] == f"grant_type: must be one of {names}"


def test_a_token_that_the_service_would_not_accept_is_not_issued(sqlite_gatepost: Service, account_name: str) -> None:
    setting = Setting(sqlite_gatepost, account_name)
    names = [f"{number:0128}" for number in range(95)]
    for name in names:
        setting.scope(name=name, resource=setting.api)
    setting.redefine(scope=" ".join(names), serves=[setting.api])
    for count in (80, 95, 80):
        scope = " ".join(names[:count])
        answer = sqlite_gatepost.token_answer(setting.client, scope)
        explained = sqlite_gatepost.token_answer(setting.client, scope, {"Prefer": "explain"}).json()
        last = explained["rules"][-1]
        if count == 95:
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_scope")
            assert "request fewer scopes" in answer.json()["error_description"]
            assert setting.entry(answer.headers["Gatepost-Event"])["data"]["rule"] == "token_fits"
            assert (explained["rule"], last["rule"], last["held"]) == ("token_fits", "token_fits", False)
        else:
            sent = {"token": answer.json()["access_token"]}
            headers = {"Authorization": setting.client.basic}
            shown = sqlite_gatepost.session.post(f"{sqlite_gatepost.url}/oauth/introspect", sent, headers=headers)
            assert shown.json()["active"] is True
            assert (explained["decision"], last["rule"], last["held"]) == ("issue", "token_fits", True)


class TestExplain:
    def told(self, setting: Setting, scope: str | None, client: Client | None = None) -> tuple[Any, dict[str, Any]]:
        answer = setting.gatepost.token_answer(client or setting.client, scope, {"Prefer": "explain"})
        return answer, answer.json()

    def test_what_would_be_issued(self, setting: Setting) -> None:
        answer, result = self.told(setting, "read write")
        assert answer.status_code == 200
        assert answer.headers["Preference-Applied"] == "explain"
        assert result["decision"] == "issue"
        assert "access_token" not in result
        assert result["claims"]["aud"] == setting.api
        assert result["expires_in"] == 300
        assert all(each["held"] for each in result["rules"])
        assert setting.entry(answer.headers["Gatepost-Event"])["type"] == "oauth.token.explained"

    def test_what_would_be_refused_and_by_which_rule(self, setting: Setting) -> None:
        answer, result = self.told(setting, "read admin")
        assert answer.status_code == 200
        assert result["decision"] == "refuse"
        assert result["rule"] == "scopes_are_granted"
        assert result["error"] == "invalid_scope"
        assert [each["rule"] for each in result["rules"] if not each["held"]] == ["scopes_are_granted"]

    def test_the_explanation_matches_the_decision(self, setting: Setting) -> None:
        _, result = self.told(setting, "read")
        claims = setting.claims("read")
        moving = {"jti", "iat", "exp"}
        assert {name: result["claims"][name] for name in claims if name not in moving} == {
            name: value for name, value in claims.items() if name not in moving
        }

    def test_an_unauthenticated_client_gets_no_explanation(self, setting: Setting) -> None:
        answer, _ = self.told(setting, "read", Client(setting.client.id, "wrong"))
        assert answer.status_code == 401
        assert "Preference-Applied" not in answer.headers
