"""Key sets of others, by the URL they are published at: what is remembered of them, and when to ask again.

Units do no I/O. One that needs a key set not at hand raises `KeysWanted`; its caller fetches the set and runs it again.
Each account has its own: what one account may reach, another may not.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gatepost.core.errors import GatepostError
from gatepost.core.jose import peek
from gatepost.core.jwk_sets import usable_keys

FRESH = timedelta(minutes=5)
REVALIDATED = timedelta(minutes=10)  # until this age a set is used while it is being fetched again
PATIENCE = timedelta(seconds=20)  # between two tries, whatever is asked for
STALE = timedelta(hours=24)  # for so long a set is used although its owner does not answer
MOST = 2000


class Wanted(NamedTuple):
    """A key set to be fetched: the names of the account and of the client that need it."""

    url: str
    account: str = ""
    client: str = ""


class KeysWanted(GatepostError):
    """A key set must be fetched first."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted.url)
        self.wanted = wanted


class _Known(NamedTuple):
    keys: list[dict[str, Any]]
    fetched_at: datetime | None
    tried_at: datetime


class Foreign:
    """Belongs to one process."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, _Known]] = {}  # by account, then by URL
        self._count = 0
        self.due: dict[tuple[str, str], Wanted] = {}  # sets in use that should be fetched again

    def keys_for(self, token: str, url: str, at: datetime, *, account: str = "", client: str = "") -> dict[str, Any]:
        """The set to verify this token with. An unknown `kid` asks again, but not again and again."""
        known = self._known.get(account, {}).get(url)
        if known is None:
            raise KeysWanted(Wanted(url, account, client))
        kid = peek(token)[0].get("kid")
        age = at - known.fetched_at if known.fetched_at else STALE
        named = kid is None or any(key.get("kid") == kid for key in known.keys)
        if not (named and age < FRESH) and at >= known.tried_at + PATIENCE:
            if not named or age >= REVALIDATED:
                raise KeysWanted(Wanted(url, account, client))
            self.due[account, url] = Wanted(url, account, client)
        return {"keys": known.keys if age < STALE else []}

    def was_tried(self, wanted: Wanted, at: datetime) -> bool:
        """Whether it was fetched, or tried, so recently that it is not to be tried again: perhaps meanwhile."""
        known = self._known.get(wanted.account, {}).get(wanted.url)
        return known is not None and at < known.tried_at + PATIENCE

    def put(self, url: str, found: Any, at: datetime, *, account: str = "") -> None:
        """What was found there; None when nothing was, and what is known stays."""
        keys = usable_keys(found)
        before = self._known.get(account, {}).get(url)
        if before is None:
            self._make_room()
            self._count += 1
        sets = self._known.setdefault(account, {})
        if keys is None:
            sets[url] = before._replace(tried_at=at) if before else _Known([], None, at)
        else:
            sets[url] = _Known(keys, at, at)

    def _make_room(self) -> None:
        """The oldest of the account that has the most makes room: no account can make us forget another's sets."""
        if self._count < MOST:
            return
        account = max(self._known, key=lambda name: len(self._known[name]))
        sets = self._known[account]
        del sets[next(iter(sets))]
        if not sets:
            del self._known[account]
        self._count -= 1
