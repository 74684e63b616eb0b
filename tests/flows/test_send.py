"""Sending to real sockets: what arrives, what each kind of failure is called, and what no receiver can make it do."""

import asyncio
import contextlib
import gzip
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from ipaddress import ip_network
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from gatepost.egress.address_guard import Policy
from gatepost.egress.resolver import LookUp
from gatepost.egress.sender import Sender
from gatepost.egress.transfer import Outgoing, SendResult
from gatepost.webhooks.deliveries import FAILURES
from tests.receiver import (
    OK,
    Answer,
    Authority,
    Connection,
    Raw,
    Request,
    hangs_up,
    receiver,
    resets,
    says,
    says_and_waits,
    silent,
)  # fmt: skip
from tests.waiting import LIMIT, LIMIT_MS

DEV = Policy(dev=True)
HERE = Policy(allow_networks=(ip_network("127.0.0.1/32"),))  # as in production, with one internal network
BODY = b'{"id":"evt_1","data":{"n":1}}'
HEADERS = ["content-type: application/json", "user-agent: Gatepost/test", "webhook-id: evt_1"]
ORDER = ("dns_ms", "connect_ms", "tls_ms", "first_byte_ms")
T = TypeVar("T")


class Post:
    """A sender whose results can be waited for."""

    def __init__(self, policy: Policy = DEV, **options: Any) -> None:
        self._waiting: dict[object, asyncio.Future[SendResult]] = {}
        self.batches: list[int] = []
        self.sender = Sender(policy, self._finished, **options)

    async def __call__(
        self, url: str, body: bytes = BODY, seconds: float = 10.0, headers: list[str] | None = None, account: str = ""
    ) -> SendResult:
        key = object()
        self._waiting[key] = asyncio.get_running_loop().create_future()
        self.sender.start(Outgoing(key, url, HEADERS if headers is None else headers, body, seconds, account))
        sent = await self._waiting[key]
        check(sent)
        return sent

    def _finished(self, sent: list[SendResult]) -> None:
        self.batches.append(len(sent))
        for each in sent:
            self._waiting.pop(each.key).set_result(each)


def check(sent: SendResult) -> None:
    """What holds for every result."""
    assert sent.failure is None or sent.failure in FAILURES
    assert (sent.detail == "") == (sent.failure is None)
    assert sent.code is not None or sent.failure
    assert not re.search(r"\d+\.\d+\.\d+\.\d+|::|localhost", sent.detail), "no address in what tenants read"
    times = [sent.timings[name] for name in ORDER if name in sent.timings]
    assert set(sent.timings) <= set(ORDER)
    assert times == sorted(times)
    assert not times or times[-1] <= sent.duration_ms
    assert len(sent.response) <= 4096


@contextlib.asynccontextmanager
async def posting(policy: Policy = DEV, **options: Any) -> AsyncIterator[Post]:
    post = Post(policy, **options)
    try:
        yield post
    finally:
        post.sender.close()


