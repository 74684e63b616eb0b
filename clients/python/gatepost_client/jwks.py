"""The key set of an issuer: cached, refreshed when it is old, and fetched again for an unknown key."""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from gatepost_client import jose
from gatepost_client.errors import ApiError
from gatepost_client.jose import PublicKey
from gatepost_client.shared_call import SharedCall
from gatepost_client.transport import Request, Transport

DEFAULT_MAX_AGE = 900.0  # seconds, if the response does not say
_MAX_AGES = (60.0, 86_400.0)  # the range within which the max-age of the response counts
RETRY_AFTER = 60.0  # seconds between fetches for unknown keys, and after a fetch that failed
_MAX_KEYS = 100
_HEADERS = {"Accept": "application/json", "Connection": "close"}  # the next fetch is minutes away


class Key(NamedTuple):
    """A key of the set, and the algorithm that it is for, if the set says so."""

    public: PublicKey
    alg: str | None


class KeySet:
    """The keys that an issuer signs with, by `kid`.

    Concurrent callers share a fetch. If a fetch fails, the last set is used. An unknown `kid` causes at most one fetch
    in a minute, so that a sender of forged tokens cannot make this API flood the issuer.
    """

    def __init__(self, url: str, transport: Transport, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._transport, self._clock = url, transport, clock
        self._keys: Mapping[str, Key] = MappingProxyType({})
        self._loaded = False
        self._fresh_until = self._retry_at = 0.0
        self._refresh = SharedCall(self._fetch)

    def get(self, kid: str) -> Key | None:
        """The key, or None if the issuer does not have it. Raises ApiError if there is no key set yet."""
        if self._needs_fetch(kid):
            self._refresh()
        return self._keys.get(kid)

    async def get_async(self, kid: str) -> Key | None:
        """The same, without blocking the event loop."""
        if self._needs_fetch(kid):
            await self._refresh.call_async()
        return self._keys.get(kid)

    def _needs_fetch(self, kid: str) -> bool:
        if not self._loaded:
            return True
        now = self._clock()
        if kid in self._keys:
            return now > self._fresh_until and now >= self._retry_at and not self._refresh.in_progress
        return now >= self._retry_at or self._refresh.in_progress

    def _fetch(self) -> None:
        if self._loaded and self._clock() < self._retry_at:
            return  # another caller has fetched it just now
        self._retry_at = self._clock() + RETRY_AFTER
        try:
            response = self._transport.send(Request("GET", self._url, _HEADERS))
            if response.status != 200:
                raise ApiError("unexpected_response", f"{self._url} responded with {response.status}")
            keys = _read(response.json())
        except ApiError:
            if not self._loaded:
                raise
            return
        max_age = re.search(r"max-age=(\d{1,9})", response.headers.get("cache-control", ""))
        age = float(max_age[1]) if max_age else DEFAULT_MAX_AGE
        self._fresh_until = self._clock() + min(max(age, _MAX_AGES[0]), _MAX_AGES[1])
        self._keys, self._loaded = MappingProxyType(keys), True


def _read(document: dict[str, Any]) -> dict[str, Key]:
    """The keys that can verify signatures. Others are ignored: RFC 7517, section 5."""
    members = document.get("keys")
    if not isinstance(members, list):
        raise ApiError("unexpected_response", "the key set of the issuer is not a JWK set")
    keys: dict[str, Key] = {}
    for jwk in members[:_MAX_KEYS]:
        match jwk:
            case {"kid": str(kid)} if kid and jwk.get("use", "sig") == "sig":
                with suppress(ValueError):
                    keys[kid] = Key(jose.import_public(jwk), jwk.get("alg"))
    return keys
