"""The client for event loops: the methods of `Client`, each in a thread."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Self, TypeVar, Unpack, cast

from gatepost_client import schemas
from gatepost_client.client import Client
from gatepost_client.credentials import Credentials
from gatepost_client.dpop import ProofKey
from gatepost_client.events import Event, PublishedEvent
from gatepost_client.transport import TIMEOUT

T = TypeVar("T")


class AsyncClient:
    """`Client` for an event loop. See there for the parameters and the methods.

    `sync` is the client that does the work. It may be used as well, and shares tokens and connections.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        *,
        scope: str | None = None,
        events_url: str | None = None,
        proof_key: ProofKey | None = None,
        timeout: float = TIMEOUT,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.sync = Client(
            url,
            credentials,
            scope=scope,
            events_url=events_url,
            proof_key=proof_key,
            timeout=timeout,
            ssl_context=ssl_context,
        )

    async def define_client(
        self, definition: schemas.ClientDefinition, *, idempotency_key: str | None = None
    ) -> schemas.Client:
        """See `Client.define_client`."""
        return await asyncio.to_thread(self.sync.define_client, definition, idempotency_key=idempotency_key)

    async def define_scope(
        self, definition: schemas.ScopeDefinition, *, idempotency_key: str | None = None
    ) -> schemas.Scope:
        """See `Client.define_scope`."""
        return await asyncio.to_thread(self.sync.define_scope, definition, idempotency_key=idempotency_key)

    async def define_webhook_endpoint(
        self, definition: schemas.EndpointDefinition, *, idempotency_key: str | None = None
    ) -> schemas.Endpoint:
        """See `Client.define_webhook_endpoint`."""
        define = self.sync.define_webhook_endpoint
        return await asyncio.to_thread(define, definition, idempotency_key=idempotency_key)

    async def define_webhook_subscription(
        self, definition: schemas.SubscriptionDefinition, *, idempotency_key: str | None = None
    ) -> schemas.Subscription:
        """See `Client.define_webhook_subscription`."""
        define = self.sync.define_webhook_subscription
        return await asyncio.to_thread(define, definition, idempotency_key=idempotency_key)

    async def obtain_token(self, parameters: schemas.TokenRequest) -> schemas.Token:
        """See `Client.obtain_token`."""
        return await asyncio.to_thread(self.sync.obtain_token, parameters)

    async def token(self, scope: str, *, resource: str | None = None) -> str:
        """See `Client.token`. Only a new token needs a thread, and callers share it."""
        return await self.sync.token_async(scope, resource=resource)

    async def headers(self, method: str, url: str, scope: str, *, resource: str | None = None) -> dict[str, str]:
        """See `Client.headers`."""
        return await self.sync.headers_async(method, url, scope, resource=resource)

    async def read_webhook_deliveries(self, **query: Unpack[schemas.DeliveryQuery]) -> schemas.Deliveries:
        """See `Client.read_webhook_deliveries`."""
        return await asyncio.to_thread(self.sync.read_webhook_deliveries, **query)

    async def deliveries(self, **filters: Unpack[schemas.DeliveryFilters]) -> AsyncIterator[schemas.Delivery]:
        """See `Client.deliveries`."""
        async for delivery in _in_thread(self.sync.deliveries(**filters)):
            yield delivery

    async def endpoints(self) -> AsyncIterator[schemas.EndpointPageData]:
        """See `Client.endpoints`."""
        async for endpoint in _in_thread(self.sync.endpoints()):
            yield endpoint

    async def delivery_summary(self, **query: Unpack[schemas.DeliveryQuery]) -> schemas.DeliverySummary:
        """See `Client.delivery_summary`."""
        return await asyncio.to_thread(self.sync.delivery_summary, **query)

    async def publish_event(self, event: Event) -> PublishedEvent:
        """See `Client.publish_event`."""
        return await asyncio.to_thread(self.sync.publish_event, event)

    async def publish_events(self, events: Sequence[Event]) -> list[PublishedEvent]:
        """See `Client.publish_events`."""
        return await asyncio.to_thread(self.sync.publish_events, events)

    def close(self) -> None:
        """Close the connections that are kept open."""
        self.sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def _in_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """Iterate in threads, because each step may read a page."""
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield cast(T, item)
