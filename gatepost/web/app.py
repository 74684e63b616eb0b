"""All routes of the public listener, and the ASGI application that serves them."""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.oauth import discovery
from gatepost.oauth.signing_keys import JWKS_MAX_AGE
from gatepost.web import authorize, bearer, definitions, deliveries, error_page, standards, tokens
from gatepost.web.body import BODY, BodyLimits, BodyReader, Receive
from gatepost.web.context import Context, Handler, ProtocolSetting
from gatepost.web.in_flight import TOO_MANY, InFlight
from gatepost.web.request_log import RequestLog, log_failure
from gatepost.web.requests import NO_HOST, Request, Scope, Send, fields, has_encoded_slash, peer_address, source
from gatepost.web.responses import UNSUPPORTED_VERSION, VERSION, Reply, json, refuse, with_docs_link

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces


class Route(NamedTuple):
    """A path with its handlers. The protocol `six` serves operations and the metadata that they need."""

    kind: Literal["operation", "metadata", "standard"]
    methods: dict[str, Handler]
    cors: bool = True


async def jwks(context: Context, _request: Request) -> Reply:
    """The keys that verify our tokens. RFC 7517, section 5."""
    max_age = ("cache-control", f"public, max-age={int(JWKS_MAX_AGE.total_seconds())}")
    return json(200, await context.jwks(), max_age)._replace(media_type="application/jwk-set+json")


def _metadata(document: Callable[[str, ProtocolSetting], dict[str, Any]]) -> Handler:
    async def answer(context: Context, _request: Request) -> Reply:
        members = document(context.service.base_url, context.protocol)
        return json(200, members, ("cache-control", "public, max-age=900"))

    return answer


_AUTHORIZATION_SERVER = _metadata(discovery.authorization_server)
_OPENID_CONFIGURATION = _metadata(lambda base_url, _protocol: discovery.openid_configuration(base_url))
_PROTECTED_RESOURCE = _metadata(lambda base_url, _protocol: discovery.protected_resource(base_url))

ROUTES: dict[str, Route] = {
    "/oauth/clients": Route("operation", {"POST": definitions.perform(definitions.CLIENTS)}),
    "/oauth/scopes": Route("operation", {"POST": definitions.perform(definitions.SCOPES)}),
    "/oauth/tokens": Route("operation", {"POST": tokens.answer}),
    "/webhooks/endpoints": Route("operation", {"POST": definitions.perform(definitions.ENDPOINTS)}),
    "/webhooks/subscriptions": Route("operation", {"POST": definitions.perform(definitions.SUBSCRIPTIONS)}),
    "/webhooks/deliveries": Route("operation", {"GET": deliveries.answer}),
    "/oauth/authorize": Route("standard", {"GET": authorize.answer, "POST": authorize.answer}, cors=False),
    "/oauth/par": Route("standard", {"POST": authorize.push}),
    "/oauth/userinfo": Route("standard", {"GET": standards.userinfo, "POST": standards.userinfo}),
    "/oauth/introspect": Route("standard", {"POST": standards.introspect}),
    "/oauth/revoke": Route("standard", {"POST": standards.revoke}),
    "/.well-known/openid-configuration": Route("standard", {"GET": _OPENID_CONFIGURATION}),
    "/oauth/jwks": Route("metadata", {"GET": jwks}),
    "/.well-known/oauth-authorization-server": Route("metadata", {"GET": _AUTHORIZATION_SERVER}),
    "/.well-known/oauth-protected-resource": Route("metadata", {"GET": _PROTECTED_RESOURCE}),
}

_ALL_RESPONSES = [
    (b"gatepost-version", VERSION.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"WWW-Authenticate, DPoP-Nonce, Retry-After, Gatepost-Event, X-Request-Id"),
]
_PREFLIGHT = (
    (
        "access-control-allow-headers",
        "Authorization, Content-Type, DPoP, Idempotency-Key, Prefer, Gatepost-Version",
    ),
    ("access-control-max-age", "3600"),
)


class Application:
    """The public listener, as an ASGI application."""

    def __init__(
        self, context: Context, *, protocol: ProtocolSetting = "full", trusted_proxies: tuple[str, ...] = (),
        traces: "Traces | None" = None, limits: BodyLimits = BODY, max_requests_per_address: int = 0,
        docs_url: str = "",
    ) -> None:  # fmt: skip
        self._context = context
        context.protocol = protocol
        self._routes = {
            path: route.methods for path, route in ROUTES.items() if protocol == "full" or route.kind != "standard"
        }
        self._without_cors = {path for path, route in ROUTES.items() if not route.cors}
        self._trusted = trusted_proxies
        self._docs_url = docs_url
        self._bodies = BodyReader(limits)
        self._in_flight = InFlight(max_requests_per_address, trusted_proxies)
        self._log = RequestLog(traces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"] if scope["path"] in self._routes else ""
        span = self._log.start_span(scope, path)
        started = perf_counter()
        request_id = ids.new("req")
        sent = fields(scope["headers"])
        peer = peer_address(scope)
        address = peer if isinstance(sent, Refusal) else source(peer, sent, self._trusted)
        owner = self._in_flight.enter(address, sent)
        if owner is None:
            reply = refuse(scope["path"], TOO_MANY)
        else:
            try:
                reply = await self._answer(scope, receive, request_id, sent, address)
            finally:
                self._in_flight.leave(owner)
        if reply.status >= 400:
            reply = with_docs_link(reply, self._docs_url)
            if scope["path"] in self._without_cors and isinstance(sent, dict):
                reply = error_page.for_browser(reply, sent.get("accept", ""), request_id)
        if isinstance(sent, dict) and bearer.needs_nonce(sent, reply):
            reply = reply.with_headers(bearer.nonce(self._context))
        headers = [
            (b"content-type", reply.media_type.encode()),
            (b"content-length", str(len(reply.body)).encode()),
            (b"x-request-id", request_id.encode()),
            *_ALL_RESPONSES,
            *([] if scope["path"] in self._without_cors else _CORS),
            *[(name.encode(), value.encode("ascii", "replace")) for name, value in reply.headers],
        ]
        if reply.status == 204:
            del headers[:2]
        if reply.status == 408:  # RFC 9110, section 15.5.9
            headers.append((b"connection", b"close"))
        self._log.record(scope, path, started, span, reply, request_id, address)
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else reply.body})

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
        if methods is None or has_encoded_slash(scope):
            return refuse(path, Refusal("not_found", "no such path"))
        if method == "OPTIONS" and path not in self._without_cors:
            return Reply(204, b"", (("access-control-allow-methods", ", ".join(methods)), *_PREFLIGHT))
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            preflight = [] if path in self._without_cors else ["OPTIONS"]
            allow = ("allow", ", ".join([*methods, *(["HEAD"] if "GET" in methods else []), *preflight]))
            return refuse(path, Refusal("method_not_allowed", f"this path accepts {allow[1]}"), allow)
        if headers.get("gatepost-version", VERSION) != VERSION:
            return refuse(path, UNSUPPORTED_VERSION)
        has_body = method not in ("GET", "HEAD")
        body = await self._bodies.read(receive, headers) if has_body else b""
        if isinstance(body, Refusal):
            return refuse(path, body)
        query = scope["query_string"].decode("latin-1")
        request = Request(method, path, query, headers, body, address, request_id)
        try:
            return await handler(self._context, request)
        except Exception as error:  # noqa: BLE001 (a caller must never see a stack trace)
            return refuse(path, log_failure(error, request_id, path))