def run(story: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(asyncio.wait_for(story, 60))


def post(url: str, policy: Policy = DEV, *, timeout: float = 10.0, **options: Any) -> SendResult:
    async def story() -> SendResult:
        async with posting(policy, **options) as to:
            return await to(url, seconds=timeout)

    return run(story())


def post_until(
    came_so_far: Callable[[SendResult], bool], url: str, *, first: float = 0.5, **options: Any
) -> SendResult:
    """Post with longer and longer timeouts, until even a busy machine came as far as the test needs."""
    for seconds in (first, 4 * first, 16 * first):
        sent = post(url, timeout=seconds, **options)
        if came_so_far(sent):
            break
    assert sent.detail.startswith(f"no complete response within {seconds:g} s: timed out while ")
    assert 1000 * seconds <= sent.duration_ms < LIMIT_MS
    return sent


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def at(*found: str) -> LookUp:
    return lambda _name, _port: list(found)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class TestAnswers:
    def test_what_arrives_is_what_was_given(self) -> None:
        body = bytes(range(256)) * 1000

        async def story(url: str) -> SendResult:
            async with posting() as to:
                return await to(f"{url}/a/../b?c=%20&d", body=body)

        with receiver() as r:
            sent = run(story(r.url))
            [(headers, arrived, _)] = r.requests
        assert arrived == body
        assert headers == {
            ":method": "POST", ":path": "/hooks/a/../b?c=%20&d", "host": f"127.0.0.1:{r.port}", "accept": "*/*",
            "content-type": "application/json", "user-agent": "Gatepost/test", "webhook-id": "evt_1",
            "content-length": "256000",
        }  # fmt: skip
        assert sent[1:5] == (200, None, "", None)
        assert sent.response == b"ok"
        assert sent.remote_ip == "127.0.0.1"
        assert set(sent.timings) == {"connect_ms", "first_byte_ms"}

    @pytest.mark.parametrize("code", [200, 201, 204, 299, 400, 404, 410, 429, 500, 503, 599, 999])
    def test_every_code_is_an_answer(self, code: int) -> None:
        with receiver((code, {}, b"")) as r:
            assert post(r.url)[1:4] == (code, None, "")

    @pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 307, 308])
    def test_a_redirect_is_a_failure_and_is_not_followed(self, code: int) -> None:
        with receiver() as elsewhere, receiver((code, {"Location": elsewhere.url}, b"")) as r:
            sent = post(r.url)
        assert (sent.code, sent.failure) == (code, "redirect")
        assert not elsewhere.requests

    @pytest.mark.parametrize(
        ("headers", "found"),
        [
            ({"Retry-After": "120"}, "120"), ({"retry-AFTER": " soon "}, "soon"), ({}, None),
            ({"Retry-After": "Sun, 15 Nov 2026 08:00:00 GMT"}, "Sun, 15 Nov 2026 08:00:00 GMT"),
            ({"Retry-After": "9" * 1000}, "9" * 64), ({"Retry-After": "-1"}, "-1"), ({"Retry-After": "\xff"}, "\xff"),
            ({"Retry-After": ""}, ""), ({"X-Retry-After": "1"}, None),
        ],
    )  # fmt: skip
    def test_retry_after_as_it_was_written(self, headers: dict[str, str], found: str | None) -> None:
        with receiver((503, headers, b"")) as r:
            assert post(r.url).retry_after == found

    @pytest.mark.parametrize(("headers", "found"), [(b"", None), (b"Retry-After: 2\r\n", "2")])
    def test_retry_after_is_read_from_the_headers_of_the_final_response(
        self, headers: bytes, found: str | None
    ) -> None:
        interim, trailer = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 900\r\n\r\n", b"Retry-After: 900\r\n"
        final = b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n" + headers + b"\r\n0\r\n"
        for response in (interim + final + b"\r\n", final + trailer + b"\r\n"):
            with receiver(Raw(says(response))) as r:
                sent = post(r.url)
            assert (sent.code, sent.failure, sent.retry_after) == (503, None, found)

    def test_connections_are_kept(self) -> None:
        async def story(url: str) -> list[SendResult]:
            async with posting() as to:
                return [await to(url) for _ in range(10)]

        with receiver() as r:
            first, *others = run(story(r.url))
            assert r.connections == 1
        assert "connect_ms" in first.timings
        assert all(set(sent.timings) == {"first_byte_ms"} for sent in others)

    def test_also_after_an_answer_that_was_there_at_once(self) -> None:
        """libcurl is then done with the connection before it has waited for anything but to write."""
        output = threading.Event()

        def hurries(connection: Connection) -> None:
            connection.answer(OK)
            output.set()
            connection.read()
            while connection.read():
                connection.answer(OK)

        async def story(url: str) -> None:
            async with posting() as to:
                first = asyncio.create_task(to(url))
                while not output.wait(0.01):  # the loop stands still, lest it write before the answer is there
                    await asyncio.sleep(0)
                assert (await first).code == 200
                await asyncio.sleep(0.05)
                assert (await to(url)).code == 200

        with receiver(Raw(hurries)) as r:
            run(story(r.url))
            assert r.connections == 1

    def test_a_connection_that_was_closed_meanwhile_is_not_used(self) -> None:
        async def story(url: str) -> list[SendResult]:
            async with posting() as to:
                return [await to(url), await to(url), await to(url)]

        def one(connection: Connection) -> None:
            connection.read()
            connection.answer(OK)

        with receiver(Raw(one)) as r:
            # Closing after the answer races with the next request, which is then lost; but never sent twice.
            sent = run(story(r.url))
            assert len(r.requests) == sum(each.code == 200 for each in sent)

    @pytest.mark.parametrize("run_in", [uvloop.run, asyncio.run])
    def test_many_at_once(self, run_in: Callable[[Awaitable[Any]], Any]) -> None:
        async def story(url: str) -> tuple[list[SendResult], list[int]]:
            async with posting() as to:
                sent = await asyncio.gather(*(to(f"{url}/{number}", body=b"%d" % number) for number in range(300)))
                assert to.sender.in_flight == 0
                return sent, to.batches

        def echo(request: Request) -> Answer:
            return 200, {}, request.headers[":path"].encode() + b" " + request.body

        with receiver(echo) as r:
            sent, batches = run_in(story(r.url))
        assert [each.response for each in sent] == [b"/hooks/%d %d" % (number, number) for number in range(300)]
        assert len(batches) < 300, "what ends in one turn is told at once"

    def test_ipv6(self) -> None:
        with receiver(host="::1") as r:
            assert post(r.url)[1] == 200

    def test_a_host_with_addresses_of_which_one_is_dead(self) -> None:
        with receiver() as r:
            sent = post(f"http://receiver.test:{r.port}/", look_up=at("::1", "127.0.0.1"))
        assert (sent.code, sent.remote_ip) == (200, "127.0.0.1")
        assert "dns_ms" in sent.timings

    def test_http_2_over_tls(self, authority: Authority, tmp_path: Path) -> None:
        (tmp_path / "app.py").write_text(
            "async def app(scope, receive, send):\n"
            "    size = 0\n"
            "    while (message := await receive()).get('more_body') or not size:\n"
            "        size += len(message['body'])\n"
            "    size += len(message['body'])\n"
            "    await send({'type': 'http.response.start', 'status': 202, 'headers': [(b'retry-after', b'7')]})\n"
            "    await send({'type': 'http.response.body', 'body': scope['http_version'].encode()})\n"
        )
        certificate, key = authority.files("localhost")
        port = free_port()
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", str(port)),
                *("--ssl-certificate", str(certificate), "--ssl-keyfile", str(key), "--no-ws", "app:app"),
            ],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        async def story() -> list[SendResult]:
            await until(lambda: _listens(port))
            async with posting(ca=str(authority.file)) as to:
                url = f"https://localhost:{port}/"
                return [await to(url, body=b"x" * 200_000), *await asyncio.gather(*(to(url) for _ in range(50)))]

        try:
            results = run(story())
        finally:
            server.terminate()
            server.wait(LIMIT)
        assert {(sent.code, sent.failure, sent.response) for sent in results} == {(202, None, b"2")}
        assert sum("tls_ms" in sent.timings for sent in results) < 10, "streams share connections"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class TestOnce:
    @pytest.mark.parametrize("end", ["close", "reset"])
    @pytest.mark.parametrize("size", [1, 100, 300_000])
    def test_what_a_kept_connection_swallowed_is_not_sent_again(self, end: str, size: int) -> None:
        def answers_once(connection: Connection) -> None:
            connection.read()
            connection.answer(OK)
            if connection.number == 1:
                connection.read()
                if end == "reset":
                    connection.reset()

        async def story(url: str) -> list[SendResult]:
            async with posting() as to:
                return [await to(url, body=b"1" * size), await to(url, body=b"2" * size)]

        with receiver(Raw(answers_once)) as r:
            first, second = run(story(r.url))
            assert [body[:1] for _, body, _ in r.requests] == [b"1", b"2"], "the second came once"
        assert first.code == 200
        assert second.failure in ("first_byte", "send")
        assert second.code is None
        assert second.detail == "the receiver closed the connection without a response"


