"""The interaction for the login application, and the outcome of its handoff: granted, denied or invalid."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gatepost.core.errors import Refusal
from gatepost.core.jose import InvalidJwt
from gatepost.oauth.authorize import handoff
from gatepost.oauth.authorize.handoff import ERRORS, HANDOFF_LIFE, INTERACTION_LIFE, Denied, Granted
from gatepost.oauth.authorize.request import Authorization
from gatepost.oauth.clients import Client
from gatepost.oauth.consents import ConsentDetails
from gatepost.oauth.scopes import PROTOCOL_CLAIMS
from tests.unit.drafts import ACCOUNT, API, BASE_URL, NOW

LOGIN = "https://login.example/start?tenant=1"
CLIENT = Client("cli_1", ACCOUNT.id, NOW, NOW, client_name="The app")
ASKED = Authorization("https://app.example/callback", scope=["openid", "read", "offline_access"], nonce="n")
SECONDS = int(NOW.timestamp())
FRAME: dict[str, Any] = {
    "iss": ACCOUNT.id, "aud": BASE_URL, "iat": SECONDS, "exp": SECONDS + 60, "jti": "a", "interaction": "int_1",
}  # fmt: skip
RIGHT: dict[str, Any] = FRAME | {"sub": "ada", "auth_time": SECONDS, "scope": "openid read"}


def changed(right: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A change to None leaves a claim out."""
    return {name: value for name, value in (right | changes).items() if value is not None}


class TestWhatIsTold:
    def told(self, authorization: Authorization, client: Client = CLIENT) -> dict[str, Any]:
        return handoff.interaction_claims(
            authorization, client, interaction="int_1", descriptions={"read": "Reads."}, base_url=BASE_URL,
            login_url=LOGIN, at=NOW,
        )  # fmt: skip

    def test_of_the_plainest_request(self) -> None:
        assert self.told(ASKED) == {
            "iss": BASE_URL,
            "aud": LOGIN,
            "jti": "int_1",
            "iat": SECONDS,
            "exp": SECONDS + 600,
            "account": ACCOUNT.id,
            "client_id": "cli_1",
            "client_name": "The app",
            "scopes": [
                {"name": "openid", "description": ""},
                {"name": "read", "description": "Reads."},
                {"name": "offline_access", "description": ""},
            ],
        }
        assert timedelta(minutes=10) == INTERACTION_LIFE

    def test_a_client_without_a_name_has_its_id(self) -> None:
        assert self.told(ASKED, Client("cli_2", ACCOUNT.id, NOW, NOW))["client_name"] == "cli_2"

    def test_what_was_sent_goes_along(self) -> None:
        sent: dict[str, Any] = {
            "max_age": 0, "display": "page", "login_hint": "ada@example.com", "acr_values": "gold", "ui_locales": "de",
            "claims": {"id_token": {"acr": None}},
        }  # fmt: skip
        whole = Authorization("https://app.example", scope=["openid"], prompt=["login", "consent"], hint="ada", **sent)
        result = self.told(whole)
        assert set(result) - set(self.told(ASKED)) == {*sent, "prompt", "sub"}
        assert {name: result[name] for name in sent} == sent
        assert (result["prompt"], result["sub"]) == ("login consent", "ada")

    def test_what_is_the_clients_own_does_not(self) -> None:
        whole = Authorization(
            "https://app.example", "form_post", "a state", ["openid"], [API], "a challenge", "a thumbprint", "a nonce"
        )
        assert set(self.told(whole)) == set(self.told(ASKED))


class TestWhatFits:
    def scopes(self, room: int, *sizes: int) -> list[int] | None:
        """The lengths of the descriptions that remain, of scopes with descriptions of these lengths."""
        described = [{"name": f"s{index}", "description": "請" * size} for index, size in enumerate(sizes)]
        claims = {"jti": "int_1", "scopes": described}
        most = len(msgspec.json.encode({"jti": "int_1", "scopes": [each | {"description": ""} for each in described]}))
        fitting = handoff.shortened(claims, most + room)
        assert [len(each["description"]) for each in described] == list(sizes), "the argument is not changed"
        if fitting is None:
            return None
        assert len(msgspec.json.encode(fitting)) <= most + room
        assert [each["name"] for each in fitting["scopes"]] == [each["name"] for each in described]
        assert fitting["jti"] == "int_1"
        return [len(each["description"]) for each in fitting["scopes"]]

    def test_the_longest_descriptions_are_left_out(self) -> None:
        assert self.scopes(3 * 60, 10, 30, 20) == [10, 30, 20]
        assert self.scopes(3 * 60 - 1, 10, 30, 20) == [10, 0, 20]
        assert self.scopes(3 * 30, 10, 30, 20) == [10, 0, 20]
        assert self.scopes(3 * 30 - 1, 10, 30, 20) == [10, 0, 0]
        assert self.scopes(0, 10, 30, 20) == [0, 0, 0]

    def test_the_names_always_remain(self) -> None:
        assert self.scopes(-1, 10, 30, 20) is None
        assert self.scopes(-1) is None
        assert self.scopes(0) == []


