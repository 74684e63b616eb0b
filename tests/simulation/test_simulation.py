"""Histories of the service with faults: no invariant is violated, and a seed determines the history."""

import asyncio
import re
import subprocess
import sys

import pytest

from tests.simulation import script
from tests.simulation.loop import PHASE, Process, VirtualTimeLoop
from tests.simulation.mutations import ENVIRONMENT, MUTATIONS, ROOT, Mutation, mutated, run
from tests.simulation.scenario import LEAST, Scenario

LONG = 900  # seconds of real time, which only a hanging run reaches


def histories(*arguments: str) -> str:
    """Run the command and return its output. Its exit status is 1 if an invariant was violated."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=LONG)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_no_invariant_is_violated_on_sqlite() -> None:
    """The number of days in which every planted defect is found. `make simulate` runs for longer."""
    printed = histories("--seed", "1", "--days", "10")
    found = re.findall(r"(\d+) days, (\d+) deliveries, (\d+) token requests, (\d+) faults", printed)
    assert sum(int(each[0]) for each in found) == 10
    for days, deliveries, tokens, faults in (tuple(int(figure) for figure in each) for each in found):
        assert deliveries >= 20 * days
        assert tokens >= 20 * days
        assert faults >= 5 * days


def test_no_invariant_is_violated_on_postgresql(postgres_url: str) -> None:
    assert "no violation in 1 days" in histories("--seed", "1", "--days", "1", "--database", postgres_url)


def test_a_day_has_enough_of_everything() -> None:
    printed = histories("--seed", "5", "--days", "2")
    found = re.search(r"at least (\d+) deliveries, (\d+) token requests, (\d+) faults", printed)
    assert found is not None
    assert all(int(each) >= least for each, least in zip(found.groups(), LEAST, strict=True))


def test_a_seed_decides_every_operation_and_fault() -> None:
    """The script does not depend on the store, so both stores get the same operations and faults."""
    assert [script.moments(3, day) for day in range(5)] == [script.moments(3, day) for day in range(5)]
    assert script.digest(3, 5) != script.digest(4, 5)
    for name in (*script.OPERATIONS, *script.FAULTS):
        assert callable(getattr(Scenario, name))


def test_one_seed_is_one_history() -> None:
    first, again, other = (histories("--seed", seed, "--days", "1") for seed in ("7", "7", "8"))
    digests = [re.findall(r"digest (\w+)", printed) for printed in (first, again, other)]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.name for each in MUTATIONS])
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    """The exit status reports a violation, too."""
    found = run(mutation)
    assert found.returncode == 1, f"not found: {found.stdout[-500:]}{found.stderr[-2000:]}"
    assert re.search(r"^seed \d+, day \d+\.\d+: ", found.stdout, re.MULTILINE), found.stdout[-500:]
    assert "to reproduce it: make simulate" in found.stdout


def test_there_are_enough_planted_defects() -> None:
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS) >= 30


def test_a_mutation_that_does_not_apply_is_an_error() -> None:
    with pytest.raises(LookupError, match="occurs 0 times"):
        mutated("some text", Mutation("x", "x.py", "other text", ""))


class TestLoop:
    """The clock moves only if nothing is ready. A crashed process runs no more code, and a frozen one waits."""

    def test_time_is_virtual(self) -> None:
        async def sleep() -> float:
            await asyncio.sleep(86_400)
            return asyncio.get_running_loop().time()

        assert VirtualTimeLoop().run(sleep()) == 86_400

    def test_a_crash_ends_a_process_at_any_await(self) -> None:
        loop, process, steps = VirtualTimeLoop(), Process("worker"), list[float]()

        async def work() -> None:
            try:
                while True:
                    steps.append(loop.time())
                    await asyncio.sleep(1)
            finally:
                steps.append(-1)

        async def world() -> None:
            loop.start(process, work())
            await asyncio.sleep(2.5)
            process.alive = False
            await asyncio.sleep(10)

        loop.run(world())
        assert steps == [0, 1, 2], "no cleanup runs in a process that was killed"

    def test_a_frozen_process_goes_on_later(self) -> None:
        loop, process, steps = VirtualTimeLoop(), Process("worker"), list[float]()

        async def work() -> None:
            while True:
                steps.append(loop.time())
                await asyncio.sleep(1)

        async def world() -> None:
            loop.start(process, work())
            await asyncio.sleep(1.5)
            process.frozen_until = 10
            await asyncio.sleep(9)

        loop.run(world())
        assert steps == [0, 1, 10]

    def test_what_slept_over_a_skipped_stretch_goes_on_after_it(self) -> None:
        """They resume once, and not exactly at the end of the period."""
        loop, process, steps = VirtualTimeLoop(), Process("worker"), list[float]()

        async def work() -> None:
            while True:
                steps.append(loop.time())
                await asyncio.sleep(60)

        async def world() -> None:
            loop.start(process, work())
            await asyncio.sleep(1)
            loop.skip_sleeping_to(3600)
            await asyncio.sleep(10)

        loop.run(world())
        assert steps == [0, 3600 + PHASE]

    def test_a_process_that_is_about_to_run_is_not_idle(self) -> None:
        loop, process, seen = VirtualTimeLoop(), Process("worker"), list[bool]()

        async def world() -> None:
            loop.start(process, asyncio.sleep(1))
            await asyncio.sleep(0.5)
            seen.append(loop.idle)
            await asyncio.sleep(0.49)
            seen.append(loop.idle)

        loop.run(world())
        assert seen == [True, False]
