"""The supervisor: a parent process with the operations plane and the chores, which runs the web and delivery processes.

A child reads its configuration as one line from standard input, and ends when that stream ends. So no child outlives
the supervisor, however the supervisor ends.
"""

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import uvloop
from prometheus_client.multiprocess import mark_process_dead

from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.core.logging import configure_logs, log
from gatepost.core.repeat import Chore, Chores
from gatepost.ingest import http as intake
from gatepost.run import app, chores
from gatepost.run.child import Configuration
from gatepost.settings import Settings
from gatepost.store import nodes
from gatepost.store.interface import Store
from gatepost.store.lost import LOST_CODE
from gatepost.web.listen import listening
from gatepost.web.ops import pages
from gatepost.web.ops.plane import Plane
from gatepost.webhooks.endpoints import LONGEST_TIMEOUT

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

METRICS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
DRAIN = LONGEST_TIMEOUT + 20.0  # the longest attempt, plus time to record its outcome
SILENCE = 10.0  # seconds without a report after which a delivery process counts as stuck
_RESTART = (0.2, 5.0)  # seconds before a child is started again: the first time, and at most


def main(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    configure_logs()
    _raise_file_limit()
    for host, port in ((settings.host, settings.port), (settings.ops_host, settings.ops_port)):
        if problem := app.bind_problem(host, port):
            raise BadSetting(f"cannot listen on {host}:{port}: {problem}")
    metrics = tempfile.mkdtemp(prefix="gatepost-metrics-")
    try:
        with app.service_lock(settings):
            _run(settings, metrics)
    finally:
        shutil.rmtree(metrics, ignore_errors=True)


def _raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: every connection is a file. Children inherit it."""
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))


def _run(settings: Settings, metrics: str) -> None:
    runtime = app.open_for_start(settings)
    traces = app.traces()
    try:
        _greet(settings, runtime)
        uvloop.run(_supervise(settings, runtime, metrics, traces))
    finally:
        runtime.store.close()
        if traces:
            traces.close()


def _greet(settings: Settings, runtime: app.Runtime) -> None:
    file = app.write_first_client(settings, runtime.created, terminal=sys.stdout.isatty())
    if file:
        log.info("first client", client=runtime.created and runtime.created.client, secret_in=str(file))
    else:
        print(app.welcome(runtime.created), end="", flush=True)
    accounts = runtime.store.read_now(lambda tx: account_rows.page(tx, "", 2))
    if settings.database and len(accounts) < 2:  # one is the operator's
        log.info("no account yet", create_one="gatepost account create NAME")


async def _supervise(settings: Settings, runtime: app.Runtime, metrics: str, traces: "Traces | None") -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    children = _children(settings, metrics)
    running = Chores()
    store = runtime.store
    node = nodes.this_node(settings.only or "all", clock.milliseconds(store.now()))
    running.start(Chore("node", nodes.BEAT_EVERY, lambda: store.run(partial(nodes.beat, node=node))))

    def waiting() -> str:
        starting = (f"a {child.kind} process is starting" for child in children if not child.ready)
        stuck = [*running.stuck(), *(name for child in children for name in child.stuck)]
        return next(starting, "") or (f"chores make no progress: {', '.join(stuck)}" if stuck else "")

    plane = Plane(
        runtime.store, runtime.service, settings.ops_host, settings.ops_port, waiting, metrics,
        post={"/events": intake.answer} if settings.takes_events else {}, limits=intake.BODY, traces=traces,
        allowed_hosts=tuple(settings.ops_allowed_hosts), trusted_proxies=tuple(settings.trusted_proxies),
        max_requests_per_address=settings.max_requests_per_address, docs_url=settings.docs_url,
    )  # fmt: skip
    async with listening(plane, settings.ops_host, settings.ops_port):
        work = [asyncio.create_task(child.keep_running(stopping, runtime.store)) for child in children]
        work.append(asyncio.create_task(chores.run(runtime, running)))
        announce = asyncio.create_task(_announce(settings, children))
        await stopping.wait()
        announce.cancel()
        work[-1].cancel()
        await asyncio.gather(*work, return_exceptions=True)
        with contextlib.suppress(Unavailable):
            await chores.seal(runtime)
            await store.run(partial(nodes.delete, node=node))


def _children(settings: Settings, metrics: str) -> list["_Child"]:
    configuration = msgspec.json.encode(Configuration(settings, ids.new("sup")))
    kinds = [] if settings.only == "deliver" else ["web"] * settings.workers
    if settings.only != "web":
        kinds.append("deliveries")
    return [_Child(kind, configuration, metrics) for kind in kinds]


async def _announce(settings: Settings, children: list["_Child"]) -> None:
    while not all(child.ready for child in children):
        await asyncio.sleep(0.02)
    print(f"console {pages.address(settings.ops_host, settings.ops_port)}")
    print(f"ready {settings.issuer}", flush=True)


_MODULES = {"web": "gatepost.run.web_process", "deliveries": "gatepost.run.delivery_process"}


class _Child:
    """A child process, which is started again when it ends by itself. `kind` is a key of _MODULES."""

    def __init__(self, kind: str, configuration: bytes, metrics: str) -> None:
        self.kind = kind
        self._configuration = configuration
        self._metrics = metrics
        self.ready = False
        self.stuck: list[str] = []  # its chores that make no progress, as it reports once a second

    async def keep_running(self, stopping: asyncio.Event, store: Store) -> None:
        wait = _RESTART[0]
        while not stopping.is_set():
            started = asyncio.get_running_loop().time()
            code = await self._run(stopping)
            if stopping.is_set():
                return
            log.error("process ended", kind=self.kind, code=code)
            if code == LOST_CODE:
                await _check_disk(store)
            if asyncio.get_running_loop().time() - started > 10:
                wait = _RESTART[0]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), wait)
            wait = min(wait * 2, _RESTART[1])

    async def _run(self, stopping: asyncio.Event) -> int | None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULES[self.kind],
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, METRICS_DIRECTORY: self._metrics},
        )  # fmt: skip
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a child needs its pipes")
        process.stdin.write(self._configuration + b"\n")
        ended = asyncio.create_task(process.wait())
        stop = asyncio.create_task(stopping.wait())
        first_line = asyncio.create_task(process.stdout.readline())
        await asyncio.wait({ended, stop, first_line}, return_when=asyncio.FIRST_COMPLETED)
        self.ready = first_line.done() and first_line.result() == b"ready\n"
        reports = asyncio.create_task(self._read_reports(process.stdout)) if self.ready else None
        await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            process.stdin.close()
            try:
                await asyncio.wait_for(asyncio.shield(ended), DRAIN)
            except TimeoutError:
                process.kill()
        self.ready = False
        for task in (stop, first_line, *([reports] if reports else [])):
            task.cancel()
        code = await ended
        self.stuck = []
        mark_process_dead(process.pid, self._metrics)  # type: ignore[no-untyped-call]
        return code

    async def _read_reports(self, output: asyncio.StreamReader) -> None:
        """A delivery process reports its stuck chores once a second. If it stops reporting, it is stuck itself."""
        timeout: float | None = None  # a web process never reports
        while not output.at_eof():
            try:
                line = await asyncio.wait_for(output.readline(), timeout)
            except TimeoutError:
                self.stuck = [f"the {self.kind} process"]
                continue
            timeout = SILENCE
            self.stuck = [name for name in line.decode().strip().split(", ") if name]


async def _check_disk(store: Store) -> None:
    """Commit, after the disk failed a child. A new process would not notice; the failing commit ends the supervisor."""
    with contextlib.suppress(Unavailable):
        await store.run(lambda _tx: None)