class TestTheFrame:
    def problem(self, **changes: Any) -> str:
        return handoff.envelope_problem(changed(FRAME, changes), account=ACCOUNT.id, base_url=BASE_URL, at=NOW)

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"aud": [BASE_URL]},
            {"iat": SECONDS + 10, "exp": SECONDS + 310},
            {"iat": SECONDS - 299, "exp": SECONDS + 1},
            {"iat": SECONDS + 0.5, "exp": SECONDS + 60.5},
            {"exp": SECONDS + HANDOFF_LIFE},
            {"nbf": SECONDS + 10},
            {"nbf": 0},
        ],
    )
    def test_right(self, changes: dict[str, Any]) -> None:
        assert not self.problem(**changes)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"iss": None}, "iss"),
            ({"iss": "acc_2"}, "iss"),
            ({"iss": [ACCOUNT.id]}, "iss"),
            ({"iss": "acme"}, "iss"),
            ({"iss": BASE_URL}, "iss"),
            ({"aud": None}, "aud"),
            ({"aud": []}, "aud"),
            ({"aud": BASE_URL + "/"}, "aud"),
            ({"aud": f"{BASE_URL}/oauth/authorize"}, "aud"),
            ({"aud": [BASE_URL, BASE_URL]}, "aud"),
            ({"aud": [BASE_URL, "https://other.example"]}, "aud"),
            ({"aud": {"a": BASE_URL}}, "aud"),
            ({"exp": None}, "exp"),
            ({"exp": SECONDS}, "expired"),
            ({"exp": SECONDS - 1, "iat": SECONDS - 60}, "expired"),
            ({"iat": None}, "iat"),
            ({"iat": SECONDS + 11}, "not yet valid"),
            ({"nbf": SECONDS + 11}, "not yet valid"),
            ({"exp": SECONDS + HANDOFF_LIFE + 1}, "5 minutes"),
            ({"iat": SECONDS - 300, "exp": SECONDS + 1}, "5 minutes"),
            ({"exp": SECONDS + 10**9}, "5 minutes"),
            ({"jti": None}, "jti"),
            ({"jti": ""}, "jti"),
            ({"jti": 5}, "jti"),
            ({"jti": ["a"]}, "jti"),
        ],
    )
    def test_wrong(self, changes: dict[str, Any], words: str) -> None:
        problem = self.problem(**changes)
        assert words in problem
        refusal = handoff.invalid_handoff(problem)
        assert (refusal.code, refusal.pointer) == ("invalid_request", "handoff")
        assert refusal.detail == f"handoff: {problem}"

    @pytest.mark.parametrize("name", ["iat", "exp", "nbf"])
    @pytest.mark.parametrize("value", ["1", True, [1], {}, -1, 1 << 40, 10**30])
    def test_what_is_no_time(self, name: str, value: Any) -> None:
        with pytest.raises(InvalidJwt, match=name):
            self.problem(**{name: value})


def check(authorization: Authorization = ASKED, **changes: Any) -> Granted | Denied | Refusal:
    return handoff.check(changed(RIGHT, changes), authorization, started_at=NOW, at=NOW + timedelta(seconds=30))


def authorization(**changes: Any) -> Authorization:
    return Authorization("https://app.example/callback", scope=["openid", "read"], **changes)


