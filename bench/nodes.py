"""Benchmark of several nodes on one PostgreSQL: deliveries to receivers that answer after 200 ms.

Such a load is bound by waiting and not by the processor, so that a machine with few cores shows what more nodes gain.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

from bench.deliver import Receiver, receiving
from tests import postgres
from tests.chaos.nodes import Node
from tests.flows.test_delivery import Platform

ENDPOINTS = 200  # each with one attempt at a time


def rate(folder: Path, database: str, nodes: int, receiver: Receiver, seconds: float) -> float:
    """Return the deliveries per second of a number of nodes, with a backlog that none of them finishes."""
    with ExitStack() as stack:
        first = Node(folder, database, "")
        running = [first, *(Node(folder, database, first.url) for _ in range(nodes - 1))]
        for node in running:
            stack.callback(node.stop)
            node.start()
        first.service.ops = first.ops
        platform = Platform(first.service, "slow")
        for number in range(ENDPOINTS):
            platform.connect(f"{receiver.url}/slow/{number}", "invoice.*", max_in_flight=1)
        for _ in range(int(seconds * 8)):
            platform.publish()
        time.sleep(3)
        before, began = int(receiver.say("count")["count"]), time.monotonic()
        time.sleep(seconds)
        done = (int(receiver.say("count")["count"]) - before) / (time.monotonic() - began)
        with psycopg.connect(database) as connection:
            left = connection.execute("SELECT count(*) FROM queue").fetchall()[0][0]
            connection.execute("TRUNCATE queue")
        print(f"{nodes} nodes: {done:,.0f} deliveries/s, {left} left", flush=True)
    return done


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=10)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    ratios = []
    for number in range(chosen.rounds):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server, receiver = stack.enter_context(postgres.running()), stack.enter_context(receiving())
            one, three = (
                rate(folder / str(nodes), server.create_database(f"n{number}_{nodes}"), nodes, receiver, chosen.seconds)
                for nodes in (1, 3)
            )
            ratios.append(three / one)
    print(f"three nodes deliver {statistics.median(ratios):.2f} times as much as one")


if __name__ == "__main__":
    main()
