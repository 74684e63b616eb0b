"""The invariants, which hold at every time of every history. They are checked in the database, without the service."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gatepost.core import clock, ids
from gatepost.egress.transfer import Outgoing
from gatepost.ledger import verification
from gatepost.webhooks import recount
from tests import endpoint_counts
from tests.simulation.deployment import SLOTS, Deployment, Violation
from tests.simulation.loop import Process, current_process
from tests.simulation.network import Received, Receiver
from tests.simulation.tenants import Tenant, check

Row = tuple[Any, ...]
# Milliseconds that an attempt may be late without a recorded reason: a worker learns within 2 s that it owns an
# endpoint (BEAT_EVERY), and then reads due deliveries once a second (LOOK_EVERY).
LATE = 3_000
FAIR = 3_000  # milliseconds that a delivery may wait for those of other accounts
WAIT = 5.0  # seconds that a delivery may stay due without a reason
RETENTION = 7 * 86_400
STEPS = (5, 60, 600, 7_200, 36_000)  # seconds: the schedule of every tenant


class Shown(NamedTuple):
    """The next attempt as the API returned it, and the wait of the attempt after it."""

    number: int
    next_at: int
    at: float  # when the request was sent
    wait: int | None = None


class Waiting(NamedTuple):
    """A row of the queue with everything that determines when it may be sent."""

    account: bytes
    id: bytes
    endpoint: bytes
    due: int
    number: int
    worker: bytes | None
    endpoint_status: str
    account_active: bool
    not_before: int

    @property
    def can_be_sent(self) -> bool:
        return self.endpoint_status == "active" and self.account_active

    @property
    def earliest(self) -> int:
        return max(self.due, self.not_before)


_QUEUE = """
SELECT q.account, q.id, q.endpoint, q.due, q.number, q.worker, e.status, h.not_before
FROM queue q JOIN endpoints e ON e.account = q.account AND e.id = q.endpoint
LEFT JOIN health h ON h.account = q.account AND h.endpoint = q.endpoint ORDER BY q.account, q.id
"""


@dataclass
class Asked:
    """The Retry-After of an endpoint, from the response to one attempt."""

    key: tuple[bytes, bytes, int]
    at: int
    until: int
    confirmed: bool = False


@dataclass
class Invariants:
    deployment: Deployment
    tenants: list[Tenant] = field(default_factory=list)
    shown: dict[bytes, Shown] = field(default_factory=dict)
    changed: dict[bytes, float] = field(default_factory=dict)  # when the plans of an endpoint last changed
    sent: dict[tuple[bytes, bytes, int], Received] = field(default_factory=dict)
    asked: dict[bytes, list[Asked]] = field(default_factory=dict)
    activations: dict[bytes, int] = field(default_factory=dict)  # requests that end a Retry-After, and have no answer
    alone: set[bytes] = field(default_factory=set)  # deliveries whose account had no others when they were created
    disturbed_until: float = 0.0
    checked: int = 0
    attempts: int = 0
    _waits: dict[tuple[bytes, int], int] = field(default_factory=dict)  # of delivery and attempt, in ms
    _in_flight: dict[tuple[Process | None, bytes], int] = field(default_factory=dict)  # by process and account
    _unsent: dict[tuple[bytes, bytes, int], float] = field(default_factory=dict)
    _due_since: dict[bytes, float] = field(default_factory=dict)  # by endpoint
    _last_attempt: dict[bytes, float] = field(default_factory=dict)
    _waiting: list[Waiting] = field(default_factory=list)
    _waiting_read: tuple[list[Row], list[Row]] = ([], [])  # the rows that `_waiting` was made of

    def install(self) -> None:
        """Check every attempt in the network. The worker would log a violation and continue, so it is recorded here."""

        def started(outgoing: Outgoing, receiver: Receiver) -> None:
            try:
                self.attempt_starts(outgoing, receiver)
            except Violation as violation:
                self.deployment.problems.append(str(violation))

        self.deployment.network.on_start = started
        self.deployment.network.on_end = self.attempt_ends
        self.deployment.disk.on_fault = lambda _fault: self.disturb(14)  # longer than the timeout of a caller

    def select(self, text: str, **parameters: Any) -> list[Row]:
        world = self.deployment.world
        assert world is not None
        return world.store.read_now(lambda tx: tx.select(text, parameters))

    def disturb(self, seconds: float) -> None:
        """Accept delays for this many seconds, because a fault is or was in effect."""
        self.disturbed_until = max(self.disturbed_until, self.deployment.loop.time() + seconds)

    @property
    def calm(self) -> bool:
        return self.deployment.loop.time() > self.disturbed_until

    # --- at every attempt

    def attempt_starts(self, outgoing: Outgoing, _receiver: Receiver) -> None:
        claim = outgoing.key
        queued, now = claim.queued, self.deployment.milliseconds()
        key = (queued.account, queued.id, claim.number)
        check(key not in self.sent, f"attempt {claim.number} of {ids.text('dlv', queued.id)} was sent twice")
        rows = self.select(
            "SELECT number, worker FROM queue WHERE account = :account AND id = :id", account=key[0], id=key[1]
        )
        check(
            [(number, worker is not None) for number, worker in rows] == [(claim.number, True)],
            f"{ids.text('dlv', queued.id)} is sent, but attempt {claim.number} is not open on record: {rows}",
        )
        self.attempts += 1
        self._is_bounded(claim)
        self._standing_still(claim)
        self._keeps_its_schedule(claim)
        self._retry_after_is_kept(claim, now)
        self._as_planned(claim)
        self._is_fair(claim)
        self._last_attempt[queued.endpoint] = self.deployment.loop.time()
        self.sent[key] = Received(self.deployment.loop.time(), claim, outgoing.url, False, None, None, None)

    def _standing_still(self, claim: Any) -> None:
        [(status, document)] = self.select(
            "SELECT e.status, a.document FROM endpoints e JOIN accounts a ON a.id = e.account "
            "WHERE e.account = :account AND e.id = :id",
            account=claim.queued.account, id=claim.queued.endpoint,
        )  # fmt: skip
        account = json.loads(document)
        check(
            account.get("status", "active") == "active"
            or _instant(account["suspended_at"]) >= claim.attempt.started_at - 1,
            "an attempt was made for a suspended account",
        )
        if status != "active":
            [(endpoint,)] = self.select(
                "SELECT document FROM endpoints WHERE account = :account AND id = :id",
                account=claim.queued.account, id=claim.queued.endpoint,
            )  # fmt: skip
            at = json.loads(endpoint).get("disabled_at")
            check(
                at is not None and _instant(at) >= claim.attempt.started_at - 1,
                f"an attempt was made to a {status} endpoint",
            )

    def _is_bounded(self, claim: Any) -> None:
        """Check that no account uses more than three quarters of the slots, and no delivery has too many attempts."""
        whose = (current_process(), claim.queued.account)
        self._in_flight[whose] = self._in_flight.get(whose, 0) + 1
        check(
            self._in_flight[whose] <= SLOTS * 3 // 4,
            f"an account has {self._in_flight[whose]} attempts in flight at one worker with {SLOTS} slots",
        )
        if claim.number <= len(STEPS) + 1:
            return
        failed = self.select(
            "SELECT number FROM attempts WHERE account = :account AND delivery = :delivery AND outcome = 'failed'",
            account=claim.queued.account, delivery=claim.queued.id,
        )  # fmt: skip
        sent = [self.sent.get((claim.queued.account, claim.queued.id, number)) for (number,) in failed]
        used = sum(received is None or not received.closed for received in sent)
        check(
            used <= len(STEPS),
            f"attempt {claim.number} of {ids.text('dlv', claim.queued.id)} is made after {used} that failed",
        )

    def _keeps_its_schedule(self, claim: Any) -> None:
        """Check that the interval between attempts is that of the schedule, to the millisecond."""
        queued = claim.queued
        check(
            claim.attempt.started_at >= queued.due,
            f"attempt {claim.number} of {ids.text('dlv', queued.id)} is made before it is due",
        )
        wait = self._waits.pop((queued.id, claim.number), None)
        if queued.because != "schedule":
            return
        rows = self.select(
            "SELECT document FROM attempts WHERE account = :account AND delivery = :delivery AND number = :number",
            account=queued.account, delivery=queued.id, number=claim.number - 1,
        )  # fmt: skip
        check(
            bool(rows) and queued.used > 0,
            f"attempt {claim.number} of {ids.text('dlv', queued.id)} is made as a retry, but the one before is "
            f"{'counted as none' if rows else 'not on record'}",
        )
        waited, step = queued.due - json.loads(rows[0][0])["ended_at"], STEPS[queued.used - 1] * 1000
        check(
            step * 0.9 - 1 <= waited <= step * 1.1 + 1 and wait in (None, waited),
            f"attempt {claim.number} of {ids.text('dlv', queued.id)} is planned {waited} ms after the one before, not "
            f"{step} ms give or take a tenth, or as shown: {wait}",
        )

    def plan_is_shown(self, record: dict[str, Any], asked_at: float) -> None:
        """Record a plan that the API returned. The next attempt must match it, unless it changed since the request."""
        next_at, plan = record["retries"]["next_at"], record["retries"]["plan"]
        if next_at is None:
            return
        delivery, number = ids.raw(record["id"]), plan[0]["number"]
        made = [each["number"] for each in record["attempts"]]
        check(number == max(made, default=0) + 1, f"attempt {number} of {record['id']} is planned after {made}")
        wait = _instant(plan[1]["at"]) - _instant(plan[0]["at"]) if len(plan) > 1 else None
        self.shown[delivery] = Shown(number, _instant(next_at), asked_at, wait)

    def _retry_after_is_kept(self, claim: Any, now: int) -> None:
        if self.activations.get(claim.queued.endpoint):
            return
        for each in self.asked.get(claim.queued.endpoint, []):
            if each.until <= now or (claim.attempt.started_at >= each.until):
                continue
            check(
                not self._is_recorded(each) or claim.attempt.started_at <= self._answered_at(each),
                f"attempt {claim.number} of {ids.text('dlv', claim.queued.id)} was made {each.until - now} ms before "
                "its endpoint's Retry-After ended",
            )

    def _is_recorded(self, each: Asked) -> bool:
        """Return whether the response was recorded. A crash may have prevented that."""
        account, delivery, number = each.key
        each.confirmed = each.confirmed or bool(
            self.select(
                "SELECT 1 FROM attempts WHERE account = :account AND delivery = :delivery AND number = :number "
                "AND outcome = 'failed'",
                account=account,
                delivery=delivery,
                number=number,
            )
        )
        return each.confirmed

    def _answered_at(self, each: Asked) -> int:
        [(document,)] = self.select(
            "SELECT document FROM attempts WHERE account = :account AND delivery = :delivery AND number = :number",
            account=each.key[0], delivery=each.key[1], number=each.key[2],
        )  # fmt: skip
        ended: int = json.loads(document)["ended_at"]
        return ended

    def _as_planned(self, claim: Any) -> None:
        known = self.shown.pop(claim.queued.id, None)
        if known is None or known.number != claim.number:
            return
        if known.wait is not None:
            self._waits[claim.queued.id, claim.number + 1] = known.wait
        if self.changed.get(claim.queued.endpoint, -1.0) >= known.at:
            return
        started, waited = claim.attempt.started_at, claim.attempt.waited_for
        check(
            started >= known.next_at,
            f"attempt {claim.number} of {ids.text('dlv', claim.queued.id)} was shown for "
            f"{known.next_at} and made {known.next_at - started} ms before",
        )
        planned = self.deployment.loop.time() - (self.deployment.milliseconds() - known.next_at) / 1000
        if self.changed.get(claim.queued.endpoint, -1.0) >= planned:  # it was held in the meantime
            return
        if waited == "plan" and self._calm_since(known.next_at):
            check(
                started <= known.next_at + LATE,
                f"attempt {claim.number} of {ids.text('dlv', claim.queued.id)} was shown for {known.next_at} and made "
                f"{started - known.next_at} ms later, though it waited for nothing but its plan",
            )

    def _is_fair(self, claim: Any) -> None:
        """Check that the only delivery of an account does not wait for the backlog of other accounts."""
        if claim.queued.id not in self.alone or claim.number > 1 or not self._calm_since(claim.queued.due):
            return
        self.alone.discard(claim.queued.id)
        due = self.deployment.loop.time() - (self.deployment.milliseconds() - claim.queued.due) / 1000
        if self.changed.get(claim.queued.endpoint, -1.0) >= due:  # it was held in the meantime
            return
        late = claim.attempt.started_at - claim.queued.due
        check(
            late <= FAIR or claim.attempt.waited_for in ("window", "rate_limit", "retry_after"),
            f"the only delivery of its account, {ids.text('dlv', claim.queued.id)}, waited {late} ms for its turn",
        )

    def backlog(self, tenant: Tenant) -> bool:
        return bool(self.select("SELECT 1 FROM queue WHERE account = :account LIMIT 1", account=ids.raw(tenant.id)))

    def _calm_since(self, wall: int) -> bool:
        return self.deployment.loop.time() - (self.deployment.milliseconds() - wall) / 1000 > self.disturbed_until

    def attempt_ends(self, received: Received) -> None:
        claim = received.key
        key = (claim.queued.account, claim.queued.id, claim.number)
        whose = (current_process(), claim.queued.account)
        self._in_flight[whose] = self._in_flight.get(whose, 1) - 1
        self.sent[key] = received
        if received.shortage:
            del self.sent[key]  # it was never sent
        if received.code in (429, 503) and received.failure is None and received.retry_after:
            now = self.deployment.milliseconds()
            asked = min(int(received.retry_after), claim_limit(claim)) * 1000
            self.asked.setdefault(claim.queued.endpoint, []).append(Asked(key, now, now + asked))
            self.changed[claim.queued.endpoint] = self.deployment.loop.time()

    def retry_after_is_cleared(self, endpoint: str, before: int) -> None:
        """Check that a redefinition as active, even without a change, has ended the Retry-After.

        If the request took long, for example because the process was frozen, the Retry-After may have ended by itself.
        """
        rows = self.select("SELECT not_before FROM health WHERE endpoint = :id", id=ids.raw(endpoint))
        asked_since = any(each.at >= before for each in self.asked.get(ids.raw(endpoint), []))
        over = max(before, self.deployment.milliseconds())
        check(
            asked_since or all(not_before <= over for (not_before,) in rows),
            f"{endpoint} was redefined as active, and its Retry-After still holds",
        )

    # --- after every step

    def waiting(self) -> list[Waiting]:
        rows = self.select(_QUEUE)
        if not rows:
            return []
        read = (rows, self.select("SELECT id, document FROM accounts"))
        if read != self._waiting_read:
            active = {
                account: json.loads(document).get("status", "active") == "active" for account, document in read[1]
            }
            self._waiting_read = read
            self._waiting = [Waiting._make((*row[:7], active[row[0]], row[7] or 0)) for row in rows]
        return self._waiting

    def check_waiting(self, waiting: list[Waiting]) -> None:
        """Check that no delivery stays due for longer than its reason allows."""
        self.checked += 1
        now, time = self.deployment.milliseconds(), self.deployment.loop.time()
        busy = {each.endpoint for each in waiting if each.worker is not None}
        due: dict[bytes, float] = {}
        for each in waiting:
            if each.can_be_sent and each.endpoint not in busy and each.earliest <= now:
                since = due.setdefault(
                    each.endpoint,
                    max(
                        self._due_since.get(each.endpoint, time),
                        self._last_attempt.get(each.endpoint, 0.0),
                        self.disturbed_until,
                    ),
                )
                check(
                    time - since <= WAIT,
                    f"{ids.text('dlv', each.id)} is due, and for {time - since:.1f} s nothing was sent to its endpoint",
                )
        self._due_since = due
        self._check_claimed(waiting)

    def _check_claimed(self, waiting: list[Waiting]) -> None:
        """Check that a running worker sends or releases its claims at once."""
        time = self.deployment.loop.time()
        running = {ids.raw(each.worker.name) for each in self.deployment.running("worker") if each.worker is not None}
        unsent = [
            (each.account, each.id, each.number)
            for each in waiting
            if each.worker in running and (each.account, each.id, each.number) not in self.sent
        ]
        self._unsent = {key: max(self._unsent.get(key, time), self.disturbed_until) for key in unsent}
        for key, since in self._unsent.items():
            check(time - since <= WAIT, f"{ids.text('dlv', key[1])} is claimed, and for {time - since:.1f} s not sent")

    def check_workers(self) -> None:
        """Check that all running workers have recent heartbeats."""
        check(
            not self.calm or self.every_worker_beats(),
            f"{len(self.deployment.alive('worker'))} workers live, but not all have a heartbeat of the last 4 s",
        )

    def every_worker_beats(self) -> bool:
        oldest = self.deployment.milliseconds() - 4_000
        beating = {row[0] for row in self.select("SELECT id, beat_at FROM workers") if row[1] >= oldest}
        workers = [each.worker for each in self.deployment.running("worker")]
        return all(worker is None or ids.raw(worker.name) in beating for worker in workers)

    # --- once a day

    def check_tokens(self) -> None:
        """Check that every token in a response has its entry."""
        for tenant in self.tenants:
            answered, tenant.answered_tokens = tenant.answered_tokens, []
            for event, _token in answered:
                rows = self.select(
                    "SELECT type FROM entries WHERE account = :account AND id = :id",
                    account=ids.raw(tenant.id), id=ids.raw(event),
                )  # fmt: skip
                check(rows == [("oauth.token.issued",)], f"a token was answered, but {event} is not in the ledger")

    def check_counts(self) -> None:
        """Check that the counts of the endpoints add up to those of their account."""
        counted: dict[bytes, Counter[str]] = defaultdict(Counter)
        for account, what, count in self.select("SELECT account, what, sum(count) FROM tallies GROUP BY account, what"):
            counted[account][what] += count
        for (account, _, what), count in endpoint_counts.read(self.select).items():
            counted[account][what] -= count
        for account, left in counted.items():
            check(not any(left.values()), f"the counts of {ids.text('acc', account)} and its endpoints differ: {left}")

    def check_events(self) -> None:
        """Check that every accepted event has the deliveries that it matched."""
        horizon = self.deployment.loop.time() - RETENTION + 3600
        for tenant in self.tenants:
            tenant.events = [each for each in tenant.events if each.at > horizon]
            account = ids.raw(tenant.id)
            counts: dict[bytes, int] = dict(
                self.select(
                    "SELECT event, count(*) FROM deliveries WHERE account = :account AND origin = 'event' "
                    "GROUP BY event",
                    account=account,
                )
            )
            matched: dict[bytes, int] = dict(
                self.select("SELECT id, matched FROM entries WHERE account = :account", account=account)
            )
            self._published_once(account)
            for event in tenant.events:
                raw = ids.raw(event.id)
                check(raw in matched, f"{event.id} was accepted and is not in the ledger")
                check(
                    matched[raw] == event.matched == counts.get(raw, 0),
                    f"{event.id} was answered with {event.matched} deliveries; its entry says {matched[raw]}, there "
                    f"are {counts.get(raw, 0)}",
                )

    def subscribers(self, tenant: Tenant, type_: str) -> list[str]:
        """Return the subscriptions that match an event of this type."""
        found = []
        for (document,) in self.select(
            "SELECT s.document FROM subscriptions s JOIN endpoints e ON e.account = s.account AND e.id = s.endpoint "
            "WHERE s.account = :account AND s.status = 'active' AND e.status <> 'removed' ORDER BY s.id",
            account=ids.raw(tenant.id),
        ):
            subscription = json.loads(document)
            if any(
                pattern in ("*", type_) or (pattern.endswith(".*") and type_.startswith(pattern[:-1]))
                for pattern in subscription["events"]
            ):
                found.append(subscription["id"])
        return found

    def _published_once(self, account: bytes) -> None:
        since = (self.deployment.milliseconds() - 90_000_000).to_bytes(6, "big") + b"\0" * 10
        given = [
            json.loads(data)["given"]
            for (data,) in self.select(
                "SELECT data FROM entries WHERE account = :account AND id > :since AND type IN "
                "('invoice.paid', 'invoice.sent', 'order.placed', 'user.joined')",
                account=account,
                since=since,
            )
        ]
        twice = {each for each in given if given.count(each) > 1}
        check(not twice, f"events were recorded twice under one id: {sorted(twice)}")

    def check_records(self) -> None:
        """Check that records, queue and attempts agree, and that every request is a recorded attempt."""
        odd = self.select(
            "SELECT d.account, d.id, d.status FROM deliveries d LEFT JOIN queue q ON q.account = d.account "
            "AND q.id = d.id WHERE (d.status = 'pending') <> (q.id IS NOT NULL)"
        )
        odd += self.select(
            "SELECT account, id, number FROM queue q WHERE NOT EXISTS "
            "(SELECT 1 FROM deliveries d WHERE d.account = q.account AND d.id = q.id)"
        )
        check(not odd, f"record and queue disagree about {[ids.text('dlv', row[1]) for row in odd]}")
        records = {
            (row[0], row[1]): row[2:] for row in self.select("SELECT account, id, status, ended_reason FROM deliveries")
        }
        open_now = {
            (row[0], row[1]): row[2]
            for row in self.select("SELECT account, id, number FROM queue WHERE worker IS NOT NULL")
        }
        made: dict[tuple[bytes, bytes], dict[int, str]] = {}
        for account, delivery, number, outcome in self.select(
            "SELECT account, delivery, number, outcome FROM attempts"
        ):
            made.setdefault((account, delivery), {})[number] = outcome
        for key, outcomes in made.items():
            name = ids.text("dlv", key[1])
            check(
                sorted(outcomes) == list(range(1, len(outcomes) + 1)), f"the attempts of {name} have gaps: {outcomes}"
            )
            self._outcomes_are_true(key, name, outcomes)
        for key, (status, reason) in records.items():
            if status == "succeeded":
                check(
                    "succeeded" in made.get(key, {}).values(),
                    f"{ids.text('dlv', key[1])} ended as {reason} without a successful attempt",
                )
        for account, delivery, number in list(self.sent):
            if (account, delivery) not in records:  # pruned with its attempts
                age = (self.deployment.now() - ids.made_at(delivery)).total_seconds()
                check(age > RETENTION - 600, f"{ids.text('dlv', delivery)} vanished {age:.0f} s after it was made")
                del self.sent[account, delivery, number]
                continue
            recorded = made.get((account, delivery), {}).get(number)
            check(
                recorded in ("succeeded", "failed", "interrupted") or open_now.get((account, delivery)) == number,
                f"a request was sent as attempt {number} of {ids.text('dlv', delivery)}, which is {recorded} on record",
            )

    def _outcomes_are_true(self, key: tuple[bytes, bytes], name: str, outcomes: dict[int, str]) -> None:
        for number, outcome in outcomes.items():
            received = self.sent.get((*key, number))
            if received is None or outcome == "interrupted":
                continue
            well = received.failure is None and received.code is not None and 200 <= received.code < 300
            check(
                outcome == ("succeeded" if well else "failed"),
                f"attempt {number} of {name} was answered {received.code} {received.failure}, recorded as {outcome}",
            )

    def check_ledger(self, day: int) -> None:
        """Check that the chain of one ledger verifies and that its entries have their deliveries."""
        world = self.deployment.world
        assert world is not None
        for tenant in self.tenants[day % len(self.tenants) :][:1]:
            verdict = verification.verify(world.store, world.service.keys.seal, tenant.id)
            check(not verdict.problem, f"the ledger of {tenant.name} does not verify: {verdict.problem}")
            counted = recount.recount(world.store, tenant.id)
            check(not counted.problem, f"the ledger of {tenant.name}: {counted.problem}")

    def check_retention(self) -> None:
        """Check that rows are pruned within a day after their retention, or after their end if that is later."""
        oldest = self.deployment.milliseconds() - (RETENTION + 86_400) * 1000
        before = oldest.to_bytes(6, "big") + b"\0" * 10
        rows = self.select(
            "SELECT count(*) FROM deliveries WHERE id < :before AND status <> 'pending' AND ended_at < :ended",
            before=before, ended=self.deployment.milliseconds() - 86_400_000,
        )  # fmt: skip
        check(rows == [(0,)], f"{rows[0][0]} deliveries are kept a day beyond their retention")

    def everything(self, day: int) -> None:
        self.check_tokens()
        self.check_events()
        self.check_counts()
        self.check_records()
        self.check_ledger(day)
        self.check_retention()


def claim_limit(claim: Any) -> int:
    """Return the maximum Retry-After of the endpoint in seconds."""
    return getattr(claim.endpoint, "max_retry_after", None) or 3600


def _instant(text: str) -> int:
    found = clock.parse_rfc3339(text)
    assert found is not None
    return clock.milliseconds(found)
