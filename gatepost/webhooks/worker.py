"""The delivery worker: claim a batch in one commit, send it with no transaction open, settle it in the next commit.

The same commit settles what ended and claims what comes next. Everything the worker knows beyond that is in the
schedule, in memory, and can be lost at any moment.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import Unavailable
from gatepost.core.logging import AttemptLine, log, log_attempts
from gatepost.core.metrics import IN_FLIGHT, SHORTAGES, attempt_counter, observe_claims
from gatepost.core.repeat import Chore, Chores, progress
from gatepost.core.webhook_signature import Signer, signature
from gatepost.egress.sender import Sender
from gatepost.egress.senders import Senders
from gatepost.egress.transfer import Outgoing, SendResult
from gatepost.store.interface import Store
from gatepost.store.pending import Key
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import claim_and_settle as units
from gatepost.webhooks import (
    decide,
    definitions,
    endpoint_headers,
    endpoint_rows,
    health_rows,
    message,
    publish,
    queue_rows,
    replay,
    replay_rows,
    worker_rows,
)
from gatepost.webhooks.claim_and_settle import Claim, Claimed, Over, Pick, Result, Settled
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.message import Told
from gatepost.webhooks.queue_rows import Lane
from gatepost.webhooks.schedule import SLOTS, Schedule, Turn
from gatepost.webhooks.service import Service
from gatepost.webhooks.worker_rows import Worker as Peer

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

BEAT_EVERY = 2.0
DEAD_AFTER = 10_000  # milliseconds without a beat
LOOK_EVERY = 1.0
SETTLE_FOR = 5.0  # seconds, when stopping, to put on record what the last attempts came to
SETTLED_AT_ONCE = 128
_HANDS = {"sqlite": 1, "postgres": 2}  # cycles at a time: a server works on one while we prepare another
_AGAIN = 0.5
_SHORT_FOR = 1.0  # seconds
_SHARE = 20.0  # a chore takes at most a twentieth of the time
_LANES = 500  # read at a time
_KEPT = 5_000  # prepared endpoints and signers


class Cycle(NamedTuple):
    settled: Settled
    claimed: Claimed


class Prepared(NamedTuple):
    """What all attempts to one endpoint, as it is defined now, have in common."""

    headers: list[str]
    signers: dict[str, Signer]


class Worker:
    def __init__(
        self, store: Store, service: Service, place: str, *, proxy: str = "", ca: str = "",
        traces: "Traces | None" = None, slots: int = SLOTS, make_sender: type[Sender] = Sender,
    ) -> None:  # fmt: skip
        self._traces = traces
        self._store = store
        self._service = service
        self._id = ids.fresh()
        self.name = ids.text("wrk", self._id)
        self._place = place
        self._schedule = Schedule(slots)
        self._sender = Senders(
            service.policy_for, self._finished, make=make_sender, refused=_log_refused, proxy=proxy, ca=ca
        )
        self._results: list[list[Over]] = [[] for _ in range(_HANDS[store.dialect])]
        self._untold: list[AttemptLine] = []
        self._cycles = 0  # under way
        self._woken = asyncio.Event()
        self._prepared: dict[tuple[str, object], Prepared] = {}
        self._draining = False
        self._open: dict[Key, int] = {}  # attempts that we know to be ours: delivery and number
        self._unsure = False  # a claim may have been committed without our hearing of it
        self._owners: list[bytes] = [self._id]
        self._loop = asyncio.get_running_loop()
        self._short_until = 0.0  # no claims before this loop time: the process ran out of a resource
        self._last_deadline = 0.0  # of all attempts that were begun, by the loop's clock
        self.chores = Chores()

    def _now(self) -> int:
        return clock.milliseconds(self._store.now())

    # --- running

    async def run(self, stopping: asyncio.Event) -> None:
        """Until told to stop; then finish what is in flight, or put it on record as interrupted."""
        await self._persist("first beat", self._beat)
        bell = self._store.listen(self._hear_elsewhere)
        self.chores.start(Chore("heartbeat", BEAT_EVERY, self._beat))
        for name, every, chore in (
            ("look", LOOK_EVERY, self._look),
            ("health", 60.0, self._tidy_health),
            ("outbox", 0.1 if self._store.dialect == "postgres" else 3600.0, self._move_outbox),
            ("replay", 1.0, self._replay),
            ("sweep", 5.0, self._sweep),
            ("sweep suspended", 60.0, self._sweep_suspended),
            ("wake-up", 15.0, _renewing(bell.renew)),
        ):
            self.chores.start(Chore(name, every, chore, share=_SHARE))
        chores = asyncio.create_task(self.chores.run())
        delivering = asyncio.create_task(self._deliver())
        try:
            await stopping.wait()
            chores.cancel()
            await self._drain(delivering)
        finally:
            bell.close()
            self._sender.close()

    async def _persist(self, what: str, chore: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await chore()
            except Unavailable as error:
                log.warning("worker waits for the store", what=what, error=str(error))
                await asyncio.sleep(_AGAIN)

    # --- delivering

    async def _deliver(self) -> None:
        await asyncio.gather(*[self._deliver_with(results) for results in self._results])

    async def _deliver_with(self, ended: list[Over]) -> None:
        """One cycle after the other; what ends is settled by the same hand for each endpoint, in its order."""
        while not (self._draining and not ended and not self._sender.in_flight):
            now = self._now()
            if self._unsure and not self._cycles:
                await self._as_cycle(self._persist("what was claimed unheard", self._release_lost))
                continue
            short = self._loop.time() < self._short_until
            turns = [] if self._draining or self._unsure or short else self._schedule.turns(now)
            results = [] if self._unsure else ended[:SETTLED_AT_ONCE]
            if not turns and not results:
                await self._wait(now)
                continue
            del ended[: len(results)]
            try:
                await self._as_cycle(self._cycle(results, turns))
            except Unavailable as error:
                log.warning("deliveries wait for the store", error=str(error))
                ended[:0] = results
                self._schedule.given_up(turns, now)
                self._unsure = self._unsure or bool(turns)
                await asyncio.sleep(_AGAIN)
            except Exception:  # noqa: BLE001 (a defect in one must not stop the others)
                log.exception("a batch of deliveries could not be settled")
                self._schedule.given_up(turns, now)
                await self._settle_each(results)

    async def _as_cycle(self, work: Awaitable[None]) -> None:
        """Counted while it is under way: what was claimed unheard can be told only when nothing else is."""
        self._cycles += 1
        try:
            await work
        finally:
            self._cycles -= 1
            if self._unsure:
                self._woken.set()

    async def _wait(self, now: int) -> None:
        """Until something ends, is heard of, or becomes due."""
        next_at = self._schedule.next_at()
        seconds = LOOK_EVERY if next_at is None else min(LOOK_EVERY, max(0.001, (next_at - now) / 1000))
        seconds = max(seconds, min(LOOK_EVERY, self._short_until - self._loop.time()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def _cycle(self, results: list[Over], turns: list[Turn]) -> None:
        untold, self._untold = self._untold, []
        log_attempts(untold)
        now = self._now()
        well = self._schedule.well({each.result.claim.to for each in results if each.ending is not None}, now)
        ready = units.ready(results, well)
        picks = [Pick(turn.lane, turn.limit, turn.after, turn.waited_for) for turn in turns]

        def unit(tx: Tx) -> Cycle:
            settled = units.settle(tx, ready) if results else Settled([], [], {})
            return Cycle(settled, units.claim(tx, self._id, picks) if picks else Claimed([]))

        cycle = await self._store.run(unit)
        for each in results:
            claim = each.result.claim
            if self._open.get(claim.key) == claim.number:
                del self._open[claim.key]
        now = self._now()
        self._after_settling(cycle.settled, now)
        self._after_claiming(cycle.claimed, turns, now)

    async def _release_lost(self) -> None:
        """While no cycle is under way, when all that we claimed is known to us."""
        found = await self._store.read(lambda tx: queue_rows.open_attempts(tx, self._id, 2 * SLOTS))
        lost = [each[:2] for each in found if self._open.get(each[:2]) != each.number]
        for start in range(0, len(lost), SETTLED_AT_ONCE):
            keys = lost[start : start + SETTLED_AT_ONCE]
            await self._store.run(lambda tx, keys=keys: units.release(tx, self._id, keys))  # type: ignore[misc]
        self._unsure = False
        if lost:
            attempt_counter("not_sent", "").inc(len(lost))
            log.warning("gave back deliveries that were claimed unheard", deliveries=len(lost))
            await self._look()

    async def _settle_each(self, results: list[Over]) -> None:
        """One by one, to lose only what cannot be settled: its lease ends, and the next worker finds it interrupted."""
        for each in results:
            try:
                await self._cycle([each], [])
            except Unavailable:
                self._kept(each).append(each)
            except Exception:  # noqa: BLE001 (the same)
                log.exception("a delivery could not be settled", delivery=ids.text("dlv", each.result.claim.key[1]))

    def _after_settling(self, settled: Settled, now: int) -> None:
        for key, until in settled.not_before.items():
            self._schedule.postpone(key, until)
        for key, due in settled.retries:
            if self._owns(key):  # else its owner finds it in the queue: two schedules would exceed the limits
                self._schedule.retry_at(key, due, now)
        for each in settled.overtaken:
            log.warning(
                "late result fenced off", delivery=ids.text("dlv", each.claim.key[1]), attempt=each.claim.number
            )

    def _after_claiming(self, claimed: Claimed, turns: list[Turn], now: int) -> None:
        picked = {each.lane: each for each in claimed.picked}
        for turn in turns:
            found = picked.get(turn.lane)
            if found is None:
                self._schedule.stood_still(turn, now)
                continue
            last = found.claims[-1].queued if found.claims else None
            if last is not None:
                limits = found.endpoint.max_in_flight, found.endpoint.rate_limit
                self._schedule.limits((turn.lane.account, turn.lane.endpoint), *limits)
            position = None if last is None else (last.due, last.id)
            next_due = found.next_due if self._owns((turn.lane.account, turn.lane.endpoint)) else None
            self._schedule.claimed(turn, len(found.claims), position, next_due, now, found.not_before)
        claims = claimed.claims
        for claim in claims:
            self._open[claim.key] = claim.number
        for claim in claims:
            try:
                self._send(claim)
            except Exception:  # noqa: BLE001 (one that cannot be sent, as with a secret that was altered, stops no other)
                log.exception("an attempt could not be prepared", delivery=ids.text("dlv", claim.key[1]))
                words = "the request could not be built: an internal error, or a secret that was altered"
                self._finished([SendResult(claim, None, "send", words, None, {}, 0.0, None, b"")])
        if claimed.interrupted:
            attempt_counter("interrupted", "").inc(claimed.interrupted)
        observe_claims([(claim.opened.waited_for, claim.opened.waited_ms) for claim in claims])
        IN_FLIGHT.set(self._sender.in_flight)

    # --- sending

    def _send(self, claim: Claim) -> None:
        if self._draining:
            attempt_counter("not_sent", "").inc()
            self._end(Result(claim, None), well=False, trouble=False, now=self._now())
            return
        endpoint = claim.endpoint
        prepared = self._prepare(endpoint)
        told = Told(claim.account, _event(claim.queued.event), claim.type, claim.at, claim.data)
        body = message.body(told, endpoint.format)
        timestamp = claim.opened.started_at // 1000
        signed = signature([prepared.signers[each] for each in claim.opened.signed_with], told.name, timestamp, body)
        headers = message.headers(prepared.headers, told.name, timestamp, signed)
        if self._traces is not None:
            parent = self._traces.start_attempt(told.name, told.type, ids.text("dlv", claim.queued.id), claim.number)
            if not any(each.lower().startswith("traceparent:") for each in prepared.headers):
                headers.append(parent)
        outgoing = Outgoing(
            claim,
            claim.opened.url,
            headers,
            body,
            endpoint.timeout,
            claim.account_name,
            claim.queued.because == "connection_closed",
        )
        self._last_deadline = max(self._last_deadline, self._loop.time() + endpoint.timeout)
        self._sender.start(outgoing)

    def _prepare(self, endpoint: Endpoint) -> Prepared:
        key = (endpoint.id, endpoint.updated_at)
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) >= _KEPT:
                self._prepared.clear()
            box = self._service.keys.data
            found = self._prepared[key] = Prepared(
                message.fixed_headers(endpoint_headers.plaintext(box, endpoint), endpoint.format),
                {secret.id: definitions.opened(box, endpoint, secret) for secret in endpoint.secrets},
            )
        return found

    def _finished(self, sent: list[SendResult]) -> None:
        now = self._now()
        for each in sent:
            if each.shortage:
                self._run_short(each)
                continue
            result = Result(each.key, now, *each[1:])
            well = result.well
            if result.retry_after is not None:  # so that no other delivery is claimed while this one is settled
                self._postpone(result)
            trouble = not well and decide.in_trouble(each.code, each.failure) and not result.is_made_again
            self._end(result, well=well, trouble=trouble, now=now)
            self._untold.append(self._told(result, well=well))

    def _run_short(self, sent: SendResult) -> None:
        """It was never sent: on record as such, and nothing more is claimed for a moment."""
        if self._loop.time() >= self._short_until:
            log.error("attempts not sent: the service ran out of a resource", resource=sent.shortage)
        self._short_until = self._loop.time() + _SHORT_FOR
        SHORTAGES.labels(sent.shortage).inc()
        attempt_counter("not_sent", "").inc()
        words = f"not sent: the service ran out of {sent.shortage}"
        result = Result(sent.key, None, detail=words, shortage=sent.shortage)
        self._end(result, well=False, trouble=False, now=self._now())

    def _postpone(self, result: Result) -> None:
        endpoint = result.claim.endpoint
        receiver = decide.Receiver(endpoint.url, endpoint.status, [], endpoint.max_retry_after)
        until = decide.asked_not_before(result.attempted(), receiver)
        if until is not None:
            self._schedule.postpone(result.claim.to, until)

    def _told(self, result: Result, *, well: bool) -> AttemptLine:
        claim, queued, opened = result.claim, result.claim.queued, result.claim.opened
        made = AttemptLine(
            "info" if well else "warning", None, claim.account, claim.endpoint.id, ids.text("dlv", queued.id),
            _event(queued.event), claim.type, claim.number, "succeeded" if well else "failed", opened.waited_for,
            opened.waited_ms, self.name, result.code, result.failure, result.duration_ms,
        )  # fmt: skip
        if self._traces is not None:
            made.trace = self._traces.end_attempt(made, result.timings)
        return made

    def _end(self, result: Result, *, well: bool, trouble: bool, now: int) -> None:
        over = units.over(result, self.name)
        self._kept(over).append(over)
        claim = result.claim
        self._schedule.ended(claim.to, claim.queued.lane, well=well, trouble=trouble, now=now)
        self._woken.set()

    def _kept(self, over: Over) -> list[Over]:
        """Where its hand finds it."""
        return self._results[over.result.claim.to[1][-1] % len(self._results)]

    # --- what is due

    def _hear_elsewhere(self, awaited: list[Key]) -> None:
        """In the bell's own thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._hear, awaited)

    def _hear(self, awaited: list[Key]) -> None:
        now = self._now()
        for key in awaited:
            if self._owns(key):
                self._schedule.heard(key, now)
        if not awaited:
            task = asyncio.create_task(self._look())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._woken.set()

    async def _look(self) -> None:
        """Read what the store has: who asked for no attempts for now, and what is in the queue."""
        self._schedule.postponed(await self._store.read(health_rows.retry_afters))
        after = Lane(LOWEST, LOWEST, -1, 0)
        while page := await self._store.read(_lanes(after)):
            now = self._now()
            for lane in page:
                if self._owns((lane.account, lane.endpoint)):
                    self._schedule.found(lane, now)
            after = page[-1]
            self._woken.set()

    def _owns(self, key: Key) -> bool:
        """Each endpoint has one owner among the live workers. Only for speed: the lease is what makes it safe."""
        if len(self._owners) == 1:
            return True
        return max(self._owners, key=lambda worker: _weight(worker, key)) == self._id

    # --- other work

    async def _beat(self) -> None:
        """Say that we live, and finish for those who no longer do."""

        def unit(tx: Tx) -> tuple[int, list[Peer]]:
            worker_rows.beat(tx, self._id, self._place)
            return clock.milliseconds(tx.at), worker_rows.load(tx)

        now, peers = await self._store.run(unit)
        dead = [each for each in peers if self._is_dead(each, now)]
        for each in dead:
            await self._rescue(each)
        owners = sorted(each.id for each in peers if each not in dead)
        if owners != self._owners:
            self._owners = owners
            self._schedule.forget()
            await self._look()

    def _is_dead(self, peer: Peer, now: int) -> bool:
        """It stopped beating, or we were started in its place."""
        if peer.id == self._id:
            return False
        return now - peer.beat_at > DEAD_AFTER or (bool(self._place) and peer.place == self._place)

    async def _rescue(self, peer: Peer) -> None:
        total = await self._rescue_all(peer.id)
        await self._store.run(lambda tx: worker_rows.delete(tx, peer))
        log.warning("rescued a dead worker's deliveries", worker=ids.text("wrk", peer.id), attempts=total)
        await self._look()

    async def _rescue_all(self, worker: bytes) -> int:
        found = await self._store.read(lambda tx: queue_rows.open_attempts(tx, worker, 2 * SLOTS))
        keys = [(each.account, each.id) for each in found]
        total = 0
        for start in range(0, len(keys), SETTLED_AT_ONCE):
            total += await self._store.run(_rescue(worker, keys[start : start + SETTLED_AT_ONCE]))
        attempt_counter("interrupted", "").inc(total)
        return total

    async def _move_outbox(self) -> None:
        while True:
            moved = await self._store.run(publish.from_outbox)
            progress()
            for number, why in moved.refused:
                log.error("outbox row refused", seq=number, error=why)
            if moved.published + len(moved.refused) < publish.SLICE:
                return

    async def _replay(self) -> None:
        """A slice of each in turn: neither a long one nor one with a defect keeps the others waiting."""
        running = await self._store.read(replay_rows.running)
        while running:
            running = [(account, each) for account, each in running if await self._replay_some(account, each)]
            progress()

    async def _replay_some(self, account: str, each: str) -> bool:
        try:
            return await self._store.run(_replay(account, each))
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 (the others go on)
            log.exception("a replay could not go on", replay=each)
            return False

    async def _sweep(self) -> None:
        """End what waited too long for endpoints that stand still, and what waits for removed ones."""
        after: Key = (LOWEST, LOWEST)
        while page := await self._store.read(_standing_still(after)):
            await self._sweep_those(page)
            after = page[-1]

    async def _tidy_health(self) -> None:
        """Delete the health of endpoints that are well again. Looked at first: most of the time there is none."""
        if await self._store.read(health_rows.has_recovered):
            await self._store.run(health_rows.delete_recovered)

    async def _sweep_suspended(self) -> None:
        """The same for accounts that stand still: every endpoint of theirs does."""
        after = ""
        while page := await self._store.read(_accounts(after)):
            for account in page:
                if not account.active:
                    await self._sweep_those(await self._store.read(_endpoints_of(account.id)))
            after = page[-1].name

    async def _sweep_those(self, keys: list[Key]) -> None:
        """Looked at first: a unit that finds nothing to end costs a commit all the same."""
        for key in await self._store.read(lambda tx: units.to_sweep(tx, keys)):
            while await self._store.run(_sweep(key)):
                progress()
                await asyncio.sleep(0)

    # --- the end

    async def _drain(self, delivering: asyncio.Task[None]) -> None:
        """Begin nothing new, and wait for as long as any attempt under way may take."""
        self._draining = True
        self._woken.set()
        longest = max(0.0, self._last_deadline - self._loop.time())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(delivering), longest + SETTLE_FOR)
        if not delivering.done():
            log.warning("attempts cut off by the end of the worker", attempts=len(self._sender.abandon()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(delivering, 2.0)
        with contextlib.suppress(Unavailable):
            await self._rescue_all(self._id)
            await self._store.run(lambda tx: worker_rows.delete(tx, _self(tx, self._id)))


@lru_cache(4 * SLOTS)
def _event(raw: bytes) -> str:
    """Its name, which is needed when it is sent and when that is over."""
    return ids.text("evt", raw)


def _self(tx: Tx, worker: bytes) -> Peer:
    return next((each for each in worker_rows.load(tx) if each.id == worker), Peer(worker, "", -1))


def _lanes(after: Lane) -> Callable[[Tx], list[Lane]]:
    def unit(tx: Tx) -> list[Lane]:
        found: list[Lane] = []
        last = after
        while len(found) < _LANES and (page := queue_rows.lanes(tx, last, _LANES)):
            found += page
            last = page[-1]
        return found

    return unit


def _replay(account: str, each: str) -> Callable[[Tx], bool]:
    return lambda tx: replay.some(tx, account, each)


def _rescue(worker: bytes, keys: list[Key]) -> Callable[[Tx], int]:
    return lambda tx: units.rescue(tx, worker, keys)


def _standing_still(after: Key) -> Callable[[Tx], list[Key]]:
    return lambda tx: endpoint_rows.inactive_with_deliveries(tx, after, 100)


def _accounts(after: str) -> Callable[[Tx], list[Account]]:
    return lambda tx: account_rows.page(tx, after, 100)


def _endpoints_of(account: str) -> Callable[[Tx], list[Key]]:
    """All of them: an account has ten thousand at most."""
    raw = ids.raw(account)
    return lambda tx: [(raw, ids.raw(each.id)) for each in endpoint_rows.page(tx, account, LOWEST, 100_000)]


def _sweep(key: Key) -> Callable[[Tx], int]:
    return lambda tx: units.sweep(tx, key)


def _weight(worker: bytes, key: Key) -> bytes:
    return hashlib.blake2b(worker + key[0] + key[1], digest_size=8).digest()


def _renewing(renew: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def renew_bell() -> None:
        renew()

    return renew_bell


def _log_refused(host: str, port: int, why: str) -> None:
    """For the operator: the account sees no more than that the name has no public address."""
    log.warning("target refused by its address", host=host, port=port, reason=why)
