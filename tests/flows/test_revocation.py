"""Giving tokens back (RFC 7009), and people who leave: what ends with what, at once, and never what is another's."""

import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import apsw
import psycopg
import pytest
import requests
from joserfc.jwk import ECKey, Key

from gatepost.core import ids
from gatepost.oauth import account_admin
from gatepost.oauth.client_grants import TOKEN_EXCHANGE
from tests import service
from tests.assertions import b64, signed
from tests.login import Platform, decode_jwt
from tests.proofs import Prover
from tests.service import Client, Service
from tests.waiting import LIMIT, LIMIT_MS
from tests.wire import check_refusal, session_from_new_address

INACTIVE = {"active": False}
TYP = "gatepost-revoke+jwt"


class Setting(Platform):
    """A platform that looks at its tokens as the client that serves its API."""

    def __init__(self, gatepost: Service, name: str, *settings: str) -> None:
        super().__init__(gatepost, name, *settings)
        self.server = gatepost.define_client(self.admin, scope="things:read", serves=[self.api])

    def give_back(self, token: str, client: Client | None = None, **form: str) -> None:
        """Whatever it is, the answer is the same."""
        answer = self.post("revoke", client, token=token, **form)
        assert (answer.status_code, answer.content) == (200, b"{}"), answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Type"] == "application/json"
        assert "Gatepost-Event" not in answer.headers

    def works(self, token: str) -> bool:
        return bool(self.introspect(token, self.server)["active"])

    def refreshed(self, token: str, client: Client | None = None) -> dict[str, Any]:
        answer = self.refresh(token, client)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def subject(self, kind: str, subject: str) -> list[dict[str, Any]]:
        return [each for each in self.entries(kind) if each["subject"] == subject]

    def leaving(self, key: Key | None = None, header: Any = None, **changes: Any) -> str:
        """Return the revocation that the login application signs for a person. A change to None omits a claim."""
        now = int(time.time())
        right = {
            "iss": self.account, "aud": self.url, "sub": "ada", "iat": now, "exp": now + 60, "jti": ids.new("jti"),
        }  # fmt: skip
        claims = {name: value for name, value in (right | changes).items() if value is not None}
        return signed(key or self.key, claims, **({"typ": TYP} | (header or {})))

    def say(self, token: str) -> requests.Response:
        """The login application is no client, and authenticates by its signature alone."""
        return self.gatepost.session.post(f"{self.url}/oauth/revoke", data={"token": token})


@pytest.fixture(scope="module")
def setting(gatepost: Service) -> Setting:
    return Setting(gatepost, "revocation")


@pytest.fixture
def own(gatepost: Service, account_name: str) -> Setting:
    """An account that no other test uses."""
    return Setting(gatepost, f"revocation-{account_name}")


# --- what ends with what


def test_revoking_a_refresh_token_ends_its_family_and_access_tokens(setting: Setting) -> None:
    first, other = setting.tokens(), setting.tokens()
    second = setting.refreshed(first["refresh_token"])
    third = setting.refreshed(second["refresh_token"])
    assert [setting.works(each["access_token"]) for each in (first, second, third)] == [True] * 3
    setting.give_back(third["refresh_token"])
    for each in (first, second, third):
        assert not setting.works(each["access_token"])
        assert setting.introspect(each["refresh_token"]) == INACTIVE
        check_refusal(setting.refresh(each["refresh_token"]), "/oauth/tokens", "invalid_grant", "revoked")
    assert setting.works(other["access_token"]), "another family of the same person and client"
    assert setting.refresh(other["refresh_token"]).status_code == 200


def test_revoking_a_replaced_refresh_token_ends_its_family(setting: Setting) -> None:
    first = setting.tokens()
    second = setting.refreshed(first["refresh_token"])
    setting.give_back(first["refresh_token"])
    assert not setting.works(second["access_token"])
    assert setting.refresh(second["refresh_token"]).status_code == 400


def test_revoking_an_access_token_ends_its_family(setting: Setting) -> None:
    first = setting.tokens()
    second = setting.refreshed(first["refresh_token"])
    setting.give_back(first["access_token"])
    for each in (first, second):
        assert not setting.works(each["access_token"])
        assert setting.refresh(each["refresh_token"]).status_code == 400


