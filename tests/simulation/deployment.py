"""A simulated deployment in one real process: supervisor, web processes and workers.

This file replaces everything that the service takes from its environment: clock, randomness, disk and network.
"""

import asyncio
import json
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import urlencode

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gatepost.core import clock, ids, logging, secrets
from gatepost.core.errors import Unavailable
from gatepost.ingest import http
from gatepost.run import app, chores
from gatepost.run.app import Runtime
from gatepost.settings import Settings
from gatepost.store import sqlite as sqlite_module
from gatepost.store import sqlite_log
from gatepost.web import request_log
from gatepost.web import tokens as web_tokens
from gatepost.web.app import Application
from gatepost.web.context import Context
from gatepost.web.requests import Request
from gatepost.webhooks.worker import Worker
from tests.simulation.loop import Process, VirtualTimeLoop, context_of
from tests.simulation.network import Network
from tests.simulation.stores import Disk, SimulatedPostgres, SimulatedSqlite

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
BASE_URL = "https://gatepost.example"
SLOTS = 32
# longer intervals, in seconds, of chores that rarely have work; short enough for the invariants
RARER = {
    "GROW_EVERY": 600.0, "RECORD_HEADS_EVERY": 600.0, "KEEP_EVERY": 1800.0, "PRUNE_EVERY": 3600.0,
    "FORGET_EVERY": 1800.0, "ROLL_UP_EVERY": 1800.0, "CHECKPOINT_EVERY": 600.0, "RECOUNT_EVERY": 7200.0,
}  # fmt: skip
MASTER_KEY = "c2ltdWxhdGVkIG1hc3RlciBrZXkgb2YgMzIgYnl0ZXM="  # 32 bytes, for simulated stores only


_RSA_KEYS: list[rsa.RSAPrivateKey] = []
_generate_rsa_key = rsa.generate_private_key
_load_key = serialization.load_der_private_key


@lru_cache(100)
def _loaded_key(der: bytes, password: None) -> Any:
    """Load a key once for all simulated processes, because loading an RSA key takes long."""
    return _load_key(der, password)


