"""Resources that all accounts share: how the operator names them, and what follows for scopes and claims."""

from datetime import date
from typing import Any

import msgspec
import pytest

from gatepost.core.errors import BadSetting
from gatepost.oauth import shared_resources
from gatepost.oauth.grants import client_credentials
from gatepost.oauth.shared_resources import SharedResource, index
from gatepost.oauth.token_rules import Draft, decide
from gatepost.settings import load
from tests.unit import drafts

PLATFORM = "https://platform.example"
CLAIMS = {"tier": "platform", "limits": {"calls": 5}}
RIGHT = {PLATFORM: {"scopes": ["platform:read", "platform:write"], "claims": CLAIMS}, "urn:x:y": {"scopes": ["y"]}}
OLD: list[Any] = [[PLATFORM], [], PLATFORM, f"{PLATFORM} https://other.example", "[]", "5"]
WRONG: dict[str, dict[str, Any]] = {
    "no scopes": {PLATFORM: {"scopes": []}},
    "scopes left out": {PLATFORM: {}},
    "a scope twice": {PLATFORM: {"scopes": ["a", "a"]}},
    "a scope of two resources": {PLATFORM: {"scopes": ["a"]}, "https://b.example": {"scopes": ["a"]}},
    "a built-in scope": {PLATFORM: {"scopes": ["openid"]}},
    "a reserved scope": {PLATFORM: {"scopes": ["gatepost:clients"]}},
    "no scope name": {PLATFORM: {"scopes": ["a b"]}},
    "a protocol claim": {PLATFORM: {"scopes": ["a"], "claims": {"account": "acc_1"}}},
    "names of claims alone": {PLATFORM: {"scopes": ["a"], "claims": ["plan"]}},
    "a claim that is not JSON": {PLATFORM: {"scopes": ["a"], "claims": {"since": date(2026, 1, 1)}}},
    "too many claims": {PLATFORM: {"scopes": ["a"], "claims": {f"c{number}": 1 for number in range(21)}}},
    "an unknown member": {PLATFORM: {"scopes": ["a"], "tenants": []}},
    "a look-alike": {PLATFORM + "?": {"scopes": ["a"]}},
    "twice, with a slash": {PLATFORM: {"scopes": ["a"]}, PLATFORM + "/": {"scopes": ["b"]}},
    "the base URL": {"http://127.0.0.1:8080": {"scopes": ["a"]}},
    "no URI": {"platform": {"scopes": ["a"]}},
}


def test_the_setting_by_environment_and_flag() -> None:
    by_text = load({}, {"GATEPOST_SHARED_RESOURCES": msgspec.json.encode(RIGHT).decode()})
    by_flag = load({"shared_resources": RIGHT}, {})
    assert by_text.shared_resources == by_flag.shared_resources
    assert by_text.shared_resources[PLATFORM] == SharedResource(["platform:read", "platform:write"], CLAIMS)


@pytest.mark.parametrize("value", OLD)
def test_the_old_form_names_the_new_one(value: Any) -> None:
    where: dict[str, Any] = {} if isinstance(value, str) else {"shared_resources": value}
    environment = {"GATEPOST_SHARED_RESOURCES": value} if isinstance(value, str) else {}
    with pytest.raises(BadSetting) as raised:
        load(where, environment)
    assert str(raised.value) == shared_resources.NEW_FORM


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_set(name: str) -> None:
    with pytest.raises(BadSetting, match=r"settings: |shared_resources: "):
        load({"shared_resources": WRONG[name]}, {})


def test_what_decisions_look_up() -> None:
    found = index(load({"shared_resources": RIGHT}, {}).shared_resources)
    scope = found.scope("acc_1", "platform:read")
    assert scope is not None
    assert (scope.account, scope.resource, scope.claims, scope.status) == ("acc_1", PLATFORM, [], "active")
    assert found.scope("acc_1", "platform:admin") is None
    assert [found.includes(each) for each in (PLATFORM, PLATFORM + "/", "https://b.example")] == [True, True, False]
    assert (found.claims(PLATFORM), found.claims("urn:x:y")) == (CLAIMS, {})
    assert found.claims("https://b.example") is None


OWN = {"plan": "free", "role": "admin"}


@pytest.mark.parametrize(("resource", "claims"), [(drafts.SHARED, {"plan": "platform"}), (drafts.API, OWN)])
def test_fixed_claims_are_the_operators_or_the_clients(resource: str, claims: dict[str, str]) -> None:
    scopes = drafts.Defined(drafts.scope("use", resource))
    by = drafts.client("use", claims=OWN)
    found = decide(drafts.draft("use", by=by), scopes, client_credentials.RULES)
    assert isinstance(found, Draft)
    assert client_credentials.claims(found) == claims
