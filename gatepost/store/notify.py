"""Wake-ups on PostgreSQL: NOTIFY after commits, seldom enough not to slow them, and LISTEN, on separate connections."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple

import psycopg

from gatepost.core.errors import GatepostError
from gatepost.core.logging import log
from gatepost.core.secrets import Box, WrongKey
from gatepost.store import threads
from gatepost.store.pending import Key
from gatepost.store.wakeup import OnWakeup, packed, unpacked

CHANNEL = "gatepost_deliveries"
_ROW = "notification"
# Seconds to wait after a NOTIFY: for each commit that it announced, and at most. A NOTIFY in each transaction halved
# the throughput of the server. With fewer than 500 commits a second the pause stays short.
_PAUSE, _LONGEST_PAUSE = 0.002, 0.02
_RECONNECT = 0.5  # seconds
# A NOTIFY is a commit. Nothing is lost with it, so it must not wait for the disk, or for a standby.
NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"


def _box(connection: psycopg.Connection[tuple[Any, ...]]) -> Box:
    """Any role can LISTEN and NOTIFY, so payloads are encrypted with a key that only our role can read."""
    row = connection.execute("SELECT key FROM gatepost_notification_key").fetchone()
    if row is None:
        raise GatepostError("there is no notification key")
    return Box([bytes(row[0])])


Open = Callable[[], psycopg.Connection[tuple[Any, ...]]]
OpenForListen = Callable[[], psycopg.Connection[tuple[Any, ...]] | None]


class _Channel(NamedTuple):
    """A connection for NOTIFY, and the key of its payloads."""

    connection: psycopg.Connection[tuple[Any, ...]]
    box: Box

    @classmethod
    def open(cls, open_: Open) -> "_Channel":
        connection = open_()
        try:
            return cls(connection, _box(connection))
        except (psycopg.Error, GatepostError):
            connection.close()
            raise

    def send(self, endpoints: set[Key]) -> None:
        payload = self.box.encrypt(packed(endpoints), _ROW).hex()
        self.connection.execute(NOTIFY, (CHANNEL, payload))


class Notifier:
    """Sends wake-ups to the workers of all machines. Its thread starts with the first one."""

    def __init__(self, open_: Open) -> None:
        self._open = open_
        self._queue: SimpleQueue[set[Key] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def send(self, endpoints: set[Key]) -> None:
        self._queue.put(endpoints)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gatepost-notify", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        channel: _Channel | None = None
        while (endpoints := self._queue.get()) is not None:
            ended = False
            commits = 1
            while not self._queue.empty():
                more = self._queue.get()
                commits += 1
                ended = ended or more is None
                endpoints |= more or set()
            channel = self._notify(channel, endpoints)
            if ended:
                break
            time.sleep(min(_PAUSE * commits, _LONGEST_PAUSE))
        if channel is not None:
            channel.connection.close()

    def _notify(self, channel: "_Channel | None", endpoints: set[Key]) -> "_Channel | None":
        """Send a wake-up. Returns the channel for the next one, which is None if it could not be sent.

        The connection may have broken since the last one. So if it fails, the wake-up is sent once more with another.
        """
        for known in (channel, None) if channel else (None,):
            opened = known
            try:
                opened = opened or _Channel.open(self._open)
                opened.send(endpoints)
            except (psycopg.Error, GatepostError):  # the workers poll, too
                if opened is not None:
                    opened.connection.close()
            else:
                return opened
        return None

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            threads.join([self._thread])


class Listener:
    """Receives wake-ups in a thread. It connects again when the connection breaks.

    If the connection cannot LISTEN, the thread ends, and the workers only poll.
    """

    def __init__(self, open_: OpenForListen, on_wakeup: OnWakeup) -> None:
        self._open = open_
        self._on_wakeup = on_wakeup
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gatepost-listen", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                opened = self._open()
                if opened is None:
                    log.info("no LISTEN through a connection pooler, so deliveries may start up to a second later",
                             to_change="set database_listen")  # fmt: skip
                    return
                with opened as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    box = _box(connection)
                    self._on_wakeup([])  # for what was sent before LISTEN
                    while not self._ended.is_set():
                        for notification in connection.notifies(timeout=0.5):
                            with suppress(WrongKey, ValueError):  # sent by another role
                                payload = box.decrypt(bytes.fromhex(notification.payload), _ROW)
                                self._on_wakeup(unpacked(payload))
            except (psycopg.Error, GatepostError, ValueError):
                self._ended.wait(_RECONNECT)

    def renew(self) -> None:
        """Nothing to do: the server knows its listeners."""

    def close(self) -> None:
        self._ended.set()
        threads.join([self._thread])
