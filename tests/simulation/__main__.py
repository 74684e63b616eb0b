"""`python -m tests.simulation --seed 1 --days 100`: run histories of this many days, or until a violation."""

import argparse
import gc
import os
import sys
import time

from tests.simulation.operations import Totals
from tests.simulation.run import simulate

DAYS_OF_A_HISTORY = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first history; others follow")
    parser.add_argument("--days", type=int, default=100, help="simulated days of all histories together")
    parser.add_argument("--minutes", type=float, help="stop after this much real time instead")
    parser.add_argument("--history", type=int, default=DAYS_OF_A_HISTORY, help="simulated days of one history")
    parser.add_argument("--database", default="", help="an empty PostgreSQL database; one history only")
    arguments = parser.parse_args()
    gc.set_threshold(100_000, 20, 50)  # tasks of crashed processes are kept, so that collections are slow
    gc.freeze()
    began, days, seed = time.monotonic(), 0, arguments.seed
    deliveries = tokens = faults = attempts = 0
    fewest: tuple[int, ...] = Totals().fewest
    while True:
        spent = time.monotonic() - began
        if spent > arguments.minutes * 60 if arguments.minutes else days >= arguments.days:
            break
        length = arguments.history if arguments.minutes else min(arguments.history, arguments.days - days)
        outcome = simulate(seed, length, arguments.database)
        totals = outcome.totals
        days, deliveries, tokens = days + totals.days, deliveries + totals.deliveries, tokens + totals.tokens
        faults, attempts = faults + totals.faults, attempts + totals.attempts
        fewest = tuple(map(min, fewest, totals.fewest))
        if outcome.violation:
            print(f"seed {seed}, day {outcome.at_day:.3f}: {outcome.violation}")
            print(f"to reproduce it: make simulate SEED={seed} DAYS={length}")
            return 1
        print(f"seed {seed}: {totals.days} days, {totals.deliveries} deliveries, {totals.tokens} token requests, "
              f"{totals.faults} faults, script {outcome.script}, digest {outcome.digest}", flush=True)  # fmt: skip
        seed += 1
    rate, of_cpu = (days * 60 / max(spent, 1e-9) for spent in (time.monotonic() - began, time.process_time()))
    print(f"no violation in {days} days ({rate:.0f} a minute, {of_cpu:.0f} a CPU minute), "
          f"seeds {arguments.seed} to {seed - 1}: "
          f"{deliveries} deliveries, {tokens} token requests, {faults} faults; "
          f"each day at least {fewest[0]} deliveries, {fewest[1]} token requests, {fewest[2]} faults")  # fmt: skip
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # a history depends on the order of sets
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    status = main()
    sys.stdout.flush()
    os._exit(status)  # do not run the finalizers of crashed processes
