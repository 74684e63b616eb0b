"""Two workers that observe each other: only a dead worker looks dead, not one that drains or waits for the store."""

import asyncio
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest

from gatepost.core import ids
from gatepost.webhooks.peers import BEAT_EVERY
from tests.simulation import script
from tests.simulation.deployment import Deployment, Running
from tests.simulation.network import Receiver
from tests.simulation.tenants import Tenant

T = TypeVar("T")
ENDPOINTS = 8  # enough for both workers to own some
SOONEST, LATEST = 10.0, 14.0  # seconds from the last heartbeat of a worker until another one takes over its attempts


@pytest.fixture(params=["sqlite", "postgres"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    database = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    deployment = Deployment(1, tmp_path / "data", database)
    with deployment.installed():
        deployment.begin()
        yield deployment
    assert deployment.problems == []


def run(deployment: Deployment, history: Coroutine[Any, Any, T]) -> T:
    """Run a history, and then cancel the tasks of all processes."""

    async def cancel() -> None:
        tasks = [task for task in deployment.loop.tasks if not task.done() and task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        return deployment.loop.run(history)
    finally:
        deployment.loop.run(cancel())


async def two_workers(deployment: Deployment) -> list[Running]:
    """Start two workers, and wait until each has seen the other."""
    script.draw_from("peers")
    for kind in ("supervisor", "web"):
        deployment.start(kind)
    workers = [deployment.start("worker", "here")]
    await asyncio.sleep(1)
    workers.append(deployment.start("worker", "there"))
    await asyncio.sleep(5)
    return workers


async def publish(deployment: Deployment, *, mood: str, **members: Any) -> None:
    """Create endpoints, publish an event for all of them, and wait until both workers have attempts in flight."""
    tenant = Tenant(deployment, "tenant", "30d")
    await tenant.define()
    for _ in range(ENDPOINTS):
        url = await tenant.define_endpoint(events=["invoice.*"], **members)
        assert url is not None
        deployment.network.receiver(url).mood = mood
    event = await tenant.publish("invoice.paid", {"n": 1})
    assert event is not None
    assert event.matched == ENDPOINTS
    await asyncio.sleep(0.5)
    assert len(workers_of_open_attempts(deployment)) == 2


def respond_after(deployment: Deployment, seconds: dict[str, float]) -> None:
    """Have all receivers respond with success, after a time that depends on their mood."""

    def outcome(receiver: Receiver, _timeout: float) -> tuple[float, int | None, str | None, str | None]:
        return seconds[receiver.mood], 200, None, None

    mock.patch.object(deployment.network, "outcome", outcome).start()


def stop(worker: Running) -> bytes:
    """Stop a worker as SIGTERM does. Returns its id."""
    assert worker.stopping is not None
    assert worker.worker is not None
    worker.stopping.set()
    return ids.raw(worker.worker.name)


def select(deployment: Deployment, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    assert deployment.world is not None
    return deployment.world.store.read_now(lambda tx: tx.select(query, parameters))


def workers_of_open_attempts(deployment: Deployment) -> set[bytes]:
    return {worker for (worker,) in select(deployment, "SELECT worker FROM queue WHERE worker IS NOT NULL")}


def requests(deployment: Deployment) -> list[int]:
    """How many requests each receiver got."""
    return [len(receiver.requests) for receiver in deployment.network.receivers.values()]


@pytest.mark.parametrize("seconds", [11, 40])
def test_an_outage_of_the_store_makes_no_worker_look_dead(deployment: Deployment, seconds: int) -> None:
    """The responses arrive during the outage, and are recorded after it."""

    async def history() -> None:
        await two_workers(deployment)
        await publish(deployment, mood="slow")
        deployment.disk.stalled_until = deployment.loop.time() + seconds
        await asyncio.sleep(seconds + 30)

    run(deployment, history())
    assert requests(deployment) == [1] * ENDPOINTS
    assert select(deployment, "SELECT DISTINCT outcome FROM attempts") == [("succeeded",)]
    assert select(deployment, "SELECT count(*) FROM workers") == [(2,)]


def test_a_clock_that_is_set_makes_no_worker_look_dead(deployment: Deployment) -> None:
    async def history() -> None:
        await two_workers(deployment)
        before = select(deployment, "SELECT id FROM workers ORDER BY id")
        for seconds in (60, -120):
            deployment.step += timedelta(seconds=seconds)
            for _ in range(300):
                await asyncio.sleep(0.1)
                assert select(deployment, "SELECT id FROM workers ORDER BY id") == before

    run(deployment, history())


def test_the_death_of_a_worker_is_noticed(deployment: Deployment) -> None:
    async def history() -> float:
        workers = await two_workers(deployment)
        await publish(deployment, mood="silent")
        assert workers[0].worker is not None
        dead = ids.raw(workers[0].worker.name)
        deployment.crash(workers[0])
        [(beat_at,)] = select(deployment, "SELECT beat_at FROM workers WHERE id = :id", id=dead)
        while dead in workers_of_open_attempts(deployment):
            await asyncio.sleep(0.1)
        workers[0].process.alive = True  # so that its tasks can be cancelled
        return (deployment.milliseconds() - int(beat_at)) / 1000

    assert SOONEST <= run(deployment, history()) <= LATEST + 0.2  # it looks every 0.1 s
    assert select(deployment, "SELECT count(*) FROM attempts WHERE outcome = 'interrupted'")[0][0] > 0


@pytest.mark.parametrize("seconds", [3.0, 22.0])
def test_a_worker_that_drains_keeps_its_attempts(deployment: Deployment, seconds: float) -> None:
    """It records the responses that arrive while it drains, and then leaves."""
    respond_after(deployment, {"well": seconds})

    async def history() -> None:
        workers = await two_workers(deployment)
        await publish(deployment, mood="well", timeout=30)
        draining = stop(workers[0])
        await asyncio.sleep(seconds - 0.6)
        assert draining in workers_of_open_attempts(deployment)
        await asyncio.sleep(5)
        assert draining not in {worker for (worker,) in select(deployment, "SELECT id FROM workers")}
        await asyncio.sleep(60)

    run(deployment, history())
    assert requests(deployment) == [1] * ENDPOINTS
    assert select(deployment, "SELECT outcome, count(*) FROM attempts GROUP BY outcome") == [("succeeded", ENDPOINTS)]
    assert select(deployment, "SELECT count(*) FROM workers") == [(1,)]


def test_the_endpoints_of_a_worker_that_drains_are_taken_over(deployment: Deployment) -> None:
    """The other worker delivers to them as soon as it has seen the heartbeat that says so."""
    respond_after(deployment, {"well": 0.02, "slow": 29.0})

    async def history() -> None:
        workers = await two_workers(deployment)
        await publish(deployment, mood="slow", timeout=30)
        draining = stop(workers[0])
        await asyncio.sleep(BEAT_EVERY + 0.5)
        tenant = Tenant(deployment, "other", "30d")  # the slots of the first one are in use
        await tenant.define()
        for _ in range(ENDPOINTS):
            await tenant.define_endpoint(events=["order.*"])
        event = await tenant.publish("order.placed", {"n": 2})
        assert event is not None
        assert event.matched == ENDPOINTS
        await asyncio.sleep(0.5)
        assert draining in workers_of_open_attempts(deployment), "it still waits for the responses"
        assert select(deployment, "SELECT outcome, count(*) FROM attempts GROUP BY outcome") == [
            ("succeeded", ENDPOINTS)
        ]

    run(deployment, history())
    assert requests(deployment) == [1] * 2 * ENDPOINTS
