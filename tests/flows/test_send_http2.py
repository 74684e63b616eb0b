"""Sending over TLS to receivers that speak HTTP/2, and to those that end or refuse it in unusual ways."""

import asyncio
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from gatepost.egress.address_guard import Policy
from gatepost.egress.transfer import SendResult, Transfer
from tests.flows.test_send import at, post, post_until, posting, run, until
from tests.flows.test_send_targets import Tunnel
from tests.receiver import (
    OK,
    Authority,
    Behaviour,
    Connection,
    Raw,
    Receiver,
    hangs_up,
    receiver,
    says,
    says_and_waits,
)  # fmt: skip
from tests.waiting import LIMIT

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INTERNAL_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM, HTTP_1_1_REQUIRED = 2, 7, 11, 13
STATUS_200 = b"\x88"  # `:status: 200` in the static table of HPACK
LARGE = 248_000


class Http2:
    """One connection of a receiver that speaks HTTP/2 (RFC 9113). Only the frames that these tests need."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._buffer = b""
        assert self._take(len(PREFACE)) == PREFACE
        self.send(SETTINGS)

    def send(self, kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> None:
        head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
        self._connection.send(head + payload)

    def reset(self, stream: int, code: int) -> None:
        self.send(RST_STREAM, 0, stream, struct.pack(">I", code))

    def answer(self, stream: int) -> None:
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, STATUS_200)

    def frames(self) -> Iterator[tuple[int, int, int]]:
        """Yield kind, flags and stream of each frame, until the sender is about to close the connection."""
        while head := self._take(9):
            payload = self._take(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind == GOAWAY:
                return
            if kind == SETTINGS and not flags & ACK:
                self.send(SETTINGS, ACK)
            if kind == DATA and payload:
                for window in (0, stream):
                    self.send(WINDOW_UPDATE, 0, window, struct.pack(">I", len(payload)))
            yield kind, flags, stream

    def requests(self, *, whole: bool = True) -> Iterator[int]:
        """Yield the stream of each request: when it is complete, or when its headers are."""
        for kind, flags, stream in self.frames():
            if flags & END_STREAM if whole and kind in (DATA, HEADERS) else kind == HEADERS:
                yield stream

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self._connection.stream.recv(65536)
            if not data:
                return b""
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def speaking(authority: Authority, act: Callable[[Connection], None]) -> Iterator[Receiver]:
    context = authority.context("localhost")
    context.set_alpn_protocols(["h2", "http/1.1"])
    with receiver(Raw(act), tls=context, name="localhost") as made:
        yield made


def send_each(authority: Authority, url: str, *bodies: bytes) -> list[SendResult]:
    async def story() -> list[SendResult]:
        async with posting(ca=str(authority.file)) as to:
            return [await to(url, body) for body in bodies]

    return run(story())


def protocol(connection: Connection) -> str | None:
    assert isinstance(connection.stream, ssl.SSLSocket)
    return connection.stream.selected_alpn_protocol()


def test_one_connection_carries_many_requests(authority: Authority) -> None:
    def act(connection: Connection) -> None:
        http2 = Http2(connection)
        for stream in http2.requests():
            http2.answer(stream)

    with speaking(authority, act) as r:
        sent = send_each(authority, r.url, b"1", b"2" * LARGE, b"3")
        assert r.connections == 1
    assert [each.code for each in sent] == [200, 200, 200]


def send_when_idle(
    authority: Authority, version: ssl.TLSVersion, act: Callable[[Connection], None], happened: threading.Event
) -> int:
    """Send four requests, each after something has happened on the idle connection. Returns how many were opened."""
    context = authority.context("localhost")
    context.set_alpn_protocols(["h2"])
    context.minimum_version = context.maximum_version = version

    async def story(url: str) -> list[int | None]:
        codes = []
        async with posting(ca=str(authority.file)) as to:
            for _ in range(4):
                codes.append((await to(url)).code)
                await until(happened.is_set)
                happened.clear()
                await asyncio.sleep(0.05)
        return codes

    with receiver(Raw(act), tls=context, name="localhost") as r:
        assert run(story(r.url)) == [200, 200, 200, 200]
        return r.connections


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_frames_on_an_idle_connection_do_not_end_it(authority: Authority, version: ssl.TLSVersion) -> None:
    """Many receivers update their window, or send a PING, after they have responded."""
    updated = threading.Event()

    def act(connection: Connection) -> None:
        http2 = Http2(connection)
        for stream in http2.requests():
            http2.answer(stream)
            time.sleep(0.05)
            http2.send(WINDOW_UPDATE, payload=struct.pack(">I", 1))
            updated.set()

    assert send_when_idle(authority, version, act, updated) == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_idle_connection_that_is_closed_is_not_used_again(authority: Authority, version: ssl.TLSVersion) -> None:
    closed = threading.Event()

    def act(connection: Connection) -> None:
        http2 = Http2(connection)
        http2.answer(next(http2.requests()))
        time.sleep(0.05)
        assert isinstance(connection.stream, ssl.SSLSocket)
        connection.stream.settimeout(0)  # do not wait until the sender closes its side
        with suppress(OSError):
            connection.stream.unwrap()
        closed.set()
        connection.wait()

    assert send_when_idle(authority, version, act, closed) == 4


@pytest.mark.parametrize("size", [1, 100_000, LARGE])
@pytest.mark.parametrize("whole", [True, False])
def test_a_receiver_that_requires_http_1_1_gets_each_request_once(authority: Authority, size: int, whole: bool) -> None:
    begun: list[str] = []

    def act(connection: Connection) -> None:
        if protocol(connection) == "h2":
            http2 = Http2(connection)
            for stream in http2.requests(whole=whole):
                begun.append("h2")
                http2.reset(stream, HTTP_1_1_REQUIRED)
        else:
            while connection.read() is not None:
                begun.append("http/1.1")
                connection.answer(OK)

    with speaking(authority, act) as r:
        first, second, third = send_each(authority, r.url, *(bytes([byte]) * size for byte in b"123"))
        assert [body[:1] for _, body, _ in r.requests] == [b"2", b"3"]
        assert {len(body) for _, body, _ in r.requests} == {size}
    assert first[1:4] == (
        None, "first_byte", "the receiver refused the request over HTTP/2; the next attempt uses HTTP/1.1",
    )  # fmt: skip
    assert not first.connection_closed
    assert (second.code, third.code) == (200, 200)
    assert begun == ["h2", "http/1.1", "http/1.1"]


@pytest.mark.parametrize(
    ("code", "name"), [(INTERNAL_ERROR, "INTERNAL_ERROR"), (ENHANCE_YOUR_CALM, "ENHANCE_YOUR_CALM")]
)
def test_a_stream_that_is_reset_is_not_a_closed_connection(authority: Authority, code: int, name: str) -> None:
    """It would be repeated at once, although the receiver has the request and the connection is still open."""

    def act(connection: Connection) -> None:
        http2 = Http2(connection)
        for number, stream in enumerate(http2.requests()):
            if number == 1:
                http2.reset(stream, code)
            else:
                http2.answer(stream)

    with speaking(authority, act) as r:
        first, second, third = send_each(authority, r.url, b"1", b"2", b"3")
        assert r.connections == 1
    assert (first.code, third.code) == (200, 200)
    assert second[1:4] == (None, "first_byte", f"the HTTP/2 stream was reset: {name}")
    assert not second.connection_closed


@pytest.mark.parametrize("way", ["close", "goaway", "refused"])
def test_a_reused_connection_that_does_not_take_the_request(authority: Authority, way: str) -> None:
    def act(connection: Connection) -> None:
        http2 = Http2(connection)
        for number, stream in enumerate(http2.requests()):
            if number == 0:
                http2.answer(stream)
            elif way == "refused":
                http2.reset(stream, REFUSED_STREAM)
            else:
                if way == "goaway":
                    http2.send(GOAWAY, payload=struct.pack(">II", 1, 0))
                return

    with speaking(authority, act) as r:
        first, second = send_each(authority, r.url, b"1", b"2")
        assert r.connections == 1
    assert first.code == 200
    assert (second.code, second.connection_closed) == (None, True)
    assert second.failure in ("send", "first_byte")  # the sender may notice it while it sends


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_receiver_that_requires_a_client_certificate(authority: Authority, version: ssl.TLSVersion) -> None:
    """In TLS 1.3, its alert comes after the sender has completed the handshake."""
    context = authority.context("localhost")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    context.minimum_version = context.maximum_version = version

    def act(connection: Connection) -> None:
        with context.wrap_socket(connection.stream, server_side=True, do_handshake_on_connect=False) as stream:
            with suppress(ssl.SSLError):
                stream.do_handshake()
            connection.wait()

    with receiver(Raw(act), name="localhost") as r:
        sent = post(r.url.replace("http:", "https:"), ca=str(authority.file))
    assert (sent.code, sent.failure) == (None, "tls")
    assert sent.detail.startswith("the TLS handshake failed: ")
    assert " alert " in sent.detail


def test_a_receiver_that_resets_the_connection_after_the_handshake(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that requires a client certificate can in TLS 1.3: the sender may not see its alert."""
    closed, begin = threading.Event(), Transfer._begin

    def begin_when_closed(transfer: Transfer, *addresses: object) -> int:
        assert closed.wait(LIMIT)
        return begin(transfer, *addresses)

    def act(connection: Connection) -> None:
        connection.reset()
        closed.set()

    monkeypatch.setattr(Transfer, "_begin", begin_when_closed)
    with receiver(Raw(act), tls=authority.context("localhost"), name="localhost") as r:
        sent = post(r.url, ca=str(authority.file))
    words = "the receiver closed the connection after the TLS handshake; it may require a client certificate"
    assert sent[1:4] == (None, "tls", words)


