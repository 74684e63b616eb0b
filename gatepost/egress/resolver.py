"""Looks up host names in threads, with a fair share of the threads for each account.

The system's resolver has no time limit and cannot be interrupted. A name whose servers do not respond occupies a thread
until it gives up, and counts towards its account's share.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial

from gatepost.core.fair_queue import FairQueue, Work
from gatepost.egress.shortage import Shortage, lacking, resource_of

MAX_LOOKUPS = 500  # at a time
MAX_PER_ACCOUNT = 32

LookUp = Callable[[str, int], list[str]]
Found = list[str] | str | Shortage  # addresses, or the reason why there are none

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
    """Belongs to one event loop. `answered` is called once for each name, however many requests asked for it."""

    def __init__(self, look_up: LookUp, answered: Callable[[str, int, Found], None]) -> None:
        self._look_up = look_up
        self._answered = answered
        self._queue = FairQueue(total=MAX_LOOKUPS, per_owner=MAX_PER_ACCOUNT)
        self._questions: dict[tuple[str, int], dict[str, Work]] = {}  # by account, until one of them gets a thread

    def ask(self, account: str, host: str, port: int) -> None:
        """Look a name up for this account. If several accounts wait for it, the first to get a thread looks it up."""
        works = self._questions.setdefault((host, port), {})
        if account in works or any(work.running for work in works.values()):
            return
        works[account] = work = Work(account, partial(self._start, account, host, port))
        self._queue.add(work)

    def withdraw(self, host: str, port: int) -> None:
        """Cancel the look-up of a name that no request waits for any more, unless it is running."""
        works = self._questions.get((host, port), {})
        if not any(work.running for work in works.values()):
            self._questions.pop((host, port), None)
            for work in works.values():
                self._queue.done(work)

    def _start(self, account: str, host: str, port: int) -> None:
        works = self._questions[host, port]
        others = [work for name, work in works.items() if name != account]
        self._questions[host, port] = {account: works[account]}
        for work in others:
            self._queue.done(work)
        loop = asyncio.get_running_loop()
        try:
            threading.Thread(target=self._ask, args=(loop, host, port), name="gatepost look-up", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            resource = "memory" if isinstance(error, MemoryError) else "threads"
            loop.call_soon(self._end, host, port, Shortage(resource))

    def _ask(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        """Runs in its own thread."""
        try:
            found: Found = self._look_up(host, port) or NOT_PUBLIC
        except (OSError, ValueError, MemoryError) as error:
            found = _not_found(error)
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller is waiting
            loop.call_soon_threadsafe(self._end, host, port, found)

    def _end(self, host: str, port: int, found: Found) -> None:
        for work in self._questions.pop((host, port), {}).values():
            self._queue.done(work)
        self._answered(host, port, found)


def _not_found(error: Exception) -> Found:
    """Why a look-up failed. Only if this process lacked nothing is the name or its server at fault."""
    if isinstance(error, MemoryError) or (isinstance(error, socket.gaierror) and error.errno == socket.EAI_MEMORY):
        return Shortage("memory")
    if isinstance(error, OSError) and (resource := resource_of(error) or lacking()):
        return Shortage(resource)
    if isinstance(error, socket.gaierror):
        return NOT_PUBLIC if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA) else NOT_ANSWERED
    return NOT_LOOKED_UP
