"""A second web process of a service, simulated in the process of the test, which saves the time of its start.

It opens the store as a web process does, shares no memory with the running service, and responds through a
`requests` session. It has no delivery worker and no operations plane.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter

from gatepost.egress.remote_jwks import KeyFetcher
from gatepost.run import app
from gatepost.settings import load
from gatepost.web.app import Application
from gatepost.web.context import Context
from tests.service import Service
from tests.waiting import LIMIT


@contextmanager
def web_beside(gatepost: Service, **settings: str) -> Iterator[Service]:
    """Yield a service on the store and URL of `gatepost`. These settings override those of `gatepost`."""
    names = {f"GATEPOST_{name.upper()}": value for name, value in settings.items()}
    environment = gatepost.environment | {"GATEPOST_BASE_URL": gatepost.url} | names
    loaded = load({}, environment)
    opened = app.open_for_use(loaded)
    service = opened.service
    fetcher = KeyFetcher(service.foreign, service.policy_for, opened.store.now, ca=loaded.egress_ca)
    context = Context(opened.store, service, opened.store.now, fetcher)
    application = Application(context, protocol=loaded.protocol, docs_url=loaded.docs_url)
    found = Service(gatepost.url, "", gatepost.directory, gatepost.database, gatepost.process, environment, None)
    with closing(opened.store), _running_loop() as loop, closing(found):
        asyncio.run_coroutine_threadsafe(context.load_keys(), loop).result(LIMIT)
        found.session.mount(gatepost.url, _ToApplication(application, loop))
        yield found


@contextmanager
def _running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT)
        loop.close()


class _ToApplication(BaseAdapter):
    def __init__(self, application: Application, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._application, self._loop = application, loop

    def send(self, request: requests.PreparedRequest, *_arguments: Any, **_options: Any) -> requests.Response:
        """Call the application with the request as an ASGI server would."""
        return asyncio.run_coroutine_threadsafe(self._answer(request), self._loop).result(LIMIT)

    async def _answer(self, request: requests.PreparedRequest) -> requests.Response:
        url = urlsplit(request.url or "")
        scope = {
            "type": "http", "method": request.method, "path": url.path, "query_string": url.query.encode(),
            "client": ("127.0.0.1", 1), "headers": _headers({"host": url.netloc, **request.headers}),
        }  # fmt: skip
        body = request.body.encode() if isinstance(request.body, str) else request.body or b""
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        response = requests.Response()
        response.status_code = sent[0]["status"]
        response.url, response.request = request.url or "", request
        response.headers.update({name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]})
        response._content = b"".join(message.get("body", b"") for message in sent[1:])
        return response

    def close(self) -> None:
        """There is no connection."""


def _headers(fields: Mapping[str, str | bytes]) -> list[tuple[bytes, bytes]]:
    return [
        (name.lower().encode(), value.encode("latin-1") if isinstance(value, str) else value)
        for name, value in fields.items()
    ]
