"""Looks up host names in threads, with a fair share of the threads for each account.

The system's resolver has no time limit and cannot be interrupted. A name whose servers do not respond occupies a thread
until the resolver gives up, and counts towards its account's share.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial

from gatepost.core.fair_queue import FairQueue, Work
from gatepost.egress.shortage import Shortage, missing_now, resource_of

MAX_LOOKUPS = 500  # at a time
MAX_PER_ACCOUNT = 32

LookUp = Callable[[str, int], list[str]]
LookupResult = list[str] | str | Shortage  # addresses, or the reason why there are none

NOT_PUBLIC = "the host name does not exist or has no public address"
NOT_ANSWERED = "the host's name servers did not respond"
NOT_LOOKED_UP = "the host name could not be looked up"


def addresses(name: str, port: int) -> list[str]:
    """The addresses of a name, in the order in which to try them. Blocks."""
    infos = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in infos))


def bracketed(address: str) -> str:
    """An address as libcurl's RESOLVE option expects it."""
    return f"[{address}]" if ":" in address else address


class Resolver:
    """Belongs to one event loop. `looked_up` is called once for each name, however many requests wait for it."""

    def __init__(self, look_up: LookUp, looked_up: Callable[[str, int, LookupResult], None]) -> None:
        self._look_up = look_up
        self._looked_up = looked_up
        self._queue = FairQueue(total=MAX_LOOKUPS, per_owner=MAX_PER_ACCOUNT)
        self._lookups: dict[tuple[str, int], dict[str, Work]] = {}  # by account, until one of them gets a thread

    def start(self, account: str, host: str, port: int) -> None:
        """Look up a name for this account. If several accounts wait for it, the first to get a thread looks it up."""
        works = self._lookups.setdefault((host, port), {})
        if account in works or any(work.running for work in works.values()):
            return
        works[account] = work = Work(account, partial(self._start_thread, account, host, port))
        self._queue.add(work)

    def cancel(self, host: str, port: int) -> None:
        """Cancel the look-up of a name that no request waits for any more, unless it is running."""
        works = self._lookups.get((host, port), {})
        if not any(work.running for work in works.values()):
            self._lookups.pop((host, port), None)
            for work in works.values():
                self._queue.done(work)

    def _start_thread(self, account: str, host: str, port: int) -> None:
        works = self._lookups[host, port]
        others = [work for name, work in works.items() if name != account]
        self._lookups[host, port] = {account: works[account]}
        for work in others:
            self._queue.done(work)
        loop = asyncio.get_running_loop()
        try:
            threading.Thread(target=self._run, args=(loop, host, port), name="gatepost look-up", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            resource = "memory" if isinstance(error, MemoryError) else "threads"
            loop.call_soon(self._end, host, port, Shortage(resource))

    def _run(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        """Look up the name. Runs in its own thread."""
        try:
            result: LookupResult = self._look_up(host, port) or NOT_PUBLIC
        except (OSError, ValueError, MemoryError) as error:
            result = _failure(error)
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller is waiting
            loop.call_soon_threadsafe(self._end, host, port, result)

    def _end(self, host: str, port: int, result: LookupResult) -> None:
        for work in self._lookups.pop((host, port), {}).values():
            self._queue.done(work)
        self._looked_up(host, port, result)


def _failure(error: Exception) -> LookupResult:
    """Why a look-up failed. The name or its server is at fault only if this process lacked nothing."""
    if isinstance(error, MemoryError) or (isinstance(error, socket.gaierror) and error.errno == socket.EAI_MEMORY):
        return Shortage("memory")
    if isinstance(error, OSError) and (resource := resource_of(error) or missing_now()):
        return Shortage(resource)
    if isinstance(error, socket.gaierror):
        return NOT_PUBLIC if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA) else NOT_ANSWERED
    return NOT_LOOKED_UP
