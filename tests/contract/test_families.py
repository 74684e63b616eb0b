"""Families through all that can happen to them, in any order: one live token at most, and none of what has ended."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.core.secrets import ServerKeys, digest
from gatepost.ledger import entry_rows
from gatepost.ledger.entries import Origin
from gatepost.oauth import (
    client_rows,
    consent_rows,
    expiry,
    family_rows,
    introspection,
    key_rows,
    refresh_tokens,
    revocation,
    scope_rows,
    signing_keys,
    token_endpoint,
)
from gatepost.oauth.authorize import codes
from gatepost.oauth.authorize.codes import Code, CodeBinding, code_id
from gatepost.oauth.client_authentication import AuthenticatedClient, ClientCredentials, RefusedRequest
from gatepost.oauth.client_grants import Grant
from gatepost.oauth.clients import Client, StoredSecret
from gatepost.oauth.consents import Consent, ConsentDetails
from gatepost.oauth.dpop import Proof
from gatepost.oauth.quotas import QuotaMeter, QuotaUse
from gatepost.oauth.scopes import Scope
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import KeyRing
from gatepost.oauth.token_endpoint import Issued
from gatepost.oauth.token_rules import TokenRequest
from gatepost.store.interface import Store
from gatepost.store.transaction import HIGHEST, LOWEST, Tx, Unit
from tests.contract.backends import FakeClock, Postgres, Sqlite, closing_stores
from tests.contract.parallel import LONG
from tests.login import VERIFIER, challenge

KEYS = ServerKeys({"hash": b"h" * 32, "seal": b"s" * 32, "data": b"d" * 32})
SERVICE = Service("https://gatepost.example", KEYS, KeyRing(KEYS.data))
API, CALLBACK = "https://api.example", "https://app.example/callback"
SCOPE = ["offline_access", "things:read"]
IDLE, LONGEST = timedelta(hours=1), timedelta(hours=3)
THUMBPRINTS = st.sampled_from(["", "", "", "a" * 43, "b" * 43])
GRACES = [0, 10, 60]
# How long ago a token was the live one: most often not at all.
AGES = st.sampled_from([0, 0, 0, 0, 1, 1, 1, 2, 3])
WHICH = st.integers(0, 100)
HERE = Origin("test")
_names = itertools.count()


class Line:
    """A family as it should be: its tokens by number, and the access tokens that came of them."""

    def __init__(self, consent: str, at: datetime) -> None:
        self.consent = consent
        self.id = ""
        self.tokens: list[str] = []
        self.access: list[tuple[str, int]] = []
        self.ends_at = at + LONGEST
        self.over = False
        self.issued = self.reused = 0

    def given(self, issued: Issued) -> str:
        """What an answer brought; its refresh token."""
        signed = SERVICE.ring.sign(issued.token.key, msgspec.json.encode(issued.token.claims), "at+jwt").decode()
        self.access.append((signed, issued.token.expires_at))
        self.issued += 1
        return issued.members["refresh_token"]

    def moved_to(self, token: str, thumbprint: str, at: datetime) -> None:
        self.tokens.append(token)
        self.thumbprint, self.rotated_at, self.idle_ends_at = thumbprint, at, min(self.ends_at, at + IDLE)

    def is_live(self, at: datetime) -> bool:
        return not self.over and at < min(self.idle_ends_at, self.ends_at)

    def meaning(self, age: int, thumbprint: str, grace: int, at: datetime) -> str:
        if not self.is_live(at):
            return "ended"
        if age == 0:
            return "rotates"
        lately = at < self.rotated_at + timedelta(seconds=grace) and thumbprint == self.thumbprint
        return "repeats" if age == 1 and lately else "reused"


class Anything(RuleBasedStateMachine):
    """One client of one account, its people, an operator, and two processes on one database."""

    def __init__(self, stores: Sequence[Store], watch: FakeClock) -> None:
        super().__init__()
        self.stores, self.watch = stores, watch
        self.turn = itertools.cycle(stores)
        self.lines: list[Line] = []

    @initialize(grace=st.sampled_from(GRACES), thumbprint=THUMBPRINTS)
    def begin(self, grace: int, thumbprint: str) -> None:
        at, self.grace = self.watch(), grace
        changes = {"refresh_token_lifetime": "1h", "refresh_token_max_age": "3h", "refresh_grace": f"{grace}s"}
        self.account = accounts.change(accounts.new(f"families-{next(_names)}", at), changes, dev=False)
        grants = [Grant(ids.new("grt"), kind, SCOPE) for kind in ("authorization_code", "refresh_token")]
        secret = StoredSecret(ids.new("sec"), digest(KEYS.hash, "a secret"), at)
        self.client = Client(ids.new("cli"), self.account.id, at, at, [secret], grants, redirect_uris=[CALLBACK])

        def unit(tx: Tx) -> None:
            account_rows.add(tx, self.account)
            scope_rows.add(tx, Scope(self.account.id, "things:read", API, at, at))
            client_rows.add(tx, self.client)

        self.run(unit)
        self.allow(thumbprint)

    def run(self, unit: Unit[Any]) -> Any:
        """By each process in turn."""
        return next(self.turn).run_now(unit)

    def known(self) -> AuthenticatedClient:
        return AuthenticatedClient(self.client, self.account, "")

    # --- requests

    def request(self, grant_type: str, thumbprint: str, **sent: str) -> Unit[Any]:
        proof = Proof(thumbprint, ids.new("jti")) if thumbprint else None
        return self.answering(TokenRequest(grant_type, (), parameters=tuple(sent.items()), proof=proof))

    def answering(self, asked: TokenRequest) -> Unit[Any]:
        use = QuotaUse(QuotaMeter())
        return lambda tx: token_endpoint.answer(tx, SERVICE, self.presented, asked, "req_1", "192.0.2.1", use)

    @property
    def presented(self) -> ClientCredentials:
        return ClientCredentials(self.client.id, "client_secret_basic", digest(KEYS.hash, "a secret"))

    def at_once(self, shown: Sequence[str], *others: Unit[Any]) -> list[Any]:
        """The requests as the token endpoint runs them, and other units, all given to both processes together."""

        async def all_of_them() -> list[Any]:
            async with asyncio.timeout(LONG):
                running = []
                for token in shown:
                    asked = TokenRequest("refresh_token", (), parameters=(("refresh_token", token),))
                    hints = token_endpoint.hints(SERVICE, self.presented, asked, self.account.id)
                    running.append(next(self.turn).run(self.answering(asked), hints))
                running += [next(self.turn).run(unit) for unit in others]
                return await asyncio.gather(*running)

        return asyncio.run(all_of_them())

    # --- people and clients

    @precondition(lambda self: sum(line.is_live(self.watch()) for line in self.lines) < 3)
    @rule(thumbprint=THUMBPRINTS)
    def allow(self, thumbprint: str) -> None:
        """A person allows it, and the code is redeemed."""
        at, code = self.watch(), ids.new("code")
        given = Consent(
            ids.new("con"), self.account.id, self.client.id, ConsentDetails("ada", SCOPE), at, at + timedelta(days=2)
        )
        bound = msgspec.json.encode(CodeBinding(CALLBACK, challenge())).decode()

        def unit(tx: Tx) -> None:
            consent_rows.add(tx, given, b"p" * 32, KEYS.data)
            codes.add(tx, self.account.id, code_id(code), Code(self.client.id, given.id, bound, at + IDLE))

        self.run(unit)
        sent = {"code": code, "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
        issued = self.run(self.request("authorization_code", thumbprint, **sent))
        assert isinstance(issued, Issued), issued
        line = Line(given.id, at)
        line.moved_to(line.given(issued), thumbprint, at)
        shown = refresh_tokens.read(KEYS.refresh, line.tokens[0])
        assert shown is not None
        line.id = shown.family
        self.lines.append(line)

    def picked(self, which: int, age: int) -> tuple[Line, int, str]:
        """A family, and one of its tokens: how long ago it was live, and the token."""
        line = self.lines[-1 - which % min(4, len(self.lines))]
        age = min(age, len(line.tokens) - 1)
        return line, age, line.tokens[-1 - age]

    @rule(which=WHICH, age=AGES, thumbprint=THUMBPRINTS)
    def refresh(self, which: int, age: int, thumbprint: str) -> None:
        line, age, token = self.picked(which, age)
        meaning = line.meaning(age, thumbprint, self.grace, self.watch())
        answer = self.run(self.request("refresh_token", thumbprint, refresh_token=token))
        self.check(line, meaning, thumbprint, [answer])

    @rule(which=WHICH, thumbprint=THUMBPRINTS, then=st.one_of(st.none(), THUMBPRINTS))
    def lose_the_answer_and_ask_again(self, which: int, thumbprint: str, then: str | None) -> None:
        """With the same key, or with another."""
        line, _, token = self.picked(which, 0)
        for age, shown in enumerate((thumbprint, thumbprint if then is None else then)):
            meaning = line.meaning(age, shown, self.grace, self.watch())
            answer = self.run(self.request("refresh_token", shown, refresh_token=token))
            self.check(line, meaning, shown, [answer])

    @rule(which=WHICH, age=AGES, count=st.integers(2, 6))
    def refresh_at_once(self, which: int, age: int, count: int) -> None:
        """The same token several times, with nothing to tell who is first."""
        line, age, token = self.picked(which, age)
        meaning = line.meaning(age, "", self.grace, self.watch())
        if meaning == "rotates" and not self.grace:
            return
        self.check(line, meaning, "", self.at_once([token] * count))

    def check(self, line: Line, meaning: str, thumbprint: str, answers: list[Any]) -> None:
        """That the answers are right, all the same ones; and what that makes of the family."""
        if meaning in ("ended", "reused"):
            for each in answers:
                assert isinstance(each, RefusedRequest), each
                assert each.refusal.code == "invalid_grant"
            line.reused += meaning == "reused"
            line.over |= meaning == "reused"
            return
        assert all(isinstance(each, Issued) for each in answers), answers
        [token] = {line.given(each) for each in answers}
        if meaning == "rotates":
            assert token not in line.tokens
            line.moved_to(token, thumbprint, self.watch())
        else:
            assert token == line.tokens[-1]

    @rule(
        which=WHICH, ages=st.lists(AGES, min_size=1, max_size=5), ending=st.sampled_from(["", "", "revoke", "consent"])
    )
    def everything_at_once(self, which: int, ages: list[int], ending: str) -> None:
        """Any tokens of one family together, and perhaps its end: in which order is not for us to say."""
        line = self.picked(which, 0)[0]
        shown = [self.picked(which, age)[2] for age in ages]
        was_live, live = line.is_live(self.watch()), line.tokens[-1]
        ways: dict[str, list[Unit[Any]]] = {"revoke": [self.revoking(live)], "consent": [self.ending(line)]}
        ends = ways.get(ending, [])
        answers = [each for each in self.at_once(shown, *ends) if isinstance(each, (Issued, RefusedRequest))]
        given = {line.given(each) for each in answers if isinstance(each, Issued)}
        assert was_live or not given
        fresh = given - set(line.tokens)
        assert len(fresh) <= 1, "two successors of one token"
        assert given - fresh <= {live}
        row = self.row(line)
        if row is None:
            assert not was_live
            return
        line.over = row.ended_at is not None
        line.reused += row.ended_reason == "reused" and was_live
        assert line.over or not ending or not was_live
        for token in fresh:
            line.moved_to(token, "", self.watch())

    def row(self, line: Line) -> refresh_tokens.Family | None:
        return next(self.turn).read_now(lambda tx: family_rows.load(tx, self.account.id, line.id))

    @rule(which=WHICH, age=AGES, thumbprint=THUMBPRINTS)
    def die_before_the_commit(self, which: int, age: int, thumbprint: str) -> None:
        """Whatever it would have come to, nothing happened."""
        request = self.request("refresh_token", thumbprint, refresh_token=self.picked(which, age)[2])

        def unit(tx: Tx) -> None:
            request(tx)
            raise ArithmeticError("died")

        with pytest.raises(ArithmeticError):
            self.run(unit)

    def revoking(self, token: str) -> Unit[None]:
        return lambda tx: revocation.by_client(tx, SERVICE, self.known(), token, HERE)

    def ending(self, line: Line) -> Callable[[Tx], bool]:
        return lambda tx: revocation.end_consent(tx, self.account, line.consent, "why", HERE)

    @rule(which=WHICH, age=AGES, what=st.sampled_from(["refresh token", "access token", "consent"]))
    def end(self, which: int, age: int, what: str) -> None:
        """An access token takes the family with it, unless it was over by itself."""
        line, _, token = self.picked(which, age)
        if what == "consent":
            self.run(self.ending(line))
        elif what == "refresh token":
            self.run(self.revoking(token))
        else:
            token, expires_at = line.access[which % len(line.access)]
            self.run(self.revoking(token))
            line.over |= clock.seconds(self.watch()) < expires_at
            return
        line.over = True

    # --- the operator, and time

    @rule(grace=st.sampled_from(GRACES))
    def change_the_grace(self, grace: int) -> None:
        self.account, self.grace = accounts.change(self.account, {"refresh_grace": f"{grace}s"}, dev=False), grace
        self.run(lambda tx: account_rows.update(tx, self.account))

    @rule(seconds=st.sampled_from([1, 5, 9, 10, 11, 61]))
    def pass_time(self, seconds: int) -> None:
        self.watch.forward(timedelta(seconds=seconds))

    @rule(minutes=st.sampled_from([30, 50, 60, 170]))
    def pass_much_time(self, minutes: int) -> None:
        self.watch.forward(timedelta(minutes=minutes))

    @rule()
    def forget(self) -> None:
        self.run(expiry.delete_expired)

    # --- what is always true

    def active(self, store: Store, shown: Sequence[str]) -> list[bool]:
        def unit(tx: Tx) -> list[bool]:
            return [introspection.introspect(tx, SERVICE, self.known(), each)["active"] for each in shown]

        return store.read_now(unit)

    @invariant()
    def at_most_the_last_token_is_active(self) -> None:
        for line, store in itertools.product(self.lines[-4:], self.stores):
            right = [False] * (len(line.tokens) - 1) + [line.is_live(self.watch())]
            assert self.active(store, line.tokens) == right

    @invariant()
    def access_tokens_end_with_their_family_or_in_their_time(self) -> None:
        now = clock.seconds(self.watch())
        for line, store in itertools.product(self.lines[-4:], self.stores):
            right = [not line.over and now < expires_at for _, expires_at in line.access[-6:]]
            assert self.active(store, [token for token, _ in line.access[-6:]]) == right

    @invariant()
    def the_row_is_of_the_last_token(self) -> None:
        for line in self.lines:
            row = self.row(line)
            if row is None:
                assert not line.is_live(self.watch())
                continue
            shown = refresh_tokens.read(KEYS.refresh, line.tokens[-1])
            assert shown is not None
            assert (row.number, row.leaf) == (len(line.tokens) - 1, refresh_tokens.leaf(shown))
            assert (row.ended_at is not None) == line.over

    def teardown(self) -> None:
        """Every answer is on record, and every reuse once."""
        if not hasattr(self, "account"):
            return
        found = self.stores[0].read_now(lambda tx: entry_rows.oldest(tx, self.account.id, LOWEST, HIGHEST, 100_000))
        reported = [(each.type, each.subject, msgspec.json.decode(each.data or "{}")) for each in found]
        for line in self.lines:
            issued = [subject for kind, subject, data in reported if data.get("family") == line.id]
            assert len(issued) == len(set(issued)) == line.issued
            ends = [kind for kind, subject, _ in reported if subject == line.id]
            assert ends.count("oauth.token.reused") == line.reused <= 1
            assert ends.count("oauth.token.revoked") <= 1


def explored(stores: Sequence[Store], watch: FakeClock, *, examples: int, steps: int) -> None:
    watch.at = clock.from_milliseconds(clock.milliseconds(watch()))  # no finer than what is stored
    made = signing_keys.generate("ES256", watch())
    active = msgspec.structs.replace(made.key, status="active")
    stores[0].migrate()
    stores[0].run_now(lambda tx: key_rows.add(tx, active, KEYS.data.encrypt(made.private, active.id)))

    class OnThese(Anything):
        def __init__(self) -> None:
            super().__init__(stores, watch)

    how = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    run_state_machine_as_test(OnThese, settings=how)


def test_anything_on_sqlite(tmp_path: Path) -> None:
    watch = FakeClock()
    with closing_stores(Sqlite(tmp_path / "gatepost.db", watch)) as backend:
        explored([backend.open(), backend.open()], watch, examples=25, steps=30)


def test_anything_on_postgres(postgres_url: str) -> None:
    watch = FakeClock()
    with closing_stores(Postgres(postgres_url, watch)) as backend:
        explored([backend.open(), backend.open()], watch, examples=6, steps=30)
