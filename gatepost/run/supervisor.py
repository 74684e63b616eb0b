"""The supervisor: a parent process with the chores, which runs the web, delivery and operations processes.

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
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
import uvloop
from prometheus_client.multiprocess import mark_process_dead

from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.core.logging import configure_logs, log
from gatepost.core.repeat import Chore, Chores
from gatepost.core.supervisor_metrics import render
from gatepost.run import app, chores
from gatepost.run.child import METRICS_DIRECTORY, SILENCE, Configuration, Status
from gatepost.settings import Settings
from gatepost.store import nodes
from gatepost.store.interface import Store
from gatepost.store.lost import LOST_CODE
from gatepost.web.ops import pages
from gatepost.webhooks.endpoints import LONGEST_TIMEOUT

DRAIN = LONGEST_TIMEOUT + 20.0  # the longest attempt, plus time to record its outcome
REPORT_EVERY = 1.0  # seconds between the status lines for the operations processes, unless something changes
_FINISH_FOR = 2.0  # seconds to finish a heartbeat
_RESTART = (0.2, 5.0)  # seconds before a child is started again: the first time, and at most


def main(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    configure_logs()
    _raise_file_limit()
    listeners = (("port", settings.host, settings.port), ("ops-port", settings.ops_host, settings.ops_port))
    for option, host, port in listeners:
        if problem := app.bind_problem(host, port):
            variable = option.upper().replace("-", "_")
            other = f"choose another port: --{option} {port + 1}, or make serve {variable}={port + 1}"
            raise BadSetting(f"cannot listen on {host}:{port}: {problem}; {other}")
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
    uvloop.run(_serve(settings, app.open_for_start(settings), metrics))


async def _serve(settings: Settings, runtime: app.Runtime, metrics: str) -> None:
    """Greet and supervise. The store is closed before the event loop, which waits for threads that use the store."""
    with contextlib.closing(runtime.store):
        _greet(settings, runtime)
        await _supervise(settings, runtime, metrics)


def _greet(settings: Settings, runtime: app.Runtime) -> None:
    file = app.write_first_client(settings, runtime.created, terminal=sys.stdout.isatty())
    if file:
        log.info("first client", client=runtime.created and runtime.created.client, secret_in=str(file))
    else:
        print(app.welcome(runtime.created), end="", flush=True)
    accounts = runtime.store.read_now(lambda tx: account_rows.page(tx, "", 2))
    if settings.database and len(accounts) < 2:  # one is the operator's
        log.info("no account yet", create_one="gatepost account create NAME")


async def _supervise(settings: Settings, runtime: app.Runtime, metrics: str) -> None:
    """Run the children and the chores. The operations processes are stopped last, so that draining can be watched."""
    stopping, drained, changed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        changed.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    children = _children(settings, metrics, changed)
    running = Chores()
    store = runtime.store
    address = f"{settings.ops_host}:{settings.ops_port}"
    node = nodes.this_node(settings.only or "all", address, clock.milliseconds(store.now()))
    heartbeat = Chore("node", nodes.BEAT_EVERY, lambda: store.run(partial(nodes.beat, node=node)))
    running.start(heartbeat)

    def not_ready() -> str:
        if stopping.is_set():
            return "the service is stopping"
        problems = filter(None, (child.problem() for child in children))
        stuck = [*running.stuck(), *(name for child in children for name in child.stuck)]
        return next(problems, "") or (f"chores make no progress: {', '.join(stuck)}" if stuck else "")

    operations = [child for child in children if child.kind == "operations"]
    ready = asyncio.Event()
    reporting = asyncio.create_task(_report(operations, not_ready, ready, changed))
    last = [asyncio.create_task(child.keep_running(drained, runtime.store)) for child in operations]
    work = [
        asyncio.create_task(child.keep_running(stopping, runtime.store))
        for child in children
        if child.kind != "operations"
    ]
    running_chores = asyncio.create_task(chores.run(runtime, running))
    announce = asyncio.create_task(_announce(settings, ready))
    await stopping.wait()
    announce.cancel()
    await running.cancel_except(heartbeat)  # while attempts are drained, the node is not silent
    await asyncio.gather(*work, return_exceptions=True)
    with contextlib.suppress(Unavailable):
        await chores.seal(runtime)
        await running.finish(_FINISH_FOR)
        await store.run(partial(nodes.delete, node=node))
    running_chores.cancel()
    drained.set()
    await asyncio.gather(*last, return_exceptions=True)
    reporting.cancel()


def _children(settings: Settings, metrics: str, changed: asyncio.Event) -> list["_Child"]:
    supervisor = ids.new("sup")
    kinds = ["operations"] * (settings.workers if settings.takes_events else 1)
    if settings.only != "deliver":
        kinds += ["web"] * settings.workers
    if settings.only != "web":
        kinds += ["deliveries"] * settings.deliverers
    configurations = (Configuration(settings, f"{supervisor}.{number}") for number in range(len(kinds)))
    return [
        _Child(kind, msgspec.json.encode(configuration), metrics, changed)
        for kind, configuration in zip(kinds, configurations, strict=True)
    ]


async def _report(
    operations: Iterable["_Child"], not_ready: Callable[[], str], ready: asyncio.Event, changed: asyncio.Event
) -> None:  # fmt: skip
    """Send a status line to the operations processes once a second, and when a child or the supervisor changes."""
    while True:
        changed.clear()
        reason = not_ready()
        line = msgspec.json.encode(Status(reason, render())) + b"\n"
        for child in operations:
            child.send(line)
        if not reason:
            ready.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPORT_EVERY):
                await changed.wait()


async def _announce(settings: Settings, ready: asyncio.Event) -> None:
    await ready.wait()
    print(f"console {pages.address(settings.ops_host, settings.ops_port)}")
    print(f"ready {settings.issuer}", flush=True)


_MODULES = {
    "operations": "gatepost.run.operations_process",
    "web": "gatepost.run.web_process",
    "deliveries": "gatepost.run.delivery_process",
}


class _Child:
    """A child process, which is started again when it ends by itself. `kind` is a key of _MODULES.

    `changed` is set when `ready`, `silent` or `stuck` changes.
    """

    def __init__(self, kind: str, configuration: bytes, metrics: str, changed: asyncio.Event) -> None:
        self.kind = kind
        self._configuration = configuration
        self._metrics = metrics
        self._changed = changed
        self._input: asyncio.StreamWriter | None = None
        self.ready = False
        self.silent = False  # whether it has stopped reporting
        self.stuck: list[str] = []  # its chores that make no progress, as it reports once a second

    def problem(self) -> str:
        """Why this process does not serve, or ""."""
        if not self.ready:
            return f"a process for {self.kind} is starting"
        return f"a process for {self.kind} makes no progress" if self.silent else ""

    def send(self, line: bytes) -> None:
        """Send a line, unless the child is not ready or does not read: it needs only the newest one."""
        if not self.ready or self._input is None or self._input.is_closing():
            return
        with contextlib.suppress(RuntimeError):  # the child has just ended
            if not self._input.transport.get_write_buffer_size():
                self._input.write(line)

    def _set_state(self, *, ready: bool, silent: bool = False, stuck: Sequence[str] = ()) -> None:
        state = ready, silent, list(stuck)
        if state != (self.ready, self.silent, self.stuck):
            self.ready, self.silent, self.stuck = state
            self._changed.set()

    async def keep_running(self, stopping: asyncio.Event, store: Store) -> None:
        wait = _RESTART[0]
        while not stopping.is_set():
            started = asyncio.get_running_loop().time()
            try:
                process = await self._start()
            except (OSError, MemoryError) as error:  # the machine is short of processes, files or memory
                log.error("process not started", kind=self.kind, error=str(error))
            else:
                code = await self._run(process, stopping)
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

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", _MODULES[self.kind],  # -P: the working directory is no source of modules
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, METRICS_DIRECTORY: self._metrics},
        )  # fmt: skip

    async def _run(self, process: asyncio.subprocess.Process, stopping: asyncio.Event) -> int | None:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a child needs its pipes")
        self._input = process.stdin
        self._input.write(self._configuration + b"\n")
        ended = asyncio.create_task(process.wait())
        stop = asyncio.create_task(stopping.wait())
        first_line = asyncio.create_task(process.stdout.readline())
        await asyncio.wait({ended, stop, first_line}, return_when=asyncio.FIRST_COMPLETED)
        self._set_state(ready=first_line.done() and first_line.result() == b"ready\n")
        reports = asyncio.create_task(self._read_reports(process.stdout, process.pid)) if self.ready else None
        await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            process.stdin.close()
            try:
                await asyncio.wait_for(asyncio.shield(ended), DRAIN)
            except TimeoutError:
                process.kill()
        self._input = None
        for task in (stop, first_line, *([reports] if reports else [])):
            task.cancel()
        code = await ended
        self._set_state(ready=False)
        mark_process_dead(process.pid, self._metrics)  # type: ignore[no-untyped-call]
        return code

    async def _read_reports(self, output: asyncio.StreamReader, pid: int) -> None:
        """The process reports its stuck chores once a second. If it stops reporting, it makes no progress itself."""
        while True:
            line = await _next_report(output)
            if line == b"":
                return
            if line is None:
                if not self.silent:
                    log.error("process makes no progress", kind=self.kind, process=pid)
                self._set_state(ready=self.ready, silent=True)
                continue
            if self.silent:
                log.info("process makes progress again", kind=self.kind, process=pid)
            self._set_state(ready=self.ready, stuck=[name for name in line.decode().strip().split(", ") if name])


async def _next_report(output: asyncio.StreamReader) -> bytes | None:
    """The next line, an empty one at the end, or None after SILENCE.

    This waits twice. If the supervisor itself was paused, the first time-out is due before it reads what has arrived.
    """
    for _ in range(2):
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(output.readline(), SILENCE / 2)
    return None


async def _check_disk(store: Store) -> None:
    """Commit, after the disk failed a child. A new process would not notice; the failing commit ends the supervisor."""
    with contextlib.suppress(Unavailable):
        await store.run(lambda _tx: None)
