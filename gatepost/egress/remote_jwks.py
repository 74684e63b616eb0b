"""Fetches other parties' JWK sets: over https, from addresses that the guard allows, without redirects, within limits.

Each account has a share of the concurrent fetches, and within it each host and each client. So servers that never
respond delay only the account that named them.
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
from gatepost.egress.jwks_cache import JwksCache, KeySetRequest
from gatepost.egress.resolver import LookUp, LookupResult, Resolver, addresses, bracketed
from gatepost.egress.shortage import AUTHORITIES, Shortage, of_transfer, resource_of
from gatepost.egress.transfer import SAFE_OPTIONS

MAX_BYTES = 128 * 1024
TIMEOUT = 5  # seconds for one fetch, from the look-up of its host name to the last byte
MAX_FETCHES = 256  # at a time
MAX_PER_ACCOUNT = 16
MAX_PER_HOST = 8  # of an account: other accounts that use the same host have their own limit
MAX_PER_CLIENT = 2


class KeyFetcher:
    """Fetches a URL once at a time for each account, however many requests wait. Belongs to one event loop."""

    def __init__(
        self, cache: JwksCache, policy_for: Callable[[str], Policy], now: Clock, *, ca: str = "",
        look_up: LookUp = addresses,
    ) -> None:  # fmt: skip
        self._cache = cache
        self._policy_for = policy_for
        self._now = now
        self._ca = ca or certifi.where()
        self._tasks: dict[tuple[str, str], asyncio.Task[bool]] = {}
        self._queue = FairQueue(total=MAX_FETCHES, per_owner=MAX_PER_ACCOUNT)
        self._threads = ThreadPoolExecutor(MAX_FETCHES, "gatepost-keys")
        self._resolver = Resolver(look_up, self._looked_up)
        self._lookups: dict[tuple[str, int], list[asyncio.Future[LookupResult]]] = {}

    async def fetch(self, request: KeySetRequest) -> bool:
        """Fetch a set into the cache. Returns whether a fetch was tried: then the cache has its result.

        False means that it took too long or that this process ran out of a resource, and the cache is unchanged.
        """
        try:
            return await asyncio.wait_for(asyncio.shield(self._task(request)), TIMEOUT + 1)
        except TimeoutError:
            return False

    def refresh(self) -> None:
        """Fetch the sets that are due, while the old ones stay in use."""
        while self._cache.due:
            _, request = self._cache.due.popitem()
            self._task(request)

    def _task(self, request: KeySetRequest) -> asyncio.Task[bool]:
        key = (request.account, request.url)
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._fetch(request))
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    async def _fetch(self, request: KeySetRequest) -> bool:
        document: Any = None
        try:
            document = msgspec.json.decode(await self._get(request))
        except _ResourceShortage as error:
            if str(error) == AUTHORITIES:
                log.error("key set not fetched: certificate authorities cannot be read", url=request.url, file=self._ca)
            else:
                log.error(
                    "key set not fetched: the service ran out of a resource", url=request.url, resource=str(error)
                )
            SHORTAGES.labels(str(error)).inc()
            return False
        except (_NotFetched, ValueError, RecursionError) as error:
            log.warning("key set not fetched", url=request.url, account=request.account, error=str(error))
        self._cache.put(request.url, document, self._now(), account=request.account)
        return True

    async def _get(self, request: KeySetRequest) -> bytes:
        """Look up the name once, and connect only to addresses that were checked."""
        policy = self._policy_for(request.account)
        problem = url_problem(policy, request.url)
        if problem:
            raise _NotFetched(f"the URL {problem}")
        parts = urlsplit(request.url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
        async with self._turn(request, host):
            loop = asyncio.get_running_loop()
            deadline = loop.time() + TIMEOUT
            resolve = ""
            if not policy.proxy and not _is_address(host):
                checked = await self._addresses(policy, request.account, host, port)
                resolve = f"{host}:{port}:{','.join(checked)}"
            left = deadline - loop.time()
            try:
                fetching = loop.run_in_executor(self._threads, _transfer, request.url, policy, self._ca, resolve, left)
            except RuntimeError:  # no thread could be started
                raise _ResourceShortage("threads") from None
            return await fetching

    @contextlib.asynccontextmanager
    async def _turn(self, request: KeySetRequest, host: str) -> AsyncIterator[None]:
        """Wait until the limits allow another fetch."""
        account, turn = request.account, asyncio.Event()
        limits: list[tuple[Any, int]] = [((account, "host", host), MAX_PER_HOST)]
        if request.client:
            limits.append(((account, "client", request.client), MAX_PER_CLIENT))
        work = Work(account, turn.set, *limits)
        self._queue.add(work)
        try:
            await turn.wait()
            yield
        finally:
            self._queue.done(work)

    async def _addresses(self, policy: Policy, account: str, host: str, port: int) -> list[str]:
        """Look up a name, within the timeout. The system's resolver has no time limit that can be set."""
        future: asyncio.Future[LookupResult] = asyncio.get_running_loop().create_future()
        self._lookups.setdefault((host, port), []).append(future)
        self._resolver.start(account, host, port)
        try:
            result = await asyncio.wait_for(future, TIMEOUT)
        except TimeoutError:
            raise _NotFetched("looking up the host name took too long") from None
        if isinstance(result, Shortage):
            raise _ResourceShortage(result.resource)
        if isinstance(result, str):
            raise _NotFetched(result)
        for address in result:
            problem = address_problem(policy, address, port)
            if problem:
                raise _NotFetched(problem)
        return list(map(bracketed, result))

    def _looked_up(self, host: str, port: int, result: LookupResult) -> None:
        for future in self._lookups.pop((host, port), []):
            if not future.done():
                future.set_result(result)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _transfer(url: str, policy: Policy, ca: str, resolve: str, seconds: float) -> bytes:
    """Fetch a URL. Runs in a thread."""
    curl, body, opener = pycurl.Curl(), _LimitedBody(), _Opener(policy)
    try:
        curl.setopt(pycurl.PROXY, policy.proxy)  # an empty value ignores the proxies of the environment
        if not policy.proxy:
            curl.setopt(pycurl.OPENSOCKETFUNCTION, opener.open)
        if resolve:
            curl.setopt(pycurl.RESOLVE, [resolve])
        for option, value in _OPTIONS.items():
            curl.setopt(option, value)
        curl.setopt(pycurl.TIMEOUT_MS, max(1, math.ceil(seconds * 1000)))
        curl.setopt(pycurl.CAINFO, ca)
        curl.setopt(pycurl.PROXY_CAINFO, ca)
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.WRITEFUNCTION, body.write)
        curl.perform()
        status = curl.getinfo(pycurl.RESPONSE_CODE)
    except pycurl.error as error:
        resource = opener.shortage or of_transfer(error.args[0], curl, opener.address)
        raise (_ResourceShortage(resource) if resource else _NotFetched(f"libcurl error {error.args[0]}")) from None
    finally:
        curl.close()
    if status != 200:
        raise _NotFetched(f"status {status}")
    return body.getvalue()


class _Opener:
    """Opens sockets for connections to allowed addresses."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.address: Any = None  # of the last connection
        self.shortage = ""  # the resource that was missing to open a socket

    def open(self, _purpose: int, address: Any) -> Any:
        family, kind, protocol, target = self.address = address
        if address_problem(self._policy, target[0], target[1]):
            return pycurl.SOCKET_BAD
        try:
            return socket.socket(family, kind, protocol).detach()  # libcurl closes it
        except OSError as error:
            self.shortage = resource_of(error)
            return pycurl.SOCKET_BAD


class _NotFetched(Exception):
    """The key set could not be fetched; the message says why."""


class _ResourceShortage(Exception):
    """The name of a resource that this process ran out of."""


class _LimitedBody(io.BytesIO):
    """Accepts at most MAX_BYTES: libcurl ends a transfer when not everything was accepted."""

    def write(self, part: Any) -> int:
        return super().write(part) if self.tell() + len(part) <= MAX_BYTES else 0


_OPTIONS = SAFE_OPTIONS | {
    pycurl.HTTPHEADER: ["accept: application/jwk-set+json, application/json", "user-agent: Gatepost"],
}
