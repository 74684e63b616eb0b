"""Deliveries through all that can happen to them, in any order: none is lost, hidden, doubled or without an end."""

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.oauth import account_admin
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import Tx
from gatepost.webhooks import decide, define_subscription, endpoint_rows, subscription_rows
from gatepost.webhooks.claim import Claim
from gatepost.webhooks.deliveries import ENDS
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.fanout import create_deliveries
from gatepost.webhooks.subscriptions import Subscription
from tests import endpoint_counts
from tests.contract.backends import FakeClock
from tests.contract.posting import OTHER_WORKER, SCHEDULE, WORKER, Post, ids_by

TYPES = st.sampled_from(["invoice.paid", "order.paid"])
PLANS = st.sampled_from(["pro", "free"])
# events and filter of a subscription → which of our events it is for
WANTED: list[tuple[list[str], dict[str, Any], Callable[[str, str], bool]]] = [
    (["*"], {}, lambda _type, _plan: True),
    (["invoice.*"], {}, lambda type_, _plan: type_ == "invoice.paid"),
    (["order.paid", "webhook.*"], {"/plan": "pro"}, lambda type_, plan: (type_, plan) == ("order.paid", "pro")),
    (["webhook.*"], {}, lambda _type, _plan: False),
    (["webhook.delivery.failed", "invoice.paid"], {}, lambda type_, _plan: type_ == "invoice.paid"),
]
WORKERS = st.sampled_from([WORKER, OTHER_WORKER])
OUTCOMES: list[dict[str, Any] | None] = [
    {"code": 200}, {"code": 200}, {"code": 503}, {"code": 500}, {"code": 429, "retry_after": "7200"}, {"code": 410},
    {"code": None, "failure": "timeout"}, {"code": 200, "failure": "body"}, None,
]  # fmt: skip
INDEX = st.integers(0, 10_000)


