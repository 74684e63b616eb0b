"""Owners take turns in both stores: a backlog of one does not delay the unit of another."""

import asyncio

import pytest

from gatepost.store.interface import Store
from gatepost.store.transaction import Hints, Tx
from gatepost.store.turns import MOST
from tests.contract import make
from tests.contract.parallel import LONG


@pytest.mark.parametrize("append_only", [True, False])
def test_a_backlog_delays_only_its_owner(store: Store, account: str, *, append_only: bool) -> None:
    ended: list[str] = []

    async def run(owner: str) -> None:
        def unit(tx: Tx) -> None:
            make.record(tx, account, owner)

        await store.run(unit, Hints(append_only=append_only, turn=owner))
        ended.append(owner)

    async def story() -> None:
        await run("other")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(500):
                tasks.create_task(run("storm"))
            while len(ended) < 50:
                await asyncio.sleep(0)
            before = len(ended)
            await tasks.create_task(run("other"))
            # Two shares: what was in the store when it came, and what its own commit has. The backlog is larger.
            assert len(ended) - before <= 2 * (MOST // 2)

    asyncio.run(asyncio.wait_for(story(), LONG))
    assert (ended.count("storm"), ended.count("other")) == (500, 2)