class TestGranted:
    def test_the_plainest(self) -> None:
        refused = ["offline_access"]  # it was requested, too
        assert check() == Granted(ConsentDetails("ada", ["openid", "read"], auth_time=SECONDS, refused=refused))

    def test_with_everything(self) -> None:
        wanted = authorization(
            resources=[API], claims={"userinfo": {"email": None}, "id_token": {"name": None, "acr": None}}
        )
        output: dict[str, Any] = {
            "acr": "gold",
            "amr": ["pwd", "otp"],
            "claims": {"email": "ada@example.com", "roles": [1, {"a": None}]},
        }
        assert check(wanted, **output) == Granted(
            ConsentDetails(
                "ada", ["openid", "read"], [API], SECONDS, "gold", ["pwd", "otp"], output["claims"], ["email"],
                ["name", "acr"],
            )
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("sent", "kept"),
        [
            ("openid", ["openid"]),
            ("read openid", ["read", "openid"]),
            ("read read", ["read"]),
            ("openid read offline_access", ["openid", "read", "offline_access"]),
        ],
    )
    def test_what_was_asked_for_or_less(self, sent: str, kept: list[str]) -> None:
        found = check(scope=sent)
        assert isinstance(found, Granted)
        assert found.details.scope == kept

    @pytest.mark.parametrize("subject", ["a", "a" * 200, "a b", "!~", "acc_2.bob", "0"])
    def test_subjects(self, subject: str) -> None:
        found = check(sub=subject)
        assert isinstance(found, Granted)
        assert found.details.subject == subject

    @pytest.mark.parametrize(
        ("wanted", "said"),
        [
            ({"prompt": ["login"]}, {"auth_time": SECONDS}),
            ({"prompt": ["login"]}, {"auth_time": SECONDS - 10}),
            ({"prompt": ["consent"]}, {"auth_time": 1}),
            ({"prompt": ["none"]}, {"auth_time": 1}),
            ({"max_age": 0}, {"auth_time": SECONDS}),
            ({"max_age": 0}, {"auth_time": SECONDS + 40}),
            ({"max_age": 60}, {"auth_time": SECONDS - 60}),
            ({"hint": "ada"}, {}),
            ({"claims": {"id_token": {"acr": None}}}, {}),
            ({"claims": {"id_token": {"acr": {"values": ["gold"]}}}}, {"acr": "silver"}),
            ({"claims": {"id_token": {"acr": {"essential": False, "value": "gold"}}}}, {}),
            ({"claims": {"id_token": {"acr": {"essential": True}}}}, {"acr": "any"}),
            ({"claims": {"id_token": {"acr": {"essential": True, "value": "gold"}}}}, {"acr": "gold"}),
            ({"claims": {"id_token": {"acr": {"essential": True, "values": ["a", "gold"]}}}}, {"acr": "gold"}),
            ({"claims": {"userinfo": {"acr": {"essential": True}}}}, {}),
            ({"acr_values": "gold"}, {"acr": "silver"}),
        ],
    )
    def test_what_the_client_wanted_is_met(self, wanted: dict[str, Any], said: dict[str, Any]) -> None:
        assert isinstance(check(authorization(**wanted), **said), Granted)


class TestDenied:
    @pytest.mark.parametrize("code", ERRORS)
    def test_by_the_login_application(self, code: str) -> None:
        output: dict[str, Any] = {"sub": None, "scope": None, "auth_time": None, "error": code}
        assert check(**output) == Denied(code, "")
        assert check(**output, error_description="She said no.") == Denied(code, "She said no.")
        assert check(**output, error_description="a" * 501) == Denied(code, "a" * 500)
        assert check(**output, error_description=["no"]) == Denied(code, "")

    @pytest.mark.parametrize(
        ("wanted", "said", "code", "word"),
        [
            ({"prompt": ["login"]}, {"auth_time": SECONDS - 11}, "login_required", "prompt=login"),
            ({"prompt": ["consent", "login"]}, {"auth_time": 0}, "login_required", "prompt=login"),
            ({"max_age": 0}, {"auth_time": SECONDS - 1}, "login_required", "max_age"),
            ({"max_age": 60}, {"auth_time": SECONDS - 61}, "login_required", "max_age"),
            ({"hint": "bob"}, {}, "login_required", "id_token_hint"),
            ({"hint": "ADA"}, {}, "login_required", "id_token_hint"),
            ({"claims": {"id_token": {"acr": {"essential": True}}}}, {}, "unmet_authentication_requirements", "acr"),
            (
                {"claims": {"id_token": {"acr": {"essential": True, "value": "gold"}}}},
                {"acr": "silver"},
                "unmet_authentication_requirements",
                "acr",
            ),
            (
                {"claims": {"id_token": {"acr": {"essential": True, "values": ["gold", "golden"]}}}},
                {"acr": "silver"},
                "unmet_authentication_requirements",
                "acr",
            ),
            (
                {"claims": {"id_token": {"acr": {"essential": True, "value": "gold", "values": ["golden"]}}}},
                {"acr": "silver"},
                "unmet_authentication_requirements",
                "acr",
            ),
            (
                {"claims": {"id_token": {"acr": {"essential": True, "values": []}}}},
                {"acr": "silver"},
                "unmet_authentication_requirements",
                "acr",
            ),
        ],
    )
    def test_what_the_client_wanted_is_not_met(
        self, wanted: dict[str, Any], said: dict[str, Any], code: str, word: str
    ) -> None:
        found = check(authorization(**wanted), **said)
        assert isinstance(found, Denied)
        assert found.code == code
        assert word in found.description


