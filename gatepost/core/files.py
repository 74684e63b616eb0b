"""Files: replacing them atomically and durably, the owner of files that root creates, and opening only regular ones."""

import errno
import io
import os
import stat
from contextlib import suppress
from pathlib import Path


def replace(path: Path, content: bytes, *, mode: int = 0o600, keep_owner: bool = False) -> None:
    """Write a file and give it its name when it is on the disk. Readers see the old content or the new, never a part.

    `mode` is the mode of the new file, less the bits of the umask. By default, only the owner can read the file.
    With `keep_owner`, a file that root writes gets the owner of the replaced file, or else of the directory.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        if keep_owner:
            _give_to_owner_of(path if path.exists() else path.parent, file.fileno())
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def create(path: Path) -> int:
    """Create a file in a data directory, and return its descriptor. Only the owner of the file can read it.

    If root creates it, the owner of the directory owns it: the service may run as that user.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    _give_to_owner_of(path.parent, descriptor)
    return descriptor


def open_lock(path: Path) -> int:
    """Open a lock file, and create it if it is missing."""
    try:
        return create(path)
    except FileExistsError:
        return os.open(path, os.O_RDWR)


def _give_to_owner_of(path: Path, descriptor: int) -> None:
    if os.geteuid() == 0:
        owner = path.stat()
        with suppress(PermissionError):  # in a container, root may lack the permission; then it owns the file
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Reading a FIFO or a device could block forever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.open("rb")


def sync(path: Path) -> None:
    """Wait until a file is on the disk, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