class Violation(AssertionError):
    """An invariant does not hold."""


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A process of the deployment with its store and application."""

    process: Process
    opened: Runtime
    kind: str
    place: str = ""
    stopping: asyncio.Event | None = None
    context: Context | None = None
    application: Application | None = None
    worker: Worker | None = None
    waiting: dict[asyncio.Future[Response | None], None] = field(default_factory=dict)  # in the order of requests


class Deployment:
    def __init__(self, seed: int, directory: Path, database: str = "") -> None:
        self.loop = VirtualTimeLoop()
        self.disk = Disk(self.loop, Random(f"{seed} disk"))
        self.network = Network(self.loop, Random(f"{seed} network"))
        self.step = timedelta()  # how far the wall clock was set
        self._now = ((-1.0, self.step), START)
        self._keys_made = 0
        self.problems: list[str] = []
        self._dice = Random(f"{seed} dice")
        self._ids = Random(f"{seed} ids")
        self._last_id = 0
        self._opening: Process | None = None
        self._database = database
        self._count = 0
        self.settings = Settings(
            data=str(directory), database=database, base_url=BASE_URL, master_key=MASTER_KEY, intake="http"
        )
        self.processes: list[Running] = []
        self.disk.on_crash = self._crashed
        self.world: Runtime | None = None  # the store of the observer, which no fault affects

    # --- replacements

    def now(self) -> datetime:
        at = (self.loop.time(), self.step)
        if self._now[0] != at:
            self._now = at, START + timedelta(milliseconds=round(at[0] * 1000)) + at[1]
        return self._now[1]

    def milliseconds(self) -> int:
        return clock.milliseconds(self.now())

    @contextmanager
    def installed(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, value in (
                (ids, "uuid7", self._uuid7),
                (secrets, "secrets", SimpleNamespace(token_bytes=self._dice.randbytes, token_urlsafe=self._urlsafe)),
                (sqlite_module, "time", SimpleNamespace(monotonic=self.loop.time)),
                (sqlite_log, "_sync", lambda _descriptor: None),
                (app, "open_store", self._open_store),
                (logging._Log, "__getattr__", self._logger),
                (request_log, "log_request", lambda _line: None),
                (web_tokens, "count_token_request", lambda _asked: None),
                (clock, "now", self.now),
                (rsa, "generate_private_key", self._rsa_key),
                (serialization, "load_der_private_key", _loaded_key),
                *[(chores, name, seconds) for name, seconds in RARER.items()],
            ):
                stack.enter_context(mock.patch.object(target, name, value))
            try:
                yield
            finally:
                for running in self.processes:
                    running.opened.store.close()
                if self.world is not None:
                    self.world.store.close()

    def _rsa_key(self, _exponent: int, _bits: int) -> rsa.RSAPrivateKey:
        """Return the next key. Keys are generated once in each real process, and all histories use them in order."""
        self._keys_made += 1
        while len(_RSA_KEYS) < self._keys_made:
            _RSA_KEYS.append(_generate_rsa_key(65537, 2048))
        return _RSA_KEYS[self._keys_made - 1]

    def _uuid7(self) -> Any:
        """Return a UUIDv7 (RFC 9562, section 5.7). Ids of one millisecond are in order, as those of the library are."""
        high = self.milliseconds() << 12
        self._last_id = max(high, self._last_id + 1) if high <= self._last_id < high + 4096 else high
        number = (self._last_id >> 12 << 80) | (7 << 76) | ((self._last_id & 0xFFF) << 64)
        return SimpleNamespace(bytes=(number | (2 << 62) | self._ids.getrandbits(62)).to_bytes(16, "big"))

    def _urlsafe(self, count: int) -> str:
        return urlsafe_b64encode(self._dice.randbytes(count)).rstrip(b"=").decode()

    def _open_store(self, _settings: Settings) -> Any:
        if self._database:
            return SimulatedPostgres(self._database, self.now, self.disk, self._opening)
        return SimulatedSqlite(self.settings.sqlite_file, self.now, self.disk, self._opening)

    def _logger(self, level: str) -> Callable[..., None]:
        def record(event: str, **fields: Any) -> None:
            if level == "exception":
                self.problems.append(f"logged an unexpected exception: {event} {fields} {sys.exc_info()[1]!r}")

        return record

    # --- processes

    def begin(self) -> None:
        """Do what the first start does: migrate an empty store and create its keys."""
        first = app.open_for_start(self.settings)
        first.store.close()
        self.world = app.open_for_use(self.settings)

    def start(self, kind: str, place: str = "") -> Running:
        self._count += 1
        process = Process(f"{kind}-{self._count}")
        self._opening = process
        try:
            opened = app.open_for_use(self.settings)
        finally:
            self._opening = None
        running = Running(process, opened, kind, place)
        context_of(process).run(self._launch, running)
        self.processes.append(running)
        return running

    def _launch(self, running: Running) -> None:
        opened = running.opened
        match running.kind:
            case "supervisor":
                self.loop.create_task(chores.run(opened))
            case "web":
                running.context = Context(opened.store, opened.service, self.now)
                running.application = Application(running.context)
                self.loop.create_task(_note_uses(running.context))
            case "worker":
                running.stopping = asyncio.Event()
                running.worker = Worker(
                    opened.store,
                    opened.service,
                    running.place,
                    slots=SLOTS,
                    make_sender=self.network.sender(),  # type: ignore[arg-type]
                )
                self.loop.create_task(running.worker.run(running.stopping))

    def alive(self, kind: str) -> list[Running]:
        return [each for each in self.processes if each.kind == kind and each.process.alive]

    def running(self, kind: str) -> list[Running]:
        """Return the processes of a kind that are alive and not frozen."""
        return [each for each in self.alive(kind) if each.process.frozen_until <= self.loop.time()]

    def crash(self, running: Running) -> None:
        """End a process like `kill -9`: none of its code runs again, and its callers see a closed connection."""
        running.process.alive = False
        self.processes.remove(running)
        running.opened.store.close()
        self.disk.listeners = [each for each in self.disk.listeners if each[0] is not running.process]
        for future in list(running.waiting):
            if not future.done():
                future.set_result(None)

    def _crashed(self, process: Process) -> None:
        for running in list(self.processes):
            if running.process is process:
                self.crash(running)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # --- requests

    async def request(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, query: dict[str, str] | None = None,
        form: dict[str, str] | None = None, body: Any = None, web: Running | None = None,
    ) -> Response | None:  # fmt: skip
        """Return the response of a web process, or None if it crashed before its response or if there is none."""
        processes = self.alive("web")
        if not processes or (web is not None and not web.process.alive):
            return None
        running = web or processes[len(self.problems) % len(processes)]
        sent = b""
        own = {"host": "gatepost.example", **(headers or {})}
        if form is not None:
            sent, own["content-type"] = urlencode(form).encode(), "application/x-www-form-urlencoded"
        elif body is not None:
            sent, own["content-type"] = json.dumps(body).encode(), own.get("content-type", "application/json")
        scope = {
            "type": "http", "method": method, "path": path, "query_string": urlencode(query or {}).encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in own.items()],
            "client": ("192.0.2.7", 40000), "http_version": "1.1", "scheme": "https",
        }  # fmt: skip
        return await self._serve(running, lambda send: self._call(running, scope, sent, send))

    async def publish(self, token: str, event: dict[str, Any]) -> Response | None:
        """Send `POST /events` to the supervisor."""
        supervisors = self.alive("supervisor")
        if not supervisors:
            return None
        running = supervisors[0]
        if running.context is None:
            running.context = Context(running.opened.store, running.opened.service, self.now)
        headers = {"authorization": f"Bearer {token}", "content-type": "application/cloudevents+json"}
        request = Request("POST", "/events", "", headers, json.dumps(event).encode(), "192.0.2.7", ids.new("req"))
        context = running.context

        async def call(done: Callable[[Response], None]) -> None:
            try:
                reply = await http.answer(context, request)
                done(Response(reply.status, dict(reply.headers), reply.body))
            except Unavailable:
                done(Response(503, {}, b""))

        return await self._serve(running, call)

    async def _serve(self, running: Running, call: Callable[[Callable[[Response], None]], Any]) -> Response | None:
        future: asyncio.Future[Response | None] = self.loop.create_future()

        def done(response: Response) -> None:
            if not future.done():
                future.set_result(response)

        running.waiting[future] = None
        self.loop.start(running.process, call(done))
        try:
            async with asyncio.timeout(120):
                return await future
        except TimeoutError:
            raise Violation(f"{running.process.name} did not answer a request within two minutes") from None
        finally:
            running.waiting.pop(future, None)

    async def _call(
        self, running: Running, scope: dict[str, Any], body: bytes, done: Callable[[Response], None]
    ) -> None:  # fmt: skip
        parts: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            parts.append(message)

        assert running.application is not None
        await running.application(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in parts[0]["headers"]}
        done(Response(parts[0]["status"], headers, parts[1]["body"]))


async def _note_uses(context: Context) -> None:
    while True:
        await asyncio.sleep(15.0)
        try:
            await context.write_uses()
        except Unavailable:
            continue
