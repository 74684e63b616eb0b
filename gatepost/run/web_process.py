"""A web process: only the public listener. It reads its settings from standard input, and ends with it."""

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import msgspec
import uvloop

from gatepost.core.errors import Unavailable
from gatepost.core.logging import configure_logs, log
from gatepost.egress.remote_jwks import KeyFetcher
from gatepost.run import app, parent
from gatepost.run.tuning import collect_rarely
from gatepost.settings import Settings
from gatepost.web.app import Application
from gatepost.web.context import Context
from gatepost.web.listen import listening

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

WRITE_USES_EVERY = 15.0
LOAD_KEYS_EVERY = 0.5  # seconds until a new or revoked signing key shows in the key set


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the supervisor decides
    configure_logs()
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    runtime = app.open_for_use(settings)
    traces = app.traces()
    collect_rarely()
    try:
        uvloop.run(_serve(settings, runtime, traces))
    finally:
        runtime.store.close()
        if traces:
            traces.close()


async def _serve(settings: Settings, runtime: app.Runtime, traces: "Traces | None") -> None:
    service = runtime.service
    fetcher = KeyFetcher(service.foreign, service.policy_for, runtime.store.now, ca=settings.egress_ca)
    context = Context(runtime.store, service, runtime.store.now, fetcher)
    proxies = tuple(settings.trusted_proxies)
    application = Application(
        context, protocol=settings.protocol, trusted_proxies=proxies, traces=traces,
        max_requests_per_address=settings.max_requests_per_address, docs_url=settings.docs_url,
    )  # fmt: skip
    await context.load_keys()
    stopping = parent.stopping()
    async with listening(application, settings.host, settings.port):
        os.write(sys.stdout.fileno(), b"ready\n")
        background = [asyncio.create_task(_write_uses(context)), asyncio.create_task(_load_keys(context))]
        await stopping.wait()
    for task in background:
        task.cancel()
    with contextlib.suppress(Unavailable):
        await context.write_uses()


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


if __name__ == "__main__":
    main()
