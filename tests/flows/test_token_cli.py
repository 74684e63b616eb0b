"""`gatepost token` and `gatepost consent`: what an operator sees, what ends, and what is said when it is not there."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from gatepost.accounts import lookup
from gatepost.cli.main import commands
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.ledger.record import record
from gatepost.oauth import account_admin, consent_rows, token_admin
from gatepost.oauth.client_grants import TOKEN_EXCHANGE
from gatepost.oauth.consents import Consent, ConsentDetails
from gatepost.oauth.token_admin import TokenSelector
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import Tx
from gatepost.webhooks.fanout import create_deliveries
from tests.login import CLAIMS, Platform, decode_jwt
from tests.service import Client, Service

NOTHING = "There was nothing to revoke.\n"


class Shop(Platform):
    """A platform, and the command beside it."""

    def __init__(self, gatepost: Service, name: str, *settings: str) -> None:
        super().__init__(gatepost, name, *settings)
        self.server = gatepost.define_client(self.admin, scope="things:read", serves=[self.api])
        self.ada = f"{self.account}.ada"

    def say(self, *arguments: str) -> str:
        """What a command prints; in this process, without the price of another."""
        done = CliRunner(env=self.gatepost.environment).invoke(commands, arguments)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.say(*arguments, "--json"))

    def refusal(self, *arguments: str) -> str:
        """What is said when it cannot be done; nothing is printed besides."""
        with pytest.raises(BadSetting) as caught:
            print(self.say(*arguments))
        return str(caught.value)

    def rows(self, *arguments: str) -> list[list[str]]:
        """Of a table, without its head: the columns are two spaces apart."""
        _, *rows = self.say(*arguments).splitlines()
        return [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows]

    def works(self, token: str) -> bool:
        return bool(self.introspect(token, self.server)["active"])

    def family(self, told: dict[str, Any]) -> str:
        return str(self.json("token", "show", "--id", jti(told))[0]["family"])

    def change(self, unit: Callable[..., Any], *arguments: Any) -> Any:
        return self.gatepost.opened.store.run_now(lambda tx: unit(tx, *arguments))

    def machine(self) -> Client:
        return self.gatepost.define_client(self.admin, scope="things:read")

    def revoked(self) -> list[dict[str, Any]]:
        return self.entries("oauth.token.revoked", "oauth.consent.ended")


def jti(told: dict[str, Any] | str) -> str:
    token = told if isinstance(told, str) else told["access_token"]
    return str(decode_jwt(token)[1]["jti"])


@pytest.fixture
def shop(gatepost: Service, account_name: str) -> Shop:
    return Shop(gatepost, f"token-cli-{account_name}")


@pytest.fixture
def sqlite_shop(sqlite_gatepost: Service, account_name: str) -> Shop:
    return Shop(sqlite_gatepost, f"token-cli-{account_name}")


# --- token show


def test_one_token_by_its_id(shop: Shop) -> None:
    tokens = shop.tokens()
    claims = decode_jwt(tokens["access_token"])[1]
    [shown] = shop.json("token", "show", "--id", claims["jti"])
    assert shown == {
        "id": claims["jti"],
        "state": "active",
        "client_id": shop.client.id,
        "issued_at": shown["issued_at"],
        "expires_at": clock.rfc3339(clock.from_milliseconds(claims["exp"] * 1000)),
        "event": ids.with_prefix("evt", claims["jti"]),
        "grant_type": "authorization_code",
        "grant": claims["grant"],
        "aud": claims["aud"],
        "scope": claims["scope"],
        "kid": decode_jwt(tokens["access_token"])[0]["kid"],
        "by": shown["by"],
        "consent": shown["consent"],
        "family": shown["family"],
    }
    issued_at = clock.parse_rfc3339(shown["issued_at"])
    assert issued_at is not None
    assert clock.seconds(issued_at) == claims["iat"]
    lines = dict(line.split(maxsplit=1) for line in shop.say("token", "show", "--id", claims["jti"]).splitlines())
    assert (lines["id"], lines["state"], lines["family"]) == (claims["jti"], "active", shown["family"])
    assert shop.json("token", "show", "--id", claims["jti"], "--account", shop.name) == [shown]


def test_the_tokens_of_a_client_a_person_or_a_family(shop: Shop) -> None:
    machine = shop.machine()
    own = jti(shop.gatepost.token(machine, "things:read"))
    first = shop.tokens()
    second = shop.refresh(first["refresh_token"]).json()
    third = shop.tokens()
    bob = shop.tokens(sub="bob")
    seen = {
        "--client": [shop.client.id, bob, third, second, first],
        "--subject": [shop.ada, third, second, first],
        "--family": [shop.family(first), second, first],
    }
    for option, (value, *right) in seen.items():
        assert [each["id"] for each in shop.json("token", "show", option, value)] == [jti(each) for each in right]
        rows = shop.rows("token", "show", option, value)
        assert [(row[0], row[1], row[2]) for row in rows] == [(jti(each), "active", shop.client.id) for each in right]
        newest = shop.json("token", "show", option, value, "--limit", "1")
        assert [each["id"] for each in newest] == [jti(right[0])]
    assert [each["id"] for each in shop.json("token", "show", "--client", machine.id)] == [own]
    table = shop.say("token", "show", "--client", machine.id)
    assert table.splitlines()[0].split() == ["id", "state", "client", "grant", "scope", "expires"]


def test_claims_about_a_person_are_never_shown(shop: Shop) -> None:
    tokens = shop.tokens()
    output = "".join(
        shop.say(*command)
        for command in (
            ("token", "show", "--id", jti(tokens)),
            ("token", "show", "--subject", shop.ada, "--json"),
            ("consent", "list", "--account", shop.name),
            ("consent", "list", "--account", shop.name, "--json"),
        )
    )
    assert [value for value in CLAIMS.values() if value in output] == []
    assert tokens["refresh_token"] not in output


STATES: dict[str, Callable[[Shop, dict[str, Any]], Any]] = {
    "active": lambda _shop, _told: None,
    "revoked": lambda shop, told: shop.say("token", "revoke", "--id", jti(told)),
    "family ended": lambda shop, told: shop.post("revoke", token=told["refresh_token"]),
    "consent ended": lambda shop, _: shop.say("token", "revoke", "--subject", shop.ada),
    "client disabled": lambda shop, _: shop.say("client", "disable", shop.client.id),
    "account suspended": lambda shop, _: shop.change(account_admin.suspend, shop.name, ""),
}


@pytest.mark.parametrize("state", STATES)
def test_token_show_prints_the_state(sqlite_shop: Shop, state: str) -> None:
    scope = "openid things:read" if state == "consent ended" else "openid offline_access things:read"
    tokens = sqlite_shop.tokens(sqlite_shop.auth_request(scope=scope))
    STATES[state](sqlite_shop, tokens)
    assert sqlite_shop.json("token", "show", "--id", jti(tokens))[0]["state"] == state
    assert sqlite_shop.rows("token", "show", "--client", sqlite_shop.client.id)[0][1] == state


def test_tokens_are_found_by_id_at_any_time_and_otherwise_for_a_day(sqlite_shop: Shop) -> None:
    tokens = sqlite_shop.tokens()
    running = sqlite_shop.gatepost

    def shown(after: timedelta, **which: str) -> list[str]:
        with closing(
            SqliteStore(running.directory / "gatepost.db", lambda: clock.now() + after, create_deliveries)
        ) as later:
            account = later.read_now(lambda tx: lookup.named(tx, sqlite_shop.name))
            found = token_admin.find(later, running.opened.service, account, TokenSelector(**which), 10)
            return [each["state"] for each in found]

    assert shown(timedelta(minutes=59), client=sqlite_shop.client.id) == ["active"]
    assert shown(timedelta(minutes=61), client=sqlite_shop.client.id) == ["expired"]
    assert shown(timedelta(days=2), client=sqlite_shop.client.id) == []
    assert shown(timedelta(days=2), id=jti(tokens)) == ["expired"]


# --- token revoke


def test_revoke_one(shop: Shop) -> None:
    tokens = shop.tokens()
    second = shop.refresh(tokens["refresh_token"]).json()
    assert shop.works(tokens["access_token"])
    assert shop.say("token", "revoke", "--id", jti(tokens)) == "Revoked: 1 access token.\n"
    assert [shop.works(each["access_token"]) for each in (tokens, second)] == [False, True]
    assert shop.refresh(second["refresh_token"]).status_code == 200
    assert shop.say("token", "revoke", "--id", jti(tokens)) == NOTHING
    [entry] = shop.revoked()
    assert (entry["subject"], entry["actor"]) == (jti(tokens), OPERATOR)
    assert entry["data"] == {"reason": "revoked_by_operator", "client": shop.client.id}


def test_revoke_a_family(shop: Shop) -> None:
    tokens, other = shop.tokens(), shop.tokens()
    second = shop.refresh(tokens["refresh_token"]).json()
    family = shop.family(tokens)
    ended = shop.json("token", "revoke", "--family", family, "--account", shop.name)
    assert ended == {"consents": 0, "families": 1, "tokens": 0}
    assert [shop.works(each["access_token"]) for each in (tokens, second, other)] == [False, False, True]
    assert shop.refresh(second["refresh_token"]).status_code == 400
    assert shop.say("token", "revoke", "--family", family) == NOTHING
    [entry] = shop.revoked()
    assert (entry["subject"], entry["actor"]) == (family, OPERATOR)
    assert entry["data"] == {"reason": "revoked_by_operator", "client": shop.client.id}


def test_revoke_a_person(shop: Shop) -> None:
    second = shop.define()
    exchanger = shop.gatepost.define_client(
        shop.admin, scope="things:read", grant_types=[TOKEN_EXCHANGE], serves=[shop.api]
    )
    tokens, there = shop.tokens(), shop.tokens(shop.auth_request(second), second)
    exchanged = shop.ask(
        exchanger, grant_type=TOKEN_EXCHANGE, scope="things:read", subject_token=tokens["access_token"],
        subject_token_type="urn:ietf:params:oauth:token-type:access_token",
    ).json()["access_token"]  # fmt: skip
    bob = shop.tokens(sub="bob")
    assert shop.works(exchanged)
    output = shop.say("token", "revoke", "--subject", shop.ada)
    assert output == "Revoked: 2 consents with all their tokens.\n"
    assert [shop.works(each) for each in (tokens["access_token"], there["access_token"], exchanged)] == [False] * 3
    assert shop.works(bob["access_token"])
    assert shop.say("token", "revoke", "--subject", shop.ada) == NOTHING


def test_revoke_a_workload_that_a_trusted_issuer_named(shop: Shop) -> None:
    """Nobody allowed it: its tokens are found by their `sub` in the ledger."""
    machine = shop.machine()
    subject = f"{shop.account}:ci:repo:acme/shop"

    def issue(tx: Tx) -> str:
        ends = clock.seconds(tx.at) + 600
        data = {"grant_type": "x", "scope": "things:read", "sub": subject, "expires_at": ends}
        entry = record(tx, lookup.named(tx, shop.name), "oauth.token.issued", Origin(machine.id), "", data)
        return ids.with_prefix("tok", entry.name)

    token = shop.change(issue)
    person = shop.tokens(sub=subject)["access_token"]  # whom the login application calls the same
    assert [each["id"] for each in shop.json("token", "show", "--subject", subject)] == [token]
    assert shop.say("token", "revoke", "--subject", subject) == "Revoked: 1 access token.\n"
    assert shop.json("token", "show", "--id", token)[0]["state"] == "revoked"
    assert shop.works(person)


def test_revoke_a_client(shop: Shop) -> None:
    result, bob = shop.tokens(), shop.tokens(sub="bob")
    other = shop.define()
    there = shop.tokens(shop.auth_request(other), other)
    output = shop.say("token", "revoke", "--client", shop.client.id)
    assert output == "Revoked: 2 consents with all their tokens.\n"
    assert [shop.works(each["access_token"]) for each in (result, bob, there)] == [False, False, True]
    machine = shop.machine()
    tokens = [shop.gatepost.token(machine, "things:read") for _ in range(3)]
    assert shop.json("token", "revoke", "--client", machine.id) == {"consents": 0, "families": 0, "tokens": 3}
    assert not any(shop.works(each) for each in tokens)
    assert shop.say("token", "revoke", "--client", machine.id) == NOTHING
    assert shop.works(shop.gatepost.token(machine, "things:read")), "the client itself goes on"


@pytest.mark.parametrize("stopped", ["client", "account"])
def test_tokens_that_are_revoked_while_suspended_stay_revoked(sqlite_shop: Shop, stopped: str) -> None:
    """An operator stops a client that leaked, revokes what it had, gives it a new secret, and lets it go on."""
    shop, machine = sqlite_shop, sqlite_shop.machine()
    token = shop.gatepost.token(machine, "things:read")
    if stopped == "client":
        shop.say("client", "disable", machine.id)
    else:
        shop.change(account_admin.suspend, shop.name, "")
    assert shop.say("token", "revoke", "--client", machine.id) == "Revoked: 1 access token.\n"
    if stopped == "client":
        shop.say("client", "enable", machine.id)
    else:
        shop.change(account_admin.resume, shop.name)
    assert not shop.works(token)


def test_many_tokens_are_revoked_in_slices(sqlite_shop: Shop) -> None:
    shop, machine = sqlite_shop, sqlite_shop.machine()
    box, person = shop.gatepost.opened.service.keys.data, b"p" * 32

    def fill(tx: Tx) -> None:
        account, ends = lookup.named(tx, shop.name), clock.seconds(tx.at) + 600
        for _ in range(450):
            output, until = ConsentDetails("ada", ["things:read"]), tx.at + timedelta(days=1)
            made = Consent(ids.new("con"), account.id, machine.id, output, tx.at, until)
            consent_rows.add(tx, made, person, box)
            data = {"grant_type": "client_credentials", "scope": "things:read", "expires_at": ends}
            record(tx, account, "oauth.token.issued", Origin(machine.id), "", data)

    shop.change(fill)
    ended = shop.json("token", "revoke", "--client", machine.id)
    assert ended == {"consents": 450, "families": 0, "tokens": 450}
    assert shop.say("token", "revoke", "--client", machine.id) == NOTHING
    assert {each["state"] for each in shop.json("token", "show", "--client", machine.id, "--limit", "450")} == {
        "revoked"
    }


# --- what is not there

UNKNOWN = "06d8un0u5du3r3ifb9lnp3culs"
# What is typed → words that say what to do. SHOP, OTHER, JTI, FAMILY, ADA and CLIENT stand for what there is.
WRONG: dict[str, tuple[list[str], list[str]]] = {
    "nothing": ([], ["one of --id, --client, --subject or --family"]),
    "two": (["--id", "JTI", "--client", "CLIENT"], ["one of --id, --client, --subject or --family"]),
    "an empty id": (["--id", ""], ["one of --id"]),
    "an unknown id": (["--id", f"tok_{UNKNOWN}"], ["no token tok_", "jti"]),
    "no id at all": (["--id", "eyJhbGciOi"], ["no token eyJhbGciOi", "by its jti, tok_…"]),
    "an id of another kind": (["--id", f"evt_{UNKNOWN}"], ["no token evt_"]),
    "an id in another account": (["--id", "JTI", "--account", "OTHER"], ["no token tok_", "in OTHER"]),
    "an unknown account": (["--id", "JTI", "--account", "nobody"], ["no account nobody", "account list"]),
    "an unknown client": (["--client", f"cli_{UNKNOWN}"], ["no client cli_", "client list"]),
    "no client at all": (["--client", "xyz", "--account", "SHOP"], ["no client xyz", "client list"]),
    "a client of another": (["--client", "CLIENT", "--account", "OTHER"], ["is not of OTHER", "leave --account out"]),
    "a person's short name": (["--subject", "ada"], ["ada is not a person", "ACCOUNT_ID.ada"]),
    "a person's short name, with the account": (["--subject", "ada", "--account", "SHOP"], ["ACCOUNT_ID.ada"]),
    "the name of the account": (["--subject", "SHOP"], ["is not a person"]),
    "a client as a person": (["--subject", "CLIENT"], ["is not a person", "use --client"]),
    "a person of nobody": (["--subject", f"acc_{UNKNOWN}.ada"], ["no account acc_"]),
    "a person of another": (["--subject", "ADA", "--account", "OTHER"], ["is not of OTHER"]),
    "an unknown family": (["--family", f"fam_{UNKNOWN}"], ["no family fam_", "token show"]),
    "no family at all": (["--family", "xyz", "--account", "SHOP"], ["no family xyz in SHOP", "fam_…"]),
    "a family of another": (["--family", "FAMILY", "--account", "OTHER"], ["no family fam_", "in OTHER"]),
}


@pytest.fixture(scope="module")
def two(gatepost: Service) -> tuple[Shop, Shop, dict[str, str], dict[str, Any]]:
    shop, other = Shop(gatepost, "token-cli-shop"), Shop(gatepost, "token-cli-other")
    tokens = shop.tokens()
    names = {
        "SHOP": shop.name, "OTHER": other.name, "JTI": jti(tokens), "FAMILY": shop.family(tokens), "ADA": shop.ada,
        "CLIENT": shop.client.id,
    }  # fmt: skip
    return shop, other, names, tokens


@pytest.mark.parametrize("gatepost", ["sqlite"], indirect=True, scope="session")  # nothing is stored
@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("command", ["show", "revoke"])
def test_wrong_input_says_what_to_do_and_ends_nothing(
    two: tuple[Shop, Shop, dict[str, str], dict[str, Any]], command: str, what: str
) -> None:
    shop, _, names, result = two
    typed, words = WRONG[what]
    output = shop.refusal("token", command, *[names.get(each, each) for each in typed])
    for word in words:
        assert word.replace("OTHER", names["OTHER"]).replace("SHOP", names["SHOP"]) in output
    assert "\n" not in output
    assert shop.works(result["access_token"])


def test_a_refusal_is_one_line_of_the_command(sqlite_shop: Shop) -> None:
    done = sqlite_shop.gatepost.cli("token", "revoke", "--family", "xyz", "--account", sqlite_shop.name, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("gatepost: there is no family xyz")
    assert done.stderr.count("\n") == 1


def test_help_names_the_ways_in_the_order_of_the_message(sqlite_shop: Shop) -> None:
    for command in ("show", "revoke"):
        output = sqlite_shop.say("token", command, "--help")
        places = [output.index(f"--{name} ") for name in ("id", "client", "subject", "family", "account", "json")]
        assert places == sorted(places)


def test_nothing_found_is_an_empty_table(sqlite_shop: Shop) -> None:
    nobody = f"{sqlite_shop.account}.nobody"
    assert sqlite_shop.rows("token", "show", "--subject", nobody) == []
    assert sqlite_shop.json("token", "show", "--subject", nobody) == []
    assert sqlite_shop.say("token", "revoke", "--subject", nobody) == NOTHING


# --- consents


def test_consent_list(shop: Shop) -> None:
    second = shop.define()
    shop.tokens()
    shop.tokens(sub="bob")
    shop.tokens(shop.auth_request(second, scope="things:read"), second)
    listing = ("consent", "list", "--account", shop.name)
    ada, bob, there = shop.json(*listing)
    assert set(ada) == {
        "id", "account", "client_id", "sub", "scope", "given_at", "expires_at", "ended_at", "ended_reason",
    }  # fmt: skip
    assert [each["sub"] for each in (ada, bob, there)] == [shop.ada, f"{shop.account}.bob", shop.ada]
    assert (there["client_id"], there["scope"], there["ended_at"]) == (second.id, "things:read", None)
    assert shop.json(*listing, "--client", second.id) == [there]
    assert shop.json(*listing, "--subject", shop.ada) == [ada, there]
    assert shop.json(*listing, "--subject", shop.ada, "--client", shop.client.id) == [ada]
    assert shop.json(*listing, "--limit", "2") == [ada, bob]
    assert shop.rows(*listing, "--client", second.id) == [
        [there["id"], shop.ada, second.id, "things:read", there["given_at"], "–"]
    ]
    assert shop.say(*listing).splitlines()[0].split() == ["id", "sub", "client", "scope", "given", "ended"]


def test_consent_revoke(shop: Shop) -> None:
    tokens, bob = shop.tokens(), shop.tokens(sub="bob")
    listing = ("consent", "list", "--account", shop.name)
    ada, kept = shop.json(*listing)
    revoking = ("consent", "revoke", ada["id"], "--account", shop.name)
    assert shop.say(*revoking) == f"{ada['id']} was revoked.\n"
    assert [shop.works(each["access_token"]) for each in (tokens, bob)] == [False, True]
    assert shop.refresh(tokens["refresh_token"]).status_code == 400
    assert shop.say(*revoking) == f"{ada['id']} had already ended.\n"
    assert shop.json(*revoking) == {"id": ada["id"], "ended": False}
    assert shop.json(*listing) == [kept]
    [ended, _] = shop.json(*listing, "--all")
    assert (ended["id"], ended["ended_reason"]) == (ada["id"], "revoked_by_operator")
    assert shop.rows(*listing, "--all")[0][-1] == "revoked_by_operator"
    assert shop.json("consent", "revoke", kept["id"], "--account", shop.account) == {"id": kept["id"], "ended": True}
    [entry, first] = shop.revoked()
    assert first["data"] == {"reason": "revoked_by_operator", "client": shop.client.id}
    assert (first["subject"], first["actor"], entry["subject"]) == (ada["id"], OPERATOR, kept["id"])


def test_consent_commands_say_what_to_do(two: tuple[Shop, Shop, dict[str, str], dict[str, Any]]) -> None:
    shop, other, _, result = two
    [given] = shop.json("consent", "list", "--account", shop.name)
    for typed, words in (
        (["list", "--account", "nobody"], "account list"),
        (["list", "--account", shop.name, "--client", "xyz"], "client list"),
        (["list", "--account", other.name, "--client", shop.client.id], "is not of"),
        (["list", "--account", shop.name, "--subject", "ada"], "ACCOUNT_ID.ada"),
        (["list", "--account", other.name, "--subject", shop.ada], "is not of"),
        (["revoke", "xyz", "--account", shop.name], "consent list"),
        (["revoke", f"con_{UNKNOWN}", "--account", shop.name], "consent list"),
        (["revoke", given["id"], "--account", other.name], "consent list"),
        (["revoke", given["id"], "--account", "nobody"], "account list"),
    ):
        output = shop.refusal("consent", *typed)
        assert words in output
        assert "\n" not in output
    assert shop.works(result["access_token"])
    done = CliRunner(env=shop.gatepost.environment).invoke(commands, ["consent", "revoke", given["id"]])
    assert (done.exit_code, "--account" in done.stderr) == (2, True)


def test_token_revoke_ends_consents_while_the_service_runs(shop: Shop) -> None:
    """The command's own process, on the store that is served."""
    reported = [shop.tokens() for _ in range(3)]
    assert all(shop.works(each["access_token"]) for each in reported)
    ended = shop.gatepost.cli_json("token", "revoke", "--subject", shop.ada)
    assert ended == {"consents": 3, "families": 0, "tokens": 0}
    assert not any(shop.works(each["access_token"]) for each in reported)
