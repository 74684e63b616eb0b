"""What the handlers of the public listener share: the store, the service, and notes that are written later."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from gatepost.core import clock
from gatepost.core.errors import Refusal, Unavailable
from gatepost.egress.jwks_cache import KeySetMissing, KeySetRequest
from gatepost.oauth import access_tokens, client_rows, key_rows, signing_keys
from gatepost.oauth.access_tokens import PresentedToken
from gatepost.oauth.service import Service
from gatepost.store.transaction import NO_HINTS, SHORT, Hints, Tx, Unit

T = TypeVar("T")
_MOST_REMEMBERED = 10_000
_MOST_FETCHES = 5  # for one request


class Fetcher(Protocol):
    async def fetch(self, request: KeySetRequest) -> bool: ...
    def refresh(self) -> None: ...


class Store(Protocol):
    async def run(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T: ...
    async def read(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T: ...


class Context:
    def __init__(self, store: Store, service: Service, now: clock.Clock, fetcher: Fetcher | None = None) -> None:
        self.store = store
        self.service = service
        self.now = now
        self._fetcher = fetcher
        self._used: set[tuple[str, str]] = set()
        self._jwks: dict[str, object] | None = None
        self.protocol: Literal["full", "six"] = "full"
        self._accepted: dict[str, None] = {}  # access tokens
        self.parsed_requests: dict[
            bytes, Any
        ] = {}  # by a mark of its bytes, what a token request that was granted says

    def cache_parsed(self, mark: bytes, read: Any) -> None:
        if len(self.parsed_requests) < _MOST_REMEMBERED:
            self.parsed_requests[mark] = read
        elif mark not in self.parsed_requests:
            self.parsed_requests = {mark: read}

    async def check_token(self, presented: PresentedToken) -> Refusal | None:
        """Why an access token is not accepted; None when it is. Called before the rest of a request is parsed.

        A token that was accepted before is not looked up again: the unit that acts on the request decides about it.
        """
        if presented.token in self._accepted and not isinstance(presented.proof, Refusal):
            return None
        found = await self.store.read(
            lambda tx: access_tokens.authenticate(tx, self.service, presented, use_up=False), SHORT
        )  # fmt: skip
        if isinstance(found, Refusal):
            return found
        if len(self._accepted) >= _MOST_REMEMBERED:
            self._accepted.clear()
        self._accepted[presented.token] = None
        return None

    def forget_token(self, presented: PresentedToken) -> None:
        """The unit did not accept this token: look it up again when it is next sent."""
        self._accepted.pop(presented.token, None)

    async def run(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T:
        """Run a unit that may want key sets of others: each is fetched, and the unit run again."""
        for _ in range(_MOST_FETCHES):
            try:
                result = await self.store.run(unit, hints)
            except KeySetMissing as error:
                if self._fetcher is None:
                    raise
                if self.service.foreign.was_tried(error.request, self.now()):
                    continue  # another request had it fetched while this one waited for the store
                if not await self._fetcher.fetch(error.request):
                    raise Unavailable(f"the key set {error.request.url} is not here yet") from None
            else:
                if self.service.foreign.due and self._fetcher is not None:
                    self._fetcher.refresh()
                return result
        try:
            return await self.store.run(unit, hints)
        except KeySetMissing as error:  # more sets than one request may wait for
            raise Unavailable(f"the key set {error.request.url} is not here yet") from None

    def note_use(self, account: str, secret: str) -> None:
        """A secret was used. Written to the minute, and outside the request: no row is hot."""
        self._used.add((account, secret))

    async def write_uses(self) -> None:
        used, self._used = sorted(self._used), set()
        at = self.now().replace(second=0, microsecond=0)
        for start in range(0, len(used), 100):
            await self.store.run(_uses(used[start : start + 100], at))

    async def load_keys(self) -> None:
        """Read the key set from the store. A web process does so when it starts, and then in the background."""
        found = await self.store.read(lambda tx: [wrapped.key for wrapped in key_rows.load(tx)])
        self._jwks = signing_keys.jwks(found)

    async def jwks(self) -> dict[str, object]:
        """The key set, from memory: verifiers get it whatever the store does."""
        if self._jwks is None:
            await self.load_keys()
        return self._jwks or {}


def _uses(used: list[tuple[str, str]], at: datetime) -> Callable[[Tx], None]:
    def unit(tx: Tx) -> None:
        for account, secret in used:
            if secret.startswith("sec_"):
                client_rows.mark_secret_used(tx, account, secret, at)

    return unit
