"""The peer procrastinate: a task queue on PostgreSQL, with a task that posts by aiohttp."""

import os
import subprocess
import sys
import time
from typing import Any, Protocol

from bench.peers.process import CACHE

PINS = ("procrastinate==3.10.0", "aiohttp==3.14.5", "psycopg[binary]==3.3.8")
FOLDER = CACHE / "procrastinate"
PYTHON = FOLDER / "bin" / "python"
CONCURRENCY = 100

# Runs in its own environment: defers the jobs in batches, then works them off.
SCRIPT = """
import asyncio, sys, aiohttp, procrastinate
database, url, count, concurrency = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=database, max_size=20))
session = None

@app.task(name="post")
async def post(n):
    async with session.post(url, json={"n": n, "padding": "0123456789"}) as answer:
        answer.raise_for_status()
        await answer.read()

async def main():
    global session
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency))
        print("ready", flush=True)
        for start in range(0, count, 100):
            await post.batch_defer_async(*[{"n": n} for n in range(start, min(count, start + 100))])
        await app.run_worker_async(wait=False, concurrency=concurrency, install_signal_handlers=False)
        await session.close()

asyncio.run(main())
"""


class Receiving(Protocol):
    url: str

    def say(self, word: str) -> dict[str, Any]: ...


def rate(database: str, receiver: Receiving, count: int) -> float:
    """Jobs a second, from the first deferred to the last done."""
    _install()
    receiver.say("reset")
    command = [str(PYTHON), "-c", SCRIPT, database, f"{receiver.url}/peer", str(count), str(CONCURRENCY)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise RuntimeError("procrastinate did not start")
    began = time.monotonic()
    process.wait(300)
    took = time.monotonic() - began
    received = receiver.say("count")["count"]
    if process.returncode or received != count:
        raise RuntimeError(f"procrastinate delivered {received} of {count}")
    return count / took


def _install() -> None:
    """Once per set of versions, into a virtual environment in the cache, from wheels."""
    stamp = FOLDER / "installed"
    if stamp.exists() and stamp.read_text() == "\n".join(PINS):
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], timeout=120, check=True)
    options = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    subprocess.run([PYTHON, "-m", "pip", "install", *options, *PINS], timeout=300, check=True)
    stamp.write_text("\n".join(PINS))
