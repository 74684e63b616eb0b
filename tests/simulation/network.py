"""Receivers and the network. The mood of a receiver determines its response when a request arrives."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from gatepost.egress.transfer import Outgoing, SendResult
from tests.simulation.loop import Process, VirtualTimeLoop, context_of, current_process

UNREACHED = ("dns", "connect", "tls", "blocked_target")  # failures in which no receiver sees the request


class Received(NamedTuple):
    """A request that was sent, whether or not it arrived."""

    at: float
    key: Any  # the worker's claim
    url: str
    arrived: bool
    code: int | None
    failure: str | None
    retry_after: str | None
    closed: bool = False  # a reused connection was closed instead of a response
    shortage: str = ""  # of the sender: the request was not sent


@dataclass
class Receiver:
    """A receiver with one URL. `mood` determines its responses."""

    url: str
    mood: str = "well"
    delay: float = 0.02
    retry_after: int = 0
    requests: list[Received] = field(default_factory=list)


# the moods of receivers and their weights
MOODS = {
    "well": 4, "flaky": 1, "broken": 1, "busy": 1, "limited": 1, "overloaded": 2, "slow": 0.5, "silent": 0.5,
    "refusing": 1, "unknown": 0.5, "cut": 0.5, "gone": 0.3, "closing": 1, "late": 0.3,
}  # fmt: skip


# mood → the status code and the failure that an attempt ends with
ANSWERS: dict[str, tuple[int | None, str | None]] = {
    "well": (200, None),
    "broken": (500, None),
    "busy": (503, None),
    "limited": (429, None),
    "refusing": (None, "connect"),
    "unknown": (None, "dns"),
    "closing": (None, "first_byte"),
    "cut": (200, "body"),
    "gone": (410, None),
}


class Network:
    def __init__(self, loop: VirtualTimeLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.receivers: dict[str, Receiver] = {}
        self.on_start: Callable[[Outgoing, Receiver], None] = lambda _outgoing, _receiver: None
        self.short_of_files = False
        self.on_end: Callable[[Received], None] = lambda _received: None
        self._ends: dict[int, float] = {}  # when the attempts in progress end

    def receiver(self, url: str) -> Receiver:
        return self.receivers.setdefault(url, Receiver(url))

    def ends(self) -> list[float]:
        """Return when the attempts in progress end."""
        now = self.loop.time()
        self._ends = {key: at for key, at in self._ends.items() if at > now}
        return list(self._ends.values())

    def outcome(self, receiver: Receiver, timeout: float) -> tuple[float, int | None, str | None, str | None]:
        """Return the duration of the attempt in seconds, its status code, its failure and its Retry-After."""
        random, mood = self.random, receiver.mood
        if mood == "overloaded":  # some requests are accepted and others rejected
            mood = random.choice(["limited", "busy", "slow"])
        if mood == "flaky":
            mood = random.choice(["well", "broken", "silent", "refusing", "cut"])
        quick = receiver.delay * random.uniform(0.5, 2)
        if mood == "late":
            return min(timeout - 0.001, random.uniform(1, 8)), 500, None, None
        if mood == "slow":
            return min(timeout - 0.001, random.uniform(1, 8)), random.choice([200, 204]), None, None
        if mood == "silent":
            return timeout, None, "timeout", None
        code, failure = ANSWERS[mood]
        retry_after = str(receiver.retry_after) if code in (429, 503) else None
        return quick, random.choice([500, 502, 404, 400, 302]) if mood == "broken" else code, failure, retry_after

    def sender(self) -> type["SimulatedSender"]:
        """Return a `Sender` class for the next worker, which uses this network."""
        network = self

        class NetworkSender(SimulatedSender):
            _network = network

        return NetworkSender


class SimulatedSender:
    """The interface of the worker's `Sender`."""

    _network: Network

    def __init__(
        self, policy: Any, finished: Callable[[list[SendResult]], None], *, proxy: str = "", ca: str = ""
    ) -> None:
        self._finished = finished
        self._process: Process | None = current_process()
        self._running: dict[int, Outgoing] = {}

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def start(self, outgoing: Outgoing) -> None:
        network = self._network
        receiver = network.receiver(outgoing.url)
        network.on_start(outgoing, receiver)
        seconds, code, failure, retry_after = network.outcome(receiver, outgoing.timeout)
        shortage = "files" if network.short_of_files and network.random.random() < 0.5 else ""
        if shortage:
            seconds, code, failure, retry_after = 0.001, None, "connect", None
        closed = failure == "first_byte" and not outgoing.new_connection and network.random.random() < 0.7
        self._running[id(outgoing)] = outgoing
        network._ends[id(outgoing)] = network.loop.time() + seconds
        arrived = failure not in UNREACHED and not shortage
        received = Received(
            network.loop.time(), outgoing.key, outgoing.url, arrived, code, failure, retry_after, closed, shortage
        )
        receiver.requests.append(received)
        network.loop.call_later(seconds, self._end, outgoing, received, seconds, context=context_of(self._process))

    def _end(self, outgoing: Outgoing, received: Received, seconds: float) -> None:
        if self._running.pop(id(outgoing), None) is None:
            return
        failure = "redirect" if received.code in (301, 302) else received.failure
        code = None if received.failure in (*UNREACHED, "timeout", "first_byte") else received.code
        self._network.on_end(received)
        ended = SendResult(
            outgoing.key, code, failure, "simulated", received.retry_after, {}, seconds * 1000, None, b""
        )
        self._finished([ended._replace(connection_closed=received.closed, shortage=received.shortage)])

    def abandon(self) -> list[Any]:
        keys = [each.key for each in self._running.values()]
        self._running.clear()
        return keys

    def close(self) -> None:
        self._running.clear()
