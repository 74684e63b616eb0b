"""The faults: crashes, lost responses, stalls, frozen processes and clock steps."""

import asyncio
from datetime import timedelta
from typing import Any

from tests.simulation.deployment import Running
from tests.simulation.operations import Operations
from tests.simulation.stores import Fault


class Faults(Operations):
    # --- crashes

    def crash_worker(self) -> None:
        running = self.random.choice(self.deployment.alive("worker") or [None])
        if running is not None:
            self._crash(running, self.random.choice([0.2, 1.0, 8.0, 20.0]))

    def crash_web(self) -> None:
        running = self.random.choice(self.deployment.alive("web") or [None])
        if running is not None:
            self._crash(running, 0.2)

    def crash_supervisor(self) -> None:
        running = next(iter(self.deployment.alive("supervisor")), None)
        if running is not None:
            self._crash(running, 1.0)

    def restart_into_news(self) -> None:
        """Restart all workers while events arrive, some of them for an endpoint with a Retry-After."""
        for running in self.deployment.alive("worker"):
            self._crash(running, 0.2)
        found = self.any_postponed_endpoint()
        tenant = found[0] if found else self.any_tenant()
        for _ in range(8):
            self.later(0.2 + self.random.uniform(0, 0.012), lambda: self.publish_some(tenant, 1), self.changes)

    def crash_in_commit(self) -> None:
        pause = self.random.choice([0.2, 5.0])
        self.deployment.disk.planned = [
            *[Fault.NONE] * self.random.randint(0, 3), self.random.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
        ]  # fmt: skip

        def crashed(process: Any) -> None:
            for running in list(self.deployment.processes):
                if running.process is process:
                    self._crash(running, pause)

        self.deployment.disk.on_crash = crashed

    def _crash(self, running: Running, pause: float) -> None:
        self.deployment.crash(running)
        self.invariants.disturb(pause + 13)

        async def restart() -> None:
            self.deployment.start(running.kind, running.place)

        self.later(pause, restart, self.changes)

    # --- the store

    def lose_answers(self) -> None:
        kinds = [Fault.REFUSED, Fault.LOST, Fault.LATE, Fault.NONE]
        self.deployment.disk.planned = [self.random.choice(kinds) for _ in range(self.random.randint(1, 6))]

    def stall(self) -> None:
        seconds = self.random.choice([0.2, 1.0, 10.0, 15.0, 60.0])
        self.deployment.disk.stalled_until = self.loop.time() + seconds
        self.invariants.disturb(seconds + 13)  # a chore that took long pauses for at most 10 s

    def silence_bell(self) -> None:
        disk = self.deployment.disk
        disk.bell_works = not disk.bell_works

    # --- the machine

    def freeze(self) -> None:
        """Freeze a process, as if the machine did not schedule it."""
        running = self.random.choice(self.deployment.processes)
        self._freeze(running, self.random.choice([1.0, 8.0, 30.0]))

    def freeze_worker(self) -> None:
        """Freeze a worker during attempts until other workers consider it dead and repeat its attempts."""
        if len(self.deployment.alive("worker")) < 2:
            self.second_worker()
        tenant, seconds, place = self.any_tenant(), self.random.choice([12.0, 14.0, 40.0]), self.random.random()
        for receiver in self._receivers(tenant):
            receiver.mood = self.random.choice(["overloaded", "broken", "late"])
            receiver.delay, receiver.retry_after = 0.5, 300

        async def begin() -> None:
            await self.publish_some(tenant, 6)
            await asyncio.sleep(0.1)
            workers = self.deployment.alive("worker")
            if workers:
                self._freeze(workers[int(place * len(workers))], seconds)

        async def recover() -> None:
            for receiver in self._receivers(tenant):
                receiver.mood = "well"

        self.later(seconds + 20, recover, self.returns)
        self.later(0.05, begin, self.changes)

    def _freeze(self, running: Running, seconds: float) -> None:
        running.process.frozen_until = self.loop.time() + seconds
        self.invariants.disturb(seconds + 16)

    def run_short(self) -> None:
        """Let the machine of the workers run out of file descriptors for a minute."""
        network = self.deployment.network
        network.short_of_files = True
        self.invariants.disturb(75)

        async def recover() -> None:
            network.short_of_files = False

        self.later(60, recover, self.changes)

    def set_clock(self) -> None:
        self.deployment.step += timedelta(seconds=self.random.choice([-90, -5, 5, 90]))
        self.invariants.shown.clear()
        self.invariants.asked.clear()
        self.invariants.disturb(120)

    def second_worker(self) -> None:
        """Start a second worker or, if there are two, stop one."""
        workers = self.deployment.alive("worker")
        self.invariants.disturb(30)
        if len(workers) < 2:
            self.places += 1
            self.deployment.start("worker", f"place {self.places}")
            return
        running = workers[-1]
        assert running.stopping is not None
        running.stopping.set()

        async def leave() -> None:
            if running.process.alive:
                self.deployment.crash(running)

        self.later(40, leave, self.changes)
        self.invariants.disturb(60)
