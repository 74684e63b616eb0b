"""Refresh tokens: rotation, the grace for a lost answer, reuse, both ends, and what is looked at again."""

import threading
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from gatepost.accounts import lookup
from gatepost.core import ids
from gatepost.oauth import account_admin, family_rows, token_admin
from gatepost.oauth.token_admin import TokenSelector
from tests import command, service
from tests.login import SCOPES, Platform, decode_jwt
from tests.proofs import Prover
from tests.service import Client, Service
from tests.waiting import LIMIT
from tests.web_beside import web_beside
from tests.wire import check_refusal

HOUR = 3600
MANY = 50


class People(Platform):
    """A platform with ways to look at its families, and to let time pass over them."""

    def family(self, told: dict[str, Any]) -> str:
        """The family of an answer's tokens."""
        jti = decode_jwt(told["access_token"])[1]["jti"]
        [entry] = [each for each in self.entries("oauth.token.issued") if each["subject"] == jti]
        return str(entry["data"]["family"])

    def about(self, family: str, *types: str) -> list[dict[str, Any]]:
        return [each for each in self.entries(*types) if each["subject"] == family]

    def age(self, seconds: int) -> None:
        """So many seconds pass over all families and consents of the account."""
        past = command.Alone(self.gatepost.directory, self.gatepost.database, self.gatepost.environment)
        given = [1000 * seconds, ids.raw(self.account)]
        past.execute(
            "UPDATE families SET rotated_at = rotated_at - ?, idle_ends_at = idle_ends_at - ?, ends_at = ends_at - ?"
            " WHERE account = ?",
            *given[:1] * 3, given[1],
        )  # fmt: skip
        past.execute(
            "UPDATE consents SET given_at = given_at - ?, expires_at = expires_at - ? WHERE account = ?",
            *given[:1] * 2, given[1],
        )  # fmt: skip

    def refreshed(self, token: str, client: Client | None = None, **changes: Any) -> dict[str, Any]:
        answer = self.refresh(token, client, **changes)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def refused(self, token: str, client: Client | None = None, **changes: Any) -> str:
        """That it is not good for anything, and why."""
        answer = self.refresh(token, client, **changes)
        check_refusal(answer, "/oauth/tokens", "invalid_grant", "refresh_token: ")
        assert answer.headers["Gatepost-Event"].startswith("evt_")
        return str(answer.json()["error_description"])

    def is_active(self, token: str, client: Client | None = None) -> bool:
        return bool(self.introspect(token, client)["active"])

    def redefine(self, client: Client, **members: Any) -> None:
        answer = self.gatepost.post("/oauth/clients", self.admin, {"client_id": client.id} | members)
        assert answer.status_code == 200, answer.text

    def end_consents(self) -> None:
        for each in self.gatepost.cli_json("consent", "list", "--account", self.name):
            self.gatepost.cli("consent", "revoke", each["id"], "--account", self.name)

    def change(self, unit: Callable[..., Any], *arguments: Any) -> None:
        self.gatepost.opened.store.run_now(lambda tx: unit(tx, *arguments))


@pytest.fixture(scope="module")
def people(gatepost: Service) -> People:
    return People(gatepost, "refresh")


@pytest.fixture
def own(gatepost: Service, account_name: str) -> People:
    """An account that no other test uses."""
    return People(gatepost, f"refresh-{account_name}")


# --- rotation, and the retry of a lost answer


def test_each_use_replaces_the_token(people: People) -> None:
    tokens = people.tokens()
    seen = [tokens["refresh_token"]]
    for _ in range(4):
        tokens = people.refreshed(seen[-1])
        assert set(tokens) == {"access_token", "token_type", "expires_in", "scope", "refresh_token", "id_token"}
        assert tokens["scope"] == "openid offline_access things:read"
        seen.append(tokens["refresh_token"])
    assert len(set(seen)) == 5
    assert [people.is_active(each) for each in seen] == [False] * 4 + [True]