def test_revoking_an_access_token_without_a_family(setting: Setting) -> None:
    asked = setting.auth_request(scope="openid things:read")
    one, other = setting.tokens(asked)["access_token"], setting.tokens(asked)["access_token"]
    setting.give_back(one)
    assert [setting.works(one), setting.works(other)] == [False, True]
    machine = setting.gatepost.define_client(setting.admin, scope="things:read")
    one, other = (setting.gatepost.token(machine, "things:read") for _ in range(2))
    setting.give_back(one, machine)
    assert [setting.works(one), setting.works(other)] == [False, True]
    assert setting.gatepost.token_answer(machine, "things:read").status_code == 200


def test_exchanged_tokens_end_with_their_subject_token(setting: Setting) -> None:
    exchanger = setting.gatepost.define_client(
        setting.admin, scope="things:read", grant_types=[TOKEN_EXCHANGE], serves=[setting.api]
    )
    first = setting.tokens()
    given = first["access_token"]
    chain = []
    for _ in range(2):
        answer = setting.ask(
            exchanger, grant_type=TOKEN_EXCHANGE, scope="things:read", subject_token=given,
            subject_token_type="urn:ietf:params:oauth:token-type:access_token",
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        given = answer.json()["access_token"]
        chain.append(given)
    assert [setting.works(each) for each in chain] == [True, True]
    setting.give_back(chain[0], exchanger)
    assert [setting.works(each) for each in (first["access_token"], *chain)] == [True, False, False]
    setting.give_back(first["refresh_token"])
    assert not setting.works(first["access_token"])


def test_a_public_client_revokes_its_own_token(setting: Setting) -> None:
    public, other = (setting.define(token_endpoint_auth_method="none") for _ in range(2))
    first, kept = (setting.redeem(setting.code(setting.auth_request(public)), public).json() for _ in range(2))
    setting.give_back(first["refresh_token"], other)
    assert setting.works(first["access_token"])
    setting.give_back(first["refresh_token"], public)
    assert not setting.works(first["access_token"])
    setting.give_back(kept["access_token"], public)
    assert not setting.works(kept["access_token"])
    assert setting.refresh(kept["refresh_token"], public).status_code == 400


@pytest.mark.parametrize("hint", ["access_token", "refresh_token", "nonsense"])
def test_a_hint_changes_nothing(setting: Setting, hint: str) -> None:
    for name in ("access_token", "refresh_token"):
        first = setting.tokens()
        setting.give_back(first[name], token_type_hint=hint)
        assert not setting.works(first["access_token"])


def test_a_revocation_is_recorded_once(setting: Setting) -> None:
    first = setting.tokens()
    jti = decode_jwt(first["access_token"])[1]["jti"]
    [issued] = setting.subject("oauth.token.issued", jti)
    family = issued["data"]["family"]
    for name in ("access_token", "refresh_token", "access_token"):
        setting.give_back(first[name])
    for subject in (family, jti):
        [entry] = setting.subject("oauth.token.revoked", subject)
        assert entry["data"] == {"reason": "revoked_by_client", "client": setting.client.id}
        assert (entry["actor"], entry["source"]) == (setting.client.id, "127.0.0.1")


# --- one's own alone


def test_tokens_of_another_client_are_not_revoked(setting: Setting) -> None:
    first = setting.tokens()
    second = setting.refreshed(first["refresh_token"])
    stranger = setting.define()
    count = len(setting.entries("oauth.token.revoked", "oauth.consent.ended"))
    for token in (first["access_token"], first["refresh_token"], second["access_token"], second["refresh_token"]):
        for other in (stranger, setting.server, setting.first):
            setting.give_back(token, other)
    assert setting.works(first["access_token"])
    assert setting.works(second["access_token"])
    assert setting.refresh(second["refresh_token"]).status_code == 200
    assert len(setting.entries("oauth.token.revoked", "oauth.consent.ended")) == count


def test_tokens_of_another_account_are_not_revoked(setting: Setting, own: Setting) -> None:
    first = setting.tokens()
    for token in (first["access_token"], first["refresh_token"]):
        for client in (own.client, own.server, own.first):
            own.give_back(token, client)
    assert setting.works(first["access_token"])
    assert setting.refresh(first["refresh_token"]).status_code == 200


def test_revoking_an_unknown_token_is_not_an_error(setting: Setting) -> None:
    code = setting.code()
    first = setting.redeem(code).json()
    altered = [first[name][:-1] for name in ("access_token", "refresh_token")]
    for token in ("x", "gpr_x", "a.b.c", "é", "A" * 30_000, code, first["id_token"], setting.client.id, *altered):
        setting.give_back(token)
    assert setting.works(first["access_token"])
    assert setting.refresh(first["refresh_token"]).status_code == 200


@pytest.mark.parametrize(
    ("form", "words"),
    [({"x": "y"}, "token: missing"), ({"token": ""}, "token: missing"), ({"token": ["a", "b"]}, "more than once")],
    ids=["none", "empty", "two"],
)
def test_one_token_must_be_sent(setting: Setting, form: dict[str, Any], words: str) -> None:
    check_refusal(setting.post("revoke", **form), "/oauth/revoke", "invalid_request", words)


def test_revocation_requires_authentication(setting: Setting) -> None:
    first = setting.tokens()
    with session_from_new_address() as session:
        for headers, form in (
            ({}, {}),
            ({}, {"client_id": setting.client.id}),
            ({"Authorization": Client(setting.client.id, "gps_wrong").basic}, {}),
            ({"Authorization": f"Bearer {first['access_token']}"}, {}),
        ):
            answer = session.post(
                f"{setting.url}/oauth/revoke", data={"token": first["refresh_token"]} | form, headers=headers
            )
            check_refusal(answer, "/oauth/revoke", "invalid_client", "client authentication failed")
    assert setting.works(first["access_token"])


# --- our own operations, at once


def operations(platform: Setting, token: str) -> list[int]:
    """The status of each kind of endpoint of ours that takes an access token: one that writes, one that reads."""
    gatepost, bearer = platform.gatepost, {"Authorization": f"Bearer {token}"}
    event = {"specversion": "1.0", "type": "a.b", "source": "/", "id": ids.new("e"), "data": {}}
    return [
        gatepost.post("/oauth/scopes", token, {"name": "things:read", "resource": platform.api}).status_code,
        gatepost.session.get(f"{platform.url}/webhooks/deliveries", headers=bearer).status_code,
        gatepost.session.post(
            f"{gatepost.ops}/events", json=event, headers=bearer | {"Content-Type": "application/cloudevents+json"}
        ).status_code,
    ]


ENDING: dict[str, Callable[[Setting, Client, str], Any]] = {
    "by its client": lambda s, client, token: s.give_back(token, client),
    "by the operator": lambda s, _, token: s.gatepost.cli("token", "revoke", "--id", decode_jwt(token)[1]["jti"]),
    "with its client": lambda s, client, _: s.gatepost.cli("client", "disable", client.id),
}


@pytest.mark.parametrize("how", ENDING)
def test_our_operations_refuse_it_at_once(own: Setting, how: str) -> None:
    scope = "gatepost:scopes gatepost:deliveries gatepost:events"
    client = own.gatepost.define_client(own.gatepost.token(own.first, "gatepost:clients " + scope), scope=scope)
    token = own.gatepost.token(client, scope)
    for _ in range(2):
        assert 401 not in operations(own, token)
    ENDING[how](own, client, token)
    assert operations(own, token) == [401, 401, 401]
    assert 401 not in operations(own, own.gatepost.token(own.first, scope))


def test_userinfo_refuses_it_at_once(setting: Setting) -> None:
    prover = Prover(setting.url)
    plain = setting.tokens()
    bound = setting.redeem(setting.code(), headers=prover.headers()).json()

    def asks() -> list[int]:
        url, token = f"{setting.url}/oauth/userinfo", bound["access_token"]
        shown = [
            {"Authorization": f"Bearer {plain['access_token']}"}, prover.headers("GET", "/oauth/userinfo", token),
        ]  # fmt: skip
        return [setting.gatepost.session.get(url, headers=each).status_code for each in shown]

    assert asks() == [200, 200]
    setting.give_back(plain["refresh_token"])
    assert asks() == [401, 200]
    setting.give_back(bound["refresh_token"])
    assert asks() == [401, 401]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_process_refuses_it_at_once(
    store: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """Each remembers the tokens that it has seen, and none goes on when one of them ends."""
    database = request.getfixturevalue("postgres_url") if store == "postgres" else ""
    with service.running(tmp_path_factory.mktemp("several") / "data", database, workers="2", only="web") as running:
        setting = Setting(running, "several")
        assert len(running.web_processes()) == 2

        def asks(token: str) -> set[int]:
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{running.url}/oauth/userinfo"
            return {requests.get(url, headers=headers, timeout=LIMIT).status_code for _ in range(12)}

        for name in ("access_token", "refresh_token", "access_token"):
            tokens = setting.tokens()
            assert asks(tokens["access_token"]) == {200}
            setting.give_back(tokens[name])
            assert asks(tokens["access_token"]) == {401}


# --- when the store fails


@contextmanager
def kept_from_writing(gatepost: Service) -> Iterator[None]:
    """Somebody holds what every revocation must write to."""
    if gatepost.database:
        with psycopg.connect(gatepost.database) as somebody:
            somebody.execute("LOCK TABLE families, consents, revoked, assertions IN SHARE MODE")
            yield
            somebody.rollback()
    else:
        with closing(apsw.Connection(str(gatepost.directory / "gatepost.db"))) as somebody_else:
            somebody_else.set_busy_timeout(LIMIT_MS)
            somebody_else.execute("BEGIN EXCLUSIVE")
            yield
            somebody_else.execute("ROLLBACK")


def test_it_is_never_said_to_have_ended_when_it_has_not(own: Setting) -> None:
    kept = [own.tokens() for _ in range(3)]
    sent = [
        ({"token": kept[0]["refresh_token"]}, {"Authorization": own.client.basic}),
        ({"token": kept[1]["access_token"]}, {"Authorization": own.client.basic}),
        ({"token": own.leaving()}, {}),
    ]

    def send(form: dict[str, str], headers: dict[str, str]) -> requests.Response:
        return requests.post(f"{own.url}/oauth/revoke", data=form, headers=headers, timeout=LIMIT)

    with kept_from_writing(own.gatepost), ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(send, *zip(*sent, strict=True)))
    for answer in answers:
        check_refusal(answer, "/oauth/revoke", "temporarily_unavailable")
        assert int(answer.headers["Retry-After"]) >= 1
    assert [own.works(each["access_token"]) for each in kept] == [True, True, True]
    for number, (form, headers) in enumerate(sent):
        assert send(form, headers).status_code == 200
        assert not own.works(kept[number]["access_token"])


# --- revocation by the login application


def test_the_login_application_ends_all_consents_of_a_person(own: Setting) -> None:
    second = own.define()
    name = "ada@example.com"
    asked = (own.auth_request(second), second), (own.auth_request(scope="things:read"), own.client)
    ada = [own.tokens(sub=name), *(own.tokens(*each, sub=name) for each in asked)]
    code = own.code(sub=name)
    bob = own.tokens(sub="bob")
    answer = own.say(own.leaving(sub=name))
    assert (answer.status_code, answer.content) == (200, b"{}")
    for each in ada:
        assert not own.works(each["access_token"])
    assert own.refresh(ada[0]["refresh_token"]).status_code == 400
    assert own.refresh(ada[1]["refresh_token"], second).status_code == 400
    check_refusal(own.redeem(code), "/oauth/tokens", "invalid_grant")
    assert own.works(bob["access_token"])
    assert own.refresh(bob["refresh_token"]).status_code == 200
    ended = own.entries("oauth.consent.ended")
    assert [each["data"]["reason"] for each in ended] == ["revoked_by_login"] * 4
    assert {each["actor"] for each in ended} == {"login application"}
    assert name not in str(own.entries())
    assert own.works(own.tokens(sub=name)["access_token"]), "who comes back may allow it again"


def test_the_login_application_ends_the_consents_for_one_client(own: Setting) -> None:
    second = own.define()
    here, there = own.tokens(), own.tokens(own.auth_request(second), second)
    bob = own.tokens(sub="bob")
    assert own.say(own.leaving(client_id=second.id)).status_code == 200
    assert [own.works(each["access_token"]) for each in (here, there, bob)] == [True, False, True]
    assert own.refresh(here["refresh_token"]).status_code == 200


@pytest.mark.parametrize("client", [ids.new("cli"), "nobody", ""], ids=["unknown", "malformed", "empty"])
def test_a_client_that_is_not_there_ends_nothing(setting: Setting, client: str) -> None:
    tokens = setting.tokens()
    assert setting.say(setting.leaving(client_id=client)).status_code == 200
    assert setting.works(tokens["access_token"])


def test_a_repeated_revocation_ends_nothing_more(own: Setting) -> None:
    tokens, output = own.tokens(), own.leaving()
    assert own.say(output).status_code == 200
    assert not own.works(tokens["access_token"])
    tokens = own.tokens()
    assert own.say(output).status_code == 200
    assert own.works(tokens["access_token"])
    assert own.say(own.leaving()).status_code == 200
    assert not own.works(tokens["access_token"])


def test_an_id_that_was_used_for_another_person_is_refused(own: Setting) -> None:
    tokens = own.tokens()
    assert own.say(own.leaving(sub="bob", jti="1")).status_code == 200
    words = ("jti was used before", "nothing was revoked")
    for other in (own.leaving(jti="1"), own.leaving(jti="1", sub="bob", client_id=own.client.id)):
        check_refusal(own.say(other), "/oauth/revoke", "invalid_request", *words)
    assert own.works(tokens["access_token"])
    assert own.say(own.leaving(sub="bob", jti="1")).status_code == 200


def test_many_at_once_end_it_once(own: Setting) -> None:
    tokens, output = own.tokens(), [own.leaving() for _ in range(10)]
    ready = threading.Barrier(20, timeout=LIMIT)

    def send(token: str) -> int:
        ready.wait()
        return requests.post(f"{own.url}/oauth/revoke", data={"token": token}, timeout=LIMIT).status_code

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(send, output * 2)) == {200}
    assert not own.works(tokens["access_token"])
    assert len(own.entries("oauth.consent.ended")) == 1


