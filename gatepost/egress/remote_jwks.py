"""Fetching key sets of others: over https, to an address that the guard allows, no redirects, little and soon.

Each account has a share of the fetches under way, and within it each host and each client. So servers that never
answer delay nobody but the account that named them.
"""

import asyncio
import contextlib
import io
import ipaddress
import math
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import certifi
import msgspec
import pycurl  # type: ignore[import-untyped]

from gatepost.core.clock import Clock
from gatepost.core.fair_queue import FairQueue, Work
from gatepost.core.logging import log
from gatepost.core.metrics import SHORTAGES
from gatepost.egress.address_guard import Policy, address_problem, url_problem
from gatepost.egress.jwks_cache import Foreign, Wanted
from gatepost.egress.resolver import Found, LookUp, Resolver, addresses
from gatepost.egress.shortage import Shortage, lacking, of_connect, resource_of

MAX_BYTES = 128 * 1024
TIMEOUT = 5  # seconds for one fetch, from the look-up of its host name to the last byte
IN_ALL = 256  # fetches under way
FOR_ONE_ACCOUNT = 16
FOR_ONE_HOST = 8  # of an account: other accounts that use the same host have their own
FOR_ONE_CLIENT = 2


class KeyFetcher:
    """One fetch of a URL at a time for each account, however many wait for it. Belongs to one event loop."""

    def __init__(
        self, foreign: Foreign, policy_for: Callable[[str], Policy], now: Clock, *, ca: str = "",
        look_up: LookUp = addresses,
    ) -> None:  # fmt: skip
        self._foreign = foreign
        self._policy_for = policy_for
        self._now = now
        self._ca = ca or certifi.where()
        self._under_way: dict[tuple[str, str], asyncio.Task[bool]] = {}
        self._queue = FairQueue(in_all=IN_ALL, for_one=FOR_ONE_ACCOUNT)
        self._threads = ThreadPoolExecutor(IN_ALL, "gatepost-keys")
        self._resolver = Resolver(look_up, self._looked_up)
        self._questions: dict[tuple[str, int], list[asyncio.Future[Found]]] = {}

    async def fetch(self, wanted: Wanted) -> bool:
        """True when it was tried: `Foreign` knows what is there, or that nothing was.

        False when it takes too long, or when this process lacks what it needs for it: then nothing is known.
        """
        try:
            return await asyncio.wait_for(asyncio.shield(self._task(wanted)), TIMEOUT + 1)
        except TimeoutError:
            return False

    def refresh(self) -> None:
        """Fetch the sets that are in use and due, while the old ones serve."""
        while self._foreign.due:
            _, wanted = self._foreign.due.popitem()
            self._task(wanted)

    def _task(self, wanted: Wanted) -> asyncio.Task[bool]:
        key = (wanted.account, wanted.url)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._fetch(wanted))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return task

    async def _fetch(self, wanted: Wanted) -> bool:
        found: Any = None
        try:
            found = msgspec.json.decode(await self._get(wanted))
        except _Lacking as error:
            log.error("key set not fetched: the service ran out of a resource", url=wanted.url, resource=str(error))
            SHORTAGES.labels(str(error)).inc()
            return False
        except (_NotFetched, ValueError, RecursionError) as error:
            log.warning("key set not fetched", url=wanted.url, account=wanted.account, error=str(error))
        self._foreign.put(wanted.url, found, self._now(), account=wanted.account)
        return True

    async def _get(self, wanted: Wanted) -> bytes:
        """The name is looked up once, and the connection made to an address that was judged."""
        policy = self._policy_for(wanted.account)
        problem = url_problem(policy, wanted.url)
        if problem:
            raise _NotFetched(f"the URL {problem}")
        parts = urlsplit(wanted.url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
        async with self._place(wanted, host):
            loop = asyncio.get_running_loop()
            began = loop.time()
            resolve = ""
            if not policy.proxy and not _is_address(host):
                judged = await self._addresses(policy, wanted.account, host, port)
                resolve = f"{host}:{port}:{','.join(judged)}"
            left = TIMEOUT - (loop.time() - began)
            try:
                fetching = loop.run_in_executor(self._threads, _transfer, wanted.url, policy, self._ca, resolve, left)
            except RuntimeError:  # no thread could be started
                raise _Lacking("threads") from None
            return await fetching

    @contextlib.asynccontextmanager
    async def _place(self, wanted: Wanted, host: str) -> AsyncIterator[None]:
        """Among the fetches under way; waits for one."""
        account, turn = wanted.account, asyncio.Event()
        limits: list[tuple[Any, int]] = [((account, "host", host), FOR_ONE_HOST)]
        if wanted.client:
            limits.append(((account, "client", wanted.client), FOR_ONE_CLIENT))
        work = Work(account, turn.set, *limits)
        self._queue.add(work)
        try:
            await turn.wait()
            yield
        finally:
            self._queue.done(work)

    async def _addresses(self, policy: Policy, account: str, host: str, port: int) -> list[str]:
        """The system's resolver has no time limit that is ours to set, so waiting for it has one."""
        answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._questions.setdefault((host, port), []).append(answer)
        self._resolver.ask(account, host, port)
        try:
            found = await asyncio.wait_for(answer, TIMEOUT)
        except TimeoutError:
            raise _NotFetched("looking up the host name took too long") from None
        if isinstance(found, Shortage):
            raise _Lacking(found.resource)
        if isinstance(found, str):
            raise _NotFetched(found)
        for each in found:
            problem = address_problem(policy, each, port)
            if problem:
                raise _NotFetched(problem)
        return [f"[{each}]" if ":" in each else each for each in found]

    def _looked_up(self, host: str, port: int, found: Found) -> None:
        for answer in self._questions.pop((host, port), []):
            if not answer.done():
                answer.set_result(found)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _transfer(url: str, policy: Policy, ca: str, resolve: str, seconds: float) -> bytes:
    """In a thread."""
    curl, body, opener = pycurl.Curl(), _Limited(), _Opener(policy)
    try:
        curl.setopt(pycurl.PROXY, policy.proxy)  # an empty one means none, whatever the environment says
        if not policy.proxy:
            curl.setopt(pycurl.OPENSOCKETFUNCTION, opener.open)
        if resolve:
            curl.setopt(pycurl.RESOLVE, [resolve])
        for option, value in _OPTIONS.items():
            curl.setopt(option, value)
        curl.setopt(pycurl.TIMEOUT_MS, max(1, math.ceil(seconds * 1000)))
        curl.setopt(pycurl.CAINFO, ca)
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.WRITEFUNCTION, body.write)
        curl.perform()
        status = curl.getinfo(pycurl.RESPONSE_CODE)
    except pycurl.error as error:
        resource = opener.lacking or _lacking(error.args[0], curl.getinfo(pycurl.OS_ERRNO), opener.address)
        raise (_Lacking(resource) if resource else _NotFetched(f"libcurl error {error.args[0]}")) from None
    finally:
        curl.close()
    if status != 200:
        raise _NotFetched(f"status {status}")
    return body.getvalue()


