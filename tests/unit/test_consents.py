"""Consents: whose they are, for how long, and which claims of a person they release, where."""

from datetime import timedelta
from typing import Any

import pytest

from gatepost.oauth import consents
from gatepost.oauth.consents import Consent, ConsentDetails
from tests.unit.drafts import ACCOUNT, NOW, Defined, scope

CLAIMS = {"name": "Ada", "email": "ada@example.com", "email_verified": True, "roles": ["a"], "phone_number": "1"}
SCOPES = Defined(
    scope("profile", claims=["name", "picture"]),
    scope("email", claims=["email", "email_verified"]),
    scope("roles", claims=["roles"], status="retired"),
    scope("read"),
    scope("email", account="acc_2", claims=["phone_number"]),
)


def consent(ended: bool = False, **said: Any) -> Consent:
    whole = ConsentDetails("ada", ["openid", "profile", "email"], **({"claims": CLAIMS} | said))
    end = (NOW, "revoked_by_login") if ended else (None, None)
    return Consent("con_1", ACCOUNT.id, "cli_1", whole, NOW, NOW + timedelta(hours=1), *end)


def released(given: Consent, *names: str, place: Any = "userinfo") -> dict[str, Any]:
    requested = given.details.userinfo if place == "userinfo" else given.details.id_token
    return consents.released_claims(given, requested, names, lambda name: SCOPES.scope(ACCOUNT.id, name))


@pytest.mark.parametrize("place", ["userinfo", "id_token"])
@pytest.mark.parametrize(
    ("names", "claims"),
    [
        ([], []),
        (["openid"], []),
        (["openid", "offline_access", "read"], []),
        (["undefined"], []),
        (["profile"], ["name"]),
        (["email"], ["email", "email_verified"]),
        (["openid", "profile", "email", "email"], ["name", "email", "email_verified"]),
        (["roles"], ["roles"]),
    ],
)
def test_a_scope_releases_its_claims_and_no_others(names: list[str], claims: list[str], place: str) -> None:
    assert released(consent(), *names, place=place) == {name: CLAIMS[name] for name in claims}


def test_what_was_not_said_is_not_there() -> None:
    assert released(consent(claims={"email": "x"}), "profile", "email") == {"email": "x"}
    assert released(consent(claims={}), "profile", "email") == {}


def test_what_is_null_was_said() -> None:
    assert released(consent(claims={"name": None}), "profile") == {"name": None}


def test_a_claim_asked_for_by_name_is_released_in_its_place_only() -> None:
    given = consent(userinfo=["phone_number", "unknown"], id_token=["roles"])
    assert released(given, "openid", place="userinfo") == {"phone_number": "1"}
    assert released(given, "openid", place="id_token") == {"roles": ["a"]}
    assert released(given, "profile", place="id_token") == {"roles": ["a"], "name": "Ada"}


def test_a_person_is_of_one_account() -> None:
    assert consent().subject == "acc_1.ada"
    assert consent()._replace(account="acc_2").subject == "acc_2.ada"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"auth_time": 5}, {"auth_time": 5}),
        ({"auth_time": 5, "acr": "gold"}, {"auth_time": 5, "acr": "gold"}),
        ({"auth_time": 5, "amr": ["pwd", "otp"]}, {"auth_time": 5, "amr": ["pwd", "otp"]}),
        ({"auth_time": 0, "acr": "0", "amr": []}, {"auth_time": 0, "acr": "0"}),
    ],
)
def test_how_a_person_was_authenticated(said: dict[str, Any], told: dict[str, Any]) -> None:
    assert consent(**said).authentication() == told


def test_a_consent_lives_until_it_ends() -> None:
    assert consent().is_active(NOW)
    assert consent().is_active(NOW + timedelta(hours=1, milliseconds=-1))
    assert not consent().is_active(NOW + timedelta(hours=1))
    assert not consent(ended=True).is_active(NOW)


def test_an_operator_sees_whose_it_is_and_nothing_that_was_said() -> None:
    shown = consents.render(consent(ended=True, acr="gold", auth_time=5))
    assert shown == {
        "id": "con_1",
        "account": "acc_1",
        "client_id": "cli_1",
        "sub": "acc_1.ada",
        "scope": "openid profile email",
        "given_at": "2026-11-15T08:00:00.000Z",
        "expires_at": "2026-11-15T09:00:00.000Z",
        "ended_at": "2026-11-15T08:00:00.000Z",
        "ended_reason": "revoked_by_login",
    }
    assert consents.render(consent())["ended_at"] is None
