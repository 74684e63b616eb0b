"""Sends many HTTP requests at once with libcurl, driven by the event loop. Each request started has one result.

What a response means for a delivery is not decided here.
"""

import asyncio
import math
import re
import time
from collections.abc import Callable
from typing import Any

import certifi
import pycurl  # type: ignore[import-untyped]

from gatepost.egress.address_guard import Policy, address_problem, url_problem
from gatepost.egress.curl_errors import timed_out
from gatepost.egress.curl_loop import CurlLoop
from gatepost.egress.resolver import NOT_LOOKED_UP, NOT_PUBLIC, LookUp, LookupResult, Resolver, addresses, bracketed
from gatepost.egress.shortage import Shortage
from gatepost.egress.transfer import NAME_TTL, Outgoing, PendingLookup, SendResult, Target, Transfer, milliseconds

MAX_IDLE_CONNECTIONS = 512
_MAX_TARGETS = 10_000  # cached


class Sender:
    """Belongs to one event loop and is called in its thread.

    `finished` receives the results of one event loop iteration together. With a proxy, the proxy checks the receiver's
    address, and `address_guard` checks only the URL.
    """

    def __init__(
        self,
        policy: Policy,
        finished: Callable[[list[SendResult]], None],
        *,
        proxy: str = "",
        ca: str = "",
        look_up: LookUp = addresses,
    ) -> None:
        self._policy = policy
        self._finished = finished
        self._proxy = proxy or policy.proxy
        self._ca = ca or certifi.where()
        self._resolver = Resolver(look_up, self._looked_up)
        self.refused: Callable[[str, int, str], None] | None = None  # called for names with private addresses only
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, MAX_IDLE_CONNECTIONS)
        self._curl_loop = CurlLoop(self._multi, self._add_transfers, self._collect)
        self._idle: list[Transfer] = []
        self._starting: list[Transfer] = []
        self._running: dict[Any, Transfer] = {}
        self._targets: dict[str, Target] = {}
        self._hosts: dict[tuple[str, int], Target] = {}
        self._waiting: set[PendingLookup] = set()
        self._done: list[SendResult] = []

    @property
    def in_flight(self) -> int:
        return len(self._running) + len(self._waiting) + len(self._done)

    def start(self, outgoing: Outgoing) -> None:
        """Start a request, as soon as the addresses of its host are known."""
        target = self._targets.get(outgoing.url) or self._target(outgoing.url)
        if target.problem:
            self._end_at_once(outgoing, "blocked_target", f"the URL {target.problem}")
        elif target.valid_until > time.monotonic():
            self._begin(outgoing, target, 0.0)
        else:
            self._wait(outgoing, target)

    def abandon(self) -> list[Any]:
        """Cancel all unfinished requests without a result, close their connections and return their keys."""
        keys = [transfer.outgoing.key for transfer in self._running.values()]
        keys += [wait.outgoing.key for wait in self._waiting]
        for curl in self._running:
            if curl in self._multi:
                self._multi.remove_handle(curl)
            curl.close()
        for wait in self._waiting:
            wait.alarm.cancel()
        self._running.clear()
        self._starting.clear()
        self._waiting.clear()
        return keys

    def close(self) -> None:
        """Cancel all unfinished requests and close all connections."""
        self.abandon()
        self._report()
        self._curl_loop.close()
        for transfer in self._idle:
            transfer.curl.close()
        self._multi.close()

    def _target(self, url: str) -> Target:
        """The target that all URLs of a host and port share. The policy may have changed since the URL was defined."""
        if len(self._targets) >= _MAX_TARGETS:
            self._targets.clear()
            self._hosts = {key: target for key, target in self._hosts.items() if target.waiting}
        problem = url_problem(self._policy, url)
        parts = _ORIGIN.match(url)
        if problem or parts is None:
            target = Target("", 0, problem or "has no host")
        else:
            host, port = parts[2].lower(), int(parts[3] or {"http": 80, "https": 443}[parts[1]])
            target = self._hosts.setdefault((host, port), Target(host, port))
            if self._proxy or host.startswith("[") or host.rpartition(".")[2].isdigit():
                target.valid_until = math.inf
        self._targets[url] = target
        return target

    # libcurl does not look up names here. It has twenty threads for all its transfers: a dozen names whose servers do
    # not respond would delay all other look-ups, and closing would wait for them.

    def _wait(self, outgoing: Outgoing, target: Target) -> None:
        wait = PendingLookup(outgoing, target, time.monotonic())
        wait.alarm = self._loop.call_later(outgoing.timeout, self._time_out, wait)
        self._waiting.add(wait)
        target.waiting.append(wait)
        self._resolver.start(outgoing.account, target.host, target.port)

    def _looked_up(self, host: str, port: int, result: LookupResult) -> None:
        target = self._hosts.get((host, port))
        if target is None:  # removed meanwhile, with no request waiting
            return
        if isinstance(result, list):
            result = self._allowed(target, result)
        if isinstance(result, list):
            target.valid_until = time.monotonic() + NAME_TTL
            target.lookup = [f"+{target.host}:{target.port}:{','.join(map(bracketed, result))}"]
        waiting, target.waiting = target.waiting, []
        for wait in self._waiting.intersection(waiting):
            wait.alarm.cancel()
            waited = time.monotonic() - wait.since
            if isinstance(result, list):
                self._waiting.remove(wait)
                self._begin(wait.outgoing, target, waited)
            elif isinstance(result, Shortage):
                self._end_wait(wait, "dns", NOT_LOOKED_UP, waited, result.resource)
            else:
                self._fail_lookup(wait, result, waited)

    def _allowed(self, target: Target, candidates: list[str]) -> LookupResult:
        """The addresses that the policy allows. The operator learns why others are refused, the account does not."""
        problems = [address_problem(self._policy, address, target.port) for address in candidates]
        allowed = [address for address, problem in zip(candidates, problems, strict=True) if not problem]
        if not allowed and self.refused is not None:
            self.refused(target.host, target.port, problems[0])
        return allowed or NOT_PUBLIC

    def _fail_lookup(self, wait: PendingLookup, detail: str, waited: float) -> None:
        """Fail after a whole number of seconds: the duration of a look-up would disclose whether the name exists."""
        after = waited if self._policy.dev else min(float(math.ceil(waited)), wait.outgoing.timeout)
        wait.alarm = self._loop.call_later(max(0.0, after - waited), self._end_wait, wait, "dns", detail, after)

    def _time_out(self, wait: PendingLookup) -> None:
        wait.target.waiting.remove(wait)
        if not wait.target.waiting:
            self._resolver.cancel(wait.target.host, wait.target.port)
        timeout = wait.outgoing.timeout
        self._end_wait(wait, "timeout", timed_out("dns", timeout), timeout)

    def _end_wait(self, wait: PendingLookup, failure: str, detail: str, waited: float, shortage: str = "") -> None:
        self._waiting.remove(wait)
        self._end_at_once(wait.outgoing, failure, detail, waited, shortage)

    def _begin(self, outgoing: Outgoing, target: Target, waited: float) -> None:
        transfer = self._idle.pop() if self._idle else Transfer(self._policy, self._curl_loop, self._proxy, self._ca)
        try:
            transfer.prepare(outgoing, target, waited)
        except (ValueError, pycurl.error):
            transfer.curl.close()
            self._end_at_once(outgoing, "send", "the request could not be sent: its headers must be ASCII", waited)
            return
        self._running[transfer.curl] = transfer
        self._starting.append(transfer)
        self._curl_loop.schedule()

    def _end_at_once(
        self, outgoing: Outgoing, failure: str, detail: str, waited: float = 0.0, shortage: str = ""
    ) -> None:
        duration = milliseconds(int(waited * 1_000_000))
        self._done.append(
            SendResult(outgoing.key, None, failure, detail, None, {}, duration, None, b"", shortage=shortage)
        )
        self._curl_loop.schedule()

    def _add_transfers(self) -> None:
        now = time.monotonic()
        for transfer in self._starting:
            transfer.set_connection(now)
            self._multi.add_handle(transfer.curl)

    def _collect(self, running: float) -> None:
        for transfer in self._starting:  # libcurl has the addresses now, and keeps them longer than NAME_TTL
            transfer.target.lookup = []
        self._starting.clear()
        if running < len(self._running):
            _, succeeded, failed = self._multi.info_read()
            for curl in succeeded:
                self._end(curl, 0, "")
            for curl, error, message in failed:
                self._end(curl, error, message)
        self._report()

    def _end(self, curl: Any, error: int, message: str) -> None:
        transfer = self._running.pop(curl)
        self._multi.remove_handle(curl)
        result = transfer.result(error, message)
        if result.failure == "connect" and transfer.target.valid_until < math.inf:
            transfer.target.valid_until = 0.0  # the host may have moved
        self._idle.append(transfer)
        self._done.append(result)

    def _report(self) -> None:
        if self._done:
            done, self._done = self._done, []
            self._finished(done)


_ORIGIN = re.compile(r"(https?)://(\[[^]]*\]|[^/?:]+)(?::([0-9]+))?")
