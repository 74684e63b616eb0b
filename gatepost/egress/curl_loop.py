"""Runs libcurl in the event loop: watches its sockets and runs its timers. It knows nothing about requests."""

import asyncio
import math
import selectors
import socket
from collections.abc import Callable
from typing import Any

import pycurl  # type: ignore[import-untyped]

from gatepost.core.logging import log

_APPLICATION_DATA = b"\x17\x03"  # the type of a TLS record, and the first byte of its version
_ALERT_BYTES = 19


class CurlLoop:
    """Handles in each iteration the sockets that are ready, then calls `begin`, runs the timers, and calls `end`.

    `begin` adds transfers; by then the lost connections are known. `end` receives the number of running transfers.

    A selector watches the sockets. The event loop sees it as one file, which costs less than a reader for each socket.
    A socket stays registered while its connection is idle. So the loop notices at once when the receiver closes it;
    libcurl itself checks at most once a second.

    An unexpected error stops the event loop, which ends the process: nothing could be sent any more.
    """

    def __init__(self, multi: Any, begin: Callable[[], None], end: Callable[[float], None]) -> None:
        self._multi = multi
        self._begin = begin
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._selector = selectors.DefaultSelector()
        self._events: dict[int, int] = {}  # the events that libcurl waits for; 0 on an idle connection
        self._registered: dict[int, int] = {}
        self._lost: dict[int, Callable[[], None]] = {}
        self._outdated: set[int] = set()  # sockets removed or replaced since the selector last reported events
        self._scheduled: asyncio.Handle | None = None
        self._due = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._loop.add_reader(self._selector.fileno(), self._iterate)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def schedule(self) -> None:
        """Run in the next iteration of the event loop."""
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._iterate)

    def add_connection(self, fd: int, lost: Callable[[], None]) -> None:
        """Watch a new connection. `lost` is called if the receiver closes it while it is idle."""
        self._unwatch(fd)  # the descriptor may have belonged to a connection that libcurl has closed
        self._outdated.add(fd)
        self._lost[fd] = lost

    def close(self) -> None:
        for handle in (self._scheduled, self._alarm):
            if handle is not None:
                handle.cancel()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, None)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, None)
        self._loop.remove_reader(self._selector.fileno())
        self._selector.close()

    def _iterate(self) -> None:
        try:
            self._end(self._run_libcurl())
        except Exception:  # noqa: BLE001 (never the error of a single transfer)
            log.exception("requests can no longer be sent: the process ends")
            self._loop.remove_reader(self._selector.fileno())
            self._loop.stop()

    def _run_libcurl(self) -> float:
        """Let libcurl act on sockets and timers. Returns the number of running transfers, or infinity if unknown."""
        running = math.inf
        ready = self._selector.select(0)
        self._outdated.clear()
        for key, events in ready:
            if key.fd in self._outdated:  # libcurl may have closed it while it handled another socket
                continue  # if it is open, the selector reports it again
            if self._events.get(key.fd):
                _, running = self._multi.socket_action(key.fd, events)
            else:
                self._check_idle(key.fd, events)
        self._begin()
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
            _, running = self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        return running

    def _check_idle(self, fd: int, events: int) -> None:
        """Report an idle connection that can be read from as lost, unless it has frames of HTTP/2."""
        if not events & selectors.EVENT_READ:  # it is still registered for writing
            self._registered[fd] = selectors.EVENT_READ
            try:
                self._selector.modify(fd, selectors.EVENT_READ)
            except OSError:  # libcurl has just closed it, which it does not report for an idle connection
                del self._registered[fd]  # nor has the selector it any more
                self._unwatch(fd)
            return
        if _has_frames(fd):  # libcurl reads them when it reuses the connection, and then notices if it was closed
            self._selector.unregister(fd)
            del self._registered[fd]
            return
        lost = self._lost.get(fd)
        self._unwatch(fd)
        if lost is not None:
            lost()

    def _unwatch(self, fd: int) -> None:
        self._events.pop(fd, None)
        if self._registered.pop(fd, None):
            self._selector.unregister(fd)
        self._lost.pop(fd, None)

    def _watch(self, what: int, fd: int, _multi: Any, _data: Any) -> None:
        events = self._events[fd] = what & pycurl.POLL_INOUT
        if not events:
            self._outdated.add(fd)
        registered = self._registered.get(fd)
        if events and events != registered:
            if registered:
                self._selector.unregister(fd)
            self._selector.register(fd, events)
            self._registered[fd] = events

    def _set_timer(self, milliseconds: int) -> None:
        if milliseconds == 0:
            self.schedule()
            return
        self._due = math.inf if milliseconds < 0 else self._loop.time() + milliseconds / 1000
        if self._due < self._alarm_at:
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = self._due
        self._alarm = None if self._due == math.inf else self._loop.call_at(self._due, self._on_alarm)

    def _on_alarm(self) -> None:
        """Most deadlines are never reached, so an alarm that has become too early is set again only when it fires."""
        self._alarm = None
        self._alarm_at = math.inf
        if self._loop.time() < self._due:
            self._set_alarm()
        else:
            self.schedule()


def _has_frames(fd: int) -> bool:
    """Whether a TLS connection has a record that is too long for the alert that closes it: a frame, such as a PING.

    In TLS 1.3, a record with an alert has 19 bytes, and one with a frame of HTTP/2 at least 26.
    """
    connection = socket.socket(fileno=fd)
    try:
        header = connection.recv(5, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return False
    finally:
        connection.detach()
    return len(header) == 5 and header[:2] == _APPLICATION_DATA and int.from_bytes(header[3:], "big") > _ALERT_BYTES
