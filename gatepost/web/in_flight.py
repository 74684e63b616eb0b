"""Requests in progress, counted by source address, so that one address cannot occupy a whole process."""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

from gatepost.core.errors import Refusal
from gatepost.web.requests import is_forwarded, is_trusted

TOO_MANY = Refusal("too_many_requests", "too many requests from this address are in progress", retry_after=1)


class InFlight:
    """The requests of one process. A trusted proxy is not limited, but each address behind it is."""

    def __init__(self, limit: int, trusted_proxies: tuple[str, ...] = ()) -> None:
        self._limit = limit  # 0: no limit
        self._trusted = trusted_proxies
        self._counts: dict[str, int] = {}

    def enter(self, address: str, headers: Mapping[str, str] | Refusal) -> str | None:
        """Count a request. Returns its owner, which `leave` needs, or None if the owner has too many requests.

        A request that a proxy forwarded counts as the proxy's if its headers do not tell the caller. The caller may
        have caused that, so these requests are limited too.
        """
        owner = owner_of(address)
        count = self._counts.get(owner, 0)
        if count >= self._limit and self._limit and not self._is_of_proxy(address, headers):
            return None
        self._counts[owner] = count + 1
        return owner

    def _is_of_proxy(self, address: str, headers: Mapping[str, str] | Refusal) -> bool:
        if isinstance(headers, Refusal) or is_forwarded(headers):
            return False
        return bool(self._trusted) and is_trusted(address, self._trusted)

    def leave(self, owner: str) -> None:
        count = self._counts[owner] - 1
        if count:
            self._counts[owner] = count
        else:
            del self._counts[owner]


@lru_cache(maxsize=4096)
def owner_of(address: str) -> str:
    """The address, or the /64 network of an IPv6 address, since one host commonly has all of it."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((parsed, 64), strict=False))