def test_a_refreshed_token_is_of_the_same_person_and_consent(people: People) -> None:
    tokens = people.tokens(acr="gold", amr=["pwd", "otp"])
    again = people.refreshed(tokens["refresh_token"])
    first, second = (decode_jwt(each["access_token"])[1] for each in (tokens, again))
    same = ("iss", "sub", "aud", "client_id", "scope", "account", "auth_time", "acr", "amr")
    assert {name: first[name] for name in same} == {name: second[name] for name in same}
    assert first["jti"] != second["jti"]
    one, other = (decode_jwt(each["id_token"])[1] for each in (tokens, again))
    assert [one[name] for name in ("iss", "sub", "aud", "auth_time")] == [
        other[name] for name in ("iss", "sub", "aud", "auth_time")
    ]
    assert people.family(tokens) == people.family(again)
    assert "sub" not in people.entries("oauth.token.issued")[0]["data"]


def test_a_retry_in_the_grace_gets_the_same_token_with_a_new_access_token(people: People) -> None:
    tokens = people.tokens()
    answers = [people.refreshed(tokens["refresh_token"]) for _ in range(4)]
    assert len({each["refresh_token"] for each in answers}) == 1
    jtis = {decode_jwt(each["access_token"])[1]["jti"] for each in answers}
    assert len(jtis) == 4
    assert all(people.is_active(each["access_token"]) for each in answers)
    issued_ones = [each for each in people.entries("oauth.token.issued") if each["subject"] in jtis]
    assert len(issued_ones) == 4
    assert people.refreshed(answers[0]["refresh_token"])["refresh_token"] not in (
        tokens["refresh_token"], answers[0]["refresh_token"],
    )  # fmt: skip


def test_only_a_hash_is_kept(people: People) -> None:
    result = people.tokens()
    tokens = [result["refresh_token"], people.refreshed(result["refresh_token"])["refresh_token"]]
    store = command.Alone(people.gatepost.directory, people.gatepost.database, people.gatepost.environment)
    for table in ("families", "codes", "consents", "entries"):
        kept = store.execute(f"SELECT * FROM {table} WHERE account = ?", ids.raw(people.account))
        values = [value.encode() if isinstance(value, str) else bytes(value) for row in kept for value in row
                  if isinstance(value, (str, bytes))]  # fmt: skip
        assert values
        for token in tokens:
            secret = urlsafe_b64decode(token.removeprefix("gpr_"))[19:51]
            assert [value for value in values if token.encode() in value or secret in value] == []
    log = (people.gatepost.directory.parent / f"{people.gatepost.directory.name}.log").read_text()
    assert [token for token in tokens if token[:40] in log] == []


# --- no grace


def test_no_grace_once_the_successor_was_used(people: People) -> None:
    tokens = people.tokens()
    second = people.refreshed(tokens["refresh_token"])
    third = people.refreshed(second["refresh_token"])
    family = people.family(tokens)
    assert "used before" in people.refused(tokens["refresh_token"])
    check_ended_by_reuse(people, family, tokens, second, third)


def test_no_grace_when_it_is_over(people: People) -> None:
    tokens = people.tokens()
    second = people.refreshed(tokens["refresh_token"])
    people.age(11)
    assert "used before" in people.refused(tokens["refresh_token"])
    check_ended_by_reuse(people, people.family(tokens), tokens, second)


def test_no_grace_where_the_account_has_none(gatepost: Service, account_name: str) -> None:
    people = People(gatepost, account_name, "refresh_grace=0")
    tokens = people.tokens()
    second = people.refreshed(tokens["refresh_token"])
    assert "used before" in people.refused(tokens["refresh_token"])
    check_ended_by_reuse(people, people.family(tokens), tokens, second)


def test_no_grace_for_another_dpop_key(people: People) -> None:
    first, other = Prover(people.url), Prover(people.url)
    answer = people.redeem(people.code(), headers=first.headers())
    body = answer.json()
    second = people.refreshed(body["refresh_token"], headers=first.headers())
    assert people.refreshed(body["refresh_token"], headers=first.headers())["refresh_token"] == second["refresh_token"]
    assert "used before" in people.refused(body["refresh_token"], headers=other.headers())
    check_ended_by_reuse(people, people.family(body), body, second)


