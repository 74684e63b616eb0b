"""examples/login_application.py, running: what people see, what clients get, and what it does not fall for."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from joserfc.jwk import ECKey, Key

from gatepost.core import ids
from tests.assertions import signed
from tests.examples.programs import PASSWORD, Form, LoginApplication, Person, login_application, run, running
from tests.login import CALLBACK, Platform, decode_jwt, redirect_target
from tests.receiver import receiver
from tests.service import Client, Service, free_ports

pytestmark = pytest.mark.xdist_group("example-login")


@pytest.fixture(scope="module")
def login(sqlite_gatepost: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginApplication]:
    directory = tmp_path_factory.mktemp("login") / "data"
    with login_application(sqlite_gatepost, "example-login", directory) as running:
        yield running


@pytest.fixture
def platform(login: LoginApplication) -> Platform:
    return login.platform


@pytest.fixture
def client(platform: Platform) -> Client:
    """A client without a consent."""
    return platform.define()


@pytest.fixture
def person() -> Person:
    return Person()


def asks(person: Person, platform: Platform, client: Client, **changes: Any) -> requests.Response:
    return person.goes_to(f"{platform.url}/oauth/authorize", platform.auth_request(client, **changes))


def callback_parameters(answer: requests.Response) -> dict[str, str]:
    where, parameters = redirect_target(answer)
    assert where == CALLBACK
    return parameters


def identity(platform: Platform, client: Client, answer: requests.Response) -> dict[str, Any]:
    """The claims of the ID token that comes of it."""
    tokens = platform.redeem(callback_parameters(answer)["code"], client, resource=platform.api)
    assert tokens.status_code == 200, tokens.text
    return decode_jwt(tokens.json()["id_token"])[1]


# --- what it does


def test_a_person_signs_in_and_allows(platform: Platform, client: Client, person: Person) -> None:
    wanted = json.dumps({"id_token": {"name": None}})
    page = asks(person, platform, client, scope="openid offline_access profile things:read", claims=wanted)
    assert page.status_code == 200
    assert "The app asks for access" in page.text
    assert "May things:read" in page.text
    claims = identity(platform, client, person.signs_in(page))
    assert claims["sub"] == f"{platform.account}.ada"
    assert claims["name"] == "Ada Lovelace"
    assert claims["amr"] == ["pwd"]
    assert abs(claims["auth_time"] - time.time()) < 60
    assert "email" not in claims, "nobody asked for it"


def test_a_person_says_no(platform: Platform, client: Client, person: Person) -> None:
    output = callback_parameters(person.presses(asks(person, platform, client), "deny"))
    assert output["error"] == "access_denied"
    assert output["state"] == "a state"
    assert output["iss"] == platform.url
    assert "code" not in output


def test_a_person_allows_less(platform: Platform, client: Client, person: Person) -> None:
    page = asks(person, platform, client, scope="openid things:read things:write")
    assert Form(page).scopes() == ["openid", "things:read", "things:write"]
    back = person.presses(page, "allow", "things:write", name="ada", password=PASSWORD)
    assert platform.redeem(callback_parameters(back)["code"], client).json()["scope"] == "openid things:read"


def test_allowing_nothing_is_saying_no(platform: Platform, client: Client, person: Person) -> None:
    page = asks(person, platform, client, scope="things:read")
    back = person.presses(page, "allow", "things:read", name="ada", password=PASSWORD)
    assert callback_parameters(back)["error"] == "access_denied"


WRONG = [
    ("ada", "wrong"),
    ("ada", ""),
    ("nobody", PASSWORD),
    ("", ""),
    ("../key", PASSWORD),
    ("ådå", "é"),
]


@pytest.mark.parametrize(("name", "password"), WRONG)
def test_a_wrong_password_shows_the_form_again(
    platform: Platform, client: Client, person: Person, name: str, password: str
) -> None:
    page = person.signs_in(asks(person, platform, client), name, password)
    assert page.status_code == 200
    assert "Wrong name or password." in page.text
    assert "set-cookie" not in page.headers
    assert "code" in callback_parameters(person.signs_in(page)), "the sign-in goes on"


def test_who_is_signed_in_is_only_asked_to_allow(platform: Platform, client: Client, person: Person) -> None:
    person.signs_in(asks(person, platform, client))
    page = asks(person, platform, platform.define())
    assert "Signed in as ada." in page.text
    assert "password" not in Form(page).names()
    assert "code" in callback_parameters(person.presses(page, "allow"))


def test_who_allowed_before_sees_no_page(platform: Platform, client: Client, person: Person) -> None:
    person.signs_in(asks(person, platform, client))
    assert "code" in callback_parameters(asks(person, platform, client))
    assert asks(person, platform, client, scope="openid things:write").status_code == 200, "more than before"


def test_without_a_page(platform: Platform, client: Client, person: Person) -> None:
    """prompt=none: without a session, without a consent, and with both."""
    assert callback_parameters(asks(person, platform, client, prompt="none"))["error"] == "login_required"
    person.signs_in(asks(person, platform, platform.define()))
    assert callback_parameters(asks(person, platform, client, prompt="none"))["error"] == "consent_required"
    person.presses(asks(person, platform, client), "allow")
    assert "code" in callback_parameters(asks(person, platform, client, prompt="none"))


@pytest.mark.parametrize("asked", [{"prompt": "login"}, {"prompt": "select_account"}, {"max_age": "0"}], ids=str)
def test_a_session_that_will_not_do(
    login: LoginApplication, platform: Platform, client: Client, person: Person, asked: dict[str, str]
) -> None:
    """The password is asked for again, and no form without it is taken."""
    person.signs_in(asks(person, platform, client))
    until_the_next_second()
    page = asks(person, platform, client, **asked)
    assert "password" in Form(page).names()
    bare = {"interaction": dict(Form(page).values())["interaction"], "allow": "yes", "scope": "openid"}
    assert "Wrong name or password." in person.session.post(login.url, data=bare).text
    claims = identity(platform, client, person.signs_in(page))
    assert time.time() - claims["auth_time"] < 30


def until_the_next_second() -> None:
    """Times in tokens are whole seconds."""
    now = int(time.time())
    while int(time.time()) == now:
        time.sleep(0.01)


def test_consent_is_asked_for_again(platform: Platform, client: Client, person: Person) -> None:
    person.signs_in(asks(person, platform, client))
    page = asks(person, platform, client, prompt="consent")
    assert "Signed in as ada." in page.text
    assert "code" in callback_parameters(person.presses(page, "allow"))


def test_a_hint_names_the_person(platform: Platform, client: Client, person: Person) -> None:
    """Whom an id_token_hint is about is asked to sign in, whoever else is."""
    code = callback_parameters(person.signs_in(asks(person, platform, client)))["code"]
    hint = platform.redeem(code, client).json()["id_token"]
    other = Person()
    other.signs_in(asks(other, platform, client), "grace")
    assert (
        callback_parameters(asks(other, platform, client, prompt="none", id_token_hint=hint))["error"]
        == "login_required"
    )
    page = asks(other, platform, client, id_token_hint=hint)
    assert dict(Form(page).values())["name"] == "ada"
    assert callback_parameters(other.signs_in(page, "grace"))["error"] == "login_required", "Gatepost sees to it too"
    assert "code" in callback_parameters(asks(person, platform, client, prompt="none", id_token_hint=hint))


def test_a_login_hint_is_filled_in(platform: Platform, client: Client, person: Person) -> None:
    page = asks(person, platform, client, login_hint='grace"><script>')
    assert dict(Form(page).values())["name"] == 'grace"><script>'
    assert "<script>" not in page.text


def test_offboarding(sqlite_gatepost: Service, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Locked out here; there, what was allowed has ended. Others go on."""
    directory = tmp_path_factory.mktemp("offboarding") / "data"
    with login_application(sqlite_gatepost, "example-offboarding", directory) as login:
        platform, people = login.platform, {"ada": Person(), "grace": Person()}
        tokens = {}
        for name, each in people.items():
            code = callback_parameters(each.signs_in(asks(each, platform, platform.client), name))["code"]
            tokens[name] = platform.redeem(code).json()
        login.offboard("ada")
        assert [platform.introspect(tokens[name]["access_token"])["active"] for name in people] == [False, True]
        assert platform.refresh(tokens["ada"]["refresh_token"]).json()["error"] == "invalid_grant"
        assert platform.refresh(tokens["grace"]["refresh_token"]).status_code == 200
        assert (
            callback_parameters(asks(people["ada"], platform, platform.client, prompt="none"))["error"]
            == "login_required"
        )
        assert "code" in callback_parameters(asks(people["grace"], platform, platform.client, prompt="none"))
        page = people["ada"].signs_in(asks(people["ada"], platform, platform.client))
        assert "Wrong name or password." in page.text
        [ended] = platform.entries("oauth.consent.ended")
        assert ended["data"]["reason"] == "revoked_by_login"


