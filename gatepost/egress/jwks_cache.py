"""The cache of other parties' JWK sets, by the URL at which they are published, and when to fetch them again.

Units of work do no I/O. A unit that needs a missing key set raises `KeySetMissing`; the caller fetches the set and runs
the unit again. Each account has its own cache, because accounts may reach different networks.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gatepost.core.errors import GatepostError
from gatepost.core.jose import decode_unverified
from gatepost.core.jwk_sets import usable_keys

FRESH = timedelta(minutes=5)
REVALIDATED = timedelta(minutes=10)  # up to this age a set is used while it is fetched again
RETRY_AFTER = timedelta(seconds=20)  # the minimum time between two fetches of a set
STALE = timedelta(hours=24)  # up to this age a set is used although its server does not respond
MAX_SETS = 2000


class KeySetRequest(NamedTuple):
    """A key set to fetch, and the names of the account and of the client that need it."""

    url: str
    account: str = ""
    client: str = ""


class KeySetMissing(GatepostError):
    """A key set must be fetched first."""

    def __init__(self, request: KeySetRequest) -> None:
        super().__init__(request.url)
        self.request = request


class _CachedSet(NamedTuple):
    keys: list[dict[str, Any]]
    fetched_at: datetime | None
    tried_at: datetime


class JwksCache:
    """The key sets of all accounts, in the memory of one process."""

    def __init__(self) -> None:
        self._sets: dict[str, dict[str, _CachedSet]] = {}  # by account, then by URL
        self._count = 0
        self.due: dict[tuple[str, str], KeySetRequest] = {}  # sets in use that should be fetched again

    def keys_for(self, token: str, url: str, at: datetime, *, account: str = "", client: str = "") -> dict[str, Any]:
        """The set to verify this token with. An unknown `kid` causes another fetch, but not before RETRY_AFTER."""
        request = KeySetRequest(url, account, client)
        cached = self._sets.get(account, {}).get(url)
        if cached is None:
            raise KeySetMissing(request)
        kid = decode_unverified(token)[0].get("kid")
        age = at - cached.fetched_at if cached.fetched_at else STALE
        has_key = kid is None or any(key.get("kid") == kid for key in cached.keys)
        if not (has_key and age < FRESH) and at >= cached.tried_at + RETRY_AFTER:
            if not has_key or age >= REVALIDATED:
                raise KeySetMissing(request)
            self.due[account, url] = request
        return {"keys": cached.keys if age < STALE else []}

    def was_tried(self, request: KeySetRequest, at: datetime) -> bool:
        """Whether a fetch was tried so recently that it must not be tried again yet."""
        cached = self._sets.get(request.account, {}).get(request.url)
        return cached is not None and at < cached.tried_at + RETRY_AFTER

    def put(self, url: str, document: Any, at: datetime, *, account: str = "") -> None:
        """Store a fetched document. If it is None, the fetch failed and the cached keys stay."""
        keys = usable_keys(document)
        before = self._sets.get(account, {}).get(url)
        if before is None:
            self._make_room()
            self._count += 1
        sets = self._sets.setdefault(account, {})
        if keys is None:
            sets[url] = before._replace(tried_at=at) if before else _CachedSet([], None, at)
        else:
            sets[url] = _CachedSet(keys, at, at)

    def _make_room(self) -> None:
        """Evict the oldest set of the account with the most sets, so that no account can evict another's sets."""
        if self._count < MAX_SETS:
            return
        account = max(self._sets, key=lambda name: len(self._sets[name]))
        sets = self._sets[account]
        del sets[next(iter(sets))]
        if not sets:
            del self._sets[account]
        self._count -= 1
