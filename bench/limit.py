"""The upper limit of the token rate: the same server in one process, which parses, checks the secret, signs and logs.

It decides and stores nothing. Run it with `python -m bench.limit PORT`; it stops at the end of its standard input.
"""

import asyncio
import os
import sys
from hmac import compare_digest
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import uvloop

from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.logging import configure_logs
from gatepost.core.secrets import Box, digest, random_bytes
from gatepost.oauth import scopes, signing_keys
from gatepost.oauth.client_grants import Grant
from gatepost.oauth.clients import Client
from gatepost.oauth.token_rules import Draft, TokenRequest, mint
from gatepost.run.child import collect_rarely
from gatepost.web import app, tokens
from gatepost.web.context import Context
from gatepost.web.listen import listening
from gatepost.web.requests import Request as HttpRequest
from gatepost.web.requests import form
from gatepost.web.responses import Reply, oauth_error

SECRET = "gps_limit"
_encode = msgspec.json.Encoder().encode


def handler(port: int) -> Any:
    box = Box([random_bytes(32)])
    generated = signing_keys.generate("ES256", clock.now())
    ring = signing_keys.KeyRing(box)
    ring.load(signing_keys.StoredKey(generated.key, box.encrypt(generated.private, generated.key.id)))
    hash_key = random_bytes(32)
    expected = digest(hash_key, SECRET)
    service = cast(Any, SimpleNamespace(base_url=f"http://127.0.0.1:{port}", keys=SimpleNamespace(hash=hash_key)))
    context = Context(cast(Any, None), service, clock.now)
    grant = Grant(ids.new("grt"), "client_credentials", ["api:read"])
    client = Client(ids.new("cli"), ids.new("acc"), clock.EPOCH, clock.EPOCH, grants=[grant])
    draft = Draft(
        TokenRequest("client_credentials", ("api:read",)),
        cast(Any, SimpleNamespace(id=client.account)),
        client,
        f"http://127.0.0.1:{port}",
        grant=grant,
        scope=("api:read",),
        resource="https://api.example",
        lifetime=3600,
    )

    async def answer(_context: Context, request: HttpRequest) -> Reply:
        parsed = form(request, repeatable=("resource", "audience"))
        if isinstance(parsed, Refusal):
            return oauth_error(parsed)
        shown = tokens.read_credentials(context, request, parsed)
        if isinstance(shown, Refusal) or not compare_digest(shown.digest, expected):
            return oauth_error(Refusal("invalid_client", "client authentication failed"))
        scopes.split(parsed["scope"][0])
        token = mint(draft, generated.key, token=ids.new_raw(), subject=client.id, extra={}, at=clock.now())
        return tokens.token_response(token, ring.sign(token.key, _encode(token.claims), "at+jwt"), ids.new("evt"))

    return answer


async def serve(port: int) -> None:
    app.ROUTES["/oauth/tokens"] = app.Route("operation", {"POST": handler(port)})
    application = app.Application(cast(Context, SimpleNamespace()))
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stopping.set)
    async with listening(application, "127.0.0.1", port):
        os.write(sys.stdout.fileno(), b"ready\n")
        await stopping.wait()


if __name__ == "__main__":
    configure_logs()
    collect_rarely()
    uvloop.run(serve(int(sys.argv[1])))
