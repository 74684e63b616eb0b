"""What units leave to be written together at the end of their commit: entries, their deliveries, and counts."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from gatepost.core.errors import GatepostError
from gatepost.ledger.entries import Entry
from gatepost.webhooks.deliveries import Delivery, Queued

MINUTE = 60


class Again(GatepostError):
    """Another writer was first; the unit runs again and sees what it did."""


Tally = tuple[bytes, int, str]  # the account, the minute in seconds, and what is counted
Awaited = tuple[bytes, bytes]  # the account and the endpoint that have something new to send


class Birth(NamedTuple):
    delivery: Delivery
    queued: Queued


Family = tuple[bytes, bytes]  # the account and the family


class Batch:
    """What units that share a commit read together before they run. A family is for one of them."""

    __slots__ = ("families", "taken")

    def __init__(self, families: dict[Family, tuple[Any, ...]]) -> None:
        self.families = families
        self.taken: set[Family] = set()


class Rotation(NamedTuple):
    """A family whose live token is replaced, if it is still the one with this number."""

    account: bytes
    id: bytes
    number: int
    leaf: bytes
    thumbprint: str
    rotated_at: int
    idle_ends_at: int


class Bulk(Protocol):
    def write_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...


class Effects:
    """Of one unit, or of all units of a batch."""

    __slots__ = ("births", "entries", "hurried", "rotations", "tallies")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.births: list[Birth] = []
        self.tallies: dict[Tally, int] = {}
        self.rotations: list[Rotation] = []  # only of units that share a transaction
        self.hurried: set[Awaited] = set()  # nothing new, but something of theirs can be sent at once

    def add(self, other: "Effects") -> None:
        self.entries += other.entries
        if other.rotations:
            self.rotations += other.rotations
        if other.births:
            self.births += other.births
        if other.tallies:
            self.count(other.tallies.items())
        if other.hurried:
            self.hurried |= other.hurried

    def clear(self) -> None:
        self.entries, self.births, self.tallies, self.hurried = [], [], {}, set()
        self.rotations = []

    def count(self, tallies: Iterable[tuple[Tally, int]]) -> None:
        for tally, count in tallies:
            self.tallies[tally] = self.tallies.get(tally, 0) + count

    def rotate(self, connection: Bulk) -> bool:
        """False when a family moved on or ended meanwhile: then nothing of this commit stands."""
        if not self.rotations:
            return True
        return len(connection.write_given("rotate_families", sorted(self.rotations))) == len(self.rotations)

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
