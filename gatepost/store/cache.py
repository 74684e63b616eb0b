"""A cache of definitions, and of what was computed from them. Each transaction brings it up to date before it reads.

There is one rule of invalidation. The store counts the changes of definitions, and the tokens, consents and families
that were ended; a cache that has seen other counts drops what the changes may have invalidated.
"""

from typing import Any, Protocol

from gatepost.core.errors import Unavailable

_INCOMPLETE = "the store is incomplete: the table counters has no row '{}'; complete the restore, or restore it again"


class Rows(Protocol):
    """The part of a connection that the cache needs."""

    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...


class Cache:
    """The values that a thread or process has read, and the counts of changes at which they were valid."""

    LIMIT = 20_000  # values of each kind

    def __init__(self) -> None:
        self.changes = -1  # changes of definitions that the cache has seen
        self.ends = -1  # ended tokens, consents and families that it has seen
        self.mark: object = object()  # another one after each change of the counts, and each time it is cleared
        self.definitions: dict[str, Any] = {}  # by name; one is dropped when it changes
        self.derived: dict[Any, Any] = {}  # all are dropped when any definition changes
        self.valid: dict[Any, Any] = {}  # all are dropped when any definition changes, or anything is ended

    def refresh(self, connection: Rows) -> None:
        """Drop what has changed since the last refresh. Raises `Unavailable` if the store does not have the counts."""
        changes, ends = connection.rows("version", {})[0]
        if changes is None or ends is None:
            raise Unavailable(_INCOMPLETE.format("changes" if changes is None else "ends"))
        if (changes, ends) == (self.changes, self.ends):
            return
        self.valid = {}
        self.ends = ends
        if changes != self.changes:
            self._drop_changed(connection, changes)
        self.mark = object()  # last: whoever reads the new mark must not read what was dropped

    def _drop_changed(self, connection: Rows, changes: int) -> None:
        changed = connection.rows("changes_after", {"version": self.changes})
        last = changed[-1][0] if changed else 0
        if last < changes or last != self.changes + len(changed) or len(changed) > 1000:  # some deleted, or very many
            self.definitions.clear()
        else:
            for _, name in changed:
                self.definitions.pop(name, None)
            changes = last
        self.changes = changes
        self.derived = {}

    def clear(self) -> None:
        """Drop everything, for example after a commit that failed."""
        self.changes = -1
        self.derived = {}
        self.valid = {}
        self.definitions.clear()
        self.mark = object()
