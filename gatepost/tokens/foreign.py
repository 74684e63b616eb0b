"""Key sets of others, by the URL they are published at: what is remembered of them, and when to ask again.

Units do no I/O. One that needs a key set not at hand raises `KeysWanted`; who runs it fetches it and runs it again.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gatepost.clients import usable_keys
from gatepost.errors import GatepostError
from gatepost.tokens.jws import peek

FRESH = timedelta(minutes=5)
PATIENCE = timedelta(seconds=20)  # between two tries, whatever is asked for
STALE = timedelta(hours=24)  # for so long a set is used although its owner does not answer
MOST = 2000


class KeysWanted(GatepostError):
    """A key set must be fetched first."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class _Known(NamedTuple):
    keys: list[dict[str, Any]]
    fetched_at: datetime | None
    tried_at: datetime


class Foreign:
    """Belongs to one process."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def keys_for(self, token: str, url: str, at: datetime) -> dict[str, Any]:
        """The set to verify this token with. An unknown `kid` asks again, but not again and again."""
        known = self._known.get(url)
        if known is None:
            raise KeysWanted(url)
        kid = peek(token)[0].get("kid")
        age = at - known.fetched_at if known.fetched_at else STALE
        right = age < FRESH and (kid is None or any(key.get("kid") == kid for key in known.keys))
        if not right and at >= known.tried_at + PATIENCE:
            raise KeysWanted(url)
        return {"keys": known.keys if age < STALE else []}

    def put(self, url: str, found: Any, at: datetime) -> None:
        """What was found there; None when nothing was, and what is known stays."""
        keys = usable_keys(found)
        before = self._known.get(url)
        if before is None and len(self._known) >= MOST:  # the oldest goes; nobody can make us forget all others
            del self._known[next(iter(self._known))]
        if keys is None:
            self._known[url] = before._replace(tried_at=at) if before else _Known([], None, at)
        else:
            self._known[url] = _Known(keys, at, at)
