"""Where a sender goes: addresses, names, TLS and proxies, and what is left when it ends."""

import asyncio
import contextlib
import os
import select
import socket
import ssl
import threading
import time
import warnings
from collections import Counter
from ipaddress import ip_network
from pathlib import Path

import pytest

from gatepost.egress import resolver, sender
from gatepost.egress.address_guard import Policy
from gatepost.egress.curl_loop import CurlLoop
from gatepost.egress.sender import Sender
from gatepost.egress.senders import Senders
from gatepost.egress.transfer import Outgoing, SendResult
from tests.flows.test_send import BODY, DEV, HEADERS, HERE, ORDER, at, free_port, post, posting, run, until
from tests.receiver import OK, Answer, Authority, Connection, Raw, Request, receiver, silent
from tests.waiting import LIMIT, wait_until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class TestTargets:
    @pytest.mark.parametrize("found", [("127.0.0.2",), ("::1",), ("10.0.0.1", "::1", "169.254.169.254"), ("0.0.0.0",)])
    def test_a_name_that_leads_inside(self, found: tuple[str, ...]) -> None:
        with receiver(host="127.0.0.2" if ":" not in found[0] else "::1") as r:
            sent = post(f"https://rebind.test:{r.port}/", HERE, look_up=at(*found))
            assert r.connections == 0
        assert (sent.code, sent.failure, sent.remote_ip) == (None, "dns", None)

    def test_a_name_that_leads_inside_looks_like_one_that_does_not_exist(self) -> None:
        """Otherwise the results would reveal which internal names exist."""

        def missing(_name: str, _port: int) -> list[str]:
            raise socket.gaierror(socket.EAI_NONAME, "x")

        detail = "the host name does not exist or has no public address"
        for look_up in (missing, at(), at("10.0.0.1"), at("fd00::1", "169.254.169.254")):
            sent = post("https://wiki.corp.example/", HERE, look_up=look_up)
            assert sent[1:9] == (None, "dns", detail, None, {}, 1000.0, None, b"")

    @pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "api.localhost", "a.b.localhost"])
    def test_names_of_this_machine_are_blocked_without_a_look_up(self, name: str) -> None:
        """RFC 6761, section 6.3: everybody knows what they lead to, so there is nothing to hide."""
        asked: list[str] = []

        def look_up(name: str, _port: int) -> list[str]:
            asked.append(name)
            return ["127.0.0.1"]

        elsewhere = Policy(allow_networks=(ip_network("10.0.0.0/8"),))
        for policy in (Policy(), elsewhere):
            sent = post(f"https://{name}/", policy, look_up=look_up)
            assert (sent.code, sent.failure) == (None, "blocked_target")
            assert "loopback" in sent.detail
        assert asked == []

    def test_a_name_with_an_internal_address_is_reported_to_the_operator(self) -> None:
        reported: list[tuple[str, int, str]] = []

        async def story() -> None:
            async with posting(DEV, look_up=at("169.254.169.254")) as to:
                to.sender.refused = lambda *why: reported.append(why)
                await to("http://wiki.corp.example/")

        run(story())
        assert reported == [("wiki.corp.example", 80, "leads to a cloud's metadata service")]

    @pytest.mark.parametrize(
        "url", ["http://example.com/", "https://127.0.0.2:8443/", "https://localhost./", "ftp://a"]
    )
    def test_a_url_that_the_policy_no_longer_allows(self, url: str) -> None:
        assert post(url, HERE).failure == "blocked_target"

    def test_gatepost_itself(self) -> None:
        with receiver() as r:
            policy = Policy(dev=True, own=(("localhost", r.port),))
            for url in (r.url, f"http://localhost:{r.port}/"):
                assert post(url, policy)[1:4] == (None, "blocked_target", "the URL leads to Gatepost itself")
            assert post(f"http://a.test:{r.port}/", policy, look_up=at("127.0.0.1")).failure == "dns"
            assert r.connections == 0

    def test_only_the_addresses_that_are_allowed_are_tried(self, authority: Authority) -> None:
        tls = authority.context("a.test")
        with receiver(tls=tls) as r, receiver(host="127.0.0.2") as inside:
            ca = str(authority.file)
            sent = post(f"https://a.test:{r.port}/", HERE, ca=ca, look_up=at("127.0.0.2", "::1", "127.0.0.1"))
            assert r.requests[0].headers["host"] == f"a.test:{r.port}"
            assert inside.connections == 0
        assert (sent.code, sent.remote_ip) == (200, "127.0.0.1")

    def test_an_allowed_address_that_is_dead_is_not_blocked(self) -> None:
        """A target is blocked when nothing else was tried."""
        sent = post(f"https://a.test:{free_port()}/", HERE, look_up=at("127.0.0.2", "127.0.0.1"))
        assert (sent.failure, sent.detail) == ("connect", "the connection was refused")

    def test_a_name_that_changes_its_mind(self, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is judged each time it is looked up, also while a connection is kept."""
        answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]]
        monkeypatch.setattr(sender, "NAME_TTL", 0)

        async def story(url: str) -> list[SendResult]:
            async with posting(HERE, ca=str(authority.file), look_up=lambda *_: answers.pop(0)) as to:
                return [await to(url), await to(url), await to(url)]

        behaviour: list[Answer] = [OK, (200, {"Connection": "close"}, b""), OK]
        with receiver(behaviour, tls=authority.context("a.test")) as r, receiver(host="127.0.0.2") as inside:
            sent = run(story(f"https://a.test:{r.port}/"))
            assert (r.connections, inside.connections) == (1, 0)
        assert [each.failure for each in sent] == [None, "dns", "dns"]

    @pytest.mark.parametrize(
        "name", ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    )
    def test_nothing_comes_from_the_environment(
        self, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
        (tmp_path / ".curlrc").write_text('user-agent = "curl"\n')

        async def story(url: str) -> None:
            async with posting() as to:
                assert [(await to(url)).code for _ in range(2)] == [200, 200]

        with receiver() as proxy, receiver((200, {"Set-Cookie": "a=b; Path=/"}, b"")) as r:
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv("HOME", str(tmp_path))
            monkeypatch.setenv("CURL_HOME", str(tmp_path))
            run(story(r.url))
            assert proxy.connections == 0
            assert not {"authorization", "cookie"} & set(r.requests[1].headers)
            assert r.requests[1].headers["user-agent"] == "Gatepost/test"


class TestTls:
    def test_a_good_certificate(self, authority: Authority) -> None:
        with receiver(tls=authority.context("localhost"), name="localhost") as r:
            sent = post(r.url, ca=str(authority.file))
        assert sent.code == 200
        assert tuple(sent.timings) == ORDER

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            ("expired", "has expired"), ("self-signed", "is self-signed"), ("other host", "is not for this host"),
            ("unknown", "unknown authority"), ("TLS 1.1", "the TLS handshake failed"),
            ("no TLS", "the TLS handshake failed"),
        ],
    )  # fmt: skip
    def test_a_bad_one(self, kind: str, words: str, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))  # not ours to heed
        tls = authority.context(
            "elsewhere.test" if kind == "other host" else "localhost",
            expired=kind == "expired",
            self_signed=kind == "self-signed",
        )
        if kind == "TLS 1.1":
            with warnings.catch_warnings(action="ignore"):  # Python would rather not
                tls.minimum_version, tls.maximum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1
            tls.set_ciphers("ALL:@SECLEVEL=0")
        behaviour = Raw(lambda connection: connection.send(b"220 smtp.test\r\n")) if kind == "no TLS" else OK
        with receiver(behaviour, tls=None if kind == "no TLS" else tls) as r:
            url = f"https://localhost:{r.port}/"
            sent = post(url, ca="" if kind == "unknown" else str(authority.file))
            assert not r.requests
        assert (sent.code, sent.failure) == (None, "tls")
        assert words in sent.detail

    @pytest.mark.parametrize("state", ["missing", "empty", "truncated"])
    @pytest.mark.parametrize("proxied", [False, True])
    def test_unusable_authorities_are_not_the_receivers_failure(
        self, state: str, proxied: bool, authority: Authority, tmp_path: Path
    ) -> None:
        file = tmp_path / "authorities.pem"
        if state != "missing":
            pem = authority.file.read_bytes()
            file.write_bytes(pem[: len(pem) // 2] if state == "truncated" else b"")
        with receiver(tls=authority.context("localhost")) as r, receiver(Raw(Tunnel(r.port).act)) as proxy:
            url = f"https://localhost:{r.port}/"
            if proxied:
                sent = post("https://hooks.example.com/", Policy(), proxy=proxy.url, ca=str(file))
            else:
                sent = post(url, ca=str(file))
            assert not r.requests
        assert (sent.code, sent.shortage) == (None, "authorities")

    def test_a_handshake_that_does_not_end(self) -> None:
        with receiver(Raw(Connection.wait)) as r:
            sent = post(f"https://127.0.0.1:{r.port}/", timeout=0.5)
        assert sent.failure == "timeout"
        assert "performing the TLS handshake" in sent.detail


class Tunnel:
    """An egress proxy that accepts any target, and connects to one port of the loopback interface."""

    def __init__(self, port: int, code: int = 200, headers: bytes = b"") -> None:
        self._port = port
        self._headers = headers
        self._code = code
        self.asked: list[str] = []

    def act(self, connection: Connection) -> None:
        request = connection.read()
        assert request is not None
        self.asked.append(f"{request.headers[':method']} {request.headers[':path']}")
        connection.send(b"HTTP/1.1 %d Status\r\n%s\r\n" % (self._code, self._headers))
        if self._code == 200:
            self.relay(connection)

    def relay(self, connection: Connection) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as onward:
            ends = {connection.stream: onward, onward: connection.stream}
            while True:
                for one in select.select(list(ends), [], [], 10)[0]:
                    data = one.recv(65536)
                    if not data:
                        return
                    ends[one].sendall(data)


class TestProxy:
    def test_it_does_the_connecting(self, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("no_proxy", "*")
        with receiver(tls=authority.context("hooks.example.com")) as r:
            tunnel = Tunnel(r.port)
            with receiver(Raw(tunnel.act)) as proxy:
                policy = Policy(proxy=proxy.url)
                sent = post("https://hooks.example.com/x", policy, ca=str(authority.file), look_up=at("10.0.0.1"))
        assert sent.code == 200
        assert tunnel.asked == ["CONNECT hooks.example.com:443"]
        assert sent.remote_ip is None, "that would be the proxy's"

    def test_what_it_refuses(self) -> None:
        with receiver(Raw(Tunnel(0, 403).act)) as proxy:
            sent = post("https://hooks.example.com/", Policy(), proxy=proxy.url)
        assert sent[1:4] == (None, "connect", "the egress proxy could not connect")

    def test_it_is_gone(self) -> None:
        sent = post("https://hooks.example.com/", Policy(), proxy=f"http://localhost:{free_port()}")
        assert sent[1:4] == (None, "connect", "the egress proxy could not connect")

    def test_the_certificate_is_the_receivers(self, authority: Authority) -> None:
        with receiver(tls=authority.context("elsewhere.test")) as r, receiver(Raw(Tunnel(r.port).act)) as proxy:
            sent = post("https://hooks.example.com/", Policy(), proxy=proxy.url, ca=str(authority.file))
        assert (sent.code, sent.failure) == (None, "tls")

    def test_the_url_is_still_judged(self) -> None:
        with receiver() as proxy:
            for url in (
                "https://10.0.0.1/",
                "https://[::1]/",
                "https://localhost/",
                "https://metadata.google.internal/",
            ):
                assert post(url, Policy(), proxy=proxy.url).failure == "blocked_target"
            assert proxy.connections == 0


class TestNames:
    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (socket.gaierror(socket.EAI_NONAME, "x"), "does not exist"),
            (socket.gaierror(socket.EAI_AGAIN, "x"), "name servers did not respond"),
            (OSError("127.0.0.1"), "could not be looked up"),
            (UnicodeError("x"), "could not be looked up"),
            (None, "has no public address"),
        ],
    )
    def test_one_that_is_not_found(self, error: Exception | None, words: str) -> None:
        def look_up(_name: str, _port: int) -> list[str]:
            if error:
                raise error
            return []

        sent = post("https://a.test/", look_up=look_up)
        assert (sent.code, sent.failure) == (None, "dns")
        assert words in sent.detail

    def test_by_the_system(self) -> None:
        assert resolver.addresses("127.0.0.1", 80) == ["127.0.0.1"]
        assert set(resolver.addresses("localhost", 80)) - {"::1"} == {"127.0.0.1"}

    def test_once_for_all_that_wait(self) -> None:
        asked: list[tuple[str, int]] = []

        def look_up(name: str, port: int) -> list[str]:
            asked.append((name, port))
            return ["127.0.0.1"]

        async def story(port: int) -> None:
            async with posting(look_up=look_up) as to:
                urls = [f"http://A.test:{port}/{number}" for number in range(50)]
                for _ in range(2):
                    assert {sent.code for sent in await asyncio.gather(*map(to, urls))} == {200}

        with receiver() as r:
            run(story(r.port))
            assert asked == [("a.test", r.port)]

    def test_again_after_a_connection_failed(self) -> None:
        answers = [["127.0.0.2"], ["127.0.0.1"]]

        async def story(url: str) -> list[str | None]:
            async with posting(look_up=lambda *_: answers.pop(0)) as to:
                return [(await to(url)).failure, (await to(url)).failure]

        with receiver() as r:
            assert run(story(f"http://a.test:{r.port}/")) == ["connect", None]

    def test_slow_receivers_delay_no_others(self) -> None:
        """Not the requests of other accounts, and not the end."""
        never = threading.Event()

        def look_up(name: str, _port: int) -> list[str]:
            if name.startswith("slow"):
                never.wait(LIMIT)
            return ["127.0.0.1"]

        async def story(port: int) -> list[SendResult]:
            async with posting(look_up=look_up) as to:
                late = [
                    asyncio.create_task(to(f"http://slow{n}.test:{port}/", seconds=seconds, account="slow"))
                    for seconds in (1.0, 50.0)
                    for n in range(50)
                ]
                await asyncio.sleep(0)
                assert (await to(f"http://quick.test:{port}/", seconds=20.0)).code == 200
                sent = await asyncio.gather(*late[:50])
                assert not any(each.done() for each in late[50:])
                for each in late[50:]:
                    each.cancel()
            assert not never.is_set(), "the sender is closed while names are still looked up"
            return sent

        with receiver() as r:
            sent = run(story(r.port))
        never.set()
        assert {each.failure for each in sent} == {"timeout"}
        assert all("looking up the host name" in each.detail and each.duration_ms == 1000 for each in sent)

    def test_an_account_has_a_share_of_the_look_ups(self) -> None:
        """What is beyond it waits for the account's own names, and fails for no lack of ours."""
        go, asked = threading.Event(), Counter[str]()

        def look_up(name: str, _port: int) -> list[str]:
            asked[name[0]] += 1
            if name.startswith("s"):
                go.wait(LIMIT)
            return ["127.0.0.1"]

        async def story(port: int) -> list[SendResult]:
            async with posting(look_up=look_up) as to:
                slow = [
                    asyncio.create_task(to(f"http://s{number}.test:{port}/", seconds=30, account="slow"))
                    for number in range(2 * resolver.MAX_PER_ACCOUNT)
                ]
                await until(lambda: asked["s"] == resolver.MAX_PER_ACCOUNT)
                for number in range(5):
                    assert (await to(f"http://q{number}.test:{port}/", account="quick")).code == 200
                last = f"http://s{2 * resolver.MAX_PER_ACCOUNT - 1}.test:{port}/"
                shared = asyncio.create_task(to(last, seconds=30, account="quick"))
                await until(lambda: asked["s"] == resolver.MAX_PER_ACCOUNT + 1)
                assert asked == {"s": resolver.MAX_PER_ACCOUNT + 1, "q": 5}, "its own turn, not the other account's"
                go.set()
                return [await shared, *await asyncio.gather(*slow)]

        with receiver() as r:
            assert {each.code for each in run(story(r.port))} == {200}
        assert asked["s"] == 2 * resolver.MAX_PER_ACCOUNT, "each name once"


class TestAccounts:
    def test_a_kept_connection_into_an_allowed_network_serves_no_other_account(self, authority: Authority) -> None:
        """The name leads inside for one account, and for the other it would lead to a public address."""
        allowed = HERE
        answers = [["127.0.0.1"], ["127.0.0.2"]]

        async def story(port: int) -> list[SendResult]:
            sent: list[SendResult] = []
            senders = Senders(
                lambda account: allowed if account == "acme" else Policy(),
                sent.extend,
                ca=str(authority.file),
                look_up=lambda *_: answers.pop(0),
            )
            for account in ("acme", "acme", "other"):
                before = len(sent)
                senders.start(Outgoing(account, f"https://a.test:{port}/", HEADERS, BODY, 5.0, account))
                await until(lambda before=before: len(sent) > before)  # type: ignore[misc]
            assert senders.in_flight == 0
            senders.close()
            return sent

        with receiver(tls=authority.context("a.test")) as r:
            sent = run(story(r.port))
            assert (r.connections, len(r.requests)) == (1, 2)
        assert [(each.key, each.code, each.failure) for each in sent] == [
            ("acme", 200, None), ("acme", 200, None), ("other", None, "dns"),
        ]  # fmt: skip


class TestLife:
    def test_abandoning(self) -> None:
        closed = threading.Event()
        never = threading.Event()

        def holds(connection: Connection) -> None:
            connection.read()
            if connection.read() is None:
                closed.set()

        def look_up(_name: str, _port: int) -> list[str]:
            never.wait(LIMIT)
            return ["127.0.0.1"]

        async def story(held: str, good: str) -> None:
            heard: list[SendResult] = []
            own = Sender(DEV, heard.extend, look_up=look_up)
            try:
                for key, url in (("held", held), ("waits", "http://slow.test/"), ("blocked", "ftp://a")):
                    own.start(Outgoing(key, url, HEADERS, BODY, 20.0))
                assert own.in_flight == 3
                await until(lambda: len(heard) == 1)
                assert (heard[0].key, own.in_flight) == ("blocked", 2)
                await until(lambda: bool(r.requests))
                assert own.abandon() == ["held", "waits"]
                assert own.in_flight == 0
                never.set()
                assert await asyncio.to_thread(closed.wait, 20), "its connection is closed"
                own.start(Outgoing("next", good, HEADERS, BODY, 20.0))
                await until(lambda: len(heard) == 2)
                assert [each.key for each in heard] == ["blocked", "next"], "nothing more is heard of them"
            finally:
                own.close()

        with receiver(Raw(holds)) as r, receiver() as fine:
            run(story(r.url, fine.url))

    def test_ended_attempts_are_reported_before_close(self) -> None:
        async def story() -> list[SendResult]:
            heard: list[SendResult] = []
            sender = Sender(DEV, heard.extend)
            sender.start(Outgoing(1, "ftp://a", HEADERS, BODY, 1.0))
            sender.start(Outgoing(2, "http://127.0.0.1:1024/", HEADERS, BODY, 1.0))
            sender.close()
            return heard

        assert [sent.key for sent in run(story())] == [1]

    def test_a_kept_connection_that_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It does not keep the loop busy, and the next request does not go into it."""
        wakings: list[float] = []
        turn = CurlLoop._iterate

        def counted(curl_loop: CurlLoop) -> None:
            wakings.append(time.monotonic())
            turn(curl_loop)

        monkeypatch.setattr(CurlLoop, "_iterate", counted)
        leave = threading.Event()

        def leaves(connection: Connection) -> None:
            connection.read()
            connection.answer(OK)
            leave.wait(LIMIT)

        async def story(url: str) -> None:
            async with posting() as to:
                await asyncio.gather(to(url), to(url))
                before = len(wakings)
                leave.set()
                await until(lambda: len(wakings) > before)
                await asyncio.sleep(0.2)
                assert len(wakings) - before < 10
                assert (await to(url)).code == 200

        with receiver(Raw(leaves)) as r:
            run(story(r.url))

    def test_a_defect_ends_the_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """libcurl does nothing more after it: better no worker than one that hangs."""

        def fails(*_: object) -> None:
            raise LookupError

        monkeypatch.setattr(CurlLoop, "_watch", fails)
        with receiver() as r, pytest.raises(RuntimeError, match="stopped before"):
            post(r.url)

    def test_no_file_is_left_open(self) -> None:
        def closes(request: Request) -> Answer:
            return 200, {"Connection": "close"} if request.headers[":path"] == "/close" else {}, b""

        async def story(port: int, hung: str) -> None:
            for _ in range(3):
                async with posting(look_up=at("127.0.0.1", "::1")) as to:
                    urls = [f"http://a.test:{port}/{path}" for path in ("close", "keep")] * 20
                    urls += [hung] * 20 + [f"http://127.0.0.1:{free_port()}/"] * 5
                    await asyncio.gather(*(to(url, seconds=0.3) for url in urls))

        with receiver(closes) as r, receiver(Raw(silent)) as hung:
            run(story(r.port, hung.url))
            before = _open_files()
            run(story(r.port, hung.url))
            wait_until(lambda: _open_files() <= before, "the sockets to be closed")

    def test_numbers_of_sockets_beyond_1024(self) -> None:
        with contextlib.ExitStack() as stack:
            null = os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, null)
            for _ in range(1100):
                stack.callback(os.close, os.dup(null))
            with receiver() as r:
                assert os.dup(null) > 1024
                assert post(r.url).code == 200
                assert post(f"http://localhost:{r.port}/").code == 200


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
