"""OpenID Connect, Basic OP and Form Post Basic OP: a test for each module of these plans, by its name.

The two differ in response_mode alone. The plans' client authenticates with its secret and uses no PKCE.
Their browser goes through the account's own login application, which is played here: it knows who is signed in, and
says so in the handoff.
"""

import hashlib
import json
import re
import time
from html import unescape
from typing import Any

import pytest
import requests
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.login import CALLBACK, VERIFIER, Browser, Platform, b64, challenge, decode_jwt, redirect_target
from tests.receiver import receiver
from tests.service import Client, Service
from tests.waiting import LIMIT
from tests.wire import check_refusal

ADDRESS = {"formatted": "12 St James's Square, London", "country": "UK"}
PERSON = {
    "name": "Ada Lovelace", "given_name": "Ada", "family_name": "Lovelace", "preferred_username": "ada",
    "birthdate": "1985-12-10", "updated_at": 1_700_000_000, "email": "ada@example.com", "email_verified": True,
    "address": ADDRESS, "phone_number": "+44 20 7946 0000", "phone_number_verified": False,
}  # fmt: skip
OF_SCOPE = {
    "profile": {"name", "given_name", "family_name", "preferred_username", "birthdate", "updated_at"},
    "email": {"email", "email_verified"},
    "address": {"address"},
    "phone": {"phone_number", "phone_number_verified"},
}
AGO = 100  # seconds since the person signed in, unless a new sign-in is requested


class Login:
    """A login application with a session: it asks the person only where it must."""

    def __init__(self, plan: "Plan", since: int | None = None) -> None:
        self.plan, self.since, self.asked = plan, since, 0

    def answer(self, interaction: dict[str, Any]) -> str:
        prompt, now = interaction.get("prompt", "").split(), int(time.time())
        oldest = now - interaction.get("max_age", now)
        if self.since is None or self.since < oldest or "login" in prompt:
            if "none" in prompt:
                output: dict[str, Any] = {
                    "error": "login_required",
                    "error_description": "Nobody is signed in.",
                    "sub": None,
                }
                return self.plan.handoff(interaction, **output)
            self.since, self.asked = now, self.asked + 1
        acr = interaction.get("acr_values", "").split(" ")[0] or None
        return self.plan.handoff(interaction, auth_time=self.since, claims=PERSON, acr=acr)


