"""Publishes to the store of a running service: `python -m bench.publisher COUNT RATE`, settings from the environment.

With a rate of 0 it publishes as fast as it can, with 100 events in a commit; otherwise single events at that rate.
Each event contains the time at which it was sent. The types bench.t0, bench.t1, … of the accounts bench-0, bench-1, …,
which `bench.deliver` defines, take turns.
"""

import asyncio
import sys
import time
from collections.abc import Callable

import uvloop

from gatepost.accounts import Account
from gatepost.accounts.lookup import named
from gatepost.core.errors import Refusal
from gatepost.ledger import publishable as ledger
from gatepost.ledger.entries import Origin
from gatepost.ledger.publishable import Event
from gatepost.run import app
from gatepost.settings import load
from gatepost.store.transaction import APPEND_ONLY, Tx
from gatepost.webhooks import publish

ACCOUNTS, TYPES = 10, 10
_ORIGIN = Origin("bench")


def event(number: int) -> Event:
    data = {"sent": time.time_ns(), "padding": "0123456789"}
    found = ledger.event(f"bench.t{number // ACCOUNTS % TYPES}", data)
    if isinstance(found, Refusal):
        raise SystemExit(found.detail)
    return found


def _publish(account: Account, events: list[Event]) -> Callable[[Tx], object]:
    return lambda tx: publish.publish_events(tx, account, events, _ORIGIN)


async def fast(opened: app.Runtime, accounts: list[Account], count: int) -> None:
    for start in range(0, count, 100 * ACCOUNTS):
        for place, account in enumerate(accounts):
            numbers = range(start + place, min(count, start + 100 * ACCOUNTS), ACCOUNTS)
            unit = _publish(account, [event(number) for number in numbers])
            await opened.store.run(unit, hints=APPEND_ONLY)


async def paced(opened: app.Runtime, accounts: list[Account], count: int, rate: float) -> None:
    began = time.monotonic()
    under_way: set[asyncio.Future[object]] = set()
    for number in range(count):
        wait = began + number / rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        unit = _publish(accounts[number % ACCOUNTS], [event(number)])
        task = asyncio.ensure_future(opened.store.run(unit, hints=APPEND_ONLY))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)


async def main(count: int, rate: float) -> None:
    opened = app.open_for_use(load({}))
    accounts = opened.store.read_now(lambda tx: [named(tx, f"bench-{number}") for number in range(ACCOUNTS)])
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    await (paced(opened, accounts, count, rate) if rate else fast(opened, accounts, count))
    print(count / (time.monotonic() - began))
    opened.store.close()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2])))
