"""A second process that writes to a SQLite store as fast as it can: `python -m bench.writer DIRECTORY`.

It stops at the end of its standard input, and prints the number of committed entries.
"""

import asyncio
import sys
from pathlib import Path

import uvloop

from gatepost.core import clock, ids
from gatepost.ledger.entries import Origin, new
from gatepost.ledger.record import append_entry
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import APPEND_ONLY, Tx
from gatepost.webhooks.fanout import create_deliveries

TASKS = 64


async def write(directory: Path) -> None:
    store = SqliteStore(directory / "gatepost.db", clock.now, create_deliveries)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stopping.set)
    account = ids.new("acc")
    written = 0

    def unit(tx: Tx) -> None:
        origin = Origin("bench")
        append_entry(
            tx, new("bench.written", account=account, origin=origin, subject="", data={"n": 1}, at=tx.at, keep_days=30)
        )

    async def one() -> None:
        nonlocal written
        while not stopping.is_set():
            await store.run(unit, hints=APPEND_ONLY)
            written += 1

    await asyncio.gather(*[one() for _ in range(TASKS)])
    store.close()
    print(written)


if __name__ == "__main__":
    uvloop.run(write(Path(sys.argv[1])))
