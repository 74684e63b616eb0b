"""One history: the moments of each simulated day, and the passing of time between them.

During most of a day nothing happens. The clock then moves directly to the next time at which something is due, so that
the duration of a run depends only on the number of events.
"""

import asyncio
from typing import Any

from gatepost.core import ids
from gatepost.webhooks import worker_rows
from tests.simulation import script
from tests.simulation.deployment import Deployment, Violation
from tests.simulation.faults import Faults
from tests.simulation.invariants import Waiting
from tests.simulation.loop import MOMENT
from tests.simulation.script import DAY, Moment
from tests.simulation.tenants import Tenant, check

HOP = 3.0  # seconds: less than the time until a dead worker is noticed
LEAST = (20, 20, 5)  # the minimum of deliveries, token requests and faults of a day
MOST_ATTEMPTS = 5_000  # in a day: more attempts mean that a delivery never ends


class Scenario(Faults):
    def __init__(self, deployment: Deployment, seed: int) -> None:
        super().__init__(deployment)
        self._seed = seed
        self._attempts_before = 0  # this day

    # --- the history

    async def begin(self) -> None:
        script.draw_from(f"{self._seed} begin")
        self.deployment.start("supervisor")
        self.deployment.start("web")
        self.deployment.start("web")
        self.deployment.start("worker", "place 0")
        if self.random.random() < 0.7:
            self.second_worker()
        await asyncio.sleep(0.1)
        for number, hold_limit in enumerate(("30d", "7d", "1d")):
            tenant = Tenant(self.deployment, f"tenant-{number}", hold_limit)
            await tenant.define()
            for _ in range(self.random.randint(1, 3)):
                await self.new_endpoint(tenant)
            self.tenants.append(tenant)
        self.invariants.tenants = self.tenants
        self.invariants.install()
        await self.hold_for_long()
        await self.flood()

    async def day(self) -> None:
        start, before, number = self.loop.time(), self.count(), script.MOMENTS
        self._attempts_before = self.invariants.attempts
        for moment in script.moments(self._seed, self.totals.days):
            await self.advance(start + moment.at)
            await self.take_place(moment)
        while any(each < least for each, least in zip(self.count_since(before), LEAST, strict=True)):
            await self.advance(self.loop.time() + 60)
            await self.take_place(script.moment(self._seed, self.totals.days, number))
            number += 1
            if self.loop.time() > start + DAY:
                await self.all_well()
        await self.advance(start + DAY)
        await self.until_quiet()
        self.totals.days += 1
        self.invariants.everything(self.totals.days)
        self.totals.fewest = tuple(map(min, self.totals.fewest, self.count_since(before)))
        self.totals.tokens = sum(tenant.tokens for tenant in self.tenants)
        self.totals.checks = self.invariants.checked
        self.totals.commits = self.deployment.disk.commits

    def count(self) -> tuple[int, ...]:
        return self.totals.deliveries, sum(tenant.tokens for tenant in self.tenants), self.totals.faults

    def count_since(self, before: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(now - then for now, then in zip(self.count(), before, strict=True))

    async def take_place(self, moment: Moment) -> None:
        """Run the steps of a moment concurrently."""
        began, tasks = self.loop.time(), []
        for step in moment.steps:
            await asyncio.sleep(max(0.0, began + step.after - self.loop.time()))
            tasks.append(asyncio.ensure_future(self.take(step)))
        await asyncio.gather(*tasks)
        self.look()

    # --- time

    async def advance(self, until: float) -> None:
        while self.loop.time() < until:
            if not self.loop.idle:
                await asyncio.sleep(MOMENT)
                continue
            waiting = self.look()
            target = self.next_event(waiting, until)
            if target is None:
                await asyncio.sleep(0.3 if self.hop(waiting) else 0.7)
                continue
            if waiting and self.looks % 8 == 0:
                await self.read_plans()
                continue
            if target > self.loop.time() + 1:
                self.loop.skip_sleeping_to(target)
                self.beat()
            await asyncio.sleep(max(0.05, target - self.loop.time()))

    def look(self) -> list[Waiting]:
        """Check that no error was logged or raised and that no delivery waits too long. Runs after every step."""
        self.looks += 1
        for problem in (*self.deployment.problems, *self.loop.errors):
            raise Violation(problem)
        waiting = self.invariants.waiting()
        self.invariants.check_waiting(waiting)
        self.invariants.check_workers()
        self.totals.attempts = self.invariants.attempts
        check(self.totals.attempts - self._attempts_before < MOST_ATTEMPTS, "attempts go on without an end")
        return waiting

    def next_event(self, waiting: list[Waiting], until: float) -> float | None:
        """Return the next time at which something is due, or None if something is in progress."""
        disk = self.deployment.disk
        if self.changes or disk.stalled_until > self.loop.time() or disk.planned:
            return None
        if any(each.process.frozen_until > self.loop.time() for each in self.deployment.processes):
            return None
        if not self.invariants.every_worker_beats():
            return None
        if any(each.worker is not None for each in waiting):
            return None
        if self.invariants.select("SELECT 1 FROM unsealed LIMIT 1") or self.invariants.select(
            "SELECT 1 FROM replays WHERE state = 'running' LIMIT 1"
        ):
            return None
        now = self.deployment.milliseconds()
        times = [each.earliest for each in waiting if each.can_be_sent]
        if any(at <= now for at in times):
            return None
        later = [self.loop.time() + (at - now) / 1000 for at in times]
        return min([until, *later, *self.returns.values()])

    def beat(self) -> None:
        """Write the heartbeats of all workers after a skipped period, in which they would have done nothing else."""
        world = self.deployment.world
        assert world is not None
        names = [ids.raw(each.worker.name) for each in self.deployment.running("worker") if each.worker is not None]

        def beat(tx: Any) -> None:
            for peer in worker_rows.load(tx):
                if peer.id in names:
                    worker_rows.beat(tx, peer.id, peer.place, draining=peer.draining)

        world.store.run_now(beat)

    def hop(self, waiting: list[Waiting]) -> bool:
        """Skip some seconds in which only attempts are in progress or a process is about to start."""
        disk, now = self.deployment.disk, self.loop.time()
        if disk.planned or disk.stalled_until > now or not self.loop.idle or not self.invariants.every_worker_beats():
            return False
        busy = {each.endpoint for each in waiting if each.worker is not None}
        wall = self.deployment.milliseconds()
        free = [each for each in waiting if each.can_be_sent and (each.endpoint not in busy or each.earliest > wall)]
        frozen = [each.process.frozen_until for each in self.deployment.processes if each.process.frozen_until > now]
        until = min(
            [now + HOP, *frozen, *self.deployment.network.ends(), *self.changes.values(), *self.returns.values()]
            + [now + (each.earliest - wall) / 1000 for each in free]
        )
        if until <= now + 0.7:
            return False
        self.loop.skip_to(until - 0.1)
        self.beat()
        return True

    async def until_quiet(self) -> None:
        for _ in range(600):
            waiting = self.look()
            if self.next_event(waiting, self.loop.time() + DAY) is not None:
                return
            self.hop(waiting)
            await asyncio.sleep(0.5)
        raise Violation("the service did not come to rest within five minutes")
