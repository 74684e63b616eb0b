"""Writes that units leave for the end of their commit, where those of all its units are made together."""

from collections.abc import Callable, Iterable
from typing import Any

from gatepost.core.errors import GatepostError

Row = tuple[Any, ...]
Key = tuple[bytes, bytes]  # an account, and the id of something that belongs to it
Counts = dict[Row, int]  # how much to add to the counter with a key
Statements = list[tuple[str, list[Row]]]  # with their rows


class Again(GatepostError):
    """Another writer was first. The unit runs again and sees what that writer did."""


class PendingWrites:
    """The writes of one unit, or of all units of a commit."""

    __slots__ = ("appended", "conditional", "counts", "labels", "wakeups")

    def __init__(self) -> None:
        self.appended: dict[str, list[Row]] = {}  # statement → rows to insert
        self.conditional: dict[tuple[str, str], list[Row]] = {}  # (statement, its check) → rows that must be written
        self.counts: dict[Callable[[Counts], Statements], Counts] = {}  # function that returns the statements → counts
        self.labels: list[str] = []  # what is appended, for metrics
        self.wakeups: set[Key] = set()  # endpoints of which the commit notifies the workers

    def append(self, statement: str, rows: Iterable[Row]) -> None:
        self.appended.setdefault(statement, []).extend(rows)

    def write_if(self, statement: str, check: str, row: Row) -> None:
        """Write one row by `statement`; the commit fails unless it can.

        `check` locks the rows that can be written, and returns their keys. A key is the first two columns of the row.
        """
        self.conditional.setdefault((statement, check), []).append(row)

    def count(self, statements: Callable[[Counts], Statements], key: Row, number: int) -> None:
        """Add to a counter. At the end of the commit, `statements` returns what writes all counters."""
        counts = self.counts.setdefault(statements, {})
        counts[key] = counts.get(key, 0) + number

    def add(self, other: "PendingWrites") -> None:
        for statement, rows in other.appended.items():
            self.append(statement, rows)
        for names, rows in other.conditional.items():
            self.conditional.setdefault(names, []).extend(rows)
        for statements, counts in other.counts.items():
            for key, number in counts.items():
                self.count(statements, key, number)
        self.labels += other.labels
        if other.wakeups:
            self.wakeups |= other.wakeups

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    @property
    def size(self) -> int:
        """The number of rows to insert."""
        return sum(map(len, self.appended.values()))

    @property
    def keys(self) -> set[Row]:
        """The keys of the rows that must be written."""
        return {row[:2] for rows in self.conditional.values() for row in rows}

    @property
    def writes_a_row_twice(self) -> bool:
        """Whether two of the conditional writes are of one row. Both are possible only one after the other."""
        return bool(self.conditional) and len(self.keys) < sum(map(len, self.conditional.values()))

    @property
    def accounts(self) -> set[bytes]:
        """The accounts whose rows are written. An account is the first column of its rows."""
        written = (*self.appended.values(), *self.conditional.values(), *self.counts.values())
        return {row[0] for rows in written for row in rows}

    @property
    def is_repeatable(self) -> bool:
        """Whether these writes may be repeated after a commit with an unknown outcome.

        They may if they only append, or if the first commit makes a conditional write of the second one impossible.
        """
        return bool(self.conditional) or not self.counts

    def __bool__(self) -> bool:
        return bool(self.appended or self.conditional or self.counts)

    def statements(self) -> Statements:
        """The statements that write everything but conditional writes, each with its rows in a fixed order."""
        counted = [each for statements, counts in self.counts.items() for each in statements(counts)]
        return [*self.appended.items(), *counted]

    def write(self, run: Callable[[str, list[Row]], list[Row]]) -> bool:
        """Make all writes with `run`. False if a conditional write failed: then the commit must be undone."""
        for (statement, _), rows in self.conditional.items():
            if len(run(statement, sorted(rows))) != len(rows):
                return False
        for statement, rows in self.statements():
            run(statement, rows)
        return True