class _Opener:
    """Opens sockets for connections to addresses that are allowed."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.address: Any = None  # the last one
        self.lacking = ""

    def open(self, _purpose: int, address: Any) -> Any:
        family, kind, protocol, target = self.address = address
        if address_problem(self._policy, target[0], target[1]):
            return pycurl.SOCKET_BAD
        try:
            return socket.socket(family, kind, protocol).detach()  # libcurl's to close
        except OSError as error:
            self.lacking = resource_of(error)
            return pycurl.SOCKET_BAD


def _lacking(error: int, number: int, address: Any) -> str:
    """What this process lacked for a transfer that failed, if that is the reason. See `shortage`."""
    if error == pycurl.E_OUT_OF_MEMORY:
        return "memory"
    if error == pycurl.E_COULDNT_CONNECT:
        return of_connect(number, address)
    return lacking() if error in (pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_SSL_CACERT_BADFILE) else ""


class _NotFetched(Exception):
    pass


class _Lacking(Exception):
    """The name of a resource that this process ran out of."""


class _Limited(io.BytesIO):
    """Takes so much and no more: libcurl ends a transfer of which not everything was taken."""

    def write(self, part: Any) -> int:
        return super().write(part) if self.tell() + len(part) <= MAX_BYTES else 0


_OPTIONS = {
    pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
    pycurl.FOLLOWLOCATION: 0,
    pycurl.NETRC: 0,
    pycurl.NOPROXY: "",  # else the environment's would count
    pycurl.SSL_VERIFYPEER: 1,
    pycurl.SSL_VERIFYHOST: 2,
    pycurl.SSLVERSION: pycurl.SSLVERSION_TLSv1_2,
    pycurl.NOSIGNAL: 1,
    pycurl.HTTPHEADER: ["accept: application/jwk-set+json, application/json", "user-agent: Gatepost"],
}
