"""The delivery worker: claims deliveries in one commit, sends them with no transaction open, settles them in the next.

One commit settles the attempts that ended and claims the next ones. Everything else that the worker knows is in the
schedule, in memory, and can be lost at any moment.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gatepost.core import clock, ids
from gatepost.core.errors import Unavailable
from gatepost.core.logging import log
from gatepost.core.metrics import IN_FLIGHT, attempt_counter, observe_claims
from gatepost.core.repeat import Chore, Chores
from gatepost.egress.sender import Sender
from gatepost.store.interface import Store
from gatepost.store.pending import Key
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import by_node, health_rows, queue_rows, settle, worker_chores
from gatepost.webhooks import claim as claiming
from gatepost.webhooks.attempts import Attempts
from gatepost.webhooks.claim import Claimed
from gatepost.webhooks.open_claims import OpenClaims
from gatepost.webhooks.peers import BEAT_EVERY, Peers
from gatepost.webhooks.queue_rows import Lane
from gatepost.webhooks.schedule import SLOTS, Schedule, Turn
from gatepost.webhooks.service import Service
from gatepost.webhooks.settle import FinishedAttempt, Settled

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

POLL_EVERY = 1.0
_FINISH_FOR = 2.0  # seconds that a stopping worker has to cut off attempts, and to finish a heartbeat
SETTLE_FOR = 5.0  # seconds that a stopping worker has to settle its last attempts
SETTLED_AT_ONCE = 128
_CYCLES = {"sqlite": 1, "postgres": 2}  # at a time: one is prepared while the database server works on the other
_RETRY_STORE = 0.5  # seconds
_SHARE = 20.0  # a chore takes at most a twentieth of the time
_LANES = 500  # read at a time


class Cycle(NamedTuple):
    """The result of a commit: the attempts that it settled, and those that it claimed."""

    settled: Settled
    claimed: Claimed


class Worker:
    """A delivery worker. It belongs to one event loop; `name` identifies it in attempts and logs."""

    def __init__(
        self, store: Store, service: Service, place: str, *, proxy: str = "", ca: str = "",
        traces: "Traces | None" = None, slots: int = SLOTS, make_sender: type[Sender] = Sender,
    ) -> None:  # fmt: skip
        self._store = store
        self._id = ids.new_raw()
        self.name = ids.text("wrk", self._id)
        self._peers = Peers(store, self._id, place)
        self._schedule = Schedule(slots)
        self._attempts = Attempts(
            service, self.name, self._schedule, queues=_CYCLES[store.dialect], now=self._now, make_sender=make_sender,
            proxy=proxy, ca=ca, traces=traces,
        )  # fmt: skip
        self._cycles = 0  # that are running
        self._open_claims = OpenClaims(store, self._id)
        self._loop = asyncio.get_running_loop()
        self.chores = Chores()
        self._heartbeat = Chore("heartbeat", BEAT_EVERY, self._beat)

    def _now(self) -> int:
        return clock.milliseconds(self._store.now())

    # --- running

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set. Then finish the attempts in flight, or record them as interrupted.

        Raises an error if the deliveries or the chores end before that, because of a defect.
        """
        await _until_available("first heartbeat", self._beat)
        listener = self._store.listen(self._wake_from_thread)

        async def renew() -> None:
            listener.renew()

        self.chores.start(self._heartbeat)
        own = (("look", POLL_EVERY, self._poll), ("wake-up", 15.0, renew))
        for name, every, chore in (*own, *worker_chores.listed(self._store)):
            self.chores.start(Chore(name, every, chore, share=_SHARE))
        chores = asyncio.create_task(self.chores.run())
        delivering = [asyncio.create_task(self._deliver(finished)) for finished in self._attempts.finished]
        try:
            await _wait_until_stopping(stopping, [chores, *delivering])
            await self._drain(asyncio.gather(*delivering))
        finally:
            for task in (chores, *delivering):
                task.cancel()
            listener.close()
            self._attempts.close()

    async def _drain(self, delivering: asyncio.Future[list[None]]) -> None:
        """Claim nothing more, and wait for as long as any attempt in flight may take. The heartbeat goes on."""
        self._attempts.draining = True
        self._attempts.changed.set()
        self._peers.drain()
        self._heartbeat.hurry()
        await self.chores.cancel_except(self._heartbeat)
        longest = max(0.0, self._attempts.last_deadline - self._loop.time())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(delivering), longest + SETTLE_FOR)
        if not delivering.done():
            log.warning("attempts cut off by the end of the worker", attempts=self._attempts.abandon())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(delivering, _FINISH_FOR)
        await self.chores.finish(_FINISH_FOR)
        with contextlib.suppress(Unavailable):
            await self._peers.leave()

    # --- cycles of settling and claiming

    async def _deliver(self, finished: list[FinishedAttempt]) -> None:
        """Run one cycle after the other. All attempts to one endpoint are settled here, in order.

        A cycle that was running when draining began may still claim attempts that are to be settled here.
        """
        while not (self._attempts.draining and not finished and not self._attempts.in_flight and not self._cycles):
            now = self._now()
            searching = self._open_claims.search_due
            if searching and not self._cycles:
                await self._as_cycle(_until_available("unknown claims", self._release_unknown_claims))
                continue
            short = self._loop.time() < self._attempts.short_until
            claims = not (self._attempts.draining or searching or short)
            turns = by_node.turns(self._store.shards, self._schedule, now) if claims else []
            attempts = [] if searching else by_node.take(self._store.shards, finished, SETTLED_AT_ONCE)
            if not turns and not attempts:
                await self._wait(now)
                continue
            tasks = by_node.split(self._store.shards, attempts, turns)
            others = [asyncio.create_task(self._run_cycle(finished, task, now)) for task in tasks[1:]]
            await self._run_cycle(finished, tasks[0], now)
            await asyncio.gather(*others)

    async def _run_cycle(self, finished: list[FinishedAttempt], task: by_node.Task, now: int) -> None:
        """Run one cycle. What it cannot settle is put back."""
        attempts, turns = task
        try:
            await self._as_cycle(self._cycle_or_each(attempts, turns))
        except Unavailable as error:
            log.warning("deliveries wait for the store", error=str(error))
            finished[:0] = attempts
            self._schedule.not_claimed(turns, now)
            if turns:
                self._open_claims.commit_failed()
            await asyncio.sleep(_RETRY_STORE)

    async def _as_cycle(self, work: Awaitable[None]) -> None:
        """Count the cycle while it runs: unknown claims can be found only while none runs."""
        self._cycles += 1
        try:
            await work
        finally:
            self._cycles -= 1
            if self._open_claims.search_due or self._attempts.draining:
                self._attempts.changed.set()

    async def _wait(self, now: int) -> None:
        """Wait until an attempt ends, a wake-up arrives, or a delivery becomes due."""
        next_at = self._schedule.next_at()
        seconds = POLL_EVERY if next_at is None else min(POLL_EVERY, max(0.001, (next_at - now) / 1000))
        seconds = max(seconds, min(POLL_EVERY, self._attempts.short_until - self._loop.time()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._attempts.changed.wait()
        self._attempts.changed.clear()

    async def _cycle_or_each(self, attempts: list[FinishedAttempt], turns: list[Turn]) -> None:
        """Settle and claim in one commit. If that fails, do it separately: a defect in one must not stop the others."""
        try:
            await self._cycle(attempts, turns)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 (the same)
            log.exception("a batch of deliveries could not be settled")
            await self._settle_one_by_one(attempts)
            await self._claim_one_by_one(turns)

    async def _cycle(self, attempts: list[FinishedAttempt], turns: list[Turn]) -> None:
        self._attempts.write_log()
        began = self._now()
        succeeded = {attempt.result.claim.endpoint_key for attempt in attempts if attempt.succeeded}
        batch = settle.batch(attempts, self._schedule.healthy(succeeded, began))

        def unit(tx: Tx) -> Cycle:
            settled = settle.settle(tx, batch) if attempts else Settled([], [], {})
            return Cycle(settled, claiming.claim(tx, self._id, turns) if turns else Claimed([]))

        settled, claimed = await self._store.run(unit)
        self._open_claims.remove(attempt.result.claim for attempt in attempts)
        self._schedule.failures_cleared(succeeded - batch.healthy, began)
        now = self._now()
        self._after_settling(settled, now)
        self._after_claiming(claimed, turns, now)

    async def _release_unknown_claims(self) -> None:
        if await self._open_claims.release_unknown():
            await self._poll()

    async def _settle_one_by_one(self, attempts: list[FinishedAttempt]) -> None:
        """Settle attempts separately. One that cannot be settled stays open until its lease ends."""
        for attempt in attempts:
            try:
                await self._cycle([attempt], [])
            except Unavailable:
                self._attempts.queue(attempt)
            except Exception:  # noqa: BLE001 (the same)
                log.exception("a delivery could not be settled", delivery=attempt.result.claim.delivery_id)

    async def _claim_one_by_one(self, turns: list[Turn]) -> None:
        """Claim for endpoints separately. One whose deliveries cannot be claimed is tried again later."""
        for turn in turns:
            try:
                await self._cycle([], [turn])
            except Unavailable:
                self._schedule.not_claimed([turn], self._now())
                self._open_claims.commit_failed()
            except Exception:  # noqa: BLE001 (the same)
                log.exception("deliveries of an endpoint could not be claimed", endpoint=turn.lane.endpoint.hex())
                self._schedule.endpoint_inactive(turn, self._now(), failed=True)

    def _after_settling(self, settled: Settled, now: int) -> None:
        for key, until in settled.not_before.items():
            self._schedule.postpone(key, until)
        for key, due in settled.retries:
            if self._peers.owns(key):  # else its owner finds it in the queue: two schedules would exceed the limits
                self._schedule.retry_planned(key, due, now)
        for result in settled.overtaken:
            log.warning("late result ignored", delivery=result.claim.delivery_id, attempt=result.claim.number)

    def _after_claiming(self, claimed: Claimed, turns: list[Turn], now: int) -> None:
        lanes = {lane.lane: lane for lane in claimed.lanes}
        for turn in turns:
            lane = lanes.get(turn.lane)
            if lane is None:
                self._schedule.endpoint_inactive(turn, now)
                continue
            key = turn.lane[:2]
            position = None
            if lane.claims:
                last = lane.claims[-1].queued
                position = (last.due, last.id)
                self._schedule.set_limits(key, lane.endpoint.max_in_flight, lane.endpoint.rate_limit)
            next_due = lane.next_due if self._peers.owns(key) else None
            self._schedule.claimed(turn, len(lane.claims), position, next_due, now, lane.not_before)
        claims = claimed.claims
        self._open_claims.add(claims)
        for claim in claims:
            self._attempts.send(claim)
        if claimed.interrupted:
            attempt_counter("interrupted", "").inc(claimed.interrupted)
        observe_claims([(claim.attempt.waited_for, claim.attempt.waited_ms) for claim in claims])
        IN_FLIGHT.set(self._attempts.in_flight)

    # --- finding deliveries that are due

    def _wake_from_thread(self, keys: list[Key]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake, keys)

    def _wake(self, keys: list[Key]) -> None:
        """Deliveries were created for these endpoints. An empty list means that wake-ups may have been lost."""
        now = self._now()
        for key in keys:
            if self._peers.owns(key):
                self._schedule.delivery_created(key, now)
        if not keys:
            task = asyncio.create_task(self._poll())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._attempts.changed.set()

    async def _poll(self) -> None:
        """Read the queue, and the endpoints that asked for no attempts for now."""
        self._schedule.set_retry_afters(await self._store.read(health_rows.retry_afters))
        after = Lane(LOWEST, LOWEST, -1, 0)
        while page := await self._store.read(partial(_lanes, after)):
            now = self._now()
            for lane in page:
                if self._peers.owns(lane[:2]):
                    self._schedule.lane_found(lane, now)
            after = page[-1]
            self._attempts.changed.set()

    async def _beat(self) -> None:
        if await self._peers.beat() and not self._attempts.draining:
            self._schedule.reset()
            await self._poll()


async def _wait_until_stopping(stopping: asyncio.Event, work: list[asyncio.Task[None]]) -> None:
    """Wait for `stopping`. Raises an error if any of the work ends before that, which only a defect can cause."""
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([stop, *work], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    for task in work:
        if task.done():
            log.error("the worker ends because of a defect", exc_info=task.exception())
            raise RuntimeError("the work of the worker ended before it was stopped") from task.exception()


async def _until_available(what: str, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            return await work()
        except Unavailable as error:
            log.warning("worker waits for the store", what=what, error=str(error))
            await asyncio.sleep(_RETRY_STORE)


def _lanes(after: Lane, tx: Tx) -> list[Lane]:
    lanes: list[Lane] = []
    while len(lanes) < _LANES and (page := queue_rows.lanes(tx, after, _LANES)):
        lanes += page
        after = page[-1]
    return lanes