Act = Callable[[Connection], object]
BAD: dict[str, tuple[Act, int | None, str, str]] = {
    "hangs up": (hangs_up, None, "first_byte", "without a response"),
    "resets": (resets, None, "first_byte", "without a response"),
    "half a status line": (says(b"HTTP/1.1 20"), None, "first_byte", "response"),
    "half the headers": (says(b"HTTP/1.1 200 OK\r\nA: b\r\n"), None, "first_byte", "middle of its headers"),
    "only an interim answer": (says(b"HTTP/1.1 103 Hints\r\nA: b\r\n\r\n"), None, "first_byte", "in the middle"),
    "interim, then half": (says(b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n"), None, "first_byte", "headers"),
    "half the body": (says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), 200, "body", "middle of its body"),
    "half a chunk": (
        says(b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), 503, "body", "middle of its body"
    ),
    "no chunk": (says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), 200, "body", "middle of its body"),
    "a redirect cut off": (says(b"HTTP/1.1 301 Moved\r\nContent-Length: 9\r\n\r\n"), 301, "redirect", "not followed"),
    "another protocol": (says(b"SSH-2.0-OpenSSH_9.0\r\n"), None, "first_byte", "not HTTP"),
    "no headers": (says(b"hello"), None, "first_byte", "not HTTP"),
    "a NUL in a header": (says(b"HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n"), None, "first_byte", "not HTTP"),
    "a header without a colon": (says(b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n"), None, "first_byte", "not HTTP"),
    "a code that is none": (says(b"HTTP/1.1 099 Odd\r\n\r\n"), None, "first_byte", "not HTTP"),
    "two lengths": (
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na"), None, "first_byte", "not HTTP"
    ),
    "10k headers": (
        says(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 10_000 + b"\r\n"), None, "first_byte", "headers are too large"
    ),
    "10 MB of headers": (
        says(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 10_000_000 + b"\r\n\r\n"), None, "first_byte", "headers are too large"
    ),
    "10 MB in many headers": (
        says(b"HTTP/1.1 200 OK\r\n" + (b"A: " + b"b" * 9_000 + b"\r\n") * 1_000 + b"\r\n"), None, "first_byte", "large"
    ),
    "interim answers for ever": (
        says(b"HTTP/1.1 103 Hints\r\nA: b\r\n\r\n" * 100_000), None, "first_byte", "headers are too large"
    ),
    "trailers for ever": (
        says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + b"A: b\r\n" * 100_000),
        200, "body", "in the middle",
    ),
}  # fmt: skip
SLOW: dict[str, tuple[Act, int | None, str]] = {
    "says nothing": (silent, None, "waiting for the response"),
    "does not read": (Connection.wait, None, "waiting for the response"),
    "stops in the headers": (says_and_waits(b"HTTP/1.1 200 OK\r\nA: b\r\n"), None, "waiting for the response"),
    "stops after an interim answer": (says_and_waits(b"HTTP/1.1 100 C\r\n\r\n"), None, "waiting for the response"),
    "stops in the body": (
        says_and_waits(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"), 200, "reading the response"
    ),
    "stops before the body": (
        says_and_waits(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), 200, "reading the response"
    ),
}  # fmt: skip


class TestFailures:
    @pytest.mark.parametrize("name", BAD)
    def test_a_bad_answer(self, name: str) -> None:
        act, code, failure, words = BAD[name]
        with receiver(Raw(act)) as r:
            sent = post(r.url)
        assert (sent.code, sent.failure) == (code, failure)
        assert words in sent.detail

    @pytest.mark.parametrize("name", SLOW)
    def test_an_answer_that_does_not_come(self, name: str) -> None:
        act, code, words = SLOW[name]
        with receiver(Raw(act)) as r:
            sent = post_until(lambda sent: words in sent.detail, r.url)
        assert (sent.code, sent.failure) == (code, "timeout")
        assert words in sent.detail

    def test_each_has_a_deadline_of_its_own(self) -> None:
        async def story(url: str) -> None:
            async with posting() as to:
                later = asyncio.create_task(to(url, seconds=LIMIT))
                await until(lambda: bool(r.requests))
                await asyncio.gather(*(to(url, seconds=seconds) for seconds in (0.3, 0.1)))
                assert not later.done()
                later.cancel()

        with receiver(Raw(silent)) as r:
            run(asyncio.wait_for(story(r.url), LIMIT))

    def test_a_byte_at_a_time(self) -> None:
        """The deadline is for the whole: it does not help to say a little now and then."""
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000

        def trickles(connection: Connection) -> None:
            connection.read()
            connection.trickle(answer, every=0.05)

        with receiver(Raw(trickles)) as r:
            sent = post_until(lambda sent: "first_byte_ms" in sent.timings, r.url)
        assert (sent.code, sent.failure) == (None, "timeout")
        assert "first_byte_ms" in sent.timings

    def test_a_receiver_that_does_not_read(self) -> None:
        async def story(url: str) -> SendResult:
            async with posting() as to:
                return await to(url, body=b"x" * 50_000_000, seconds=0.5)

        with receiver(Raw(Connection.wait)) as r:
            assert "sending the request" in run(story(r.url)).detail

    def test_a_connection_refused(self) -> None:
        sent = post(f"http://127.0.0.1:{free_port()}/")
        assert (sent.code, sent.failure, sent.detail) == (None, "connect", "the connection was refused")
        assert (sent.timings, sent.remote_ip) == ({}, None)

    def test_a_connection_that_is_not_taken(self) -> None:
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            for _ in range(3):  # its queue is full now
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listener.getsockname())
            sent = post(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout=0.5)
        assert sent.failure == "timeout"
        assert "connecting" in sent.detail

    def test_a_header_that_cannot_be_written(self) -> None:
        async def story(url: str) -> list[SendResult]:
            async with posting() as to:
                return [await to(url, headers=["x-a: ü"]), await to(url)]

        with receiver() as r:
            first, second = run(story(r.url))
            assert len(r.requests) == 1
        assert (first.failure, second.code) == ("send", 200)


class TestHostile:
    def test_a_gigabyte(self) -> None:
        """Reading stops at 64 KiB, the code counts, and none of it is kept but the beginning."""
        output = []

        def floods(connection: Connection) -> None:
            connection.read()
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            for count in range(10_000):
                output.append(count)
                connection.send(b"z" * 100_000)

        with receiver(Raw(floods)) as r:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            sent = post(r.url)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert sent[1:4] == (200, None, "")
        assert sent.response == b"z" * 4096
        assert len(output) < 1000, "it was not read"
        assert grown < 50_000

    @pytest.mark.parametrize("size", [65_536, 65_537, 1_000_000])
    def test_a_long_answer_of_an_error(self, size: int) -> None:
        with receiver((500, {"Retry-After": "3"}, b"e" * size)) as r:
            sent = post(r.url)
        assert sent[1:5] == (500, None, "", "3")
        assert sent.response == b"e" * 4096

    def test_a_bomb_is_not_unpacked(self) -> None:
        packed = gzip.compress(b"\0" * 50_000_000)
        with receiver((200, {"Content-Encoding": "gzip"}, packed)) as r:
            sent = post(r.url)
            assert "accept-encoding" not in r.requests[0].headers
        assert sent.response == packed[:4096]

    def test_bytes_that_are_no_text(self) -> None:
        with receiver((200, {"A": "\xff\xfe\x01"}, b"\0\xff\xfe")) as r:
            assert post(r.url).response == b"\0\xff\xfe"

    def test_the_sender_lives_through_all_of_them(self) -> None:
        async def story(urls: list[str], good: str) -> list[SendResult]:
            async with posting() as to:
                bad = asyncio.gather(*(to(url, seconds=1.0) for url in urls * 3))
                fine = [await to(good) for _ in range(20)]
                await bad
                return [*fine, await to(good)]

        with contextlib.ExitStack() as stack:
            acts = [each[0] for each in BAD.values()] + [each[0] for each in SLOW.values()]
            urls = [stack.enter_context(receiver(Raw(act))).url for act in acts]
            good = stack.enter_context(receiver())
            assert all(sent.code == 200 for sent in run(story(urls, good.url)))


def _sent_without_files(url: str) -> tuple[tuple[str, int | None], tuple[str, int | None]]:
    """In a process of its own: the limit is one for all threads, the receiver's among them."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def story() -> tuple[SendResult, SendResult]:
        async with posting(DEV) as to:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, most[1]))  # every new file would have a higher number
            try:
                short = await to(url)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, most)
            return short, await to(url)

    short, sent = run(story())
    return (short.shortage, short.code), (sent.shortage, sent.code)


def test_our_own_shortage_is_not_the_receivers_failure() -> None:
    """No more files: the request is not sent, and that is what is said."""
    with receiver() as found, ProcessPoolExecutor(1, get_context("spawn")) as pool:
        short, sent = pool.submit(_sent_without_files, found.url).result()
        assert len(found.requests) == 1
    assert short == ("files", None)
    assert sent == ("", 200)
