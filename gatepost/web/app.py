"""All routes of the public listener, and the ASGI application that serves them."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from gatepost.core import ids
from gatepost.core.errors import Refusal, Unavailable
from gatepost.core.logging import log
from gatepost.oauth import discovery
from gatepost.oauth.signing_keys import JWKS_MAX_AGE
from gatepost.web import authorize, bearer, definitions, deliveries, error_page, standards, tokens
from gatepost.web.body import BODY, BodyLimits, BodyReader, Receive
from gatepost.web.context import Context
from gatepost.web.in_flight import TOO_MANY, InFlight
from gatepost.web.request_log import Watch
from gatepost.web.requests import NO_HOST, Request, Scope, Send, fields, source
from gatepost.web.responses import VERSION, Header, Reply, json, linked, refuse

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

Handler = Callable[[Context, Request], Awaitable[Reply]]


class Route(NamedTuple):
    """`six`: an operation; `always`: a part of the protocol that operations need; `full`: other standard endpoints."""

    surface: Literal["six", "always", "full"]
    methods: dict[str, Handler]
    cors: bool = True


async def jwks(context: Context, _request: Request) -> Reply:
    fresh = ("cache-control", f"public, max-age={int(JWKS_MAX_AGE.total_seconds())}")
    found = json(200, await context.jwks(), fresh)
    return found._replace(media_type="application/jwk-set+json")


async def authorization_server(context: Context, _request: Request) -> Reply:
    return json(200, discovery.authorization_server(context.service.base_url, context.protocol), _DOCUMENT)


async def openid_configuration(context: Context, _request: Request) -> Reply:
    return json(200, discovery.openid_configuration(context.service.base_url), _DOCUMENT)


async def protected_resource(context: Context, _request: Request) -> Reply:
    return json(200, discovery.protected_resource(context.service.base_url), _DOCUMENT)


_DOCUMENT: Header = ("cache-control", "public, max-age=900")

ROUTES: dict[str, Route] = {
    "/oauth/clients": Route("six", {"POST": definitions.perform(definitions.CLIENTS)}),
    "/oauth/scopes": Route("six", {"POST": definitions.perform(definitions.SCOPES)}),
    "/oauth/tokens": Route("six", {"POST": tokens.answer}),
    "/webhooks/endpoints": Route("six", {"POST": definitions.perform(definitions.ENDPOINTS)}),
    "/webhooks/subscriptions": Route("six", {"POST": definitions.perform(definitions.SUBSCRIPTIONS)}),
    "/webhooks/deliveries": Route("six", {"GET": deliveries.answer}),
    "/oauth/authorize": Route("full", {"GET": authorize.answer, "POST": authorize.answer}, cors=False),
    "/oauth/par": Route("full", {"POST": authorize.push}),
    "/oauth/userinfo": Route("full", {"GET": standards.userinfo, "POST": standards.userinfo}),
    "/oauth/introspect": Route("full", {"POST": standards.introspect}),
    "/oauth/revoke": Route("full", {"POST": standards.revoke}),
    "/.well-known/openid-configuration": Route("full", {"GET": openid_configuration}),
    "/oauth/jwks": Route("always", {"GET": jwks}),
    "/.well-known/oauth-authorization-server": Route("always", {"GET": authorization_server}),
    "/.well-known/oauth-protected-resource": Route("always", {"GET": protected_resource}),
}

_EXPOSED = "WWW-Authenticate, DPoP-Nonce, Retry-After, Gatepost-Event, X-Request-Id"
_EVERY_ANSWER = [
    (b"gatepost-version", VERSION.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_CORS = [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", _EXPOSED.encode())]


class Application:
    """A plain ASGI application."""

    def __init__(
        self, context: Context, *, protocol: Literal["full", "six"] = "full", trusted_proxies: tuple[str, ...] = (),
        traces: "Traces | None" = None, limits: BodyLimits = BODY, max_requests_per_address: int = 0,
        docs_url: str = "",
    ) -> None:  # fmt: skip
        self._context = context
        context.protocol = protocol
        self._routes = {
            path: route.methods for path, route in ROUTES.items() if protocol == "full" or route.surface != "full"
        }
        self._closed = {path for path, route in ROUTES.items() if not route.cors}
        self._trusted = trusted_proxies
        self._docs_url = docs_url
        self._bodies = BodyReader(limits)
        self._in_flight = InFlight(max_requests_per_address, trusted_proxies)
        self._watch = Watch(traces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        begun = self._watch.begin(scope, scope["path"] if scope["path"] in self._routes else "")
        request_id = ids.new("req")
        sent = fields(scope["headers"])
        peer = scope["client"][0] if scope.get("client") else ""
        address = peer if isinstance(sent, Refusal) else source(peer, sent, self._trusted)
        owner = self._in_flight.enter(address)
        if owner is None:
            reply = refuse(scope["path"], TOO_MANY)
        else:
            try:
                reply = await self._answer(scope, receive, request_id, sent, address)
            finally:
                self._in_flight.leave(owner)
        if reply.status >= 400:
            reply = linked(reply, self._docs_url)
            if scope["path"] in self._closed and isinstance(sent, dict):
                reply = error_page.for_browser(reply, sent.get("accept", ""), request_id)
        if isinstance(sent, dict) and "dpop" in sent:  # in every response: RFC 9449, section 8.2
            reply = reply.adding(bearer.nonce(self._context))
        head = scope["method"] == "HEAD"
        headers = [
            (b"content-type", reply.media_type.encode()),
            (b"content-length", str(len(reply.body)).encode()),
            (b"x-request-id", request_id.encode()),
            *_EVERY_ANSWER,
            *([] if scope["path"] in self._closed else _CORS),
            *[(name.encode(), value.encode("ascii", "replace")) for name, value in reply.headers],
        ]
        if reply.status == 204:
            del headers[:2]
        if reply.status == 408:  # RFC 9110, section 15.5.9
            headers.append((b"connection", b"close"))
        self._watch.end(begun, reply, request_id, address)
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if head else reply.body})

    async def _answer(
        self, scope: Scope, receive: Receive, request_id: str, headers: dict[str, str] | Refusal, address: str
    ) -> Reply:  # fmt: skip
        path: str = scope["path"]
        method: str = scope["method"]
        if isinstance(headers, Refusal):
            return refuse(path, headers)
        if not headers.get("host"):
            return refuse(path, NO_HOST)
        methods = self._routes.get(path)
        if methods is None:
            return refuse(path, Refusal("not_found", "no such path"))
        if method == "OPTIONS" and path not in self._closed:
            return _preflight(methods)
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            preflight = [] if path in self._closed else ["OPTIONS"]
            allow = ("allow", ", ".join([*methods, *(["HEAD"] if "GET" in methods else []), *preflight]))
            return refuse(path, Refusal("method_not_allowed", f"this path takes {allow[1]}"), allow)
        if headers.get("gatepost-version", VERSION) != VERSION:
            return refuse(path, Refusal("unsupported_version", f"Gatepost-Version: this server speaks {VERSION}"))
        has_body = method not in ("GET", "HEAD")
        sent = await self._bodies.read(receive, headers.get("content-length")) if has_body else b""
        if isinstance(sent, Refusal):
            return refuse(path, sent)
        query = scope["query_string"].decode("latin-1")
        request = Request(method, path, query, headers, sent, address, request_id)
        try:
            return await handler(self._context, request)
        except Unavailable as error:
            log.error("store unavailable", request=request_id, path=path, error=str(error))
            return refuse(path, Refusal("temporarily_unavailable", "the store cannot answer now", retry_after=1))
        except Exception:  # noqa: BLE001 (the last line of defence: no caller sees a stack)
            log.exception("defect", request=request_id, path=path)
            return refuse(path, Refusal("server_error", "internal error; quote the request id when you report it"))


def _preflight(methods: dict[str, Handler]) -> Reply:
    return Reply(
        204,
        b"",
        (
            ("access-control-allow-methods", ", ".join(methods)),
            (
                "access-control-allow-headers",
                "Authorization, Content-Type, DPoP, Idempotency-Key, Prefer, Gatepost-Version",
            ),
            ("access-control-max-age", "3600"),
        ),
    )
