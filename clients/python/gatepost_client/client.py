"""The client of the six operations, of `POST /events`, and of tokens for other APIs."""

import json
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, Unpack, cast
from urllib.parse import urlencode

from gatepost_client import schemas
from gatepost_client.credentials import Credentials
from gatepost_client.dpop import ProofKey
from gatepost_client.errors import ApiError
from gatepost_client.events import BATCH, SINGLE, Event, PublishedEvent, cloud_event
from gatepost_client.schemas import VERSION
from gatepost_client.sender import Sender
from gatepost_client.token_source import ObtainedToken, TokenSource
from gatepost_client.transport import TIMEOUT, Request, Transport, base_url

_TOKENS = "/oauth/tokens"
_DELIVERIES = "/webhooks/deliveries"


class Client:
    """A client of Gatepost. Create it once: it holds tokens and connections. Threads may share it.

    `url` is the base URL of Gatepost. Each operation obtains a token with the scope that it needs, or with `scope` if
    given: to define a client that has `gatepost:` scopes, the token needs them too. `events_url` is the URL of the
    operations plane, for `publish_event`. With a `proof_key`, all tokens are bound to that key (DPoP, RFC 9449).

    Requests are sent again if the connection failed or Gatepost is overloaded. An idempotency key makes that safe. All
    methods raise `ApiError`.
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
        transport: Transport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._url = base_url(url, "url")
        self._events_url = base_url(events_url, "events_url") if events_url is not None else None
        self._credentials, self._scope, self._clock = credentials, scope, clock
        self._transport = transport or Transport(timeout=timeout, ssl_context=ssl_context)
        self._sender = Sender(self._transport, clock, sleep, proof_key)
        self._scheme = "Bearer" if proof_key is None else "DPoP"
        self._sources: dict[tuple[str, str | None], TokenSource] = {}

    def define_client(
        self, definition: schemas.ClientDefinition, *, idempotency_key: str | None = None
    ) -> schemas.Client:
        """Create a client, or change the one whose `client_id` the definition names."""
        return cast(schemas.Client, self._define("/oauth/clients", "gatepost:clients", definition, idempotency_key))

    def define_scope(self, definition: schemas.ScopeDefinition, *, idempotency_key: str | None = None) -> schemas.Scope:
        """Create a scope, or change one with `redefine`."""
        return cast(schemas.Scope, self._define("/oauth/scopes", "gatepost:scopes", definition, idempotency_key))

    def define_webhook_endpoint(
        self, definition: schemas.EndpointDefinition, *, idempotency_key: str | None = None
    ) -> schemas.Endpoint:
        """Create an endpoint, or change the one whose `id` the definition names."""
        answer = self._define("/webhooks/endpoints", "gatepost:endpoints", definition, idempotency_key)
        return cast(schemas.Endpoint, answer)

    def define_webhook_subscription(
        self, definition: schemas.SubscriptionDefinition, *, idempotency_key: str | None = None
    ) -> schemas.Subscription:
        """Create a subscription, or change the one whose `id` the definition names."""
        answer = self._define("/webhooks/subscriptions", "gatepost:subscriptions", definition, idempotency_key)
        return cast(schemas.Subscription, answer)

    def obtain_token(self, parameters: schemas.TokenRequest) -> schemas.Token:
        """Send a token request of any grant type, authenticated with the credentials of this client.

        The token is not cached. Only client credentials are sent again: a code or a refresh token is used up.
        """
        repeatable = parameters["grant_type"] == "client_credentials"

        def build() -> Request:
            headers, form = self._credentials.authenticate(self._url, self._clock())
            body = urlencode([*parameters.items(), *form.items()], doseq=True).encode()
            media = {"Content-Type": "application/x-www-form-urlencoded", "Gatepost-Version": VERSION}
            return Request("POST", self._url + _TOKENS, {**media, **headers}, body, repeatable)

        return cast(schemas.Token, self._sender.result(self._sender.send(build)))

    def token(self, scope: str, *, resource: str | None = None) -> str:
        """An access token of this client for an API, from the cache until shortly before it expires."""
        return self._source(scope, resource).get().value

    async def token_async(self, scope: str, *, resource: str | None = None) -> str:
        """The same for an event loop."""
        return (await self._source(scope, resource).get_async()).value

    def headers(self, method: str, url: str, scope: str, *, resource: str | None = None) -> dict[str, str]:
        """The headers of a request to an API: a token as with `token`, and a DPoP proof if it is bound to a key."""
        return self._headers(self._source(scope, resource).get(), method, url)

    async def headers_async(self, method: str, url: str, scope: str, *, resource: str | None = None) -> dict[str, str]:
        """The same for an event loop."""
        return self._headers(await self._source(scope, resource).get_async(), method, url)

    def read_webhook_deliveries(self, **query: Unpack[schemas.DeliveryQuery]) -> schemas.Deliveries:
        """One page of deliveries; with `view`, a summary or a page of endpoints."""
        return cast(schemas.Deliveries, self._read(query))

    def deliveries(self, **filters: Unpack[schemas.DeliveryFilters]) -> Iterator[schemas.Delivery]:
        """All deliveries that match. Pages are read as they are needed."""
        yield from cast(Iterator[schemas.Delivery], self._items(filters))

    def endpoints(self) -> Iterator[schemas.EndpointPageData]:
        """All endpoints of the account, with their subscriptions."""
        yield from cast(Iterator[schemas.EndpointPageData], self._items({"view": "endpoints"}))

    def delivery_summary(self, **query: Unpack[schemas.DeliveryQuery]) -> schemas.DeliverySummary:
        """Counts of deliveries and attempts, by `interval`."""
        return cast(schemas.DeliverySummary, self._read({**query, "view": "summary"}))

    def publish_event(self, event: Event) -> PublishedEvent:
        """Publish an event. When the method returns, the event and its deliveries are committed."""
        return cast(PublishedEvent, self._publish(cloud_event(event), SINGLE))

    def publish_events(self, events: Sequence[Event]) -> list[PublishedEvent]:
        """Publish up to 100 events, all or none."""
        answer = self._publish([cloud_event(event) for event in events], BATCH)
        return cast(list[PublishedEvent], answer["data"])

    def close(self) -> None:
        """Close the connections that are kept open."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _define(self, path: str, scope: str, definition: Mapping[str, Any], key: str | None) -> dict[str, Any]:
        if key is not None and not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
            raise ValueError("idempotency_key: must be 1 to 255 printable ASCII characters")
        headers = {"Content-Type": "application/json", "Idempotency-Key": key or secrets.token_urlsafe(16)}
        return self._call("POST", self._url + path, scope, headers, json.dumps(definition).encode())

    def _publish(self, body: Any, media_type: str) -> dict[str, Any]:
        if self._events_url is None:
            raise ApiError("events_url_missing", "Pass events_url, the URL of the operations plane, to the client.")
        url, headers = f"{self._events_url}/events", {"Content-Type": media_type}
        return self._call("POST", url, "gatepost:events", headers, json.dumps(body).encode())

    def _read(self, query: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: _query_value(value) for name, value in query.items() if value is not None}
        url = self._url + _DELIVERIES + (f"?{urlencode(values)}" if values else "")
        return self._call("GET", url, "gatepost:deliveries", {})

    def _items(self, query: Mapping[str, Any]) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = self._read({**query, "cursor": cursor})
            yield from page["data"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _call(
        self, method: str, url: str, scope: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> dict[str, Any]:
        """Send a request with a token; once more with a new token if Gatepost no longer accepts the first."""
        source = self._source(self._scope or scope, None)
        fixed = {"Accept": "application/json", "Gatepost-Version": VERSION, **headers}
        for may_repeat in (True, False):
            token = source.get()
            request = Request(method, url, {**fixed, "Authorization": f"{token.scheme} {token.value}"}, body)
            response = self._sender.send(lambda request=request: request, token.value)  # type: ignore[misc]
            if response.status != 401 or not may_repeat:
                break
            source.drop(token)
        return self._sender.result(response)

    def _source(self, scope: str, resource: str | None) -> TokenSource:
        source = self._sources.get((scope, resource))
        if source is not None:
            return source
        parameters: dict[str, str] = {"grant_type": "client_credentials", "scope": scope}
        parameters |= {"resource": resource} if resource is not None else {}
        obtain = cast(schemas.TokenRequest, parameters)
        new = TokenSource(lambda: self.obtain_token(obtain), self._clock, self._scheme)
        return self._sources.setdefault((scope, resource), new)

    def _headers(self, token: ObtainedToken, method: str, url: str) -> dict[str, str]:
        authorization = {"Authorization": f"{token.scheme} {token.value}"}
        return authorization | (self._sender.proof(method, url, token.value) if token.scheme == "DPoP" else {})


def _query_value(value: Any) -> str:
    if not isinstance(value, datetime):
        return str(value)
    if value.tzinfo is None:
        raise ValueError("a time needs a time zone, such as datetime.now(UTC)")
    return value.isoformat()
