"""All routes of the operations plane. It answers only requests for its own host, so no web page can reach it."""

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.resources import files
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.ledger import checkpoint_rows
from gatepost.oauth.service import Service
from gatepost.settings import EVERYWHERE, LOOPBACK
from gatepost.store.interface import Store
from gatepost.web import bearer
from gatepost.web.body import BODY, BodyLimits, BodyReader, Receive
from gatepost.web.context import Context, Handler
from gatepost.web.in_flight import TOO_MANY, InFlight
from gatepost.web.ops import metrics, operator, pages
from gatepost.web.ops.readiness import WriteProbe
from gatepost.web.request_log import RequestLog, log_failure
from gatepost.web.requests import NO_HOST, Request, Scope, Send, fields, has_encoded_slash, peer_address, source
from gatepost.web.responses import NO_STORE, UNSUPPORTED_VERSION, VERSION, Reply, json, problem, with_docs_link

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

_TO_CONSOLE = Reply(307, b"", (("location", pages.ROOT),), "text/plain")
_TO_OPERATOR = Reply(307, b"", (("location", pages.OPERATOR),), "text/plain")
_HOST_AND_PORT = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")


class Plane:
    """The operations plane, as an ASGI application."""

    def __init__(
        self, store: Store, service: Service, host: str, port: int, not_ready: Callable[[], str], page: metrics.Page,
        *, post: Mapping[str, Handler] = MappingProxyType({}), traces: "Traces | None" = None,
        allowed_hosts: tuple[str, ...] = (), trusted_proxies: tuple[str, ...] = (),
        max_requests_per_address: int = 0, limits: BodyLimits = BODY, docs_url: str = "",
        with_operator: bool = False,
    ) -> None:  # fmt: skip
        """`not_ready` says why the service is not ready, or "". `post` maps paths that take a POST to handlers.

        `with_operator` switches the operator's view on.
        """
        self._store = store
        self._service = service
        self._context = Context(store, service, store.now)
        self._host = host
        self._port = port
        self._not_ready = not_ready
        self._allowed_hosts = allowed_hosts
        self._trusted = trusted_proxies
        self._docs_url = docs_url
        self._bodies = BodyReader(limits)
        self._in_flight = InFlight(max_requests_per_address, trusted_proxies)
        self._probe = WriteProbe(store)
        self._page = page
        self._log = RequestLog(traces)  # of POST requests only; probes and scrapes are not logged
        console = pages.load(service.base_url, takes_events="/events" in post)
        self._routes: dict[str, Callable[[], Awaitable[Reply]] | Reply] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/openapi.json": self._openapi,
            "/checkpoints": self._checkpoints,
            "/": _TO_CONSOLE,
            "/console": _TO_CONSOLE,
            "/console/": console[pages.ROOT],
            **console,
        }
        self._post = post
        self._views: dict[str, Handler] = {}
        if with_operator:  # its requests are logged too
            self._routes |= {"/operator": _TO_OPERATOR, **pages.load_operator()}
            self._views = operator.routes(page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = ids.new("req")
        sent = fields(scope["headers"])
        peer = peer_address(scope)
        address = peer if isinstance(sent, Refusal) else source(peer, sent, self._trusted)
        owner = self._in_flight.enter(address, sent)
        if owner is None:
            reply = problem(TOO_MANY)
        else:
            try:
                reply = await self._answer(scope, receive, request_id, sent, address)
            finally:
                self._in_flight.leave(owner)
        if reply.status >= 400:
            reply = with_docs_link(reply, self._docs_url)
        if reply.status == 408:  # RFC 9110, section 15.5.9
            reply = reply.with_headers(("connection", "close"))
        headers = [
            (b"content-type", reply.media_type.encode()),
            (b"content-length", str(len(reply.body)).encode()),
            (b"x-request-id", request_id.encode()),
            (b"gatepost-version", VERSION.encode()),
            (b"x-content-type-options", b"nosniff"),
            *[
                (name.encode(), value.encode("ascii", "replace"))
                for name, value in dict([NO_STORE, *reply.headers]).items()
            ],
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else reply.body})

    async def _answer(
        self, scope: Scope, receive: Receive, request_id: str, headers: dict[str, str] | Refusal, address: str
    ) -> Reply:  # fmt: skip
        if isinstance(headers, Refusal):
            return problem(headers)
        host = headers.get("host", "")
        if not host:
            return problem(NO_HOST)
        if host.lower() not in self._allowed_hosts and not is_own_name(host, self._host, self._port):
            detail = "Host: not a name of the operations plane; add it to the setting ops_allowed_hosts"
            return problem(Refusal("misdirected_request", detail))
        path = "" if has_encoded_slash(scope) else scope["path"]
        supported = headers.get("gatepost-version", VERSION) == VERSION
        if path in self._post:
            span = self._log.start_span(scope, path)
            started = perf_counter()
            if supported:
                reply = await self._handle_post(scope, receive, request_id, headers, address)
            else:
                reply = problem(UNSUPPORTED_VERSION)
            self._log.record(scope, path, started, span, reply, request_id, address)
            return reply.with_headers(bearer.nonce(self._context)) if bearer.needs_nonce(headers, reply) else reply
        if not supported:
            return problem(UNSUPPORTED_VERSION)
        handler = self._routes.get(path)
        if handler is None and path not in self._views:
            return problem(Refusal("not_found", "no such path"))
        if scope["method"] not in ("GET", "HEAD"):
            return problem(Refusal("method_not_allowed", "this path accepts GET"), ("allow", "GET, HEAD"))
        if handler is None:
            return await self._handle_view(scope, request_id, headers, address)
        if isinstance(handler, Reply):
            return handler
        try:
            return await handler()
        except Exception as error:  # noqa: BLE001 (a caller must never see a stack trace)
            return problem(log_failure(error, request_id, path))

    async def _handle_view(self, scope: Scope, request_id: str, headers: dict[str, str], address: str) -> Reply:
        """Handle a request of the operator's view. The log line has the entry that recorded its token."""
        path, query = scope["path"], scope["query_string"].decode("latin-1")
        started, span = perf_counter(), self._log.start_span(scope, path)
        request = Request("GET", path, query, headers, b"", address, request_id)
        try:
            reply = await self._views[path](self._context, request)
        except Exception as error:  # noqa: BLE001 (a caller must never see a stack trace)
            reply = problem(log_failure(error, request_id, path))
        self._log.record(scope, path, started, span, reply, request_id, address)
        return reply

    async def _handle_post(
        self, scope: Scope, receive: Receive, request_id: str, headers: dict[str, str], address: str
    ) -> Reply:  # fmt: skip
        """Handle a POST. The body is read as strictly as on the public listener."""
        if scope["method"] != "POST":
            return problem(Refusal("method_not_allowed", "this path accepts POST"), ("allow", "POST"))
        body = await self._bodies.read(receive, headers)
        if isinstance(body, Refusal):
            return problem(body)
        path, query = scope["path"], scope["query_string"].decode("latin-1")
        request = Request("POST", path, query, headers, body, address, request_id, self._bases(headers["host"]))
        try:
            return await self._post[path](self._context, request)
        except Exception as error:  # noqa: BLE001 (a caller must never see a stack trace)
            return problem(log_failure(error, request_id, path))

    def _bases(self, host: str) -> tuple[str, ...]:
        """The base URLs that callers know. An allowed host can be that of a proxy that terminates TLS."""
        return (f"https://{host}", f"http://{host}") if host.lower() in self._allowed_hosts else (f"http://{host}",)

    async def _healthz(self) -> Reply:
        return json(200, {"status": "alive", "instance": self._service.keys.instance})

    async def _readyz(self) -> Reply:
        """Ready means that every process runs and the store commits writes. Otherwise tokens and events are refused.

        `unreachable` are the nodes of a distributed database that are down, with which only some accounts are.
        """
        problem = await self._probe.problem()
        reason = self._not_ready() or problem
        if reason:
            return json(503, {"status": "not ready", "because": reason}, ("retry-after", "1"))
        shards = self._store.shards
        unreachable = await asyncio.to_thread(shards.unreachable) if shards else []
        if unreachable:
            return json(200, {"status": "ready", "unreachable": unreachable})
        return json(200, {"status": "ready"})

    async def _metrics(self) -> Reply:
        return Reply(200, await self._page.text(), (), metrics.MEDIA_TYPE)

    async def _checkpoints(self) -> Reply:
        """The last signed checkpoint of each account's ledger: ids and sizes, but no content."""
        checkpoints, after = [], ""
        while page := await self._store.read(partial(checkpoint_rows.notes, after=after, limit=500)):
            checkpoints += [
                {"account": account, "size": size, "checkpoint": note} for account, size, note in page if note
            ]
            after = page[-1][0]
        return json(200, {"checkpoints": checkpoints})

    async def _openapi(self) -> Reply:
        return Reply(200, files("gatepost").joinpath("openapi.json").read_bytes())


def is_own_name(header: str, host: str, port: int) -> bool:
    """Whether a Host header names this listener. Other DNS names are refused, because of DNS rebinding.

    A listener on all interfaces is reached by any address of the machine. A header without a port means port 80.
    """
    match = _HOST_AND_PORT.fullmatch(header.lower())
    if match is None or (match[2] or "80") != str(port):
        return False
    name = match[1].removeprefix("[").removesuffix("]")
    if name == host.lower() or (name in LOOPBACK and host in (*LOOPBACK, *EVERYWHERE)):
        return True
    try:
        address = ipaddress.ip_address(name)
        return host in EVERYWHERE or address == ipaddress.ip_address(host)
    except ValueError:
        return False
