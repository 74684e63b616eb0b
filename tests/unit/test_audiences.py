"""Which resource a token of a person is for: scopes that only release claims go along with any."""

import pytest

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.oauth import scopes
from gatepost.oauth.client_grants import Grant
from gatepost.oauth.clients import Client
from gatepost.oauth.token_rules import CONSENT_RULES, Draft, GrantContext, TokenRequest, decide
from tests.unit.drafts import ACCOUNT, API, BASE_URL, NOW, OTHER, Defined, scope

OWN = scopes.default_resource(ACCOUNT.id)
SCOPES = Defined(scope("read"), scope("other", OTHER), scope("profile", OWN, claims=["name"]), scope("notes", OWN))
ALL = ("openid", "offline_access", "read", "other", "profile", "notes")


def decided(asked: str, *resources: str, agreed: tuple[str, ...] = ()) -> Draft | Refusal:
    """A code that was agreed to with these scopes, redeemed for these resources."""
    grant = Grant("grt_1", "authorization_code", list(ALL))
    client = Client("cli_1", ACCOUNT.id, NOW, NOW, grants=[grant])
    account: Account = ACCOUNT
    basis = GrantContext(f"{ACCOUNT.id}.ada", tuple(asked.split(" ")), agreed)
    request = TokenRequest("authorization_code", (), resources)
    return decide(Draft(request, account, client, BASE_URL, basis), SCOPES, CONSENT_RULES)


RIGHT = {
    "openid": ("openid", (), BASE_URL, "openid"),
    "openid profile": ("openid profile", (), [OWN, BASE_URL], "openid profile"),
    "beside an API": ("openid profile read", (), [API, BASE_URL], "openid profile read"),
    "beside an API that is named": ("openid profile read", (API,), [API, BASE_URL], "openid profile read"),
    "their own resource named": ("openid profile read", (OWN,), [OWN, BASE_URL], "openid profile"),
    "one of two APIs named": ("openid profile read other", (OTHER,), [OTHER, BASE_URL], "openid profile other"),
    "without openid they are like any": ("profile", (), OWN, "profile"),
    "to stay signed in": ("offline_access read", (), API, "offline_access read"),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right(case: str) -> None:
    asked, resources, audience, scope_ = RIGHT[case]
    found = decided(asked, *resources)
    assert isinstance(found, Draft), found
    assert found.audience == audience
    assert " ".join(found.scope) == scope_


WRONG = {
    "two APIs": ("openid read other", (), "invalid_scope"),
    "two resources without openid": ("profile read", (), "invalid_scope"),
    "a scope of the account's own that releases nothing": ("openid notes read", (), "invalid_scope"),
    "a resource of nobody": ("openid profile read", (OTHER,), "invalid_target"),
    "both named": ("openid profile read", (API, OWN), "invalid_target"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case: str) -> None:
    asked, resources, code = WRONG[case]
    found = decided(asked, *resources)
    assert isinstance(found, Refusal)
    assert found.code == code


def test_what_was_agreed_to_decides_where_nothing_is_named() -> None:
    found = decided("openid profile read other", agreed=(OTHER,))
    assert isinstance(found, Draft)
    assert found.resource == OTHER
    beyond = decided("openid profile read other", API, agreed=(OTHER,))
    assert isinstance(beyond, Refusal)
    assert beyond.code == "invalid_target"
