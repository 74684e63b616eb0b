"""Wake-ups: a process that creates deliveries tells the workers at once. This is a hint; workers also poll the queue.

On SQLite it is a datagram to loopback, to the ports that workers publish as names of files. On PostgreSQL it is NOTIFY.
"""

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from gatepost.core import clock
from gatepost.store.pending import Key

OnWakeup = Callable[[list[Key]], None]  # called with the endpoints; an empty list means all

MOST = 100  # endpoints named in one wake-up
_STALE = 60.0  # seconds: a worker renews its file more often


def packed(endpoints: Iterable[Key]) -> bytes:
    """The payload of a wake-up. It is empty, which means all endpoints, if there are too many to name."""
    keys = list(endpoints)
    return b"".join(account + endpoint for account, endpoint in keys) if len(keys) <= MOST else b""


def unpacked(payload: bytes) -> list[Key]:
    """The endpoints of a wake-up. Empty, which means all endpoints, if the payload is malformed."""
    if len(payload) % 32:
        return []
    return [(payload[start : start + 16], payload[start + 16 : start + 32]) for start in range(0, len(payload), 32)]


class WakeupSender:
    """Sends the wake-ups of a process that writes to an SQLite file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "bells"
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def send(self, endpoints: Iterable[Key]) -> None:
        payload = packed(endpoints)
        with suppress(OSError):
            for file in self._directory.iterdir():
                with suppress(OSError, ValueError, OverflowError):  # a failure does not affect the others
                    self._socket.sendto(payload, ("127.0.0.1", int(file.name)))

    def close(self) -> None:
        self._socket.close()


class WakeupListener:
    """Receives the wake-ups of a worker on an SQLite file, in a thread."""

    def __init__(self, directory: Path, on_wakeup: OnWakeup) -> None:
        folder = directory / "bells"
        folder.mkdir(mode=0o700, exist_ok=True)
        _sweep(folder)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._file = folder / str(self._socket.getsockname()[1])
        self._on_wakeup = on_wakeup
        self._ended = False
        self.renew()
        self._thread = threading.Thread(target=self._listen, name="gatepost-wakeup", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        with suppress(OSError):
            self._file.touch(mode=0o600)

    def _listen(self) -> None:
        while True:
            payload = self._socket.recv(65536)
            if self._ended:
                return
            self._on_wakeup(unpacked(payload))

    def close(self) -> None:
        self._file.unlink(missing_ok=True)
        self._ended = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()


def _sweep(folder: Path) -> None:
    """Delete the files of workers that were killed."""
    now = clock.now().timestamp()
    for file in folder.iterdir():
        with suppress(OSError):
            if now - file.stat().st_mtime > _STALE:
                file.unlink()
