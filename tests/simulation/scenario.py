"""One history: what tenants, operators and receivers do on each simulated day, and what goes wrong meanwhile.

Most of a day nothing happens. The clock then moves straight to the next moment at which something is due, so that a day
costs what happens in it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from gatepost import ids
from gatepost.errors import BadSetting
from gatepost.units import accounts as account_units
from gatepost.units import deliveries as delivery_units
from tests.simulation.deployment import Deployment, Running, Violation
from tests.simulation.invariants import Invariants, Shown, Waiting, _instant
from tests.simulation.loop import context_of
from tests.simulation.network import MOODS
from tests.simulation.stores import Fault
from tests.simulation.tenants import Tenant, check

DAY = 86_400.0
MOMENTS = 7  # of a day at which something happens by itself
FLOOD = 150  # events: more than twice the slots of a worker
LEAST = (20, 20, 5)  # deliveries, token requests and faults of a day
TYPES = ("invoice.paid", "invoice.sent", "order.placed", "user.joined")
Action = Callable[[], Awaitable[None]]


@dataclass
class Totals:
    """What one history consisted of."""

    days: int = 0
    deliveries: int = 0
    attempts: int = 0
    tokens: int = 0
    faults: int = 0
    checks: int = 0
    commits: int = 0


class Scenario:
    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.deployment = deployment
        self.loop = deployment.loop
        self.random = Random(f"{seed} scenario")
        self.invariants = Invariants(deployment)
        self.tenants: list[Tenant] = []
        self.totals = Totals()
        self.restarts: set[asyncio.Task[None]] = set()
        self._places = 0

    # --- the history

    async def begin(self, tenants: int = 3) -> None:
        self.deployment.start("supervisor")
        self.deployment.start("web")
        self.deployment.start("web")
        self.deployment.start("worker", "place 0")
        if self.random.random() < 0.5:
            self.second_worker()
        await asyncio.sleep(0.1)
        for number in range(tenants):
            tenant = Tenant(self.deployment, f"tenant-{number}", self.random)
            await tenant.define()
            for _ in range(self.random.randint(1, 3)):
                await self.new_endpoint(tenant)
            self.tenants.append(tenant)
        self.invariants.tenants = self.tenants
        self.invariants.install()
        await self.flood()

    async def day(self) -> None:
        start, before = self.loop.time(), self.count()
        for moment in sorted(self.random.uniform(0, DAY * 0.9) for _ in range(MOMENTS)):
            await self.advance(start + moment)
            await self.moment()
        while any(now - then < least for now, then, least in zip(self.count(), before, LEAST, strict=True)):
            await self.advance(self.loop.time() + 60)
            await self.moment()
            if self.loop.time() > start + DAY:
                await self.all_well()
        await self.advance(start + DAY)
        await self.until_quiet()
        self.invariants.everything()
        self.totals.days += 1
        self.totals.tokens = sum(tenant.tokens for tenant in self.tenants)
        self.totals.checks = self.invariants.checked
        self.totals.commits = self.deployment.disk.commits

    def count(self) -> tuple[int, int, int]:
        return self.totals.deliveries, sum(tenant.tokens for tenant in self.tenants), self.totals.faults

    async def moment(self) -> None:
        """Several things at once, and often a fault among them."""
        actions = [self.pick_action() for _ in range(self.random.randint(3, 6))]
        tasks = [asyncio.ensure_future(action()) for action in actions]
        if self.random.random() < 0.8:
            await asyncio.sleep(self.random.uniform(0, 0.02))
            self.fault()
        for _ in range(self.random.randint(0, 2)):
            await asyncio.sleep(self.random.uniform(0, 3))
            tasks.append(asyncio.ensure_future(self.pick_action()()))
        await asyncio.gather(*tasks)
        self.look()

    # --- time

    async def advance(self, until: float) -> None:
        while self.loop.time() < until:
            waiting = self.look()
            target = self.next_event(waiting, until)
            if target is None:
                await asyncio.sleep(0.7)
                continue
            if self.random.random() < 0.15:
                await self.read_plans()
            if target > self.loop.time() + 1:
                self.skip(target)
            await asyncio.sleep(max(0.05, target - self.loop.time()))

    def look(self) -> list[Waiting]:
        """Every step: nothing unexpected was logged or raised, and nothing waits for too long."""
        for problem in (*self.deployment.problems, *self.loop.errors):
            raise Violation(problem)
        waiting = self.invariants.waiting()
        self.invariants.check_waiting(waiting)
        self.invariants.check_workers()
        self.totals.attempts = len(self.invariants.sent)
        return waiting

    def next_event(self, waiting: list[Waiting], until: float) -> float | None:
        """When something is due next, if until then nothing happens; None while something does."""
        disk, processes = self.deployment.disk, self.deployment.processes
        if self.restarts or disk.stalled_until > self.loop.time() or disk.planned:
            return None
        if any(each.process.frozen_until > self.loop.time() for each in processes):
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
        return min([until, *[self.loop.time() + (at - now) / 1000 for at in times]])

    def skip(self, until: float) -> None:
        """Over a stretch in which processes only repeat themselves. Of that, heartbeats are all that leaves a trace."""
        self.loop.skip_to(until)
        world = self.deployment.world
        assert world is not None
        live = [each.worker for each in self.deployment.alive("worker") if each.worker is not None]
        names = [ids.raw(worker.name) for worker in live]

        def beat(tx: Any) -> None:
            for peer in tx.webhooks.workers():
                if peer.id in names:
                    tx.webhooks.beat(peer.id, peer.place)

        world.store.run_now(beat)

    async def until_quiet(self) -> None:
        for _ in range(600):
            waiting = self.look()
            if self.next_event(waiting, self.loop.time() + DAY) is not None:
                return
            await asyncio.sleep(0.5)
        raise Violation("the service did not come to rest within five minutes")

    async def read_plans(self) -> None:
        """What a reader is shown of the next attempts."""
        with_some = {row[0] for row in self.invariants.select("SELECT DISTINCT account FROM queue")}
        for tenant in [each for each in self.tenants if ids.raw(each.id) in with_some]:
            records = await tenant.get_deliveries(status="pending", limit="200")
            for record in records or []:
                check(record["account"] == tenant.id, "a delivery of another account is shown")
                next_at = record["retries"]["next_at"]
                if next_at is not None:
                    made = [each["number"] for each in record["attempts"]]
                    number = max(made, default=0) + 1
                    self.invariants.shown[ids.raw(record["id"])] = Shown(number, _instant(next_at), self.loop.time())

    # --- what tenants, operators and receivers do

    def pick_action(self) -> Action:
        names = list(ACTIONS)
        name = self.random.choices(names, [ACTIONS[each] for each in names])[0]
        action: Action = getattr(self, name)
        return action

    def any_tenant(self) -> Tenant:
        return self.random.choice(self.tenants)

    async def publish(self) -> None:
        tenant, type_ = self.any_tenant(), self.random.choice(TYPES)
        before = self.invariants.subscribers(tenant, type_)
        alone = not self.invariants.backlog(tenant)
        event = await tenant.publish(type_, {"n": self.random.randint(0, 9)})
        if event is not None:
            if alone:
                self.invariants.alone.update(ids.raw(each) for each in event.deliveries)
            self.totals.deliveries += event.matched
            if before == self.invariants.subscribers(tenant, type_):
                check(event.matched == len(before), f"{event} should have matched {len(before)} subscriptions")

    async def publish_many(self) -> None:
        tenant = self.any_tenant()
        count = self.random.randint(3, 15)
        events = await asyncio.gather(
            *[tenant.publish(self.random.choice(TYPES), {"n": number}) for number in range(count)]
        )
        self.totals.deliveries += sum(event.matched for event in events if event)

    async def flood(self) -> None:
        """One tenant has far more to send than its receivers take: the others must not notice."""
        tenant = self.any_tenant()
        for (url,) in self.invariants.select(
            "SELECT document FROM endpoints WHERE account = :account", account=ids.raw(tenant.id)
        ):
            self.deployment.network.receiver(json.loads(url)["url"]).mood = "slow"
        events = await asyncio.gather(*[tenant.publish("invoice.paid", {"n": number}) for number in range(FLOOD)])
        self.totals.deliveries += sum(event.matched for event in events if event)
        others = [each for each in self.tenants if each is not tenant]
        alone = await asyncio.gather(*[each.publish("invoice.paid", {"n": 0}) for each in others])
        self.invariants.alone.update(ids.raw(each) for event in alone if event for each in event.deliveries)

    async def machine_token(self) -> None:
        tenant = self.any_tenant()
        for _ in range(self.random.randint(1, 4)):
            await tenant.ask(tenant.machine, grant_type="client_credentials", scope="things:read")

    async def refused_token(self) -> None:
        tenant = self.any_tenant()
        answer = await tenant.ask(tenant.machine, grant_type="client_credentials", scope="things:write")
        check(answer is None or answer.status != 200, "a scope that was never granted was issued")

    async def sign_in(self) -> None:
        tenant = self.any_tenant()
        await tenant.sign_in()

    def any_family(self) -> tuple[Tenant, Any] | None:
        tenant = self.any_tenant()
        tenant.families = [each for each in tenant.families if not each.over][-5:]
        return (tenant, self.random.choice(tenant.families)) if tenant.families else None

    async def refresh(self) -> None:
        found = self.any_family()
        if found is None:
            return await self.sign_in()
        tenant, family = found
        token = family.token
        answer = await tenant.refresh(family, token)
        for _ in range(3):  # a lost answer: the same token again, while the grace lasts
            if answer is not None and answer.status != 503:
                break
            await asyncio.sleep(0.5)
            answer = await tenant.refresh(family, token)
        if answer is not None and answer.status == 400:
            family.over = True
        return None

    async def refresh_twice(self) -> None:
        found = self.any_family()
        if found is None:
            return await self.sign_in()
        tenant, family = found
        token = family.token
        answers = await asyncio.gather(*[tenant.refresh(family, token) for _ in range(3)])
        if any(answer is not None and answer.status == 400 for answer in answers):
            family.over = True
        return None

    async def reuse(self) -> None:
        """An old token shows up again: from then on nothing of the family works."""
        found = self.any_family()
        if found is None or len(found[1].previous) < 2:
            return
        tenant, family = found
        old = family.previous[-2]
        answer = await tenant.ask(tenant.app, grant_type="refresh_token", refresh_token=old)
        if answer is None or answer.status == 503:
            return
        if answer.status == 401 and tenant.may_be_refused:
            return
        check(answer.status == 400, f"a refresh token of two generations ago was answered {answer.status}")
        family.over = True
        await self._check_ended(tenant, family)

    async def revoke(self) -> None:
        found = self.any_family()
        if found is None:
            return
        tenant, family = found
        answer = await self.deployment.request(
            "POST", "/oauth/revoke", headers=tenant.app.headers, form={"token": family.token}
        )
        if answer is None or answer.status == 503:
            return
        if answer.status == 200:
            family.over = True
            await self._check_ended(tenant, family)

    async def _check_ended(self, tenant: Tenant, family: Any) -> None:
        for token in (family.token, *family.access[-2:]):
            active = await tenant.introspect(token)
            check(not active, "a token of a family that was ended is active")

    async def new_endpoint(self, tenant: Tenant | None = None) -> None:
        tenant = tenant or self.any_tenant()
        members: dict[str, Any] = {"timeout": self.random.choice([5, 15])}
        if self.random.random() < 0.3:
            members["rate_limit"] = self.random.choice([1, 5, 50])
        if self.random.random() < 0.3:
            members["max_in_flight"] = self.random.choice([1, 2, 8])
        await tenant.define_endpoint(**members)

    def any_endpoint(self) -> tuple[Tenant, str] | None:
        tenant = self.any_tenant()
        return (tenant, self.random.choice(tenant.endpoints)) if tenant.endpoints else None

    async def redefine(self, **members: Any) -> int | None:
        """Change one endpoint; its status code, if there was an answer. Its plans may change from now on."""
        found = self.any_endpoint()
        if found is None:
            return None
        tenant, endpoint = found
        self.invariants.changed[ids.raw(endpoint)] = self.loop.time() + 60
        began = self.deployment.milliseconds()
        answer = await tenant.post("/webhooks/endpoints", {"id": endpoint} | members)
        self.invariants.changed[ids.raw(endpoint)] = self.loop.time()
        if members.get("status") == "active" and (answer is None or answer.status != 409):
            if answer is not None and answer.status == 200:
                self.invariants.retry_after_is_cleared(endpoint, began)
            self.invariants.asked.pop(ids.raw(endpoint), None)
        if members.get("status") == "removed" and answer is not None and answer.status == 200:
            tenant.endpoints.remove(endpoint)
        return answer.status if answer else None

    async def pause(self) -> None:
        await self.redefine(status="disabled")

    async def resume(self) -> None:
        await self.redefine(status="active")

    async def change_limits(self) -> None:
        change: dict[str, Any] = self.random.choice(
            [{"max_in_flight": 1}, {"max_in_flight": 16}, {"rate_limit": 10}, {"rate_limit": None}]
        )
        await self.redefine(**change)

    async def rotate_endpoint_secret(self) -> None:
        await self.redefine(rotate_secret=True)

    async def remove_endpoint(self) -> None:
        tenant = self.any_tenant()
        if len(tenant.endpoints) > 1:
            await self.redefine(status="removed")
            await self.new_endpoint(tenant)

    async def replay(self) -> None:
        tenant = self.any_tenant()
        if tenant.subscriptions:
            asked = self.random.choice([{"only": "failed"}, {}])
            since = self.deployment.now() - timedelta(hours=self.random.randint(1, 30))
            body = {"id": self.random.choice(tenant.subscriptions), "replay": {"from": since.isoformat(), **asked}}
            await tenant.post("/webhooks/subscriptions", body)

    async def suspend(self) -> None:
        """By the command line, beside the service; and resumed a while later."""
        tenant = self.any_tenant()
        world = self.deployment.world
        assert world is not None
        if tenant.may_be_refused:
            return
        tenant.may_be_refused = True
        self._change_plans(tenant)
        world.store.run_now(lambda tx: account_units.suspend(tx, tenant.name, "simulated"))
        tenant.suspended = True
        await asyncio.sleep(self.random.uniform(1, 30))
        tenant.suspended = False
        world.store.run_now(lambda tx: account_units.resume(tx, tenant.name))
        self._change_plans(tenant)
        await asyncio.sleep(15.0)  # requests that began before have ended
        tenant.may_be_refused = False

    def _change_plans(self, tenant: Tenant) -> None:
        for (endpoint,) in self.invariants.select(
            "SELECT id FROM endpoints WHERE account = :account", account=ids.raw(tenant.id)
        ):
            self.invariants.changed[endpoint] = self.loop.time()

    async def operator_acts(self) -> None:
        """Retry or cancel a delivery that is not ended."""
        world = self.deployment.world
        assert world is not None
        rows = self.invariants.select("SELECT account, id, endpoint FROM queue ORDER BY account, id")
        if not rows:
            return
        account, delivery, endpoint = self.random.choice(rows)
        self.invariants.changed[endpoint] = self.loop.time()
        act = self.random.choice([delivery_units.retry, delivery_units.cancel])

        def unit(tx: Any) -> None:
            found = tx.lock_account(ids.text("acc", account))
            act(tx, found, ids.text("dlv", delivery))

        with suppress(BadSetting):
            world.store.run_now(unit)

    async def change_mood(self) -> None:
        if not self.deployment.network.receivers:
            return
        receiver = self.random.choice(sorted(self.deployment.network.receivers.values(), key=lambda each: each.url))
        receiver.mood = self.random.choices(list(MOODS), list(MOODS.values()))[0]
        receiver.delay = self.random.choice([0.005, 0.05, 0.5])
        receiver.retry_after = self.random.choice([30, 300, 7200])

    async def all_well(self) -> None:
        for receiver in self.deployment.network.receivers.values():
            receiver.mood = "well"

    # --- what goes wrong

    def fault(self) -> None:
        self.totals.faults += 1
        name = self.random.choices(list(FAULTS), list(FAULTS.values()))[0]
        getattr(self, name)()

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

    def _crash(self, running: Running, pause: float) -> None:
        self.deployment.crash(running)
        self._restart(running, pause)

    def _restart(self, running: Running, pause: float) -> None:
        self.invariants.disturb(pause + 13)

        async def restart() -> None:
            await asyncio.sleep(pause)
            self.deployment.start(running.kind, running.place)

        self._soon(restart())

    def _soon(self, change: Coroutine[Any, Any, None]) -> None:
        """A change of the deployment that is under way; outside of the process that may be the cause of it."""
        task: asyncio.Task[None] = self.loop.create_task(change, context=context_of(None))
        self.restarts.add(task)
        task.add_done_callback(self.restarts.discard, context=context_of(None))

    def crash_in_commit(self) -> None:
        self.deployment.disk.planned = [
            *[Fault.NONE] * self.random.randint(0, 3), self.random.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
        ]  # fmt: skip

        def crashed(process: Any) -> None:
            for running in list(self.deployment.processes):
                if running.process is process:
                    self._crash(running, self.random.choice([0.2, 5.0]))

        self.deployment.disk.on_crash = crashed

    def lose_answers(self) -> None:
        kinds = [Fault.REFUSED, Fault.LOST, Fault.LATE, Fault.NONE]
        self.deployment.disk.planned = [self.random.choice(kinds) for _ in range(self.random.randint(1, 6))]

    def stall(self) -> None:
        seconds = self.random.choice([0.2, 1.0, 10.0, 15.0, 60.0])
        self.deployment.disk.stalled_until = self.loop.time() + seconds
        self.invariants.disturb(seconds + 13)  # a chore that took long pauses for 10 s at most, then all is as before

    def freeze(self) -> None:
        """A process that the machine does not run for a while."""
        running = self.random.choice(self.deployment.processes)
        seconds = self.random.choice([1.0, 8.0, 30.0])
        running.process.frozen_until = self.loop.time() + seconds
        self.invariants.disturb(seconds + 16)

    def silence_bell(self) -> None:
        disk = self.deployment.disk
        disk.bell_works = not disk.bell_works

    def run_short(self) -> None:
        """The worker's machine has no file descriptors left, for a minute."""
        network = self.deployment.network
        network.short_of_files = True
        self.invariants.disturb(75)

        async def recover() -> None:
            await asyncio.sleep(60)
            network.short_of_files = False

        self._soon(recover())

    def set_clock(self) -> None:
        self.deployment.step += timedelta(seconds=self.random.choice([-90, -5, 5, 90]))
        self.invariants.shown.clear()
        self.invariants.asked.clear()
        self.invariants.disturb(120)

    def second_worker(self) -> None:
        workers = self.deployment.alive("worker")
        self.invariants.disturb(30)
        if len(workers) < 2:
            self._places += 1
            self.deployment.start("worker", f"place {self._places}")
        else:
            running = workers[-1]
            assert running.stopping is not None
            running.stopping.set()

            async def leave() -> None:
                await asyncio.sleep(40)
                if running.process.alive:
                    self.deployment.crash(running)

            self._soon(leave())
            self.invariants.disturb(60)


# what tenants, operators and receivers do → how often
ACTIONS = {
    "publish": 7, "publish_many": 1, "machine_token": 6, "refused_token": 1, "sign_in": 1, "refresh": 5,
    "refresh_twice": 1, "reuse": 0.5, "revoke": 0.5, "new_endpoint": 0.2, "pause": 0.5, "resume": 1.5,
    "change_limits": 0.5, "rotate_endpoint_secret": 0.2, "remove_endpoint": 0.1, "replay": 0.3, "suspend": 0.2,
    "operator_acts": 0.5, "change_mood": 4, "all_well": 0.5,
}  # fmt: skip
FAULTS = {
    "crash_worker": 3, "crash_web": 1, "crash_supervisor": 1, "crash_in_commit": 3, "lose_answers": 4, "stall": 3,
    "freeze": 2, "silence_bell": 1, "run_short": 1, "set_clock": 0.5, "second_worker": 1,
}  # fmt: skip
