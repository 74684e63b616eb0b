"""A token ends with what it was obtained from: every pair of a token and something further up its chain."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import msgspec
import pytest

from gatepost.accounts import Account, lookup
from gatepost.core import clock, ids
from gatepost.ledger import entry_rows
from gatepost.ledger.record import append_entry
from gatepost.oauth import issuer_admin
from gatepost.oauth.client_grants import JWT_BEARER, TOKEN_EXCHANGE
from gatepost.oauth.provenance import LONGEST_CHAIN
from gatepost.store.transaction import Tx
from tests.assertions import signed
from tests.flows.test_jwt_bearer import KEY, MATCH, Workload, jwks
from tests.flows.test_token_exchange import TOKENS, Chain
from tests.login import decode_jwt
from tests.receiver import receiver
from tests.service import Client, Service
from tests.wire import check_refusal


class Estate(Chain):
    """An account with people, machines and workloads, and services that exchange their tokens several times over."""

    def __init__(self, gatepost: Service, name: str, stack: ExitStack) -> None:
        super().__init__(gatepost, name)
        self.second = self.exchanging("files store:read", [self.store])
        self.posing = self.exchanging("store:read things:read", [self.api, self.store], "impersonation")
        self.workload = self.define(grant_types=[JWT_BEARER], redirect_uris=None, scope="things:read")
        self.machine = self.define(grant_types=["client_credentials"], redirect_uris=None, scope="things:read")
        self.server = stack.enter_context(receiver(jwks(KEY)))
        self.trust()

    def trust(self) -> None:
        store, service = self.gatepost.opened.store, self.gatepost.opened.service
        store.run_now(
            lambda tx: issuer_admin.add(
                tx, service, self.owner(tx), "ci", issuer=f"https://ci.{self.name}.example",
                jwks_uri=f"{self.server.url}/{self.name}", match=list(MATCH), client=self.workload.id,
                scope=["things:read"],
            )
        )  # fmt: skip

    def owner(self, tx: Tx) -> Account:
        return lookup.named(tx, self.name)

    def by_assertion(self) -> str:
        claims = Workload.claims(self.as_workload())
        form = {"grant_type": JWT_BEARER, "assertion": signed(KEY, claims), "scope": "things:read"}
        answer = self.ask(self.workload, **form)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def as_workload(self) -> Any:
        found = Workload.__new__(Workload)
        found.url, found.issuer = self.url, f"https://ci.{self.name}.example"
        return found


class Obtained(NamedTuple):
    """A token at the end of a chain, the chain before it, and the refresh token at its root, if there is one."""

    token: str
    chain: list[str]
    refresh_token: str = ""

    @property
    def root(self) -> str:
        return self.chain[-1] if self.chain else self.token


def exchanged(estate: Estate, root: str, times: int, refresh_token: str = "") -> Obtained:
    """First by delegation and on to the store, then by impersonation, which leaves no trace in the claims."""
    steps = [("store:read", estate.service), *[("store:read", estate.posing)] * (times - 1)]
    chain = [root]
    for scope, by in steps[:times]:
        chain.insert(0, estate.exchanged(chain[0], scope, by))
    return Obtained(chain[0], chain[1:], refresh_token)


def by_code(estate: Estate, times: int) -> Obtained:
    found = estate.persons()
    return exchanged(estate, found["access_token"], times, found["refresh_token"])


def by_refresh(estate: Estate, times: int) -> Obtained:
    found = estate.refresh(estate.persons()["refresh_token"]).json()
    return exchanged(estate, found["access_token"], times, found["refresh_token"])


ROOTS: dict[str, Callable[[Estate, int], Obtained]] = {
    "a code": by_code,
    "a refresh token": by_refresh,
    "client credentials": lambda e, times: exchanged(e, e.gatepost.token(e.machine, "things:read"), times),
    "an assertion": lambda e, times: exchanged(e, e.by_assertion(), times),
}
OWNERS: dict[str, Callable[[Estate], Client]] = {
    "a code": lambda e: e.client,
    "a refresh token": lambda e: e.client,
    "client credentials": lambda e: e.machine,
    "an assertion": lambda e: e.workload,
}


def set_status(estate: Estate, client: Client, status: str) -> None:
    body = {"client_id": client.id, "status": status}
    assert estate.gatepost.post("/oauth/clients", estate.admin, body).status_code == 200


def end_consent(estate: Estate, _root: str, _found: Obtained) -> None:
    consent = estate.entries("oauth.consent.given")[0]["subject"]
    estate.gatepost.cli("consent", "revoke", consent, "--account", estate.name)


def end_family(estate: Estate, _root: str, found: Obtained) -> None:
    assert estate.post("revoke", token=found.refresh_token).status_code == 200


def revoke_root(estate: Estate, root: str, found: Obtained) -> None:
    assert estate.post("revoke", OWNERS[root](estate), token=found.root).status_code == 200


def revoke_nearest(estate: Estate, _root: str, found: Obtained) -> None:
    nearest = decode_jwt(found.chain[0])[1]["jti"]
    estate.gatepost.cli("token", "revoke", "--id", nearest)


def disable_client(estate: Estate, root: str, _found: Obtained) -> None:
    set_status(estate, OWNERS[root](estate), "disabled")


def disable_exchanger(estate: Estate, _root: str, _found: Obtained) -> None:
    set_status(estate, estate.service, "disabled")


def remove_issuer(estate: Estate, _root: str, _found: Obtained) -> None:
    estate.gatepost.opened.store.run_now(lambda tx: issuer_admin.remove(tx, estate.owner(tx), "ci"))


def replace_issuer(estate: Estate, root: str, found: Obtained) -> None:
    remove_issuer(estate, root, found)
    estate.trust()


def suspend(estate: Estate, _root: str, _found: Obtained) -> None:
    estate.gatepost.cli("account", "suspend", estate.name)


End = Callable[[Estate, str, Obtained], None]
PEOPLE, ANY = ("a code", "a refresh token"), tuple(ROOTS)
# What is ended, of which roots it can be, and what `token show` then says of a token that was exchanged twice.
ENDS: dict[str, tuple[End, tuple[str, ...], str]] = {
    "the consent": (end_consent, PEOPLE, "family ended"),  # which ends with it
    "the family": (end_family, PEOPLE, "family ended"),
    "the first subject token": (revoke_root, ANY, "subject token revoked"),
    "the nearest subject token": (revoke_nearest, ANY, "subject token revoked"),
    "the first subject token's client": (disable_client, ANY, "subject token's client disabled"),
    "the client that exchanged it first": (disable_exchanger, ANY, "subject token's client disabled"),
    "the issuer entry": (remove_issuer, ("an assertion",), "issuer removed"),
    "the issuer entry, with another of its name added": (replace_issuer, ("an assertion",), "issuer removed"),
    "the account": (suspend, ANY, "account suspended"),
}
PAIRS = [(root, end) for end, (_, roots, _) in ENDS.items() for root in roots]


@pytest.fixture
def estate(gatepost: Service, account_name: str) -> Iterator[Estate]:
    with ExitStack() as stack:
        yield Estate(gatepost, account_name, stack)


@pytest.fixture
def sqlite_estate(sqlite_gatepost: Service, account_name: str) -> Iterator[Estate]:
    with ExitStack() as stack:
        yield Estate(sqlite_gatepost, account_name, stack)


@pytest.fixture
def altered_estate(altered_gatepost: Service, account_name: str) -> Iterator[Estate]:
    with ExitStack() as stack:
        yield Estate(altered_gatepost, account_name, stack)


def state(estate: Estate, token: str) -> str:
    return str(estate.gatepost.cli_json("token", "show", "--id", decode_jwt(token)[1]["jti"])[0]["state"])


def check_ended(estate: Estate, token: str) -> None:
    """Wherever a token is judged."""
    for by in (estate.second, estate.posing):
        answer = estate.post("introspect", by, token=token)
        assert answer.status_code == 401 or answer.json() == {"active": False}
        again = estate.exchange(token, "store:read", by=by)
        assert again.status_code in (400, 401), again.text
    shown = {"Authorization": f"Bearer {token}"}
    assert estate.gatepost.session.get(f"{estate.url}/oauth/userinfo", headers=shown).status_code == 401


@pytest.mark.parametrize(("root", "end"), PAIRS)
def test_an_exchanged_token_ends_with_what_it_depends_on(estate: Estate, root: str, end: str) -> None:
    ending, _, result = ENDS[end]
    found = ROOTS[root](estate, 2)
    assert estate.introspect(found.token, estate.second)["active"]
    ending(estate, root, found)
    assert state(estate, found.token) == result
    check_ended(estate, found.token)


@pytest.mark.parametrize("end", ["the issuer entry", "the issuer entry, with another of its name added"])
def test_a_workloads_token_ends_with_its_issuer_entry(estate: Estate, end: str) -> None:
    found = ROOTS["an assertion"](estate, 0)
    assert estate.introspect(found.token, estate.service)["active"]
    ENDS[end][0](estate, "an assertion", found)
    assert estate.introspect(found.token, estate.service) == {"active": False}
    check_refusal(estate.exchange(found.token), TOKENS, "invalid_request", "subject_token")
    if "another" in end:
        assert estate.introspect(estate.by_assertion(), estate.service)["active"], "one of the new entry works"


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("end", ["the first subject token", "the first subject token's client"])
def test_the_longest_chain_ends_with_its_first_token(sqlite_estate: Estate, root: str, end: str) -> None:
    found = ROOTS[root](sqlite_estate, LONGEST_CHAIN)
    assert len(found.chain) == LONGEST_CHAIN
    longer = sqlite_estate.exchange(found.token, by=sqlite_estate.posing)
    check_refusal(longer, TOKENS, "invalid_request", "subject_token", f"at most {LONGEST_CHAIN}")
    assert sqlite_estate.introspect(found.token, sqlite_estate.second)["active"]
    ENDS[end][0](sqlite_estate, root, found)
    for token in (found.token, *found.chain[:-1]):
        assert sqlite_estate.introspect(token, sqlite_estate.second) == {"active": False}


def test_tokens_are_active_again_when_a_client_is_enabled(estate: Estate) -> None:
    """As it does for the tokens of its own, but not for one that was given back meanwhile."""
    found, other = ROOTS["client credentials"](estate, 2), ROOTS["client credentials"](estate, 2)
    set_status(estate, estate.machine, "disabled")
    check_ended(estate, found.token)
    assert estate.post("revoke", estate.posing, token=other.token).status_code == 200
    set_status(estate, estate.machine, "active")
    assert estate.introspect(found.token, estate.second)["active"]
    assert estate.introspect(other.token, estate.second) == {"active": False}


def test_the_operator_revokes_tokens_that_a_disabled_client_blocks(sqlite_estate: Estate) -> None:
    found = ROOTS["client credentials"](sqlite_estate, 2)
    set_status(sqlite_estate, sqlite_estate.machine, "disabled")
    token = decode_jwt(found.token)[1]["jti"]
    assert sqlite_estate.gatepost.cli_json("token", "revoke", "--id", token)["tokens"] == 1
    set_status(sqlite_estate, sqlite_estate.machine, "active")
    assert sqlite_estate.introspect(found.token, sqlite_estate.second) == {"active": False}


def test_the_record_and_the_command_show_the_chain(sqlite_estate: Estate) -> None:
    found = ROOTS["an assertion"](sqlite_estate, 2)
    tokens = [decode_jwt(each)[1]["jti"] for each in found.chain]
    clients = [sqlite_estate.service.id, sqlite_estate.workload.id]
    data = sqlite_estate.entries("oauth.token.issued")[0]["data"]
    assert [(each["token"], each["client"]) for each in data["chain"]] == list(zip(tokens, clients, strict=True))
    assert (data["subject_token"], data["issuer"]) == (tokens[0], "ci")
    cli = sqlite_estate.gatepost.cli_json
    cli("token", "revoke", "--id", tokens[1])
    [shown] = cli("token", "show", "--id", decode_jwt(found.token)[1]["jti"])
    assert [(each["token"], each["client_id"], each["state"]) for each in shown["chain"]] == [
        (tokens[0], clients[0], "not ended"), (tokens[1], clients[1], "revoked"),
    ]  # fmt: skip
    mentioned = cli(
        "audit", "list", "--account", sqlite_estate.name, "--token", tokens[1], "--type", "oauth.token.issued"
    )
    assert len(mentioned) == 3, "the token itself, and both that came of it"


def test_the_reach_report_shows_what_ended_a_token(sqlite_estate: Estate) -> None:
    """`audit reach`, for a token whose subject token was revoked."""
    found = ROOTS["client credentials"](sqlite_estate, 1)
    revoke_root(sqlite_estate, "client credentials", found)
    result = sqlite_estate.gatepost.cli_json(
        "audit",
        "reach",
        "--account",
        sqlite_estate.name,
        "--audience",
        sqlite_estate.store,
        "--at",
        clock.rfc3339(clock.now()),
    )
    assert [each["ended"] for each in result] == ["revoked_by_client"]


# --- what a previous release recorded: the nearest subject token alone, and the name of an issuer


def as_recorded_before(estate: Estate, tokens: list[str]) -> None:
    """Take what is new from the entries of these tokens."""

    def rewrite(tx: Tx) -> None:
        for token in tokens:
            raw = ids.raw(decode_jwt(token)[1]["jti"])
            entry = entry_rows.load(tx, estate.account, raw)
            assert entry is not None
            data = msgspec.json.decode(entry.data or "{}")
            new = ("chain", "issuer_entry", *(["issuer"] if "subject_token" in data else []))
            kept = {name: value for name, value in data.items() if name not in new}
            entry_rows.delete(tx, estate.account, [raw])
            append_entry(tx, entry._replace(data=msgspec.json.encode(kept).decode()))

    estate.gatepost.opened.store.run_now(rewrite)


OLD = ["the first subject token", "the first subject token's client", "the issuer entry", "the consent"]


@pytest.mark.parametrize("end", [*OLD, "the issuer entry, with another of its name added"])
def test_a_chain_of_a_previous_release(altered_estate: Estate, end: str) -> None:
    ending, roots, result = ENDS[end]
    found = ROOTS[roots[-1]](altered_estate, 3)
    as_recorded_before(altered_estate, [found.token, *found.chain])
    longer = altered_estate.exchanged(found.token, "store:read", altered_estate.posing)
    for token in (found.token, longer):
        assert altered_estate.introspect(token, altered_estate.second)["active"]
    ending(altered_estate, roots[-1], found)
    for token in (found.token, longer):
        assert altered_estate.introspect(token, altered_estate.second) == {"active": False}
        assert state(altered_estate, token) == result


def test_the_grant_type_is_token_exchange(sqlite_estate: Estate) -> None:
    """A client that exchanges a token of its own by impersonation leaves no trace of that in the claims."""
    grants = [
        {"grant_type": "client_credentials", "scopes": ["things:read"]},
        {"grant_type": TOKEN_EXCHANGE, "scopes": ["things:read"], "exchange": "impersonation"},
    ]
    own = sqlite_estate.define(grants=grants, redirect_uris=None, grant_types=None, scope="things:read")
    first = sqlite_estate.gatepost.token(own, "things:read")
    second = sqlite_estate.exchanged(first, "things:read", own)
    assert {"act", "auth_time"}.isdisjoint(decode_jwt(second)[1])
    assert sqlite_estate.post("revoke", own, token=first).status_code == 200
    assert sqlite_estate.introspect(second, own) == {"active": False}