def test_no_grace_after_it_was_revoked(people: People) -> None:
    tokens = people.tokens()
    second = people.refreshed(tokens["refresh_token"])
    assert people.post("revoke", token=second["refresh_token"]).status_code == 200
    assert "expired or revoked" in people.refused(tokens["refresh_token"])
    assert "expired or revoked" in people.refused(second["refresh_token"])
    assert people.about(people.family(tokens), "oauth.token.reused") == []


@pytest.mark.parametrize("shown", ["code", "refresh_token"])
def test_reuse_is_noticed_after_the_client_lost_the_grant(own: People, shown: str) -> None:
    people = own
    code = people.code()
    tokens = people.redeem(code).json()
    second = people.refreshed(tokens["refresh_token"])
    people.age(11)
    lost = {"code": "authorization_code"}.get(shown, shown)
    defined = people.gatepost.post("/oauth/clients", people.admin, {"client_id": people.client.id}).json()
    changed = [grant | {"status": "disabled"} if grant["grant_type"] == lost else grant for grant in defined["grants"]]
    people.redefine(people.client, grants=[{k: v for k, v in grant.items() if v is not None} for grant in changed])
    answer = people.redeem(code) if shown == "code" else people.refresh(tokens["refresh_token"])
    check_refusal(answer, "/oauth/tokens", "unauthorized_client")
    assert not people.is_active(second["access_token"])
    assert not people.is_active(second["refresh_token"])
    [reused] = [each for each in people.entries("oauth.token.reused") if each["data"]["client"] == people.client.id]
    assert reused["data"]["what"] == lost


def check_ended_by_reuse(people: People, family: str, *told: dict[str, Any]) -> None:
    """Nothing of the family works any more, and the ledger says once that and why it ended."""
    for each in told:
        assert not people.is_active(each["access_token"])
        assert not people.is_active(each["refresh_token"])
        assert "expired or revoked" in people.refused(each["refresh_token"])
    [revoked] = people.about(family, "oauth.token.revoked")
    [reused] = people.about(family, "oauth.token.reused")
    assert revoked["data"] == {"reason": "reused", "client": people.client.id}
    assert reused["data"] == {"client": people.client.id, "what": "refresh_token", "number": 0}
    assert revoked["actor"] == reused["actor"] == people.client.id


def test_another_process_notices_reuse(gatepost: Service, account_name: str) -> None:
    people = People(gatepost, account_name, "refresh_grace=60s")
    tokens = people.tokens()
    second = people.refreshed(tokens["refresh_token"])
    kept = people.tokens()
    with web_beside(gatepost) as other:
        people.gatepost = other
        assert people.refreshed(tokens["refresh_token"])["refresh_token"] == second["refresh_token"]
        third = people.refreshed(second["refresh_token"])
        assert "used before" in people.refused(tokens["refresh_token"])
        check_ended_by_reuse(people, people.family(tokens), third)
        assert people.refresh(kept["refresh_token"]).status_code == 200


# --- whose it is


def test_another_client_cannot_use_it_and_does_no_harm(people: People) -> None:
    tokens = people.tokens()
    second = people.refreshed(tokens["refresh_token"])
    stranger = people.define()
    for token in (tokens["refresh_token"], second["refresh_token"]):
        assert people.refused(token, stranger) == people.refused("gpr_garbage", stranger)
    assert people.refreshed(tokens["refresh_token"])["refresh_token"] == second["refresh_token"]
    assert people.refresh(second["refresh_token"]).status_code == 200


def test_another_account_cannot_use_it_and_does_no_harm(people: People, own: People) -> None:
    tokens = people.tokens()
    second = people.refreshed(tokens["refresh_token"])
    for token in (tokens["refresh_token"], second["refresh_token"]):
        assert own.refused(token) == own.refused("gpr_garbage")
    assert people.refresh(second["refresh_token"]).status_code == 200
    assert own.entries("oauth.token.reused", "oauth.token.revoked") == []


