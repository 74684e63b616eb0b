"""The status lines of the supervisor, and the reports of its children. Nothing else wakes it. Time is simulated."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from gatepost.run.child import SILENCE, Status
from gatepost.run.supervisor import _Child, _report
from tests.unit.test_repeat import SimulatedLoop

SECONDS = 20


class CountingLoop(SimulatedLoop):
    turns = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()

    def pause(self, seconds: float) -> None:
        self._now += seconds


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
        with contextlib.suppress(TimeoutError):
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
        child._set_state(ready=True)
        await asyncio.sleep(0.25)
        assert ready.is_set()
        for _ in range(2):  # the second report is the same
            child._set_state(ready=True, stuck=["sealing"])
            await asyncio.sleep(0.25)
        reporting.cancel()
        return operations.received

    assert loop.run_until_complete(report()) == [(0, "starting"), (0.25, ""), (0.5, "sealing")]


@contextlib.asynccontextmanager
async def reporting(child: _Child) -> AsyncIterator[asyncio.StreamReader]:
    """Yield the stream from which the supervisor reads the reports of the child, which is ready."""
    output = asyncio.StreamReader()
    child._set_state(ready=True)
    reading = asyncio.create_task(child._read_reports(output, 17))
    yield output
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize("kind", ["web", "deliveries", "operations"])
def test_a_child_that_stops_reporting_makes_no_progress(kind: str, loop: CountingLoop) -> None:
    async def read() -> list[str]:
        child, problems = _Child(kind, b"", "", asyncio.Event()), []
        async with reporting(child) as output:
            for report in (b"\n", b"", b"\n"):
                output.feed_data(report)
                await asyncio.sleep(SILENCE - 0.5)
                problems.append(child.problem())
        return problems

    assert loop.run_until_complete(read()) == ["", f"a process for {kind} makes no progress", ""]


def test_a_pause_of_the_supervisor_is_no_silence_of_a_child(loop: CountingLoop) -> None:
    """When the supervisor runs again, its timers are due before it has read the reports that have arrived."""

    async def read() -> bool:
        changed = asyncio.Event()
        async with reporting(_Child("web", b"", "", changed)) as output:
            await asyncio.sleep(1)
            changed.clear()
            loop.pause(6 * SILENCE)
            for _ in range(10):
                await asyncio.sleep(0)
            output.feed_data(b"\n")
            await asyncio.sleep(1)
        return changed.is_set()

    assert not loop.run_until_complete(read())
