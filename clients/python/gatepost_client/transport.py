"""HTTP with the standard library: connections that are kept open, without redirects and without proxies.

No part of a URL, header or body is in an error message, except the origin.
"""

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gatepost_client import after_fork
from gatepost_client.errors import ApiError

TIMEOUT = 10.0  # seconds, for connecting and for each read
MAX_RESPONSE = 64 * 1024 * 1024  # bytes: a page of deliveries with their payloads
_MAX_IDLE = 8  # connections for each origin
_USER_AGENT = "gatepost-client-python"


class Request(NamedTuple):
    """A request to send."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    repeatable: bool = True  # whether it does no harm if the request is processed twice


class Response(NamedTuple):
    """A response. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body. Raises ApiError if it is not a JSON object: something else than Gatepost has responded."""
        try:
            members = json.loads(self.body)
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            message = f"The body of a response with status {self.status} is not a JSON object."
            raise ApiError("unexpected_response", message, status=self.status)
        return members


class KeptConnectionClosedError(ApiError):
    """A connection that was kept open was closed without a response. A new request can be sent at once.

    The service may have processed the request, so an assertion or proof in it must not be sent again.
    """


class Transport:
    """Sends requests. It may be used by several threads at the same time."""

    def __init__(self, *, timeout: float = TIMEOUT, ssl_context: ssl.SSLContext | None = None) -> None:
        self._timeout, self._ssl_context = timeout, ssl_context
        self.reset_after_fork()
        after_fork.register(self)

    def reset_after_fork(self) -> None:
        """Start without connections: those of a child belong to its parent."""
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}

    def send(self, request: Request) -> Response:
        """Send a request once. Raises ApiError.

        A kept connection is used only if the request can be repeated and does not ask to close the connection.
        """
        scheme, netloc, target = _split(request.url)
        reuse = request.repeatable and request.headers.get("Connection") != "close"
        connection, is_reused = self._connection(scheme, netloc, reuse=reuse)
        try:
            response = self._exchange(connection, request, target)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            is_closed = is_reused and not isinstance(error, TimeoutError)
            failure = KeptConnectionClosedError if is_closed else ApiError
            raise failure("connection_failed", f"{scheme}://{netloc}: {type(error).__name__}: {error}") from None
        except BaseException:
            connection.close()
            raise
        if response.headers.get("connection", "").lower() == "close":
            connection.close()
        else:
            self._keep((scheme, netloc), connection)
        return response

    def close(self) -> None:
        """Close the connections that are kept open."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def __del__(self) -> None:
        """Close the connections of a client that was not closed, without a ResourceWarning."""
        self.close()

    def _exchange(self, connection: http.client.HTTPConnection, request: Request, target: str) -> Response:
        headers = {"User-Agent": _USER_AGENT, **request.headers}
        connection.request(request.method, target, request.body, headers)
        response = connection.getresponse()
        body = response.read(MAX_RESPONSE + 1)
        if len(body) > MAX_RESPONSE:
            message = f"A response is larger than {MAX_RESPONSE} bytes."
            raise ApiError("unexpected_response", message, status=response.status)
        fields = {name.lower(): value for name, value in response.getheaders()}
        if response.will_close:
            fields["connection"] = "close"
        return Response(response.status, fields, body)

    def _connection(self, scheme: str, netloc: str, *, reuse: bool) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            idle = self._idle.get((scheme, netloc))
            if idle and reuse:
                return idle.pop(), True
        if scheme == "http":
            return http.client.HTTPConnection(netloc, timeout=self._timeout), False
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
        return http.client.HTTPSConnection(netloc, timeout=self._timeout, context=self._ssl_context), False

    def _keep(self, origin: tuple[str, str], connection: http.client.HTTPConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault(origin, [])
            if len(idle) < _MAX_IDLE:
                idle.append(connection)
                return
        connection.close()


def base_url(url: str, name: str) -> str:
    """Check the base URL of a service and return it without a trailing slash."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in url:
        raise ValueError(f"{name}: must be a URL such as https://gatepost.example.com")
    return url.rstrip("/")


def _split(url: str) -> tuple[str, str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