# --- what it does not fall for


def interaction(platform: Platform, client: Client, person: Person, **changes: Any) -> str:
    answer = platform.gatepost.session.get(
        f"{platform.url}/oauth/authorize", params=platform.auth_request(client, **changes), allow_redirects=False
    )
    person.session.cookies.update(answer.cookies)
    return parse_qs(urlsplit(answer.headers["location"]).query)["interaction"][0]


# An issuer of the tests' own, to be wrong in one thing at a time.
ISSUER = ECKey.generate_key("P-256", {"kid": "current"})
STRANGER = ECKey.generate_key("P-256", {"kid": "current"})
INTERACTION = "gatepost-interaction+jwt"
ACCOUNT = ids.new("acc")


class Alone(NamedTuple):
    """The application with such an issuer."""

    issuer: str
    url: str

    def told(self, key: Key = ISSUER, header: Any = None, **changes: Any) -> str:
        now = int(time.time())
        right = {
            "iss": self.issuer, "aud": self.url, "account": ACCOUNT, "jti": ids.new("int"), "iat": now,
            "exp": now + 600, "client_id": ids.new("cli"), "client_name": "The app",
            "scopes": [{"name": "openid", "description": "Sign in"}],
        }  # fmt: skip
        claims = {name: value for name, value in (right | changes).items() if value is not None}
        return signed(key, claims, **({"typ": INTERACTION} | (header or {})))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    keys = json.dumps({"keys": [ISSUER.as_dict(private=False)]}).encode()
    [port] = free_ports(1)
    directory = str(tmp_path_factory.mktemp("alone"))
    with receiver((200, {}, keys)) as issuer:
        base = issuer.url.rpartition("/")[0]
        options = ("--issuer", base, "--account", ACCOUNT, "--port", str(port), "--data", directory)
        with running("login_application", "serve", *options):
            yield Alone(base, f"http://127.0.0.1:{port}/login")


