"""What all handlers share: the store, the service, caches of one process, and uses of secrets to be recorded."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from gatepost.core import clock, ids
from gatepost.core.errors import Refusal, Unavailable
from gatepost.egress.jwks_cache import KeySetMissing, KeySetRequest
from gatepost.oauth import access_tokens, client_rows, key_rows, refusals, signing_keys
from gatepost.oauth.access_tokens import PresentedToken
from gatepost.oauth.client_authentication import ClientCredentials
from gatepost.oauth.quotas import QuotaMeter, Quotas
from gatepost.oauth.service import Service
from gatepost.store.transaction import NO_HINTS, SHORT, Hints, Tx, Unit
from gatepost.web.requests import Request
from gatepost.web.responses import Reply

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
ProtocolSetting = Literal["full", "six"]
_MAX_CACHED = 10_000
_MAX_FETCHES = 5  # key sets fetched for one request


class Fetcher(Protocol):
    """Fetches the key sets of other issuers and clients."""

    async def fetch(self, request: KeySetRequest) -> bool: ...
    def refresh(self) -> None: ...


class Store(Protocol):
    """The part of a store that handlers use."""

    async def run(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T: ...
    async def read(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T: ...


class _Remembered(dict[K, V]):
    """What requests taught a process. It is emptied when it is full."""

    def add(self, key: K, value: V) -> None:
        if len(self) >= _MAX_CACHED:
            self.clear()
        self[key] = value


class Context:
    """The context of the handlers in one process."""

    def __init__(self, store: Store, service: Service, now: clock.Clock, fetcher: Fetcher | None = None) -> None:
        self.store = store
        self.service = service
        self.now = now
        self._fetcher = fetcher
        self._used: set[tuple[str, str]] = set()
        self._jwks: dict[str, object] | None = None
        self.protocol: ProtocolSetting = "full"
        self._accepted: set[str] = set()  # access tokens
        # token requests that were granted, by a keyed hash of their bytes
        self.parsed_requests: _Remembered[bytes, Any] = _Remembered()
        # clients that have authenticated, by their id and the digest of their secret
        self.known_clients: _Remembered[tuple[str, bytes], Quotas] = _Remembered()
        self.quota_meter = QuotaMeter()
        # of Authorization headers, also wrong ones, by a keyed hash of the header
        self.credentials: _Remembered[bytes, ClientCredentials] = _Remembered()

    async def check_token(self, presented: PresentedToken) -> Refusal | None:
        """Return why an access token is not accepted, or None if it is. Called before the rest of a request is parsed.

        A token that was accepted before is not looked up again, because the unit that acts on the request checks it.
        """
        if presented.token in self._accepted and not isinstance(presented.proof, Refusal):
            return None
        caller = await self.store.read(
            lambda tx: access_tokens.authenticate(tx, self.service, presented, use_up=False), SHORT
        )  # fmt: skip
        if isinstance(caller, Refusal):
            return caller
        if len(self._accepted) >= _MAX_CACHED:
            self._accepted.clear()
        self._accepted.add(presented.token)
        return None

    def forget_token(self, presented: PresentedToken) -> None:
        """Look a token up again when it is next sent, because a unit did not accept it."""
        self._accepted.discard(presented.token)

    async def run(self, unit: Unit[T], hints: Hints = NO_HINTS) -> T:
        """Run a unit that may need key sets of others. Each missing set is fetched, and the unit is run again."""
        fetches_left = _MAX_FETCHES
        while True:
            try:
                result = await self.store.run(unit, hints)
                break
            except KeySetMissing as error:
                if self._fetcher is None:
                    raise
                # Another request may have fetched the set while this one waited for the store.
                if not fetches_left or not (
                    self.service.foreign.was_tried(error.request, self.now())
                    or await self._fetcher.fetch(error.request)
                ):
                    raise Unavailable(f"the key set {error.request.url} has not been fetched yet") from None
                fetches_left -= 1
        if self.service.foreign.due and self._fetcher is not None:
            self._fetcher.refresh()
        return result

    def note_use(self, account: str, secret: str) -> None:
        """Note that a secret was used. `write_uses` writes it later, so that requests do not contend for the row."""
        self._used.add((account, secret))

    async def write_uses(self) -> None:
        """Write when secrets were last used, to the minute."""
        used, self._used = sorted(self._used), set()
        at = self.now().replace(second=0, microsecond=0)
        for start in range(0, len(used), 100):
            await self.store.run(partial(_mark_used, used=used[start : start + 100], at=at))

    async def write_refused(self) -> None:
        """Write how many requests were refused because of a quota. These quotas are then read again."""
        refused = self.quota_meter.take_refused()
        if not refused:
            return
        clients = {each.client for each in refused}
        for key, quotas in self.known_clients.items():
            if quotas.client in clients:  # its next request is not refused without the store
                self.known_clients[key] = quotas._replace(limits=())
        try:
            await self.store.run(partial(refusals.count_beyond_quota, refused=refused))
        except Unavailable:
            self.quota_meter.give_back(refused)
            raise

    async def load_keys(self) -> None:
        """Read the key set from the store. A web process does so when it starts, and then in the background."""
        keys = await self.store.read(lambda tx: [wrapped.key for wrapped in key_rows.load(tx)])
        self._jwks = signing_keys.jwks(keys)

    async def jwks(self) -> dict[str, object]:
        """The key set, from memory, so that verifiers get it even if the store is unavailable."""
        if self._jwks is None:
            await self.load_keys()
        return self._jwks or {}


def _mark_used(tx: Tx, used: list[tuple[str, str]], at: datetime) -> None:
    for account, secret in used:
        reachable = tx.shards is None or tx.shards.is_reachable(ids.raw(account))
        if secret.startswith("sec_") and reachable:
            client_rows.mark_secret_used(tx, account, secret, at)


Handler = Callable[[Context, Request], Awaitable[Reply]]