class Anything(RuleBasedStateMachine):
    """Two workers, a publisher, people who define and operators, on one SQLite file."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="gatepost-")
        self.watch = FakeClock()
        self.undo = ids_by(self.watch)
        self.store = SqliteStore(Path(self.directory.name) / "gatepost.db", self.watch, create_deliveries)
        self.store.migrate()
        self.post = Post(self.store, self.watch)
        self.endpoints: list[Endpoint] = []
        self.subscriptions: list[tuple[Subscription, Callable[[str, str], bool]]] = []
        self.claims: list[Claim] = []
        self.expected: dict[bytes, int] = {}  # of each event, how many deliveries
        self.ended: dict[bytes, tuple[Any, ...]] = {}

    @initialize(wanted=st.lists(st.sampled_from(WANTED), min_size=2, max_size=3))
    def begin(self, wanted: list[tuple[list[str], dict[str, Any], Callable[[str, str], bool]]]) -> None:
        for each in wanted:
            self.define(each)

    # --- people

    @precondition(lambda self: len(self.subscriptions) < 6)
    @rule(wanted=st.sampled_from(WANTED))
    def define(self, wanted: tuple[list[str], dict[str, Any], Callable[[str, str], bool]]) -> None:
        events, filter_, fits = wanted
        endpoint = self.post.endpoint(max_in_flight=2)
        self.endpoints.append(endpoint)
        self.subscriptions.append((self.post.subscription(endpoint, *events, filter=filter_), fits))

    @rule(which=INDEX, status=st.sampled_from(["active"] * 5 + ["disabled"] * 3 + ["removed"]))
    def redefine(self, which: int, status: str) -> None:
        endpoint = self.post.stored(self.endpoints[which % len(self.endpoints)])
        if endpoint.status != "removed":
            self.post.redefine(endpoint, status=status)

    @rule(which=INDEX, status=st.sampled_from(["active", "disabled"]))
    def redefine_subscription(self, which: int, status: str) -> None:
        subscription, _ = self.subscriptions[which % len(self.subscriptions)]
        self.post.define(define_subscription.define, {"id": subscription.id, "status": status})

    @rule(type_=TYPES, plan=PLANS, count=st.integers(1, 4))
    def publish(self, type_: str, plan: str, count: int) -> None:
        for _ in range(count):
            fits = sum(fits(type_, plan) for each, fits in self.subscriptions if self.matches(each))
            made = self.post.publish(type_, {"plan": plan})
            assert made.entry.matched == len(made.deliveries) == fits
            self.expected[made.entry.id] = fits

    def matches(self, subscription: Subscription) -> bool:
        def unit(tx: Tx) -> bool:
            stored = subscription_rows.load(tx, self.post.id, subscription.id)
            endpoint = endpoint_rows.load_uncached(tx, self.post.id, subscription.endpoint)
            return bool(stored and endpoint and stored.status == "active" and endpoint.status != "removed")

        return self.store.read_now(unit)

    @rule(which=INDEX, asked=st.sampled_from([{"only": "failed"}, {"from": "2026-01-01T00:00:00Z"}]))
    def replay(self, which: int, asked: dict[str, str]) -> None:
        subscription, _ = self.subscriptions[which % len(self.subscriptions)]
        if self.post.stored(subscription.endpoint).status != "removed":
            self.post.define(define_subscription.define, {"id": subscription.id, "replay": asked})

    @rule(suspended=st.sampled_from([False, False, False, True]))
    def suspend(self, suspended: bool) -> None:
        name = self.post.name
        self.store.run_now(
            lambda tx: account_admin.suspend(tx, name, "") if suspended else account_admin.resume(tx, name)
        )

    @rule(what=st.sampled_from(["cancel", "retry"]), which=INDEX)
    def operate(self, what: str, which: int) -> None:
        found = self.select("SELECT id, status FROM deliveries ORDER BY id")
        if found:
            raw, status = found[which % len(found)]
            try:
                getattr(self.post, what)(ids.text("dlv", raw))
            except BadSetting:
                assert status != "pending" or self.select("SELECT worker FROM queue WHERE id = :id", id=raw)[0][0]

    @rule(seconds=st.sampled_from([1, 46, 70, 4000, 130_000, 8 * 86_400]))
    def pass_time(self, seconds: int) -> None:
        self.watch.forward(timedelta(seconds=seconds))

    # --- workers

    @rule(worker=WORKERS, limit=st.integers(1, 5))
    def claim(self, worker: bytes, limit: int) -> None:
        self.claims += self.post.claim(limit, worker)

    @precondition(lambda self: self.claims)
    @rule(those=st.lists(st.tuples(INDEX, st.sampled_from(OUTCOMES)), min_size=1, max_size=5))
    def settle(self, those: list[tuple[int, dict[str, Any] | None]]) -> None:
        """Settle mostly new claims, but also any that were settled, lost or overtaken long ago."""
        results = []
        for which, outcome in those:
            claim = self.claims[-1 - which % min(len(self.claims), 8)]
            results.append(self.post.result(claim, **outcome) if outcome else self.post.not_sent(claim))
        found = self.post.settle(*results)
        for each in results:
            if each not in found.overtaken:
                outcomes = self.post.outcomes(ids.text("dlv", each.claim.key[1]))
                right = (
                    "not_sent"
                    if not each.sent
                    else "succeeded"
                    if decide.succeeded(each.code, each.failure)
                    else "failed"
                )
                assert outcomes[each.claim.number - 1] == right

    @rule(outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=3), seconds=st.sampled_from([0, 4000]))
    def work(self, outcomes: list[dict[str, Any] | None], seconds: int) -> None:
        """As on most days: what is claimed is settled, and time passes."""
        claims = self.post.claim()
        self.claims += claims
        ends = zip(claims, itertools.cycle(outcomes), strict=False)
        self.post.settle(*[self.post.result(each, **end) if end else self.post.not_sent(each) for each, end in ends])
        self.pass_time(seconds)

    @rule(worker=WORKERS)
    def rescue(self, worker: bytes) -> None:
        while self.post.rescue(worker):
            pass

    @rule()
    def sweep(self) -> None:
        for each in self.endpoints:
            while self.post.sweep(each):
                pass

    @rule()
    def run_replays(self) -> None:
        self.post.replay()

    # --- what is always true

    def select(self, text: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self.store.read_now(lambda tx: tx.select(text, parameters))

    @invariant()
    def each_is_ended_or_in_the_queue(self) -> None:
        records = self.select("SELECT id, status, ended_reason, ended_at FROM deliveries")
        queued = {raw for (raw,) in self.select("SELECT id FROM queue")}
        assert {raw for raw, status, _, _ in records if status == "pending"} == queued
        ended = {raw: tuple(rest) for raw, *rest in records if raw not in queued}
        for status, reason, at in ended.values():
            assert ENDS[reason][0] == status
            assert at is not None
        assert self.ended.items() <= ended.items(), "what ended stays as it is"
        self.ended = ended

    @invariant()
    def each_event_went_to_whom_it_matched(self) -> None:
        made = Counter(event for (event,) in self.select("SELECT event FROM deliveries WHERE origin = 'event'"))
        output = dict(self.select("SELECT id, matched FROM entries"))
        assert {event: count for event, count in output.items() if count} == made
        assert self.expected.items() <= output.items()

    @invariant()
    def attempts_have_no_gaps(self) -> None:
        attempts: dict[bytes, dict[int, str]] = {}
        for raw, number, outcome in self.select("SELECT delivery, number, outcome FROM attempts"):
            attempts.setdefault(raw, {})[number] = outcome
        rows = self.select("SELECT id, number, used, interrupted, worker FROM queue")
        open_ = {(raw, number) for raw, number, _, _, worker in rows if worker}
        for raw, number, used, interrupted, worker in rows:
            assert sorted(attempts.get(raw, {})) == list(range(1, number + (worker is None)))
            assert (used <= len(SCHEDULE), interrupted < 3) == (True, True)
        for raw, status in self.select("SELECT id, status FROM deliveries"):
            found = attempts.get(raw, {})
            assert sorted(found) == list(range(1, len(found) + 1))
            assert list(found.values()).count("succeeded") == (status == "succeeded")
        for claim in self.claims:
            fence = (claim.queued.id, claim.number)
            assert fence in open_ or claim.number in attempts[claim.queued.id], "an attempt that is on no record"

    @invariant()
    def each_failure_is_in_the_ledger_once(self) -> None:
        result = self.select("SELECT subject FROM entries WHERE type = 'webhook.delivery.failed' ORDER BY subject")
        failed = self.select("SELECT id FROM deliveries WHERE status = 'failed' ORDER BY id")
        assert [subject for (subject,) in result] == [ids.text("dlv", raw) for (raw,) in failed]

    @invariant()
    def no_endpoint_gets_events_about_itself(self) -> None:
        result = self.select(
            "SELECT d.endpoint, e.subject, e.data FROM deliveries d JOIN entries e ON e.account = d.account"
            " AND e.id = d.event WHERE e.type LIKE 'webhook.%'"
        )
        for endpoint, subject, text in result:
            data = msgspec.json.decode(text)
            assert ids.text("ep", endpoint) not in (subject, data.get("endpoint"))
            assert not data.get("event_type", "").startswith("webhook.")

    @invariant()
    def the_counts_are_right(self) -> None:
        tallied = self.post.tallied()
        ends = Counter(reason for (reason,) in self.select("SELECT ended_reason FROM deliveries"))
        assert tallied.get("made", 0) == ends.total()
        assert [tallied.get(f"ended {reason}", 0) for reason in ENDS] == [ends[reason] for reason in ENDS]

    @invariant()
    def the_counts_of_each_endpoint_are_right(self) -> None:
        counted = {key[1:]: count for key, count in endpoint_counts.read(self.select).items()}
        records = self.select("SELECT endpoint, ended_reason FROM deliveries")
        expected = Counter((endpoint, "made") for endpoint, _ in records)
        expected.update((endpoint, f"ended {reason}") for endpoint, reason in records if reason)
        assert expected == {key: count for key, count in counted.items() if key[1].startswith(("made", "ended"))}

    def teardown(self) -> None:
        """When all that can is standing up again and every receiver answers, everything comes to its end."""
        try:
            self.come_to_an_end()
        finally:
            self.undo()
            self.store.close()
            self.directory.cleanup()

    def come_to_an_end(self) -> None:
        self.suspend(suspended=False)
        for worker in (WORKER, OTHER_WORKER):
            self.rescue(worker)
        for _ in range(4):
            for each in self.endpoints:
                if self.post.stored(each).status == "disabled":
                    self.post.redefine(each, status="active")
            self.run_replays()
            self.sweep()
            self.pass_time(130_000)
            claims = self.post.claim()
            self.claims += claims
            self.post.settle(*[self.post.result(each) for each in claims])
        assert self.select("SELECT * FROM queue") == [], "something was forgotten"
        self.each_is_ended_or_in_the_queue()
        self.attempts_have_no_gaps()
        self.each_failure_is_in_the_ledger_once()
        self.the_counts_are_right()


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=35, stateful_step_count=40)
