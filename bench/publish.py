"""Benchmark of single events with `POST /events`, on SQLite and PostgreSQL in turn: `python -m bench.publish`.

It measures the rate at which events are accepted, without a subscription and with one delivery for each, the rate from
the first request until the last delivery is recorded, and the time from the request until the receiver has the delivery
if the service is almost idle.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench import ours
from bench.costs import prepare, publish, subscribe
from bench.deliver import Receiver, receiving, wait_settled
from tests import postgres
from tests.service import Service

STORES = ("SQLite", "PostgreSQL")
CONNECTIONS = (1, 16, 64)
ALONE, SENT = "bench.alone", "bench.sent"  # types of events
KINDS = {
    (ALONE, "accepted"): "no subscription",
    (SENT, "accepted"): "one delivery each",
    (SENT, "recorded"): "the same, until recorded",
}


class Publisher:
    """Publishes to one service."""

    def __init__(self, gatepost: Service, receiver: Receiver) -> None:
        self.gatepost = gatepost
        _, self._token = prepare(gatepost)
        self._receiver = receiver
        self._published = {ALONE: 0, SENT: 0}
        self._runs = 0
        subscribe(gatepost, self._token, f"{receiver.url}/", SENT)
        subscribe(gatepost, self._token, f"{receiver.url}/", "bench.timed")

    def rates(self, type_: str, connections: int, seconds: int) -> dict[str, float]:
        """The events in a second that are accepted, and those of which all deliveries are recorded."""
        self._runs += 1
        before = self._published[type_]
        began = time.monotonic()
        self._published[type_] = publish(
            self.gatepost, self._token, type_, str(self._runs), seconds, connections=connections
        )
        wait_settled(self.gatepost)
        published = self._published[type_] - before
        return {"accepted": published / seconds, "recorded": published / (time.monotonic() - began)}

    def latency(self, rate: float, seconds: float) -> tuple[float, float]:
        """Milliseconds from the request until the receiver has the delivery: p50 and p99, at a constant rate."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/cloudevents+json"}
        self._receiver.say("reset")
        began = time.monotonic()
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            sent = time.time_ns()
            event: dict[str, object] = {
                "specversion": "1.0",
                "id": str(sent),
                "source": "/bench",
                "type": "bench.timed",
            }
            event["data"] = {"sent": sent}  # the receiver looks for it
            answer = self.gatepost.session.post(f"{self.gatepost.ops}/events", json=event, headers=headers)
            answer.raise_for_status()
        wait_settled(self.gatepost)
        found = self._receiver.say("stats")
        return found["p50"], found["p99"]


class Measured(NamedTuple):
    """A row of the table: the rates of each round, by store."""

    kind: tuple[str, str]
    connections: int
    rates: dict[str, list[float]]

    def cells(self) -> list[str]:
        sqlite, postgresql = (self.rates[store] for store in STORES)
        ratios = sorted(other / one for one, other in zip(sqlite, postgresql, strict=True))
        return [
            KINDS[self.kind], str(self.connections), f"{statistics.median(sqlite):,.0f}",
            f"{statistics.median(postgresql):,.0f}", f"{statistics.median(ratios):.2f}",
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        ]  # fmt: skip


def measure(publishers: dict[str, Publisher], rounds: int, seconds: int) -> list[Measured]:
    """Measure one store after the other in each round, so that the ratio does not depend on the machine's speed."""
    rows = [Measured(kind, count, {store: [] for store in STORES}) for kind in KINDS for count in CONNECTIONS]
    for number in range(rounds + 1):
        for type_ in (ALONE, SENT):
            for count in CONNECTIONS:
                for store, publisher in publishers.items():
                    rates = publisher.rates(type_, count, seconds)
                    for row in rows:
                        if number and row.connections == count and row.kind[0] == type_:  # round 0 opens connections
                            row.rates[store].append(rates[row.kind[1]])
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=int, default=2)
    options.add_argument("--rate", type=float, default=50, help="events a second, for the latency")
    options.add_argument("--latency-seconds", type=float, default=20)
    chosen = options.parse_args()
    table = Table(title="single events, published with POST /events")
    for heading in ("", "conn", *(f"{store} /s" for store in STORES), "PostgreSQL / SQLite", "of the rounds"):
        table.add_column(heading, justify="right")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(postgres.running())
        receiver = stack.enter_context(receiving())
        publishers = {}
        for store, database in zip(STORES, ("", server.create_database("publish")), strict=True):
            gatepost, _ = stack.enter_context(ours.running(folder / store, database))
            publishers[store] = Publisher(gatepost, receiver)
        for store, publisher in publishers.items():  # first: later, the entries of the load are being sealed
            publisher.latency(chosen.rate, 2)
            p50, p99 = publisher.latency(chosen.rate, chosen.latency_seconds)
            print(
                f"{store}, {chosen.rate:g} a second: request to receipt p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True
            )
        for row in measure(publishers, chosen.rounds, chosen.seconds):
            table.add_row(*row.cells())
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