REFUSED: dict[str, Callable[[Alone], str]] = {
    "nothing": lambda _: "",
    "not a token": lambda _: "<b>x</b>",
    "altered": lambda a: a.told()[:-6] + "AAAAAA",
    "unsigned": lambda a: a.told(header={"alg": "none"}).rpartition(".")[0] + ".",
    "of a stranger": lambda a: a.told(STRANGER),
    "of a stranger, with the key": lambda a: a.told(STRANGER, {"jwk": STRANGER.as_dict(private=False)}),
    "a token of another kind": lambda a: a.told(header={"typ": "JWT"}),
    "of no kind": lambda a: a.told(header={"typ": None}),
    "another issuer": lambda a: a.told(iss="https://other.example"),
    "another application": lambda a: a.told(aud="https://other.example/login"),
    "another account": lambda a: a.told(account=ids.new("acc")),
    "no account": lambda a: a.told(account=None),
    "expired": lambda a: a.told(exp=int(time.time()) - 60),
    "without end": lambda a: a.told(exp=None),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_gatepost_did_not_sign_for_it(alone: Alone, name: str, method: str) -> None:
    answer = shows(alone, method, REFUSED[name](alone))
    assert answer.status_code == 400
    assert "location" not in answer.headers
    assert "<b>x" not in answer.text


def test_what_it_did_sign(alone: Alone) -> None:
    assert shows(alone, "GET", alone.told()).status_code == 200
    assert shows(alone, "POST", alone.told()).status_code == 303


def shows(alone: Alone, method: str, interaction: str) -> requests.Response:
    options: dict[str, Any] = {"params" if method == "GET" else "data": {"interaction": interaction, "deny": "yes"}}
    return requests.request(method, alone.url, allow_redirects=False, **options)


def test_an_interaction_of_another_account(sqlite_gatepost: Service, login: LoginApplication, person: Person) -> None:
    """Whose login_url and login_jwks are the same: who signs in here would be signed in there."""
    other = Platform(sqlite_gatepost, "example-login-other", f"login_url={login.url}", key=login.platform.key)
    assert asks(person, other, other.client).status_code == 400


def test_the_form_of_another_site(login: LoginApplication, client: Client, person: Person) -> None:
    """A page elsewhere cannot press Allow for who is signed in here."""
    person.signs_in(asks(person, login.platform, client))
    sent = {"interaction": interaction(login.platform, login.platform.define(), person), "allow": "yes"}
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        answer = person.session.post(login.url, data=sent, headers={"Origin": origin}, allow_redirects=False)
        assert answer.status_code == 403, origin


def test_scopes_that_were_not_asked_for(login: LoginApplication, client: Client, person: Person) -> None:
    page = asks(person, login.platform, client, scope="openid things:read")
    sent = [*Form(page).values(), ("scope", "things:write"), ("allow", "yes")]
    filled = [(key, {"name": "ada", "password": PASSWORD}.get(key, value)) for key, value in sent]
    answer = person.session.post(login.url, data=filled, allow_redirects=False)
    handoff = parse_qs(urlsplit(answer.headers["location"]).query)["handoff"][0]
    assert decode_jwt(handoff)[1]["scope"] == "openid things:read"


def test_names_of_clients_are_text(platform: Platform, person: Person) -> None:
    client = platform.define(client_name="<script>alert(1)</script>{0}")
    page = asks(person, platform, client)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;{0} asks for access" in page.text


def test_the_page_is_in_no_frame_and_no_cache(platform: Platform, client: Client, person: Person) -> None:
    page = asks(person, platform, client)
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "same-origin"


def test_its_cookie_is_its_own(platform: Platform, login: LoginApplication, client: Client, person: Person) -> None:
    page = asks(person, platform, client)
    filled = dict(Form(page).values()) | {"name": "ada", "password": PASSWORD, "allow": "yes"}
    answer = person.session.post(login.url, data=filled, allow_redirects=False)
    assert answer.headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Lax")


def test_its_key_is_for_itself_alone(login: LoginApplication) -> None:
    assert (login.directory / "key.json").stat().st_mode & 0o077 == 0
    result = run("login_application", "jwks", "--data", str(login.directory))
    assert '"d"' not in result.stdout
    again = run("login_application", "jwks", "--data", str(login.directory))
    assert result.stdout == again.stdout, "made once"


def test_it_says_what_it_needs() -> None:
    done = run("login_application", "serve")
    assert done.returncode == 2
    assert "--account" in done.stderr
