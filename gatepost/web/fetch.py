"""Fetching key sets of others: over https, to an address that the guard allows, no redirects, little and soon."""

import asyncio
import contextlib
import io
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import certifi
import msgspec
import pycurl  # type: ignore[import-untyped]

from gatepost.clock import Clock
from gatepost.deliveries.guard import Policy, address_problem, url_problem
from gatepost.deliveries.send import LookUp, addresses
from gatepost.observe import log
from gatepost.tokens.foreign import Foreign

MAX_BYTES = 128 * 1024
TIMEOUT = 5  # seconds for all of it
MOST_AT_ONCE = 64  # so that a few servers that do not answer hold up nobody else's


class KeyFetcher:
    """One fetch of a URL at a time, however many wait for it. Belongs to one event loop."""

    def __init__(
        self, foreign: Foreign, policy: Policy, now: Clock, *, ca: str = "", look_up: LookUp = addresses
    ) -> None:
        self._foreign = foreign
        self._policy = policy
        self._now = now
        self._ca = ca or certifi.where()
        self._look_up = look_up
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, "gatepost-keys")

    async def fetch(self, url: str) -> None:
        """Afterwards `Foreign` knows what is there, or that nothing was to be had."""
        task = self._under_way.get(url)
        if task is None:
            task = self._under_way[url] = asyncio.create_task(self._fetch(url))
            task.add_done_callback(lambda _: self._under_way.pop(url, None))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), TIMEOUT + 1)

    async def _fetch(self, url: str) -> None:
        found: Any = None
        try:
            loop = asyncio.get_running_loop()
            found = msgspec.json.decode(await loop.run_in_executor(self._threads, self._get, url))
        except (_NotFetched, ValueError, RecursionError) as error:
            log.warning("key set not fetched", url=url, error=str(error))
        self._foreign.put(url, found, self._now())

    def _get(self, url: str) -> bytes:
        """In a thread. The name is looked up once, and the connection made to an address that was judged."""
        problem = url_problem(self._policy, url)
        if problem:
            raise _NotFetched(f"the URL {problem}")
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        host = parts.hostname or ""
        curl, body = pycurl.Curl(), _Limited()
        try:
            if self._policy.proxy:
                curl.setopt(pycurl.PROXY, self._policy.proxy)
            else:
                curl.setopt(pycurl.PROXY, "")
                curl.setopt(pycurl.RESOLVE, [f"{host}:{port}:{','.join(self._allowed(host, port))}"])
                curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
            for option, value in _OPTIONS.items():
                curl.setopt(option, value)
            curl.setopt(pycurl.CAINFO, self._ca)
            curl.setopt(pycurl.URL, url)
            curl.setopt(pycurl.WRITEFUNCTION, body.write)
            curl.perform()
            status = curl.getinfo(pycurl.RESPONSE_CODE)
        except pycurl.error as error:
            raise _NotFetched(f"libcurl error {error.args[0]}") from None
        finally:
            curl.close()
        if status != 200:
            raise _NotFetched(f"status {status}")
        return body.getvalue()

    def _allowed(self, host: str, port: int) -> list[str]:
        try:
            found = self._look_up(host, port)
        except (OSError, ValueError) as error:
            raise _NotFetched(f"the host name could not be looked up ({type(error).__name__})") from None
        for each in found:
            problem = address_problem(self._policy, each, port)
            if problem:
                raise _NotFetched(problem)
        return [f"[{each}]" if ":" in each else each for each in found]

    def _open_socket(self, _purpose: int, address: Any) -> Any:
        family, kind, protocol, target = address
        if address_problem(self._policy, target[0], target[1]):
            return pycurl.SOCKET_BAD
        return socket.socket(family, kind, protocol).detach()  # libcurl's to close


class _NotFetched(Exception):
    pass


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
    pycurl.TIMEOUT: TIMEOUT,
    pycurl.NOSIGNAL: 1,
    pycurl.HTTPHEADER: ["accept: application/jwk-set+json, application/json", "user-agent: Gatepost"],
}
