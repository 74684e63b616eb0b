"""How a child process starts, how it learns that it is to end, and what the supervisor reports to it."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import msgspec

from gatepost import settings
from gatepost.run import child


def test_a_store_that_cannot_answer_is_reported_without_a_traceback() -> None:
    configuration = child.Configuration(settings.load({"database": "postgresql://127.0.0.1:1/x"}, {}))
    command = [sys.executable, "-c", "from gatepost.run import child; child.main(None)"]
    line = msgspec.json.encode(configuration) + b"\n"
    done = subprocess.run(command, input=line, capture_output=True, check=False)
    assert done.returncode == 1
    [logged] = (done.stdout + done.stderr).splitlines()
    assert json.loads(logged)["event"] == "the process cannot start"
    assert "the store cannot answer" in json.loads(logged)["error"]


def test_the_end_of_the_input_is_watched_for_once() -> None:
    """It stays readable: a loop that went on watching it would do nothing else while requests are answered."""
    read, write = os.pipe()

    async def wait() -> bool:
        stopping = child.stopping(read)
        await asyncio.sleep(0)
        assert not stopping.is_set()
        os.close(write)
        await stopping.wait()
        return asyncio.get_running_loop().remove_reader(read)

    assert not asyncio.run(wait()), "still watched"
    os.close(read)


def test_lines_before_the_end_are_passed_on_whole() -> None:
    read, write = os.pipe()
    received: list[bytes] = []

    async def wait() -> None:
        stopping = child.stopping(read, received.append)
        for part in (b"one\ntw", b"o\n", b"three\nincomplete"):
            os.write(write, part)
            await asyncio.sleep(0)
        os.close(write)
        await stopping.wait()

    asyncio.run(wait())
    os.close(read)
    assert received == [b"one", b"two", b"three"]


def test_a_signal() -> None:
    read, write = os.pipe()

    async def wait() -> None:
        stopping = child.stopping(read)
        os.kill(os.getpid(), signal.SIGTERM)
        await stopping.wait()
        asyncio.get_running_loop().remove_reader(read)

    asyncio.run(wait())
    os.close(read)
    os.close(write)
