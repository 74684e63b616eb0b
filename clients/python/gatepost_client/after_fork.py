"""What a forked child must replace: it has the locks of its parent, but not the threads that would release them."""

import os
from typing import Protocol
from weakref import WeakSet


class Resettable(Protocol):
    """An object with state that a child cannot take over."""

    def reset_after_fork(self) -> None:
        """Replace that state. Called in the child, while it has one thread."""


_objects: WeakSet[Resettable] = WeakSet()


def register(resettable: Resettable) -> None:
    """Reset this object in each child, as long as the object exists."""
    _objects.add(resettable)


def _reset_all() -> None:
    for resettable in list(_objects):
        resettable.reset_after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_reset_all)
