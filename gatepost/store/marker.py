"""The marker beside the master key: which SQLite files contain a store with that key.

If such a file is missing or empty at the next start, its volume was lost or is not mounted. Starting would
silently create an empty store with the old key.
"""

import os
from pathlib import Path

from gatepost.core import files
from gatepost.core.errors import BadSetting

RESTORING = "restoring "
# The names of a store that is being moved to PostgreSQL, and of one that was.
MOVING = "gatepost.moving.db"
MOVED = "gatepost.moved.db"


def path_of(key_file: Path) -> Path:
    """The path of the marker for this master key."""
    return key_file.with_name(f"{key_file.name}.store")


def check(key_file: Path, store: Path, *, empty: bool) -> None:
    """Raise `BadSetting` if the store existed before and does not now, or if a restore or a move was interrupted."""
    marker, lines = path_of(key_file), _lines(key_file)
    if f"{RESTORING}{_name(marker, store)}" in lines:
        raise BadSetting(f"a restore of {store} was interrupted; run it again: gatepost store restore FILE")
    if empty and store.with_name(MOVING).exists():
        raise BadSetting(
            f"the move of {store} to PostgreSQL was interrupted; run it again: gatepost store move --to URL"
        )
    if empty and _name(marker, store) in lines and store.with_name(MOVED).exists():
        raise BadSetting(
            f"{store} was moved to PostgreSQL: set GATEPOST_DATABASE. To create a new, empty store instead, delete "
            f"{marker}"
        )
    if empty and _name(marker, store) in lines:
        raise BadSetting(
            f"{store} is {'empty' if store.exists() else 'missing'}, but {marker} says that it was initialised: is the "
            "right volume mounted? Restore a backup with `gatepost store restore FILE`. To create a new, empty "
            f"store instead, delete {marker}"
        )


def put(key_file: Path, store: Path, *, restoring: bool = False) -> None:
    """Record that this store exists or, with `restoring`, that it is being replaced."""
    marker = path_of(key_file)
    name = _name(marker, store)
    before = _lines(key_file)
    others = [line for line in before if line not in (name, f"{RESTORING}{name}")]
    wanted = [*others, f"{RESTORING}{name}" if restoring else name]
    if wanted == before or not marker.parent.exists():
        return
    files.replace(marker, "".join(f"{line}\n" for line in wanted).encode(), keep_owner=True)


def _lines(key_file: Path) -> list[str]:
    try:
        return path_of(key_file).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []


def _name(marker: Path, store: Path) -> str:
    """The path relative to the marker, so that a directory with both can be moved."""
    return os.path.relpath(store.resolve(), marker.parent.resolve())
