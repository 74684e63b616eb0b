"""The status lines of the supervisor: sent once a second and at a change. Nothing else wakes it. Time is simulated."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest

from gatepost.run.child import Status
from gatepost.run.supervisor import _Child, _report
from tests.unit.test_repeat import SimulatedLoop

SECONDS = 20


class CountingLoop(SimulatedLoop):
    turns = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()


class Operations(_Child):
    """An operations process that notes which reasons it received, and when."""

    def __init__(self, changed: asyncio.Event) -> None:
        super().__init__("operations", b"", "", changed)
        self.received: list[tuple[float, str]] = []

    def send(self, line: bytes) -> None:
        at = asyncio.get_running_loop().time()
        self.received.append((at, msgspec.json.decode(line, type=Status).not_ready))


@pytest.fixture
def loop() -> Iterator[CountingLoop]:
    made = CountingLoop()
    yield made
    made.close()


def test_an_idle_supervisor_wakes_up_once_a_second(loop: CountingLoop) -> None:
    async def report() -> list[tuple[float, str]]:
        operations, ready = Operations(asyncio.Event()), asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS - 0.5):
                await _report([operations], lambda: "", ready, asyncio.Event())
        assert ready.is_set()
        return operations.received

    assert loop.run_until_complete(report()) == [(second, "") for second in range(SECONDS)]
    assert loop.turns < 10 * SECONDS


def test_a_change_of_a_child_is_reported_at_once(loop: CountingLoop) -> None:
    async def report() -> list[tuple[float, str]]:
        changed, ready = asyncio.Event(), asyncio.Event()
        operations, child = Operations(changed), _Child("web", b"", "", changed)
        reporting = asyncio.create_task(
            _report([operations], lambda: ", ".join(child.stuck) if child.ready else "starting", ready, changed)
        )
        await asyncio.sleep(0.25)
        assert not ready.is_set()
        child._set_state(ready=True, stuck=[])
        await asyncio.sleep(0.25)
        assert ready.is_set()
        for _ in range(2):  # the second report is the same
            child._set_state(ready=True, stuck=["sealing"])
            await asyncio.sleep(0.25)
        reporting.cancel()
        return operations.received

    assert loop.run_until_complete(report()) == [(0, "starting"), (0.25, ""), (0.5, "sealing")]