class Plan(Platform):
    """Two clients as the plan registers them, and one that sends its secret in the form."""

    def __init__(self, gatepost: Service, name: str, response_mode: str | None) -> None:
        super().__init__(gatepost, name)
        self.response_mode = response_mode
        scope = f"openid offline_access {' '.join(OF_SCOPE)}"
        members = {"scope": scope, "require_pkce": False, "require_nonce": False}
        self.client, self.second = self.define(**members), self.define(**members)
        self.by_form = self.define(**members, token_endpoint_auth_method="client_secret_post")

    def auth_request(self, client: Client | None = None, **changes: Any) -> dict[str, Any]:
        """As the plan asks: the scope openid, a state, a nonce, no PKCE."""
        plain = {"scope": "openid", "code_challenge": None, "code_challenge_method": None}
        return super().auth_request(client, **(plain | {"response_mode": self.response_mode} | changes))

    def answered(self, answer: requests.Response) -> tuple[str, dict[str, str]]:
        """Where the browser takes the answer, and its parameters: in the query, or as a form that posts itself."""
        if self.response_mode is None:
            return redirect_target(answer)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "Location" not in answer.headers
        [action] = re.findall(r'<form method="post" action="([^"]+)">', answer.text)
        inputs = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', answer.text)
        return unescape(action), {unescape(name): unescape(value) for name, value in inputs}

    def go(
        self, parameters: dict[str, Any], login: Login | None = None, browser: Browser | None = None
    ) -> dict[str, str]:
        """Through the login application and back: what the callback gets."""
        browser, login = browser or Browser(), login or Login(self, int(time.time()) - AGO)
        handoff = login.answer(self.interaction(browser, parameters))
        where, result = self.answered(self.submit_handoff(browser, handoff))
        assert where == parameters["redirect_uri"]
        assert result.pop("iss") == self.url
        assert result.pop("state") == parameters["state"]
        return result

    def sign_in(self, login: Login | None = None, browser: Browser | None = None, **changes: Any) -> Any:
        """A whole sign-in, checked as each module checks it: the token answer."""
        parameters = self.auth_request(**changes)
        result = self.go(parameters, login, browser)
        assert set(result) == {"code"}, result
        answer = self.redeem(result["code"], code_verifier=None)
        assert answer.status_code == 200, answer.text
        self.check_id_token(answer.json(), self.client, parameters.get("nonce"))
        assert self.userinfo(answer.json()["access_token"])["sub"] == claims_of(answer.json())["sub"]
        return answer.json()

    def check_id_token(self, tokens: dict[str, Any], client: Client, nonce: str | None) -> None:
        """OIDC Core 1.0, sections 2 and 3.1.3.7."""
        keys = KeySet.import_key_set(requests.get(f"{self.url}/oauth/jwks", timeout=LIMIT).json())
        found = jwt.decode(tokens["id_token"], keys, algorithms=["RS256"])
        now = int(time.time())
        registry = jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": self.url}, aud={"essential": True, "value": client.id},
            sub={"essential": True}, exp={"essential": True}, iat={"essential": True},
        )  # fmt: skip
        registry.validate(found.claims)
        assert abs(found.claims["iat"] - now) < 300
        assert found.claims.get("nonce") == nonce
        assert found.header["kid"] in {key.kid for key in keys.keys}
        half = hashlib.sha256(tokens["access_token"].encode()).digest()[:16]
        assert found.claims["at_hash"] == b64(half)

    def userinfo(self, token: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        answer = self.gatepost.session.get(f"{self.url}/oauth/userinfo", headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"] == "application/json"
        return answer.json()


def claims_of(tokens: Any) -> dict[str, Any]:
    return decode_jwt(tokens["id_token"])[1]


@pytest.fixture(scope="module", params=["default", "form_post"])
def plan(request: pytest.FixtureRequest, sqlite_gatepost: Service) -> Plan:
    mode = None if request.param == "default" else request.param
    return Plan(sqlite_gatepost, f"oidc-{request.param.replace('_', '-')}", mode)


def test_oidcc_server(plan: Plan) -> None:
    parameters = plan.auth_request()
    code = plan.go(parameters)["code"]
    assert len(code) == 43  # 256 bits
    answer = plan.redeem(code, code_verifier=None)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json()["token_type"] == "Bearer"
    assert answer.json()["expires_in"] > 0
    plan.check_id_token(answer.json(), plan.client, parameters["nonce"])
    assert set(claims_of(answer.json())) == {"iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash"}


def test_oidcc_response_type_missing(plan: Plan) -> None:
    where, result = plan.answered(plan.authorize(Browser(), plan.auth_request(response_type=None)))
    assert (where, result["error"], result["state"]) == (CALLBACK, "invalid_request", "a state")
    assert "response_type" in result["error_description"]


def test_oidcc_idtoken_signature(plan: Plan) -> None:
    """RS256 where the client said nothing, with a `kid`: also part of every sign-in here."""
    header = decode_jwt(plan.sign_in()["id_token"])[0]
    assert header["alg"] == "RS256"
    assert header["kid"]


def test_oidcc_idtoken_unsigned(plan: Plan) -> None:
    answered = requests.get(f"{plan.url}/.well-known/openid-configuration", timeout=LIMIT).json()
    assert "none" not in answered["id_token_signing_alg_values_supported"]
    body = {"redirect_uris": [CALLBACK], "scope": "openid", "id_token_signed_response_alg": "none"}
    answer = plan.gatepost.post("/oauth/clients", plan.admin, body)
    check_refusal(answer, "/oauth/clients", "invalid_client_metadata", "id_token_signed_response_alg")


def test_oidcc_userinfo_get(plan: Plan) -> None:
    tokens = plan.sign_in()
    assert plan.userinfo(tokens["access_token"]) == {"sub": claims_of(tokens)["sub"]}


def test_oidcc_userinfo_post_header(plan: Plan) -> None:
    tokens = plan.sign_in()
    headers = {"Authorization": f"Bearer {tokens['access_token']}"}
    answer = plan.gatepost.session.post(f"{plan.url}/oauth/userinfo", headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"sub": claims_of(tokens)["sub"]})


def test_oidcc_userinfo_post_body(plan: Plan) -> None:
    tokens = plan.sign_in()
    sent = {"access_token": tokens["access_token"]}
    answer = plan.gatepost.session.post(f"{plan.url}/oauth/userinfo", data=sent)
    assert (answer.status_code, answer.json()) == (200, {"sub": claims_of(tokens)["sub"]})


def test_oidcc_ensure_request_without_nonce_succeeds_for_code_flow(plan: Plan) -> None:
    """The client has `require_nonce: false`; one that has not is refused."""
    parameters = plan.auth_request(nonce=None)
    answer = plan.redeem(plan.go(parameters)["code"], code_verifier=None)
    plan.check_id_token(answer.json(), plan.client, None)
    strict = plan.define(scope="openid", require_pkce=False)
    _, result = plan.answered(plan.authorize(Browser(), plan.auth_request(strict, nonce=None)))
    assert result["error"] == "invalid_request"
    assert "nonce" in result["error_description"]


def check_scope(plan: Plan, *names: str, **changes: Any) -> None:
    """Userinfo has what the scopes release and nothing else; the ID token has none of it."""
    tokens = plan.sign_in(**({"scope": " ".join(["openid", *names])} | changes))
    wanted = {name for each in names for name in OF_SCOPE[each]}
    found = plan.userinfo(tokens["access_token"])
    assert {name: value for name, value in found.items() if name != "sub"} == {name: PERSON[name] for name in wanted}
    assert not PERSON.keys() & claims_of(tokens).keys()


def test_oidcc_scope_profile(plan: Plan) -> None:
    check_scope(plan, "profile")


def test_oidcc_scope_email(plan: Plan) -> None:
    check_scope(plan, "email")


def test_oidcc_scope_address(plan: Plan) -> None:
    check_scope(plan, "address")


def test_oidcc_scope_phone(plan: Plan) -> None:
    check_scope(plan, "phone")


def test_oidcc_scope_all(plan: Plan) -> None:
    check_scope(plan, "email", "phone", "address", "profile")


def test_oidcc_alternate_happy_flow(plan: Plan) -> None:
    """The scopes, and the parameters, in another order."""
    check_scope(plan, "email", scope="email openid")
    parameters = plan.auth_request(scope="email openid")
    turned = dict(reversed(parameters.items()))
    assert list(turned) != list(parameters)
    assert "code" in plan.go(turned)


def check_display(plan: Plan, display: str) -> None:
    interaction = plan.interaction(Browser(), plan.auth_request(display=display))
    assert interaction["display"] == display
    plan.sign_in(display=display)


def test_oidcc_display_page(plan: Plan) -> None:
    check_display(plan, "page")


def test_oidcc_display_popup(plan: Plan) -> None:
    check_display(plan, "popup")


def test_oidcc_prompt_login(plan: Plan) -> None:
    """The second time the person is asked again, and a login application that does not ask is not believed."""
    login, browser = Login(plan, int(time.time()) - AGO), Browser()
    before = claims_of(plan.sign_in(login, browser))
    assert login.asked == 0
    after = claims_of(plan.sign_in(login, browser, prompt="login"))
    assert login.asked == 1
    assert after["auth_time"] > before["auth_time"]
    interaction = plan.interaction(browser, plan.auth_request(prompt="login"))
    old = plan.handoff(interaction, auth_time=before["auth_time"])
    assert plan.answered(plan.submit_handoff(browser, old))[1]["error"] == "login_required"


def test_oidcc_prompt_none_not_logged_in(plan: Plan) -> None:
    """The state, even a long one, comes back with the error."""
    result = plan.go(plan.auth_request(prompt="none", state="s" * 128), Login(plan))
    assert result == {"error": "login_required", "error_description": "Nobody is signed in."}


def check_same_person_twice(plan: Plan, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Asked once, believed twice."""
    login, browser = Login(plan), Browser()
    before = plan.sign_in(login, browser, **first)
    more = {name: before["id_token"] if value == "the first" else value for name, value in second.items()}
    after = plan.sign_in(login, browser, **more)
    assert login.asked == 1
    for name in ("sub", "auth_time"):
        assert claims_of(before)[name] == claims_of(after)[name]


def test_oidcc_prompt_none_logged_in(plan: Plan) -> None:
    check_same_person_twice(plan, {}, {"prompt": "none"})


def test_oidcc_max_age_1(plan: Plan) -> None:
    login, browser = Login(plan, int(time.time()) - AGO), Browser()
    before = claims_of(plan.sign_in(login, browser))
    after = claims_of(plan.sign_in(login, browser, max_age=1))
    assert login.asked == 1
    assert after["auth_time"] > before["auth_time"]
    assert abs(after["auth_time"] - time.time()) < 60
    interaction = plan.interaction(browser, plan.auth_request(max_age=1))
    old = plan.handoff(interaction, auth_time=before["auth_time"])
    assert plan.answered(plan.submit_handoff(browser, old))[1]["error"] == "login_required"


def test_oidcc_max_age_10000(plan: Plan) -> None:
    check_same_person_twice(plan, {"max_age": 15_000}, {"max_age": 10_000})


def test_oidcc_ensure_request_with_unknown_parameter_succeeds(plan: Plan) -> None:
    plan.sign_in(extra="foobar")


def test_oidcc_id_token_hint(plan: Plan) -> None:
    check_same_person_twice(plan, {}, {"prompt": "none", "id_token_hint": "the first"})


def check_passed_on(plan: Plan, **said: Any) -> None:
    assert said.items() <= plan.interaction(Browser(), plan.auth_request(**said)).items()
    plan.sign_in(**said)


def test_oidcc_login_hint(plan: Plan) -> None:
    check_passed_on(plan, login_hint="buffy@gatepost.example")


def test_oidcc_ui_locales(plan: Plan) -> None:
    check_passed_on(plan, ui_locales="se fr-CA")


def test_oidcc_claims_locales(plan: Plan) -> None:
    plan.sign_in(claims_locales="se")


def test_oidcc_ensure_request_with_acr_values_succeeds(plan: Plan) -> None:
    check_passed_on(plan, acr_values="1 2")
    assert claims_of(plan.sign_in(acr_values="1 2"))["acr"] == "1"


def reused(plan: Plan) -> str:
    """Redeem a code, check its token, and redeem the code again. Returns the token."""
    code = plan.go(plan.auth_request())["code"]
    token = plan.redeem(code, code_verifier=None).json()["access_token"]
    plan.userinfo(token)
    check_refusal(plan.redeem(code, code_verifier=None), "/oauth/tokens", "invalid_grant", "code")
    return str(token)


def test_oidcc_codereuse(plan: Plan) -> None:
    reused(plan)


def test_oidcc_codereuse_30seconds(plan: Plan) -> None:
    """How long after plays no part: what was spent stays spent. What it gave is over too."""
    headers = {"Authorization": f"Bearer {reused(plan)}"}
    answer = plan.gatepost.session.get(f"{plan.url}/oauth/userinfo", headers=headers)
    check_refusal(answer, "/oauth/userinfo", "invalid_token")


def test_oidcc_ensure_registered_redirect_uri(plan: Plan) -> None:
    answer = plan.authorize(Browser(), plan.auth_request(redirect_uri=f"{CALLBACK}/0dd5"))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "redirect_uri" in answer.json()["error_description"]
    assert "Location" not in answer.headers
    url, sent = f"{plan.url}/oauth/authorize", plan.auth_request(redirect_uri=f"{CALLBACK}/0dd5")
    page = Browser().open(url, sent, headers={"Accept": "text/html,*/*;q=0.8"})
    assert (page.status_code, page.headers["Content-Type"]) == (400, "text/html; charset=utf-8")
    assert "redirect_uri" in page.text


def test_oidcc_ensure_post_request_succeeds(plan: Plan) -> None:
    """The parameters in a form; the way back is by GET as ever."""
    browser = Browser()
    _, result = redirect_target(browser.send(f"{plan.url}/oauth/authorize", plan.auth_request()))
    handoff = plan.handoff(decode_jwt(result["interaction"])[1])
    _, result = plan.answered(plan.submit_handoff(browser, handoff))
    assert plan.redeem(result["code"], code_verifier=None).status_code == 200


def test_oidcc_server_client_secret_post(plan: Plan) -> None:
    code = plan.go(plan.auth_request(plan.by_form))["code"]
    sent = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
    own = {"client_id": plan.by_form.id, "client_secret": plan.by_form.secret}
    answer = plan.gatepost.session.post(f"{plan.url}/oauth/tokens", data=sent | own)
    assert answer.status_code == 200, answer.text
    plan.check_id_token(answer.json(), plan.by_form, "a nonce")


# --- requests in other forms


def unsigned_request(parameters: dict[str, Any]) -> str:
    return f"{b64(json.dumps({'alg': 'none'}).encode())}.{b64(json.dumps(parameters).encode())}."


def test_oidcc_request_uri_unsigned_supported_correctly_or_rejected_as_unsupported(plan: Plan) -> None:
    """The request is rejected, and its URL is not fetched."""
    with receiver() as pointed_at:
        answer = plan.authorize(Browser(), plan.auth_request(request_uri=pointed_at.url))
        assert pointed_at.requests == []
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "request_uri" in answer.json()["error_description"]
    assert "Location" not in answer.headers


def test_oidcc_unsigned_request_object_supported_correctly_or_rejected_as_unsupported(plan: Plan) -> None:
    whole = plan.auth_request()
    outside = {name: whole[name] for name in ("client_id", "response_type", "scope", "redirect_uri")}
    where, result = plan.answered(plan.authorize(Browser(), outside | {"request": unsigned_request(whole)}))
    assert (where, result["error"], result["iss"]) == (CALLBACK, "request_not_supported", plan.url)


def test_oidcc_ensure_request_object_with_redirect_uri(plan: Plan) -> None:
    """A wrong redirect URI outside of the request object is an error without a redirect."""
    whole = plan.auth_request()
    sent = whole | {"redirect_uri": f"{CALLBACK}_invalid", "request": unsigned_request(whole)}
    answer = plan.authorize(Browser(), sent)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "Location" not in answer.headers


def test_oidcc_claims_essential(plan: Plan) -> None:
    """Asked for in userinfo: there, and not in the ID token."""
    tokens = plan.sign_in(claims='{"userinfo": {"name": {"essential": true}}}')
    assert plan.userinfo(tokens["access_token"])["name"] == "Ada Lovelace"
    assert "name" not in claims_of(tokens)


def test_oidcc_refresh_token(plan: Plan) -> None:
    """Of the same person, for the same client and no other."""
    asked = {"scope": "openid offline_access", "prompt": "consent"}
    found = {}
    for client in (plan.client, plan.second):
        code = plan.go(plan.auth_request(client, **asked))["code"]
        before = plan.redeem(code, client, code_verifier=None).json()
        scope = asked["scope"] if client == plan.client else None
        answer = plan.refresh(before["refresh_token"], client, scope=scope)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        after = answer.json()
        assert after["access_token"] != before["access_token"]
        assert after["token_type"] == "Bearer"
        assert len(after["refresh_token"]) > 43
        plan.check_id_token(after, client, None)
        for name in ("iss", "sub", "aud", "auth_time"):
            assert claims_of(after)[name] == claims_of(before)[name]
        assert claims_of(after)["iat"] >= claims_of(before)["iat"]
        assert "azp" not in claims_of(after)
        plan.userinfo(after["access_token"])
        found[client.id] = after["refresh_token"]
    stolen = plan.refresh(found[plan.second.id], plan.client)
    check_refusal(stolen, "/oauth/tokens", "invalid_grant", "refresh_token")
    assert plan.refresh(found[plan.second.id], plan.second).status_code == 200


def test_oidcc_ensure_request_with_valid_pkce_succeeds(plan: Plan) -> None:
    """Where it is used it counts: the code is worth nothing without the verifier."""
    parameters = plan.auth_request(code_challenge=challenge(), code_challenge_method="S256")
    answer = plan.redeem(plan.go(parameters)["code"], code_verifier=VERIFIER)
    plan.check_id_token(answer.json(), plan.client, "a nonce")
    for verifier in (None, "w" * 43):
        wrong = plan.redeem(plan.go(parameters)["code"], code_verifier=verifier)
        check_refusal(wrong, "/oauth/tokens", "invalid_grant", "code_verifier")
