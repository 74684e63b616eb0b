"""The lives of signing keys under any sequence of time passing, plans, rotations and revocations."""

from datetime import UTC, datetime, timedelta
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gatepost.oauth import signing_keys
from gatepost.oauth.signing_keys import (
    ALGORITHMS,
    ANNOUNCE,
    JWKS_MAX_AGE,
    LONGEST_TOKEN,
    PUBLISHED,
    ROTATE,
    SigningKey,
)
from tests.unit.signing_keys import Kept, generate

START = datetime(2026, 11, 15, 8, tzinfo=UTC)
GOES_TO = {  # the table at the top of gatepost/oauth/signing_keys.py, with revocation
    "announced": {"active", "revoked"},
    "active": {"retired", "revoked"},
    "retired": {"purged", "revoked"},
    "revoked": set(),
    "purged": set(),
}
EVENTS = {"announced": "oauth.key.announced", "active": "oauth.key.activated", "retired": "oauth.key.retired",
          "revoked": "oauth.key.revoked", "purged": None}  # fmt: skip
PASSING = st.one_of(
    st.timedeltas(timedelta(0), timedelta(hours=30)),
    st.sampled_from([ANNOUNCE, ROTATE, LONGEST_TOKEN + JWKS_MAX_AGE, ROTATE - timedelta(milliseconds=1)]),
    st.timedeltas(timedelta(0), timedelta(days=200)),
)


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = mock.patch.object(signing_keys, "generate", generate)
        self.patch.start()
        self.at = START
        self.kept = Kept()

    def teardown(self) -> None:
        self.patch.stop()

    @initialize()
    def first_start(self) -> None:
        self.follow(signing_keys.plan([], self.at), forced=frozenset(ALGORITHMS))

    @rule(passing=PASSING)
    def time_passes(self, passing: timedelta) -> None:
        self.at += passing

    @rule()
    def plan(self) -> None:
        self.follow(signing_keys.plan(self.kept.listed(), self.at), forced=frozenset())
        assert signing_keys.plan(self.kept.listed(), self.at) == [], "what was due was done"

    @rule(algs=st.frozensets(st.sampled_from(list(ALGORITHMS))))
    def rotate_now(self, algs: frozenset[str]) -> None:
        before = {alg: self.kept.one(alg, "announced").id for alg in algs}
        self.follow(signing_keys.plan(self.kept.listed(), self.at, rotate=algs), forced=algs)
        assert {alg: self.kept.one(alg, "active").id for alg in algs} == before

    @precondition(lambda self: self.kept.keys)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        published = [key for key in self.kept.listed() if key.status in PUBLISHED]
        key = data.draw(st.sampled_from(published))
        self.follow(signing_keys.revoke(self.kept.listed(), [key], self.at), forced=frozenset({key.alg}))
        assert self.kept.keys[key.id].status == "revoked"

    def follow(self, changes: list[signing_keys.KeyChange], forced: frozenset[str]) -> None:
        """Apply one change after the other, each of which must be a step that is allowed."""
        for change in changes:
            before = self.kept.keys.get(change.key.id)
            assert change.event == EVENTS[change.key.status]
            if before is None:
                assert change.key.status == "announced"
            else:
                self.check_step(before, change.key, forced)
            self.kept.apply([change])

    def check_step(self, before: SigningKey, after: SigningKey, forced: frozenset[str]) -> None:
        assert after.status in GOES_TO[before.status]
        if after.status == "active":
            waited = self.at - after.announced_at
            assert waited >= ANNOUNCE or after.alg in forced, f"{after.alg} signs {waited} after it was announced"
        if after.status == "retired" and after.alg not in forced:
            assert before.activated_at is not None
            assert self.at - before.activated_at >= ROTATE
        if after.status == "purged":
            assert before.retired_at is not None
            assert self.at - before.retired_at >= LONGEST_TOKEN + JWKS_MAX_AGE, "a token it signed may be alive"

    @invariant()
    def one_active_and_one_announced(self) -> None:
        for alg in ALGORITHMS if self.kept.keys else ():
            assert len(self.kept.of(alg, "active")) == 1
            assert len(self.kept.of(alg, "announced")) == 1

    @invariant()
    def private_parts_are_of_keys_that_sign_or_will(self) -> None:
        for key in self.kept.listed():
            assert (self.kept.private[key.id] is not None) == (key.status in ("announced", "active"))

    @invariant()
    def the_key_set_is_what_verifiers_need(self) -> None:
        published = {key["kid"] for key in signing_keys.jwks(self.kept.listed())["keys"]}
        assert published == {key.id for key in self.kept.listed() if key.status not in ("revoked", "purged")}


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=40, stateful_step_count=30)
