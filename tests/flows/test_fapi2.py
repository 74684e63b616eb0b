"""The profile fapi2: who may have it, what its clients must be, and what it asks of requests, proofs and tokens."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from joserfc.jwk import ECKey, Key, OKPKey

from gatepost.accounts import lookup
from gatepost.core import clock
from gatepost.core.errors import BadSetting
from gatepost.oauth import account_admin
from gatepost.oauth import issuer_admin as issuer_units
from gatepost.oauth.authorize import codes
from gatepost.oauth.authorize.codes import code_id
from gatepost.oauth.client_grants import JWT_BEARER, TOKEN_EXCHANGE
from gatepost.oauth.grants.token_exchange import ACCESS_TOKEN
from tests.assertions import right_claims, signed
from tests.fapi2 import Fapi2Platform, KeyHolder, key_set
from tests.login import CALLBACK, VERIFIER, Browser, decode_jwt, redirect_target
from tests.receiver import receiver
from tests.rsa_keys import rsa_key
from tests.service import Client, Service
from tests.waiting import LIMIT
from tests.wire import check_refusal, session_from_new_address

KEYS: dict[str, Key] = {
    "EC": ECKey.generate_key("P-256", {"kid": "ec"}),
    "RSA": rsa_key({"kid": "rsa"}),
    "OKP": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
}
PUBLIC = {name: key.as_dict(private=False) for name, key in KEYS.items()}
# What a client must not be, the member that is at fault, and a word of the reason.
UNFIT: dict[str, tuple[dict[str, Any], str, str]] = {
    "a secret in the header": (
        {"token_endpoint_auth_method": "client_secret_basic", "jwks": None},
        "token_endpoint_auth_method",
        "private_key_jwt",
    ),
    "a secret in the form": (
        {"token_endpoint_auth_method": "client_secret_post", "jwks": None},
        "token_endpoint_auth_method",
        "private_key_jwt",
    ),
    "no authentication": (
        {"token_endpoint_auth_method": "none", "jwks": None},
        "token_endpoint_auth_method",
        "private_key_jwt",
    ),
    "ID tokens by RS256": (
        {"id_token_signed_response_alg": "RS256"},
        "id_token_signed_response_alg",
        "ES256",
    ),
    "a key for RS256": ({"jwks": {"keys": [PUBLIC["RSA"] | {"alg": "RS256"}]}}, "jwks", "RS256"),
    "no PKCE": ({"require_pkce": False}, "require_pkce", "true"),
    "http on loopback": ({"redirect_uris": [CALLBACK, "http://127.0.0.1/callback"]}, "redirect_uris", "https"),
    "http on loopback by name": ({"redirect_uris": ["http://localhost:8000/"]}, "redirect_uris", "https"),
}


@pytest.fixture(scope="module")
def strict(gatepost: Service) -> Fapi2Platform:
    return Fapi2Platform(gatepost, "fapi2")


@pytest.fixture(scope="module")
def sqlite_strict(sqlite_gatepost: Service) -> Fapi2Platform:
    """For rules that no store can change."""
    return Fapi2Platform(sqlite_gatepost, "fapi2-sqlite")


@pytest.fixture
def own(gatepost: Service, account_name: str) -> Fapi2Platform:
    """One that a test may change."""
    return Fapi2Platform(gatepost, account_name)


# --- who may have it


def create(gatepost: Service, name: str, keys: Any, directory: Path, *settings: str) -> Any:
    file = directory / "keys.json"
    file.write_text(json.dumps(keys))
    return gatepost.cli("account", "create", name, *settings, "--jwks", f"@{file}", "--json", check=False)


def test_an_account_is_made_with_a_key_in_place_of_a_secret(
    sqlite_gatepost: Service, account_name: str, tmp_path: Path
) -> None:
    done = create(sqlite_gatepost, account_name, key_set(KEYS["EC"]), tmp_path, "profile=fapi2")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["client_secret"] is None
    assert made["account"]["settings"]["profile"] == "fapi2"
    shown = sqlite_gatepost.cli_json("client", "show", made["client_id"])
    assert shown["token_endpoint_auth_method"] == "private_key_jwt"
    assert shown["id_token_signed_response_alg"] == "ES256"
    url = f"{sqlite_gatepost.url}/oauth/tokens"
    sent = {
        "grant_type": "client_credentials", "scope": "gatepost:clients",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": signed(KEYS["EC"], right_claims(made["client_id"], sqlite_gatepost.url)),
    }  # fmt: skip
    holder = KeyHolder(sqlite_gatepost.url)
    answer = requests.post(url, data=sent, headers={"DPoP": holder.proof("POST", url)}, timeout=LIMIT)
    assert (answer.status_code, answer.json()["token_type"]) == (200, "DPoP")


MADE_WRONG: dict[str, tuple[Any, dict[str, str], str]] = {
    "a key for RS256": ({"keys": [PUBLIC["RSA"] | {"alg": "RS256"}]}, {}, "RS256"),
    "access tokens by RS256": (key_set(KEYS["EC"]), {"signing_alg": "RS256"}, "signing_alg"),
    "a private key": ({"keys": [KEYS["EC"].as_dict(private=True)]}, {}, "jwks"),
    "no keys": ({"keys": []}, {}, "jwks"),
    "no set": ({}, {}, "jwks"),
}


@pytest.mark.parametrize("name", MADE_WRONG)
def test_an_account_that_does_not_comply_is_not_made(sqlite_gatepost: Service, account_name: str, name: str) -> None:
    keys, settings, word = MADE_WRONG[name]
    store, service = sqlite_gatepost.opened.store, sqlite_gatepost.opened.service
    changes = {"profile": "fapi2"} | settings
    with pytest.raises(BadSetting, match=word):
        store.run_now(lambda tx: account_admin.create(tx, service, f"wrong-{account_name}", changes, keys))
    assert store.read_now(lambda tx: lookup.find(tx, f"wrong-{account_name}")) is None


def test_the_command_says_what_is_no_key_set(sqlite_gatepost: Service, account_name: str, tmp_path: Path) -> None:
    done = create(sqlite_gatepost, account_name, [], tmp_path, "profile=fapi2")
    assert done.returncode != 0
    assert "--jwks" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_key_there_is_no_such_account(sqlite_gatepost: Service, account_name: str) -> None:
    with pytest.raises(BadSetting, match="--jwks"):
        sqlite_gatepost.account(account_name, "profile=fapi2")


@pytest.mark.parametrize("name", UNFIT)
def test_it_is_refused_while_an_active_client_does_not_comply(own: Fapi2Platform, name: str) -> None:
    members, member, word = UNFIT[name]
    own.set(profile="oauth21")
    answer = own.call("POST", "/oauth/clients", json=own.defining(**({"jwks": key_set(KEYS["EC"])} | members)))
    assert answer.status_code == 201, answer.text
    client = answer.json()["client_id"]
    if "id_token_signed_response_alg" not in members:
        assert redefine(own, client, id_token_signed_response_alg="ES256").status_code == 200
    with pytest.raises(BadSetting, match=f"{client} does not comply: {member} .*{word}"):
        own.set(profile="fapi2")
    assert redefine(own, client, status="disabled").status_code == 200
    own.set(profile="fapi2")
    back = redefine(own, client, status="active")
    code = "invalid_redirect_uri" if member == "redirect_uris" else "invalid_client_metadata"
    check_refusal(back, "/oauth/clients", code, member, word)


def redefine(strict: Fapi2Platform, client: str, **members: Any) -> requests.Response:
    return strict.call("POST", "/oauth/clients", json={"client_id": client} | members)


def test_it_is_refused_with_access_tokens_by_rs256(own: Fapi2Platform) -> None:
    own.set(profile="oauth21", signing_alg="RS256")
    with pytest.raises(BadSetting, match="signing_alg"):
        own.set(profile="fapi2")
    own.set(profile="fapi2", signing_alg="EdDSA")
    with pytest.raises(BadSetting, match="signing_alg"):
        own.set(signing_alg="RS256")


def test_the_command_says_who_does_not_comply(sqlite_gatepost: Service, account_name: str) -> None:
    _, first = sqlite_gatepost.account(account_name)
    done = sqlite_gatepost.cli("account", "set", account_name, "profile=fapi2", check=False)
    assert done.returncode != 0
    assert first.id in done.stderr
    assert "token_endpoint_auth_method" in done.stderr
    assert sqlite_gatepost.cli_json("account", "show", account_name)["settings"]["profile"] == "oauth21"


# --- definitions


@pytest.mark.parametrize("name", UNFIT)
def test_a_client_that_does_not_comply_is_not_defined(sqlite_strict: Fapi2Platform, name: str) -> None:
    members, member, word = UNFIT[name]
    answer = sqlite_strict.call(
        "POST", "/oauth/clients", json=sqlite_strict.defining(**({"jwks": key_set(KEYS["EC"])} | members))
    )
    code = "invalid_redirect_uri" if member == "redirect_uris" else "invalid_client_metadata"
    check_refusal(answer, "/oauth/clients", code, member, word)


@pytest.mark.parametrize("name", UNFIT)
def test_nor_is_one_made_so_later(sqlite_strict: Fapi2Platform, name: str) -> None:
    members, member, word = UNFIT[name]
    answer = redefine(sqlite_strict, sqlite_strict.define().id, **members)
    code = "invalid_redirect_uri" if member == "redirect_uris" else "invalid_client_metadata"
    check_refusal(answer, "/oauth/clients", code, member, word)


def test_the_defaults_are_those_of_the_profile(strict: Fapi2Platform) -> None:
    """A method must be said: the default of the standard is a secret."""
    body = strict.defining(jwks=key_set(KEYS["EC"]))
    answered = strict.call("POST", "/oauth/clients", json=body).json()
    assert answered["id_token_signed_response_alg"] == "ES256"
    assert answered["require_pkce"] is True
    assert "client_secret" not in answered
    left_out = {name: value for name, value in body.items() if name != "token_endpoint_auth_method"}
    answer = strict.call("POST", "/oauth/clients", json=left_out)
    check_refusal(answer, "/oauth/clients", "invalid_client_metadata", "token_endpoint_auth_method")
    eddsa = redefine(strict, answered["client_id"], id_token_signed_response_alg="EdDSA").json()
    assert eddsa["id_token_signed_response_alg"] == "EdDSA"
    default = redefine(strict, answered["client_id"], id_token_signed_response_alg=None).json()
    assert default["id_token_signed_response_alg"] == "ES256"


# --- requests are pushed, by clients that say who they are


def test_only_pushed_requests_are_taken(strict: Fapi2Platform) -> None:
    where, query = redirect_target(strict.authorize(Browser(), strict.auth_request()))
    assert (where, query["error"], query["iss"]) == (CALLBACK, "invalid_request", strict.url)
    assert "push" in query["error_description"]
    posted = Browser().send(f"{strict.url}/oauth/authorize", strict.auth_request())
    assert redirect_target(posted)[1]["error"] == "invalid_request"
    assert strict.interaction(Browser(), strict.pushed())["client_id"] == strict.client.id


def test_a_request_that_was_not_pushed_is_not_completed_after_the_switch(own: Fapi2Platform) -> None:
    own.set(profile="oauth21")
    browsers = [Browser(), Browser()]
    opened = [
        (browser, own.interaction(browser, sent))
        for browser, sent in zip(browsers, (own.auth_request(), own.pushed()), strict=True)
    ]
    own.set(profile="fapi2")
    sent, pushed = (redirect_target(own.submit_handoff(browser, own.handoff(each)))[1] for browser, each in opened)
    assert (sent["error"], "/oauth/par" in sent["error_description"]) == ("invalid_request", True)
    assert "code" in pushed


def test_what_is_beside_the_pushed_request_does_not_count(strict: Fapi2Platform) -> None:
    beside = strict.auth_request(scope="openid profile", state="another", redirect_uri="https://evil.example/")
    browser = Browser()
    interaction = strict.interaction(browser, beside | strict.pushed())
    assert [each["name"] for each in interaction["scopes"]] == ["openid", "offline_access", "things:read"]
    where, query = redirect_target(strict.submit_handoff(browser, strict.handoff(interaction)))
    assert (where, query["state"]) == (CALLBACK, "a state")


@pytest.mark.parametrize("path", ["par", "tokens", "introspect", "revoke"])
def test_a_client_that_does_not_say_who_it_is(sqlite_strict: Fapi2Platform, path: str) -> None:
    url = f"{sqlite_strict.url}/oauth/{path}"
    sent = sqlite_strict.auth_request() | {"grant_type": "client_credentials", "token": "any"}
    with session_from_new_address() as session:
        for own in ({}, {"client_secret": "gps_any"}):
            answer = session.post(url, data=sent | own, headers={"DPoP": sqlite_strict.holder.proof("POST", url)})
            check_refusal(answer, f"/oauth/{path}", "invalid_client")


PUSHED_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no PKCE": ({"code_challenge": None, "code_challenge_method": None}, "code_challenge"),
    "plain PKCE": ({"code_challenge_method": "plain"}, "code_challenge_method"),
    "a request_uri": ({"request_uri": "urn:ietf:params:oauth:request_uri:any"}, "request_uri"),
    "a token at once": ({"response_type": "token"}, "response_type"),
    "an ID token at once": ({"response_type": "code id_token"}, "response_type"),
    "no redirect_uri": ({"redirect_uri": None}, "redirect_uri"),
    "another redirect_uri": ({"redirect_uri": f"{CALLBACK}/more"}, "redirect_uri"),
}


@pytest.mark.parametrize("name", PUSHED_WRONG)
def test_what_is_wrong_is_said_when_it_is_pushed(sqlite_strict: Fapi2Platform, name: str) -> None:
    changes, word = PUSHED_WRONG[name]
    answer = sqlite_strict.push(**changes)
    assert answer.status_code == 400, answer.text
    assert word in answer.json()["error_description"]
    assert "request_uri" not in answer.json()


AUDIENCES: dict[str, Callable[[str], Any]] = {
    "a list of one": lambda issuer: [issuer],
    "the token endpoint": lambda issuer: f"{issuer}/oauth/tokens",
    "where it is sent": lambda issuer: f"{issuer}/oauth/par",
    "with a slash": lambda issuer: f"{issuer}/",
    "another": lambda issuer: "https://evil.example",
}


@pytest.mark.parametrize("name", AUDIENCES)
def test_the_audience_of_an_assertion_is_the_issuer_as_text(sqlite_strict: Fapi2Platform, name: str) -> None:
    wrong = AUDIENCES[name](sqlite_strict.url)
    for path, more in (("par", sqlite_strict.auth_request()), ("tokens", {"grant_type": "client_credentials"})):
        client = sqlite_strict.define()
        answer = sqlite_strict.post(
            path, client, client_assertion=sqlite_strict.assertion(client, aud=wrong), **aside(more, client)
        )
        check_refusal(answer, f"/oauth/{path}", "invalid_client")


def aside(form: dict[str, Any], client: Client) -> dict[str, Any]:
    return form | ({"client_id": client.id} if "client_id" in form else {})


# --- algorithms


@pytest.mark.parametrize(("kind", "alg"), [("EC", "ES256"), ("RSA", "PS256"), ("OKP", "EdDSA"), ("OKP", "Ed25519")])
def test_assertions_and_proofs_by_the_algorithms_of_the_profile(own: Fapi2Platform, kind: str, alg: str) -> None:
    """The same key for both here, at every place that takes them."""
    own.client = own.define(KEYS[kind], scope="openid offline_access things:read")
    own.holder = holder = KeyHolder(own.url, KEYS[kind])
    url = f"{own.url}/oauth/"
    shown = {"alg": alg}

    def post(path: str, **form: Any) -> requests.Response:
        headers = {"DPoP": holder.proof("POST", url + path, header=shown)}
        return own.post(path, headers=headers, client_assertion=own.assertion(header=shown), **form)

    pushed = post("par", **own.auth_request())
    assert pushed.status_code == 201, pushed.text
    code = own.code({"client_id": own.client.id, "request_uri": pushed.json()["request_uri"]})
    redeemed = post("tokens", grant_type="authorization_code", code=code, redirect_uri=CALLBACK, code_verifier=VERIFIER)
    assert redeemed.status_code == 200, redeemed.text
    token = redeemed.json()["access_token"]
    result = decode_jwt(token)[1]
    assert result["cnf"] == {"jkt": KEYS[kind].thumbprint()}
    headers = {"DPoP": holder.proof("GET", f"{url}userinfo", token, header=shown)}
    assert own.call("GET", "/oauth/userinfo", token, headers=headers).json()["sub"] == result["sub"]


def test_assertions_by_rs256_are_refused(strict: Fapi2Platform) -> None:
    client = strict.define(KEYS["RSA"])
    weak = {"alg": "RS256"}
    for path, more in (("par", strict.auth_request(client)), ("tokens", {}), ("introspect", {}), ("revoke", {})):
        answer = strict.post(path, client, client_assertion=strict.assertion(client, header=weak), token="x", **more)
        check_refusal(answer, f"/oauth/{path}", "invalid_client")
    assert strict.push(client).status_code == 201


def test_assertions_of_other_issuers_by_rs256_are_refused(own: Fapi2Platform) -> None:
    machine = own.define(grant_types=[JWT_BEARER], redirect_uris=None, scope="things:read")
    issuer = "https://workloads.example"
    with receiver((200, {}, json.dumps(key_set(KEYS["RSA"])).encode())) as keys:
        store, service = own.gatepost.opened.store, own.gatepost.opened.service
        store.run_now(
            lambda tx: issuer_units.add(
                tx, service, lookup.named(tx, own.name), "workloads", issuer=issuer,
                jwks_uri=f"{keys.url}/{own.name}", match=["sub=a workload"], client=machine.id, scope=["things:read"],
            )
        )  # fmt: skip
        for alg, status in (("RS256", 400), ("PS256", 200)):
            claims = right_claims("a workload", own.url) | {"iss": issuer}
            assertion = signed(KEYS["RSA"], claims, alg=alg)
            answer = own.ask(machine, grant_type=JWT_BEARER, assertion=assertion, scope="things:read")
            assert answer.status_code == status, answer.text
            if status == 400:
                check_refusal(answer, "/oauth/tokens", "invalid_grant", "cannot be verified")


def test_jwts_of_the_login_application_by_rs256_are_refused(own: Fapi2Platform) -> None:
    own.set(login_jwks=json.dumps(key_set(KEYS["RSA"])))
    browser = Browser()
    interaction = own.interaction(browser, own.pushed())
    weak = own.handoff(interaction, KEYS["RSA"], {"alg": "RS256"})
    check_refusal(own.submit_handoff(browser, weak), "/oauth/authorize", "invalid_request", "cannot be verified")
    strong = own.handoff(interaction, KEYS["RSA"], {"alg": "PS256"})
    assert "code" in redirect_target(own.submit_handoff(browser, strong))[1]
    claims = right_claims("ada", own.url) | {"iss": own.account}
    for alg, status in (("RS256", 400), ("PS256", 200)):
        token = signed(KEYS["RSA"], claims, alg=alg, typ="gatepost-revoke+jwt")
        answer = own.gatepost.session.post(f"{own.url}/oauth/revoke", data={"token": token})
        assert answer.status_code == status, answer.text


def test_proofs_by_rs256_are_refused(own: Fapi2Platform) -> None:
    own.holder = holder = KeyHolder(own.url, KEYS["RSA"])
    weak = {"alg": "RS256"}
    url = f"{own.url}/oauth/"
    at_par = own.push(headers={"DPoP": holder.proof("POST", f"{url}par", header=weak)})
    check_refusal(at_par, "/oauth/par", "invalid_dpop_proof", "PS256")
    for grant, answer in every_grant(own, {"DPoP": lambda: holder.proof("POST", f"{url}tokens", header=weak)}).items():
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_dpop_proof"), grant
        assert "PS256" in answer.json()["error_description"]
    token = own.tokens()["access_token"]
    for method in ("GET", "POST"):
        proof = holder.proof(method, f"{url}userinfo", token, header=weak)
        answer = own.call(method, "/oauth/userinfo", token, headers={"DPoP": proof})
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_dpop_proof")
        assert answer.headers["WWW-Authenticate"].startswith("DPoP ")
        assert own.call(method, "/oauth/userinfo", token).status_code == 200


@pytest.mark.parametrize("alg", ["ES256", "EdDSA"])
def test_tokens_are_signed_by_the_algorithms_of_the_profile(own: Fapi2Platform, alg: str) -> None:
    own.set(signing_alg=alg)
    own.client = own.define(id_token_signed_response_alg=alg)
    tokens = own.tokens()
    assert {decode_jwt(tokens[name])[0]["alg"] for name in ("access_token", "id_token")} == {alg}


# --- tokens are bound to a key, however they are obtained


def every_grant(own: Fapi2Platform, headers: dict[str, Any]) -> dict[str, requests.Response]:
    """A right request by each grant type, but for the headers; each value that can be called is made anew."""
    machine = own.define(
        grant_types=["client_credentials", JWT_BEARER, TOKEN_EXCHANGE], redirect_uris=None, scope="things:read",
        serves=[own.api],
    )  # fmt: skip
    people = own.tokens()
    found: dict[str, requests.Response] = {}

    def ask(grant: str, client: Client, **form: str) -> None:
        made = {name: value() if callable(value) else value for name, value in headers.items()}
        found[grant] = own.ask(client, headers=made, grant_type=grant, **form)

    ask("client_credentials", machine, scope="things:read")
    unbound = own.push(headers={"DPoP": None}).json()["request_uri"]
    code = own.code({"client_id": own.client.id, "request_uri": unbound})
    ask("authorization_code", own.client, code=code, redirect_uri=CALLBACK, code_verifier=VERIFIER)
    ask("refresh_token", own.client, refresh_token=people["refresh_token"])
    exchanged = {"subject_token": people["access_token"], "subject_token_type": ACCESS_TOKEN, "scope": "things:read"}
    ask(TOKEN_EXCHANGE, machine, **exchanged)
    issuer = "https://workloads.example"
    assertion = signed(KEYS["EC"], right_claims("a workload", own.url) | {"iss": issuer, "sub": "a workload"})
    with receiver([(200, {"Content-Type": "application/json"}, json.dumps(key_set(KEYS["EC"])).encode())]) as keys:
        store, service = own.gatepost.opened.store, own.gatepost.opened.service
        store.run_now(
            lambda tx: issuer_units.add(
                tx, service, lookup.named(tx, own.name), "workloads", issuer=issuer,
                jwks_uri=f"{keys.url}/{own.name}", match=["sub=a workload"], client=machine.id, scope=["things:read"],
            )
        )  # fmt: skip
        ask(JWT_BEARER, machine, assertion=assertion, scope="things:read")
    return found


def test_every_grant_type_gives_tokens_bound_to_the_key(own: Fapi2Platform) -> None:
    found = every_grant(own, {})
    assert set(found) == {"client_credentials", "authorization_code", "refresh_token", TOKEN_EXCHANGE, JWT_BEARER}
    for grant, answer in found.items():
        assert answer.status_code == 200, (grant, answer.text)
        assert answer.json()["token_type"] == "DPoP"
        assert decode_jwt(answer.json()["access_token"])[1]["cnf"] == {"jkt": own.holder.key.thumbprint()}


def test_no_grant_type_gives_one_without_a_proof(own: Fapi2Platform) -> None:
    for grant, answer in every_grant(own, {"DPoP": None}).items():
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_dpop_proof"), grant


def test_a_code_is_bound_to_the_key_that_pushed_it(own: Fapi2Platform) -> None:
    """By its proof or by `dpop_jkt`; another key gets nothing, and may not push in its name."""
    another = KeyHolder(own.url)
    named = own.auth_request(dpop_jkt=own.holder.key.thumbprint())
    answer = own.post("par", headers={"DPoP": another.proof("POST", f"{own.url}/oauth/par")}, **named)
    check_refusal(answer, "/oauth/par", "invalid_dpop_proof", "dpop_jkt")
    by_name = own.post("par", headers={"DPoP": None}, **named).json()["request_uri"]
    for request_uri in (by_name, own.pushed()["request_uri"]):
        code = own.code({"client_id": own.client.id, "request_uri": request_uri})
        stolen = own.redeem(code, headers={"DPoP": another.proof("POST", f"{own.url}/oauth/tokens")})
        check_refusal(stolen, "/oauth/tokens", "invalid_grant", "key")
        assert own.redeem(code).status_code == 200


# --- lifetimes


@pytest.mark.parametrize(("profile", "seconds"), [("fapi2", 60), ("oauth21", 600)])
def test_a_code_lives_for_a_minute_at_most(own: Fapi2Platform, profile: str, seconds: int) -> None:
    own.set(authorization_code_lifetime="600", profile=profile)
    before = clock.now()
    code = own.code()
    after = clock.now()
    kept = own.gatepost.opened.store.read_now(lambda tx: codes.load(tx, own.account, code_id(code)))
    assert kept is not None
    assert before <= kept.expires_at - timedelta(seconds=seconds) <= after + timedelta(seconds=1)


def test_a_shorter_life_stays_shorter(own: Fapi2Platform) -> None:
    own.set(authorization_code_lifetime="10")
    code, now = own.code(), clock.now()
    kept = own.gatepost.opened.store.read_now(lambda tx: codes.load(tx, own.account, code_id(code)))
    assert kept is not None
    assert kept.expires_at <= now + timedelta(seconds=11)


def test_refresh_tokens_are_not_rotated(own: Fapi2Platform) -> None:
    """There is no grace period, and the key of the proof does not matter: the client authenticates with its own key."""
    own.set(refresh_grace="0")
    first = own.tokens()["refresh_token"]
    seen = set()
    for _ in range(3):
        answer = own.refresh(first)
        assert (answer.status_code, answer.json()["refresh_token"]) == (200, first)
        seen.add(answer.json()["access_token"])
        own.holder = KeyHolder(own.url)
    assert len(seen) == 3
    assert own.entries("oauth.token.reused") == []


# --- going back


def test_going_back(own: Fapi2Platform) -> None:
    """What the profile forbids is there again; what was bound stays bound."""
    tokens = own.tokens()
    own.set(profile="oauth21")
    assert own.interaction(Browser(), own.auth_request())["client_id"] == own.client.id
    refreshed = own.refresh(tokens["refresh_token"])
    assert refreshed.json()["refresh_token"] != tokens["refresh_token"]
    free = own.ask(own.first, headers={"DPoP": None}, grant_type="client_credentials", scope="gatepost:clients")
    assert (free.status_code, free.json()["token_type"]) == (200, "Bearer")
    client = own.gatepost.define_client(free.json()["access_token"], scope="things:read")
    assert own.gatepost.token(client, "things:read")
    listed = own.assertion(own.first, aud=[own.url])
    answer = own.ask(own.first, client_assertion=listed, grant_type="client_credentials", scope="gatepost:clients")
    assert answer.status_code == 200
    bound = own.gatepost.post("/oauth/clients", own.admin, {"client_id": client.id})
    check_refusal(bound, "/oauth/clients", "invalid_token", "bound to a key")
    with pytest.raises(BadSetting, match=client.id):
        own.set(profile="fapi2")