def test_a_public_client_keeps_its_key(people: People) -> None:
    client = people.define(token_endpoint_auth_method="none")
    first, other = Prover(people.url), Prover(people.url)
    body = people.redeem(people.code(people.auth_request(client)), client, headers=first.headers()).json()
    for wrong, words in ((None, "send a proof"), (other.headers(), "bound to another key")):
        answer = people.refresh(body["refresh_token"], client, headers=wrong)
        check_refusal(answer, "/oauth/tokens", "invalid_grant", words)
    again = people.refreshed(body["refresh_token"], client, headers=first.headers())
    assert again["token_type"] == "DPoP"
    assert decode_jwt(again["access_token"])[1]["cnf"] == {"jkt": first.thumbprint}


def test_a_public_client_without_a_key_rotates_too(people: People) -> None:
    client = people.define(token_endpoint_auth_method="none")
    body = people.redeem(people.code(people.auth_request(client)), client).json()
    second = people.refreshed(body["refresh_token"], client)
    third = people.refreshed(second["refresh_token"], client)
    assert "used before" in people.refused(body["refresh_token"], client)
    assert "expired or revoked" in people.refused(third["refresh_token"], client)


def test_a_confidential_client_may_change_its_key(people: People) -> None:
    """RFC 9449, section 5: its refresh tokens are bound to the client, which authenticates."""
    first, other = Prover(people.url), Prover(people.url)
    body = people.redeem(people.code(), headers=first.headers()).json()
    second = people.refreshed(body["refresh_token"], headers=other.headers())
    assert decode_jwt(second["access_token"])[1]["cnf"] == {"jkt": other.thumbprint}
    third = people.refreshed(second["refresh_token"])
    assert third["token_type"] == "Bearer"


# --- what is not one


@pytest.mark.parametrize(
    "wrong",
    ["gpr_garbage", "x", "é", "gpr_" + "A" * 84, "gpr_" + "A" * 20_000, "%00"],
    ids=["short", "x", "not ASCII", "of the right length", "long", "percent"],
)
def test_strings_that_are_not_refresh_tokens(people: People, wrong: str) -> None:
    assert people.refused(wrong) == "refresh_token: unknown, or issued to another client"


def test_other_tokens_are_no_refresh_tokens_nor_the_other_way_around(people: People) -> None:
    code = people.code()
    body = people.redeem(code).json()
    for wrong in (
        code,
        body["access_token"],
        body["id_token"],
        body["refresh_token"][:-1],
        body["refresh_token"] + "A",
    ):
        assert people.refused(wrong) == "refresh_token: unknown, or issued to another client"
    check_refusal(people.redeem(body["refresh_token"]), "/oauth/tokens", "invalid_grant")
    answer = people.gatepost.session.get(
        f"{people.url}/oauth/userinfo", headers={"Authorization": f"Bearer {body['refresh_token']}"}
    )
    check_refusal(answer, "/oauth/userinfo", "invalid_token")
    assert people.refresh(body["refresh_token"]).status_code == 200


@pytest.mark.parametrize("form", [{}, {"refresh_token": ""}, {"refresh_token": ["a", "b"]}], ids=str)
def test_it_must_be_sent_once(people: People, form: dict[str, Any]) -> None:
    answer = people.ask(**({"grant_type": "refresh_token"} | form))
    check_refusal(answer, "/oauth/tokens", "invalid_request", "refresh_token: ")


def test_clients_that_get_no_refresh_token(people: People) -> None:
    assert "refresh_token" not in people.tokens(people.auth_request(scope="openid things:read"))
    assert "refresh_token" not in people.tokens(scope="openid things:read")
    client = people.define(grant_types=["authorization_code"], scope=SCOPES)
    answer = people.redeem(people.code(people.auth_request(client)), client)
    assert answer.status_code == 200
    assert "refresh_token" not in answer.json()


# --- both ends


def test_it_ends_when_it_is_not_used(gatepost: Service, account_name: str) -> None:
    people = People(gatepost, account_name, "refresh_token_lifetime=1h")
    tokens = people.tokens()
    shown = people.introspect(tokens["refresh_token"])
    assert shown["exp"] == shown["iat"] + HOUR
    for _ in range(3):
        people.age(HOUR - 60)
        tokens = people.refreshed(tokens["refresh_token"])
    people.age(HOUR)
    assert not people.is_active(tokens["refresh_token"])
    assert "expired or revoked" in people.refused(tokens["refresh_token"])
    assert people.is_active(tokens["access_token"]), "it has an end of its own"


