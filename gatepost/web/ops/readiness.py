"""Whether the service is ready: tokens and events need a store that commits writes."""

import asyncio
import math
import time

from gatepost.core import clock
from gatepost.core.errors import Unavailable
from gatepost.oauth import key_rows
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx

TIMEOUT = 3.0  # seconds for the probe: a load balancer does not wait much longer
FRESH = 0.25  # seconds for which an outcome is reused


class WriteProbe:
    """Commits a small write and reports what failed. A read would not detect a store that is full or read-only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._problem = ""
        self._checked_at = -math.inf
        self._checking = asyncio.Lock()

    async def problem(self) -> str:
        """What is wrong, or "" if a write was committed just now."""
        async with self._checking:
            if time.monotonic() - self._checked_at > FRESH:
                self._problem = await self._check()
                self._checked_at = time.monotonic()
        return self._problem

    async def _check(self) -> str:
        try:
            has_key = await asyncio.wait_for(self._store.run(_write), TIMEOUT)
        except TimeoutError:
            return f"the store did not commit a write within {TIMEOUT:g} s"
        except Unavailable as error:
            return f"the store does not commit writes: {error}"
        return "" if has_key else "there is no active signing key"


def _write(tx: Tx) -> bool:
    tx.probe(clock.milliseconds(tx.at))
    return any(wrapped.key.status == "active" for wrapped in key_rows.load(tx))
