"""A second process that writes to a SQLite store as fast as it may: `python -m bench.writer DIRECTORY`, until its
standard input ends. It says how many entries it committed."""

import asyncio
import sys
from pathlib import Path

import uvloop

from gatepost.core import clock, ids
from gatepost.ledger.entries import Entry, Origin, new
from gatepost.store.sqlite import SqliteStore
from gatepost.store.tx import Tx

TASKS = 64


async def write(directory: Path) -> None:
    store = SqliteStore(directory / "gatepost.db", clock.now)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stopping.set)
    account = ids.new("acc")
    written = 0

    def unit(tx: Tx) -> Entry:
        origin = Origin("bench")
        return tx.record(
            new("bench.written", account=account, origin=origin, subject="", data={"n": 1}, at=tx.at, keep_days=30)
        )

    async def one() -> None:
        nonlocal written
        while not stopping.is_set():
            await store.run(unit, records_only=True)
            written += 1

    await asyncio.gather(*[one() for _ in range(TASKS)])
    store.close()
    print(written)


if __name__ == "__main__":
    uvloop.run(write(Path(sys.argv[1])))