def now() -> int:
    return int(time.time())


STRANGER = ECKey.generate_key("P-256", {"kid": "stranger"})


def by_public_key(setting: Setting) -> str:
    """The public key taken for a shared secret."""
    head = b64(json.dumps({"alg": "HS256", "typ": TYP, "kid": setting.key.kid}).encode())
    message = f"{head}.{setting.leaving().split('.')[1]}"
    public = ECKey.import_key(setting.key.as_dict(private=False)).as_pem(private=False)
    return f"{message}.{b64(hmac.digest(public, message.encode(), 'sha256'))}"


# What is wrong → what is said of it. None of these ends anything.
WRONG: dict[str, tuple[Callable[[Setting, Setting], str], str]] = {
    "another key": (lambda s, _: s.leaving(STRANGER), "cannot be verified"),
    "another key by that name": (lambda s, _: s.leaving(STRANGER, {"kid": s.key.kid}), "cannot be verified"),
    "the key of another account": (lambda s, other: s.leaving(other.key), "cannot be verified"),
    "a key in its header": (
        lambda s, _: s.leaving(STRANGER, {"jwk": STRANGER.as_dict(private=False)}), "cannot be verified",
    ),
    "the public key as a secret": (lambda s, _: by_public_key(s), "cannot be verified"),
    "no signature": (lambda s, _: s.leaving().rpartition(".")[0] + ".", "cannot be verified"),
    "something critical": (lambda s, _: s.leaving(header={"crit": ["exp"]}), "cannot be verified"),
    "of another account": (lambda s, other: s.leaving(iss=other.account), "cannot be verified"),
    "of no account": (lambda s, _: s.leaving(iss="acc_06d8un0u5du3r3ifb9lnp3culs"), "iss must be"),
    "of a name": (lambda s, _: s.leaving(iss=s.name), "iss must be"),
    "of nobody": (lambda s, _: s.leaving(iss=None), "iss must be"),
    "for another service": (lambda s, _: s.leaving(aud="https://elsewhere.example"), "aud must be"),
    "for another too": (lambda s, _: s.leaving(aud=[s.url, "https://elsewhere.example"]), "aud must be"),
    "for the endpoint": (lambda s, _: s.leaving(aud=f"{s.url}/oauth/revoke"), "aud must be"),
    "for nobody": (lambda s, _: s.leaving(aud=None), "aud must be"),
    "expired": (lambda s, _: s.leaving(iat=now() - 120, exp=now() - 1), "expired"),
    "from the future": (lambda s, _: s.leaving(iat=now() + 61, exp=now() + 120), "expired or not yet valid"),
    "without an end": (lambda s, _: s.leaving(exp=None), "exp"),
    "without a beginning": (lambda s, _: s.leaving(iat=None), "iat"),
    "for too long": (lambda s, _: s.leaving(exp=now() + 302), "5 minutes"),
    "without an id": (lambda s, _: s.leaving(jti=None), "jti"),
    "with an empty id": (lambda s, _: s.leaving(jti=""), "jti"),
    "about nobody": (lambda s, _: s.leaving(sub=None), "sub"),
    "about an empty name": (lambda s, _: s.leaving(sub=""), "sub"),
    "about a number": (lambda s, _: s.leaving(sub=5), "sub"),
    "about several": (lambda s, _: s.leaving(sub=["ada", "bob"]), "sub"),
    "at several clients": (lambda s, _: s.leaving(client_id=[s.client.id]), "client_id"),
}  # fmt: skip