def test_it_ends_however_much_it_is_used(gatepost: Service, account_name: str) -> None:
    people = People(gatepost, account_name, "refresh_token_lifetime=1h", "refresh_token_max_age=2h")
    tokens = people.tokens()
    begun = people.introspect(tokens["refresh_token"])["iat"]
    for _ in range(2):
        people.age(HOUR - 60)
        tokens = people.refreshed(tokens["refresh_token"])
    shown = people.introspect(tokens["refresh_token"])
    left = begun + 2 * HOUR - 2 * (HOUR - 60)
    assert shown["exp"] == left
    people.age(121)
    assert "expired or revoked" in people.refused(tokens["refresh_token"])


@pytest.mark.parametrize(
    ("account", "client", "grants", "right"),
    [
        ("3h", None, None, 3), ("3h", 2, None, 2), ("3h", 4, None, 3), ("3h", 3, (None, 1), 1), ("1h", 2, (None, 3), 1),
        ("3h", None, (1, None), 1), ("3h", None, (2, 1), 1), ("3h", None, (1, 2), 1),
    ],
)  # fmt: skip
def test_the_shortest_lifetime_wins(
    sqlite_gatepost: Service, account_name: str, account: str, client: int | None,
    grants: tuple[int | None, int | None] | None, right: int,
) -> None:  # fmt: skip
    people = People(sqlite_gatepost, account_name, f"refresh_token_lifetime={account}")
    scopes = ["openid", "offline_access", "things:read"]
    members: dict[str, Any] = {"scope": " ".join(scopes)} | (
        {"refresh_token_lifetime": client * HOUR} if client else {}
    )
    if grants:
        members["grants"] = [
            {"grant_type": name, "scopes": scopes, "refresh_token_lifetime": hours and hours * HOUR}
            for name, hours in zip(("authorization_code", "refresh_token"), grants, strict=True)
        ]
    made = people.define(**members)
    tokens = people.tokens(people.auth_request(made), made)
    for _ in range(2):
        shown = people.introspect(tokens["refresh_token"], made)
        assert shown["exp"] - shown["iat"] == right * HOUR
        tokens = people.refreshed(tokens["refresh_token"], made)


# --- scope and resource


def test_a_narrower_scope_narrows_that_token_alone(people: People) -> None:
    all_of_it = "openid offline_access things:read things:write"
    tokens = people.tokens(people.auth_request(scope=all_of_it))
    narrow = people.refreshed(tokens["refresh_token"], scope="things:read")
    assert (narrow["scope"], "id_token" in narrow) == ("things:read", False)
    assert decode_jwt(narrow["access_token"])[1]["aud"] == people.api
    wide = people.refreshed(narrow["refresh_token"])
    assert (wide["scope"], "id_token" in wide) == (all_of_it, True)
    assert people.introspect(wide["refresh_token"])["scope"] == all_of_it


@pytest.mark.parametrize("scope", ["things:write", "openid things:read things:write", "unheard-of", "gatepost:clients"])
def test_a_wider_scope_is_refused_and_does_no_harm(people: People, scope: str) -> None:
    tokens = people.tokens()
    check_refusal(people.refresh(tokens["refresh_token"], scope=scope), "/oauth/tokens", "invalid_scope")
    assert people.refreshed(tokens["refresh_token"])["scope"] == "openid offline_access things:read"


def test_each_refresh_may_be_for_another_resource(own: People) -> None:
    other = f"https://other.{own.name}.example"
    own.define_scope(name="orders:read", resource=other)
    client = own.define(scope=f"{SCOPES} orders:read")
    asked = own.auth_request(client, scope="offline_access things:read orders:read")
    result = own.redeem(own.code(asked), client, resource=own.api).json()
    assert (decode_jwt(result["access_token"])[1]["aud"], result["scope"]) == (own.api, "offline_access things:read")
    result = own.refreshed(result["refresh_token"], client, resource=other)
    assert (decode_jwt(result["access_token"])[1]["aud"], result["scope"]) == (other, "offline_access orders:read")
    result = own.refreshed(result["refresh_token"], client, scope="things:read")
    assert (decode_jwt(result["access_token"])[1]["aud"], result["scope"]) == (own.api, "things:read")
    for changes, code in (
        ({}, "invalid_scope"),
        ({"resource": "https://nobody.example"}, "invalid_target"),
        ({"resource": [own.api, other]}, "invalid_target"),
        ({"resource": other, "scope": "things:read"}, "invalid_target"),
    ):
        check_refusal(own.refresh(result["refresh_token"], client, **changes), "/oauth/tokens", code)
    assert own.refresh(result["refresh_token"], client, resource=own.api).status_code == 200


