"""A web process: only the public listener."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from gatepost.core.errors import Unavailable
from gatepost.core.logging import log
from gatepost.egress.remote_jwks import KeyFetcher
from gatepost.run import app, child
from gatepost.run.child import Configuration
from gatepost.web.app import Application
from gatepost.web.context import Context
from gatepost.web.listen import listening

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

WRITE_USES_EVERY = 15.0
WRITE_REFUSED_EVERY = 1.0
LOAD_KEYS_EVERY = 0.5  # seconds until a new or revoked signing key shows in the key set


async def serve(configuration: Configuration, runtime: app.Runtime, traces: "Traces | None") -> None:
    """Respond to requests until the supervisor stops this process."""
    settings, service, now = configuration.settings, runtime.service, runtime.store.now
    fetcher = KeyFetcher(service.foreign, service.policy_for, now, ca=settings.egress_ca)
    context = Context(runtime.store, service, now, fetcher)
    application = Application(
        context, protocol=settings.protocol, trusted_proxies=tuple(settings.trusted_proxies), traces=traces,
        max_requests_per_address=settings.max_requests_per_address, docs_url=settings.docs_url,
    )  # fmt: skip
    await context.load_keys()
    stopping = child.stopping()
    async with listening(application, settings.host, settings.port):
        child.report_ready()
        background = [
            asyncio.create_task(child.report()),
            asyncio.create_task(_write_uses(context)),
            asyncio.create_task(_load_keys(context)),
            asyncio.create_task(_write_refused(context)),
        ]
        await stopping.wait()
    for task in background:
        task.cancel()
    with contextlib.suppress(Unavailable):
        await context.write_uses()
    with contextlib.suppress(Unavailable):
        await context.write_refused()


async def _load_keys(context: Context) -> None:
    """Load the key set regularly. Requests for it never wait for the store, so a stalled store only delays new keys."""
    while True:
        await asyncio.sleep(LOAD_KEYS_EVERY)
        try:
            await context.load_keys()
        except Unavailable:
            pass  # requests that need the store report it; the key set in memory is still served
        except Exception:  # noqa: BLE001 (it must run as long as the process)
            log.exception("cannot load the key set")


async def _write_uses(context: Context) -> None:
    while True:
        await asyncio.sleep(WRITE_USES_EVERY)
        try:
            await context.write_uses()
        except Unavailable as error:
            log.warning("last use of secrets not written", error=str(error))


async def _write_refused(context: Context) -> None:
    while True:
        await asyncio.sleep(WRITE_REFUSED_EVERY)
        try:
            await context.write_refused()
        except Unavailable:
            pass  # they are written when the store is available again
        except Exception:  # noqa: BLE001 (it must run as long as the process)
            log.exception("cannot write the number of requests refused because of a quota")


if __name__ == "__main__":
    child.main(serve)