@pytest.mark.parametrize("gatepost", ["sqlite"], indirect=True, scope="session")  # nothing is stored
@pytest.mark.parametrize("name", WRONG)
def test_revocations_that_end_nothing(setting: Setting, own_beside: Setting, name: str) -> None:
    make, words = WRONG[name]
    tokens = setting.tokens()
    check_refusal(setting.say(make(setting, own_beside)), "/oauth/revoke", "invalid_request", words)
    assert setting.works(tokens["access_token"])


@pytest.fixture(scope="module")
def own_beside(gatepost: Service) -> Setting:
    return Setting(gatepost, "revocation-beside")


@pytest.mark.parametrize("typ", ["JWT", "gatepost-handoff+jwt", "gatepost-interaction+jwt", "at+jwt", None])
def test_another_type_of_jwt_is_only_a_strange_token(setting: Setting, typ: str | None) -> None:
    tokens = setting.tokens()
    strange = setting.leaving(header={"typ": typ})
    check_refusal(setting.say(strange), "/oauth/revoke", "invalid_client")
    setting.give_back(strange)
    assert setting.works(tokens["access_token"])


def test_handoffs_and_revocations_are_not_interchangeable(setting: Setting) -> None:
    tokens = setting.tokens()
    answer = setting.gatepost.session.get(
        f"{setting.url}/oauth/authorize", params={"handoff": setting.leaving()}, allow_redirects=False
    )
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert setting.works(tokens["access_token"])


def test_a_suspended_account_or_one_without_login_application_revokes_nothing(own: Setting) -> None:
    tokens = own.tokens()
    store, settings = own.gatepost.opened.store, own.gatepost.opened.service
    store.run_now(lambda tx: account_admin.suspend(tx, own.name, ""))
    check_refusal(own.say(own.leaving()), "/oauth/revoke", "invalid_request")
    store.run_now(lambda tx: account_admin.resume(tx, own.name))
    store.run_now(lambda tx: account_admin.change(tx, settings, own.name, {"login_jwks": ""}))
    check_refusal(own.say(own.leaving()), "/oauth/revoke", "invalid_request", "cannot be verified")
    assert own.works(tokens["access_token"])