def test_an_authorization_for_one_resource_is_never_for_another(own: People) -> None:
    other = f"https://other.{own.name}.example"
    own.define_scope(name="orders:read", resource=other)
    client = own.define(scope=f"{SCOPES} orders:read")
    tokens = own.tokens(
        own.auth_request(client, scope="offline_access things:read orders:read", resource=own.api), client
    )
    assert decode_jwt(tokens["access_token"])[1]["aud"] == own.api
    for changes in ({"resource": other}, {"scope": "orders:read"}):
        check_refusal(own.refresh(tokens["refresh_token"], client, **changes), "/oauth/tokens", "invalid_target")
    own.define_scope(name="things:read", resource=other, redefine=True)
    check_refusal(own.refresh(tokens["refresh_token"], client), "/oauth/tokens", "invalid_target")


# --- looked at again at each use

# What changes, what is said then, and how it is undone, if it can be.
CHANGES: dict[str, tuple[Callable[[People, Client], None], str, Callable[[People, Client], None] | None]] = {
    "the client is disabled": (
        lambda p, client: p.redefine(client, status="disabled"), "invalid_client",
        lambda p, client: p.redefine(client, status="active"),
    ),
    "the account is suspended": (
        lambda p, _: p.change(account_admin.suspend, p.name, ""), "invalid_client",
        lambda p, _: p.change(account_admin.resume, p.name),
    ),
    "the client loses the grant": (
        lambda p, client: p.redefine(client, grant_types=["authorization_code"]), "unauthorized_client",
        lambda p, client: p.redefine(client, grant_types=["authorization_code", "refresh_token"]),
    ),
    "the client loses a scope": (
        lambda p, client: p.redefine(client, scope="openid offline_access things:write"), "invalid_scope",
        lambda p, client: p.redefine(client, scope=SCOPES),
    ),
    "the scope is retired": (
        lambda p, _: p.define_scope(name="things:read", status="retired", redefine=True), "invalid_scope",
        lambda p, _: p.define_scope(name="things:read", status="active", redefine=True),
    ),
    "the consent is ended": (
        lambda p, _: p.end_consents(), "invalid_grant", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_refresh_after_its_client_account_or_consent_has_ended(own: People, name: str) -> None:
    change, code, undo = CHANGES[name]
    client = own.define()
    tokens = own.tokens(own.auth_request(client), client)
    change(own, client)
    check_refusal(own.refresh(tokens["refresh_token"], client), "/oauth/tokens", code)
    if undo is None:
        return
    undo(own, client)
    assert own.refreshed(tokens["refresh_token"], client)["scope"] == "openid offline_access things:read"


def test_what_is_left_of_the_scope_can_still_be_had(own: People) -> None:
    tokens = own.tokens(own.auth_request(scope="offline_access things:read things:write"))
    own.define_scope(name="things:write", status="retired", redefine=True)
    check_refusal(own.refresh(tokens["refresh_token"]), "/oauth/tokens", "invalid_scope", "things:write")
    assert own.refreshed(tokens["refresh_token"], scope="offline_access things:read")["scope"].endswith("things:read")


# --- many at once, of a service with several processes


CROWDS = [pytest.param(store, marks=pytest.mark.xdist_group(f"crowd-{store}")) for store in ("sqlite", "postgres")]


@pytest.fixture(scope="module", params=CROWDS)
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    database = ""
    if request.param == "postgres":
        database = request.getfixturevalue("postgres_server").create_database("refresh_crowd")
    with service.running(tmp_path_factory.mktemp("crowd") / "data", database, workers="2", only="web") as running:
        yield People(running, "crowd")


def at_once(*calls: Callable[[], requests.Response]) -> list[requests.Response]:
    """Each from a connection of its own, none before all are ready."""
    ready = threading.Barrier(len(calls), timeout=LIMIT)

    def go(call: Callable[[], requests.Response]) -> requests.Response:
        ready.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(go, calls))


def sending(people: People, path: str, **form: str) -> Callable[[], requests.Response]:
    headers = {"Authorization": people.client.basic}
    return lambda: requests.post(f"{people.url}/oauth/{path}", data=form, headers=headers, timeout=LIMIT)


def refreshing(people: People, token: str) -> Callable[[], requests.Response]:
    return sending(people, "tokens", grant_type="refresh_token", refresh_token=token)


def test_many_at_once_get_one_successor(crowd: People) -> None:
    result = crowd.tokens()
    for generation in range(1, 4):
        answers = at_once(*[refreshing(crowd, result["refresh_token"])] * MANY)
        assert [each.status_code for each in answers] == [200] * MANY
        assert len({each.json()["refresh_token"] for each in answers}) == 1
        assert len({decode_jwt(each.json()["access_token"])[1]["jti"] for each in answers}) == MANY
        result = answers[0].json()
        family = crowd.family(result)
        kept = crowd.gatepost.opened.store.read_now(
            lambda tx, family=family: family_rows.load(tx, crowd.account, family)  # type: ignore[misc]
        )
        assert kept is not None
        assert (kept.number, kept.ended_at) == (generation, None)
    assert crowd.about(crowd.family(result), "oauth.token.reused", "oauth.token.revoked") == []


def test_of_many_at_once_with_an_old_token_none_gets_anything(crowd: People) -> None:
    tokens = crowd.tokens()
    second = crowd.refreshed(tokens["refresh_token"])
    third = crowd.refreshed(second["refresh_token"])
    answers = at_once(*[refreshing(crowd, tokens["refresh_token"]), refreshing(crowd, third["refresh_token"])] * 10)
    assert {each.status_code for each in answers[::2]} == {400}
    for each in [tokens, second, third] + [each.json() for each in answers if each.status_code == 200]:
        assert not crowd.is_active(each["access_token"])
        assert not crowd.is_active(each["refresh_token"])
    family = crowd.family(tokens)
    assert len(crowd.about(family, "oauth.token.reused")) == len(crowd.about(family, "oauth.token.revoked")) == 1


def by_operator(people: People, told: dict[str, Any]) -> Callable[[], Any]:
    opened_store, family = people.gatepost.opened, people.family(told)

    def end() -> None:
        account = opened_store.store.read_now(lambda tx: lookup.named(tx, people.name))
        ended = token_admin.revoke(opened_store.store, opened_store.service, account, TokenSelector(family=family))
        assert ended.families == 1

    return end


ENDING: dict[str, Callable[[People, dict[str, Any]], Callable[[], Any]]] = {
    "the live token": lambda p, told: sending(p, "revoke", token=told["refresh_token"]),
    "the one before": lambda p, told: sending(p, "revoke", token=told["before"]),
    "the access token": lambda p, told: sending(p, "revoke", token=told["access_token"]),
    "by the operator": by_operator,
}


@pytest.mark.parametrize("how", ENDING)
def test_nothing_is_active_after_a_revocation_however_many_refresh_meanwhile(crowd: People, how: str) -> None:
    for _ in range(4):
        before = crowd.tokens()
        tokens = crowd.refreshed(before["refresh_token"]) | {"before": before["refresh_token"]}
        end = ENDING[how](crowd, tokens)
        calls = [refreshing(crowd, tokens["refresh_token"])] * 6
        *answers, ended = at_once(*calls, end)
        assert how == "by the operator" or ended.status_code == 200
        given = [each.json() for each in answers if each.status_code == 200]
        for each in [before, tokens, *given]:
            assert not crowd.is_active(each["access_token"])
            assert not crowd.is_active(each["refresh_token"])
            assert crowd.refresh(each["refresh_token"]).status_code == 400
