"""Files that are replaced atomically and durably."""

import os
from pathlib import Path


def replace(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file and give it its name when it is on the disk. Readers see the old content or the new, never a part.

    `mode` is the mode of the new file, less the bits of the umask. By default, only the owner can read the file.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file is on the disk, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
