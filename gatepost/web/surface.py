"""What the handlers of the public listener share: the store, the service, and notes that are written later."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar

from gatepost import clock, keys
from gatepost.errors import Unavailable
from gatepost.store.tx import Tx, Unit
from gatepost.units.service import Service

T = TypeVar("T")


class Store(Protocol):
    async def run(self, unit: Unit[T], *, records_only: bool = False) -> T: ...
    async def read(self, unit: Unit[T]) -> T: ...


class Surface:
    def __init__(self, store: Store, service: Service, now: clock.Clock) -> None:
        self.store = store
        self.service = service
        self._now = now
        self._used: set[tuple[str, str]] = set()
        self._jwks: dict[str, object] | None = None

    def note_use(self, account: str, secret: str) -> None:
        """A secret was used. Written to the minute, and outside the request: no row is hot."""
        self._used.add((account, secret))

    async def write_uses(self) -> None:
        used, self._used = sorted(self._used), set()
        at = self._now().replace(second=0, microsecond=0)
        for start in range(0, len(used), 100):
            await self.store.run(_uses(used[start : start + 100], at))

    async def jwks(self) -> dict[str, object]:
        """The key set; the last one seen when the store cannot answer, since verifiers should not suffer."""
        try:
            found = await self.store.read(lambda tx: [wrapped.key for wrapped in tx.signing_keys()])
            self._jwks = keys.jwks(found)
        except Unavailable:
            if self._jwks is None:
                raise
        return self._jwks


def _uses(used: list[tuple[str, str]], at: datetime) -> Callable[[Tx], None]:
    def unit(tx: Tx) -> None:
        for account, secret in used:
            if secret.startswith("sec_"):
                tx.use_secret(account, secret, at)

    return unit