class SocksTunnel(Tunnel):
    """A SOCKS5 proxy (RFC 1928) without authentication that connects to one port of the loopback interface."""

    def __init__(self, port: int, *, reply: int = 0) -> None:
        super().__init__(port)
        self._reply = reply

    def act(self, connection: Connection) -> None:
        connection.stream.recv(100)  # the methods of authentication
        connection.send(b"\x05\x00")
        connection.stream.recv(300)  # the target
        connection.send(bytes([5, self._reply, 0, 1, 127, 0, 0, 1, 0, 80]))
        if not self._reply:
            self.relay(connection)


class TestProxy:
    @pytest.mark.parametrize(
        "act",
        [
            hangs_up, says(b"nonsense\r\n\r\n"), says(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
            says(b"HTTP/1.1 200 OK\r\nX: " + 400_000 * b"a"), says(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"),
        ],
    )  # fmt: skip
    def test_its_failures_are_not_the_receivers(self, act: Callable[[Connection], None]) -> None:
        with receiver(Raw(act)) as proxy:
            sent = post("https://hooks.example.com/", Policy(), proxy=proxy.url, look_up=at("10.0.0.1"))
        assert sent[1:4] == (None, "connect", "the egress proxy could not connect")
        assert sent.timings == {}

    def test_a_tunnel_that_is_not_complete(self) -> None:
        def came_so_far(sent: SendResult) -> bool:
            return bool(proxy.requests)

        with receiver(Raw(says_and_waits(b"HTTP/1.1 200 OK\r\nX: y\r\n"))) as proxy:
            sent = post_until(came_so_far, "https://hooks.example.com/", policy=Policy(), proxy=proxy.url)
        assert (sent.failure, sent.timings) == ("timeout", {})
        assert sent.detail.endswith("timed out while connecting")

    def test_a_tunnel_without_a_handshake(self) -> None:
        def came_so_far(sent: SendResult) -> bool:
            return "connect_ms" in sent.timings

        with receiver(Raw(says_and_waits(b"HTTP/1.1 200 OK\r\n\r\n"))) as proxy:
            sent = post_until(came_so_far, "https://hooks.example.com/", policy=Policy(), proxy=proxy.url)
        assert (sent.failure, list(sent.timings)) == ("timeout", ["connect_ms"])
        assert sent.detail.endswith("timed out while performing the TLS handshake")

    def test_headers_of_the_proxy_are_not_the_receivers(self, authority: Authority) -> None:
        with receiver((503, {}, b""), tls=authority.context("hooks.example.com")) as r:
            tunnel = Tunnel(r.port, headers=b"Retry-After: 55\r\n")
            with receiver(Raw(tunnel.act)) as proxy:
                sent = post("https://hooks.example.com/", Policy(), proxy=proxy.url, ca=str(authority.file))
        assert (sent.code, sent.retry_after) == (503, None)

    @pytest.mark.parametrize(
        ("behaviour", "name", "failure"),
        [
            (OK, "hooks.example.com", None), (Raw(hangs_up), "hooks.example.com", "first_byte"),
            (OK, "other.example.com", "tls"),
        ],
    )  # fmt: skip
    def test_failures_of_a_receiver_behind_a_socks_proxy(
        self, authority: Authority, behaviour: Behaviour, name: str, failure: str | None
    ) -> None:
        with receiver(behaviour, tls=authority.context(name)) as r, receiver(Raw(SocksTunnel(r.port).act)) as proxy:
            url = f"socks5h://127.0.0.1:{proxy.port}"
            sent = post("https://hooks.example.com/", Policy(), proxy=url, ca=str(authority.file))
        assert sent.failure == failure
        assert "connect_ms" in sent.timings

    def test_a_socks_proxy_that_cannot_connect(self) -> None:
        with receiver(Raw(SocksTunnel(0, reply=5).act)) as proxy:
            sent = post("https://hooks.example.com/", Policy(), proxy=f"socks5h://127.0.0.1:{proxy.port}")
        assert sent[1:4] == (None, "connect", "the egress proxy could not connect")
        assert sent.timings == {}
