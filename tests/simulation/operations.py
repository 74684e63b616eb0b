"""The operations of tenants, operators and receivers, and checks of their results."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.oauth import account_admin
from gatepost.webhooks import operator_actions
from tests.simulation import script
from tests.simulation.deployment import Deployment, Response
from tests.simulation.invariants import Invariants
from tests.simulation.loop import context_of
from tests.simulation.network import MOODS
from tests.simulation.script import Step
from tests.simulation.tenants import Family, Tenant, check

FLOOD = 40  # events to each of four endpoints: more than twice the slots of a worker
TYPES = ("invoice.paid", "invoice.sent", "order.placed", "user.joined")
Change = Callable[[], Coroutine[Any, Any, None]]


@dataclass
class Totals:
    """The totals of a history."""

    days: int = 0
    deliveries: int = 0
    attempts: int = 0
    tokens: int = 0
    faults: int = 0
    checks: int = 0
    commits: int = 0
    fewest: tuple[int, ...] = (1_000_000,) * 3  # the minimum of deliveries, token requests and faults in a day


class Operations:
    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.loop = deployment.loop
        self.invariants = Invariants(deployment)
        self.tenants: list[Tenant] = []
        self.totals = Totals()
        self.looks = self.places = 0
        self.changes: dict[asyncio.Task[None], float] = {}  # scheduled changes of processes, with their times
        self.returns: dict[asyncio.Task[None], float] = {}  # scheduled ends of suspensions, with their times

    @property
    def random(self) -> Random:
        return script.random()

    async def take(self, step: Step) -> None:
        script.draw_from(step.seed)
        if step.name in script.FAULTS:
            self.totals.faults += 1
            getattr(self, step.name)()
        else:
            await getattr(self, step.name)()

    def later(self, seconds: float, change: Change, among: dict[asyncio.Task[None], float]) -> None:
        """Run a coroutine outside of the current process, which may have caused it."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            await change()

        def over(task: asyncio.Task[None]) -> None:
            del among[task]

        task: asyncio.Task[None] = self.loop.create_task(wait(), context=context_of(None))
        among[task] = self.loop.time() + seconds
        task.add_done_callback(over, context=context_of(None))

    def any_tenant(self) -> Tenant:
        return self.random.choice(self.tenants)

    # --- events

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
        await self.publish_some(self.any_tenant(), self.random.randint(3, 15))

    async def publish_some(self, tenant: Tenant, count: int) -> None:
        types = [self.random.choice(TYPES) for _ in range(count)]
        events = await asyncio.gather(*[tenant.publish(type_, {"n": n}) for n, type_ in enumerate(types)])
        self.totals.deliveries += sum(event.matched for event in events if event)

    async def flood(self) -> None:
        """Publish more events than the receivers of a tenant accept. Other tenants must not be affected."""
        tenant = self.tenants[0]
        urls = [await tenant.define_endpoint(max_in_flight=16, events=["flood.*"]) for _ in range(4)]
        receivers = [self.deployment.network.receiver(url) for url in urls if url]
        for receiver in receivers:
            receiver.mood, receiver.delay = "slow", 0.005
        for receiver in receivers[:2]:
            receiver.mood = "broken"
        await asyncio.gather(*[tenant.publish("flood.came", {"n": number}) for number in range(FLOOD)])
        await asyncio.sleep(3)
        for receiver in receivers[:2]:
            receiver.mood = "slow"
        others = [each for each in self.tenants if each is not tenant]
        for _ in range(8):
            await asyncio.sleep(2)
            quiet = [each for each in others if not self.invariants.backlog(each)]
            alone = await asyncio.gather(*[each.publish("invoice.paid", {"n": 0}) for each in quiet])
            self.invariants.alone.update(ids.raw(each) for event in alone if event for each in event.deliveries)

    async def hold_for_long(self) -> None:
        """Hold deliveries for longer than the retention of ended ones."""
        tenant = self.tenants[0]
        url = await tenant.define_endpoint(events=["invoice.*"])
        if url is not None:
            endpoint = tenant.endpoints.pop()  # no other operation uses it
            await tenant.post("/webhooks/endpoints", {"id": endpoint, "status": "disabled"})

    async def replay(self) -> None:
        tenant = self.any_tenant()
        if tenant.subscriptions:
            asked = self.random.choice([{"only": "failed"}, {}])
            since = self.deployment.now() - timedelta(hours=self.random.randint(1, 30))
            body = {"id": self.random.choice(tenant.subscriptions), "replay": {"from": since.isoformat(), **asked}}
            await tenant.post("/webhooks/subscriptions", body)

    async def read_plans(self) -> None:
        """Read the planned attempts of deliveries."""
        with_some = {row[0] for row in self.invariants.select("SELECT DISTINCT account FROM queue")}
        tenants = [each for each in self.tenants if ids.raw(each.id) in with_some]
        if not tenants:
            return
        tenant = tenants[self.looks % len(tenants)]
        asked_at = self.loop.time()
        for record in await tenant.get_deliveries(status="pending", limit="50") or []:
            check(record["account"] == tenant.id, "a delivery of another account is shown")
            self.invariants.plan_is_shown(record, asked_at)

    # --- tokens

    async def machine_token(self) -> None:
        tenant = self.any_tenant()
        for _ in range(self.random.randint(1, 4)):
            await tenant.ask(tenant.machine, grant_type="client_credentials", scope="things:read")

    async def refused_token(self) -> None:
        tenant = self.any_tenant()
        answer = await tenant.ask(tenant.machine, grant_type="client_credentials", scope="things:write")
        check(answer is None or answer.status != 200, "a scope that was never granted was issued")

    async def sign_in(self) -> None:
        await self.any_tenant().sign_in()

    def any_family(self) -> tuple[Tenant, Family] | None:
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
        for _ in range(3):  # after a lost response, the client uses the same token again in the grace period
            if answer is not None and answer.status != 503:
                break
            await asyncio.sleep(0.5)
            answer = await tenant.refresh(family, token)
        if answer is not None and answer.status == 400:
            family.over = True
        return None

    async def refresh_together(self) -> None:
        """Refresh concurrently, as a client with several tabs does. All requests must get the same successor."""
        found = self.any_family()
        if found is None:
            return await self.sign_in()
        tenant, family = found
        began, step, touched, token = self.loop.time(), self.deployment.step, family.touched, family.token
        answers = await asyncio.gather(*[tenant.refresh(family, token) for _ in range(3)])
        statuses = [answer.status for answer in answers if answer is not None]
        undisturbed = family.touched == touched + 3 and self.deployment.step == step and self.loop.time() < began + 5
        check(
            not (undisturbed and 200 in statuses and 400 in statuses),
            f"one refresh token shown three times at once was answered {statuses}",
        )
        if 400 in statuses:
            family.over = True
        return None

    async def reuse(self) -> None:
        """Reuse an old token, which ends the family."""
        found = self.any_family()
        if found is None or len(found[1].previous) < 2:
            return
        tenant, family = found
        family.touched += 1
        old = family.previous[-2]
        await self._introspect_everywhere(tenant, family)
        answer = await tenant.ask(tenant.app, grant_type="refresh_token", refresh_token=old)
        if answer is None or answer.status == 503:
            return
        if answer.status in (401, 429) and tenant.may_be_refused:
            return
        check(answer.status == 400, f"a refresh token of two generations ago was answered {answer.status}")
        family.over = True
        await self._check_ended(tenant, family)

    async def revoke(self) -> None:
        found = self.any_family()
        if found is None:
            return
        tenant, family = found
        family.touched += 1
        await self._introspect_everywhere(tenant, family)
        answer = await self.deployment.request(
            "POST", "/oauth/revoke", headers=tenant.app.headers, form={"token": family.token}
        )
        if answer is None or answer.status == 503:
            return
        if answer.status == 200:
            family.over = True
            await self._check_ended(tenant, family)

    async def _introspect_everywhere(self, tenant: Tenant, family: Family) -> list[bool | None]:
        tokens = (family.token, *family.access[-2:])
        webs = self.deployment.alive("web")
        return [await tenant.introspect(token, web) for web in webs if web.process.alive for token in tokens]

    async def _check_ended(self, tenant: Tenant, family: Family) -> None:
        """Check in every web process that the token has ended."""
        active = await self._introspect_everywhere(tenant, family)
        check(not any(active), "a token of a family that was ended is active")
        await tenant.refresh(family, family.token)

    # --- definitions

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

    def any_postponed_endpoint(self) -> tuple[Tenant, str] | None:
        """Return an endpoint with a Retry-After in effect."""
        now = self.deployment.milliseconds()
        asked = {endpoint for endpoint, each in self.invariants.asked.items() if each and each[-1].until > now + 5_000}
        found = [(tenant, each) for tenant in self.tenants for each in tenant.endpoints if ids.raw(each) in asked]
        return self.random.choice(found) if found else None

    async def redefine(self, found: tuple[Tenant, str] | None = None, **members: Any) -> int | None:
        """Change an endpoint, which may change its plans. Returns the status code of the response, if there was one."""
        found = found or self.any_endpoint()
        if found is None:
            return None
        tenant, endpoint = found
        self.invariants.changed[ids.raw(endpoint)] = self.loop.time() + 60
        if members.get("status") == "active":
            answer = await self._activate(tenant, endpoint, members)
        else:
            answer = await tenant.post("/webhooks/endpoints", {"id": endpoint} | members)
        self.invariants.changed[ids.raw(endpoint)] = self.loop.time()
        if members.get("status") == "removed" and answer is not None and answer.status == 200:
            with suppress(ValueError):  # removed by a concurrent operation
                tenant.endpoints.remove(endpoint)
        return answer.status if answer else None

    async def _activate(self, tenant: Tenant, endpoint: str, members: dict[str, Any]) -> Response | None:
        """Define an endpoint as active, which ends its Retry-After, also one that is recorded before the commit."""
        asked, activations = self.invariants.asked, self.invariants.activations
        began, key = self.deployment.milliseconds(), ids.raw(endpoint)
        before = asked.pop(key, [])
        activations[key] = activations.get(key, 0) + 1
        answer = await tenant.post("/webhooks/endpoints", {"id": endpoint} | members)
        activations[key] -= 1
        if answer is not None and answer.status == 200:
            self.invariants.retry_after_is_cleared(endpoint, began)
        if answer is not None and answer.status == 409:  # refused, so its Retry-After stays in effect
            asked[key] = before + asked.get(key, [])
        else:
            asked.pop(key, None)
        return answer

    async def pause(self) -> None:
        await self.redefine(status="disabled")

    async def resume(self) -> None:
        """Activate a paused endpoint, or one with a Retry-After, which this ends."""
        await self.redefine(self.any_postponed_endpoint(), status="active")

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

    # --- operators, with the command line

    async def suspend(self) -> None:
        """Suspend a tenant with unfinished deliveries, and resume it later."""
        tenant = self.any_tenant()
        world = self.deployment.world
        assert world is not None
        seconds = self.random.choice([5.0, 60.0, 1200.0, 10_000.0])
        if self.random.random() < 0.7:
            for receiver in self._receivers(tenant):
                receiver.mood = "broken"
            await self.publish_some(tenant, 3)
        if tenant.may_be_refused:
            return
        tenant.may_be_refused = True
        self._change_plans(tenant)
        world.store.run_now(lambda tx: account_admin.suspend(tx, tenant.name, "simulated"))
        tenant.suspended = True

        async def resume() -> None:
            tenant.suspended = False
            for receiver in self._receivers(tenant):
                receiver.mood = "well"
            world.store.run_now(lambda tx: account_admin.resume(tx, tenant.name))
            self._change_plans(tenant)
            self.later(15.0, forget, self.returns)

        async def forget() -> None:
            tenant.may_be_refused = False  # earlier requests have ended

        self.later(seconds, resume, self.returns)

    def _receivers(self, tenant: Tenant) -> list[Any]:
        rows = self.invariants.select(
            "SELECT document FROM endpoints WHERE account = :account", account=ids.raw(tenant.id)
        )
        return [self.deployment.network.receiver(json.loads(document)["url"]) for (document,) in rows]

    def _change_plans(self, tenant: Tenant) -> None:
        for (endpoint,) in self.invariants.select(
            "SELECT id FROM endpoints WHERE account = :account", account=ids.raw(tenant.id)
        ):
            self.invariants.changed[endpoint] = self.loop.time()

    async def operator_acts(self) -> None:
        """Retry or cancel an unfinished delivery."""
        world = self.deployment.world
        assert world is not None
        rows = self.invariants.select("SELECT account, id, endpoint FROM queue ORDER BY account, id")
        if not rows:
            return
        account, delivery, endpoint = self.random.choice(rows)
        self.invariants.changed[endpoint] = self.loop.time()
        act = self.random.choice([operator_actions.retry, operator_actions.cancel])

        def unit(tx: Any) -> None:
            found = account_rows.lock(tx, ids.text("acc", account))
            assert found is not None
            act(tx, found, ids.text("dlv", delivery))

        with suppress(BadSetting):
            world.store.run_now(unit)

    # --- receivers

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