class TestAFaultOfTheLoginApplications:
    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            ({"sub": None}, "sub"),
            ({"sub": ""}, "sub"),
            ({"sub": "a" * 201}, "sub"),
            ({"sub": "é"}, "sub"),
            ({"sub": "a\n"}, "sub"),
            ({"sub": "a\x7f"}, "sub"),
            ({"sub": "\0"}, "sub"),
            ({"sub": 5}, "sub"),
            ({"sub": ["ada"]}, "sub"),
            ({"scope": None}, "scope"),
            ({"scope": ""}, "scope"),
            ({"scope": ["openid"]}, "scope"),
            ({"scope": "openid write"}, "write"),
            ({"scope": "openid  read"}, "scope"),
            ({"scope": "OpenID"}, "OpenID"),
            ({"scope": "gatepost:clients"}, "gatepost:clients"),
            ({"scope": "offline_access"}, "offline_access"),
            ({"auth_time": None}, "auth_time"),
            ({"auth_time": SECONDS + 41}, "auth_time"),
            ({"acr": ""}, "acr"),
            ({"acr": 2}, "acr"),
            ({"acr": "a" * 257}, "acr"),
            ({"amr": "pwd"}, "amr"),
            ({"amr": [1]}, "amr"),
            ({"amr": ["a" * 65]}, "amr"),
            ({"amr": ["a"] * 21}, "amr"),
            ({"claims": []}, "claims"),
            ({"claims": "name"}, "claims"),
            ({"claims": {"": 1}}, "1 to 128 characters"),
            ({"iss": "acc_1", "sub": "acc_1.ada"}, "must not begin with the account's id"),
            ({"claims": {"a" * 129: 1}}, "claims"),
            ({"error": "access_denied"}, "error"),
            ({"sub": None, "error": "invalid_scope"}, "error"),
            ({"sub": None, "error": "server_error"}, "error"),
            ({"sub": None, "error": ""}, "error"),
            ({"sub": None, "error": ["access_denied"]}, "error"),
            ({"sub": None, "error": {}}, "error"),
        ],
    )
    def test_nobody_is_redirected(self, changes: dict[str, Any], word: str) -> None:
        found = check(**changes)
        assert isinstance(found, Refusal)
        assert (found.code, found.pointer) == ("invalid_request", "handoff")
        assert word in found.detail
        assert len(found.detail) < 400

    @pytest.mark.parametrize("name", sorted(PROTOCOL_CLAIMS))
    def test_protocol_claims_are_not_its_to_set(self, name: str) -> None:
        values: list[Any] = ["x", None, ["x"], {}]
        for value in values:
            found = check(claims={"email": "a", name: value})
            assert isinstance(found, Refusal)
            assert name in found.detail

    @pytest.mark.parametrize("value", ["1", True, [1], -1, 10**30])
    def test_an_auth_time_that_is_no_time(self, value: Any) -> None:
        found = check(auth_time=value)
        assert isinstance(found, Refusal)
        assert found.detail == "handoff: auth_time must be the time at which the person was authenticated"

    def test_a_fault_comes_before_what_the_client_wanted(self) -> None:
        """A handoff that widens the scope is not a person who is refused."""
        assert isinstance(check(authorization(hint="bob", max_age=0), scope="write", auth_time=1), Refusal)
