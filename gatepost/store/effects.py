"""What units leave to be written together at the end of their commit: entries, their deliveries, and counts."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from gatepost.deliveries.model import Delivery, Queued
from gatepost.ledger.entries import Entry

MINUTE = 60

Tally = tuple[bytes, int, str]  # the account, the minute in seconds, and what is counted
Awaited = tuple[bytes, bytes]  # the account and the endpoint that have something new to send


class Birth(NamedTuple):
    delivery: Delivery
    queued: Queued


class Bulk(Protocol):
    def write_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...


class Effects:
    """Of one unit, or of all units of a batch."""

    __slots__ = ("births", "entries", "hurried", "tallies")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.births: list[Birth] = []
        self.tallies: dict[Tally, int] = {}
        self.hurried: set[Awaited] = set()  # nothing new, but something of theirs can be sent at once

    def add(self, other: "Effects") -> None:
        self.entries += other.entries
        if other.births:
            self.births += other.births
        if other.tallies:
            self.count(other.tallies.items())
        if other.hurried:
            self.hurried |= other.hurried

    def clear(self) -> None:
        self.entries, self.births, self.tallies, self.hurried = [], [], {}, set()

    def count(self, tallies: Iterable[tuple[Tally, int]]) -> None:
        for tally, count in tallies:
            self.tallies[tally] = self.tallies.get(tally, 0) + count

    def write_rest(self, connection: Bulk, slot: int) -> None:
        """Everything but the entries, which each store writes in its own quickest way."""
        if self.births:
            connection.write_given("insert_deliveries", [birth.delivery for birth in self.births])
            connection.write_given("insert_queue", [birth.queued for birth in self.births])
        if self.tallies:
            rows = [
                (account, since, MINUTE, slot, what, count) for (account, since, what), count in self.tallies.items()
            ]
            connection.write_given("tally", sorted(rows))

    def awaited(self) -> set[Awaited]:
        """Who is to be told of by the bell."""
        return self.hurried.union((birth.queued.account, birth.queued.endpoint) for birth in self.births)
