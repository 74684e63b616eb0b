"""Key sets of others: fetched from a judged address, a little and soon; remembered, and asked for again with patience.

The servers are real, on loopback. What a host name leads to is told by the test.
"""

import asyncio
import contextlib
import errno
import json
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pycurl  # type: ignore[import-untyped]
import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey

from gatepost.egress import remote_jwks
from gatepost.egress.address_guard import Policy
from gatepost.egress.jwks_cache import (
    FRESH,
    MAX_SETS,
    RETRY_AFTER,
    REVALIDATED,
    STALE,
    JwksCache,
    KeySetMissing,
    KeySetRequest,
)
from gatepost.egress.remote_jwks import MAX_BYTES, KeyFetcher
from tests.assertions import signed
from tests.receiver import Answer, Authority, Raw, Request, receiver, silent
from tests.waiting import LIMIT

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
DEV = Policy(dev=True)
HERE = Policy(allow_networks=(ip_network("127.0.0.0/8"),))  # as an operator allows an internal network
KEY, OTHER = ECKey.generate_key("P-256", {"kid": "one"}), ECKey.generate_key("P-256", {"kid": "two"})
PUBLIC: dict[str, Any] = dict(KEY.as_dict(private=False))


def jwks(*keys: Any, **more: Any) -> bytes:
    shown = [key if isinstance(key, dict) else key.as_dict(private=False) for key in keys]
    return json.dumps({"keys": shown} | more).encode()


SET: Answer = (200, {"Content-Type": "application/jwk-set+json"}, jwks(KEY))


def fetched(url: str, policy: Policy = DEV, look_up: Any = None, **options: Any) -> list[str]:
    """The ids of the keys that are known after one fetch."""
    foreign = JwksCache()
    if look_up is not None:
        options["look_up"] = look_up
    asyncio.run(KeyFetcher(foreign, lambda _: policy, lambda: NOW, **options).fetch(KeySetRequest(url)))
    return known(foreign, url)


def known(foreign: JwksCache, url: str, at: datetime = NOW) -> list[str]:
    return [key["kid"] for key in foreign.keys_for("a.b.c", url, at)["keys"]]


def leads_to(*addresses: str) -> Callable[[str, int], list[str]]:
    return lambda _name, _port: list(addresses)


class TestFetching:
    def test_a_key_set(self) -> None:
        with receiver(SET) as server:
            assert fetched(server.url) == ["one"]
            (request,) = server.requests
        assert (request.headers[":method"], request.headers[":path"], request.body) == ("GET", "/hooks", b"")
        assert set(request.headers) - {":method", ":path"} == {"host", "accept", "user-agent"}
        assert "application/json" in request.headers["accept"]

    def test_no_cookie_is_kept(self) -> None:
        with receiver((200, {"Set-Cookie": "a=b; Path=/"}, jwks(KEY))) as server:
            foreign = JwksCache()

            async def twice() -> None:
                fetcher = KeyFetcher(foreign, lambda _: DEV, lambda: NOW)
                await fetcher.fetch(KeySetRequest(server.url))
                await fetcher.fetch(KeySetRequest(server.url))

            asyncio.run(twice())
            assert [request.headers.get("cookie") for request in server.requests] == [None, None]

    def test_only_keys_that_verify_are_kept(self) -> None:
        others = [
            OTHER.as_dict(private=True),
            OctKey.generate_key(256, {"kid": "secret"}).as_dict(private=True),
            PUBLIC | {"kid": "enc", "use": "enc"},
            PUBLIC | {"kid": "hmac", "alg": "HS256"},
            PUBLIC | {"kid": "off the curve", "y": OTHER.as_dict(private=False)["y"]},
            ECKey.generate_key("P-384", {"kid": "p384"}).as_dict(private=False),
            {"kid": "nothing"},
            {},
        ]
        rsa = RSAKey.generate_key(2048, {"kid": "rsa"})
        with receiver((200, {}, jwks(*others, rsa, PUBLIC | {"use": "sig"}))) as server:
            assert fetched(server.url) == ["rsa", "one"]

    def test_what_else_a_set_says_does_not_count(self) -> None:
        with receiver((200, {"Content-Type": "text/html"}, jwks(KEY, jku="https://evil.example"))) as server:
            assert fetched(server.url) == ["one"]

    @pytest.mark.parametrize(
        "body",
        [
            b"", b"<html>", b"{", b"null", b"[]", b'"keys"', b"5", b"{}", b'{"keys": null}', b'{"keys": {}}',
            b'{"keys": "k"}', b"\xff\xfe", b"[" * 100_000, b'{"keys": [' + b"[" * 5000 + b"]" * 5000 + b"]}",
            jwks(KEY) + b"x",
        ],
        ids=range(15),
    )  # fmt: skip
    def test_what_is_no_key_set(self, body: bytes) -> None:
        with receiver((200, {}, body)) as server:
            assert fetched(server.url) == []

    @pytest.mark.parametrize("odd", [None, 5, "key", [], {"kty": []}, {"kty": "EC", "crv": "P-256", "x": 1, "y": {}}])
    def test_what_is_no_key(self, odd: Any) -> None:
        with receiver((200, {}, json.dumps({"keys": [odd, PUBLIC]}).encode())) as server:
            assert fetched(server.url) == ["one"]

    @pytest.mark.parametrize("status", [201, 203, 206, 301, 400, 401, 404, 500, 503])
    def test_another_status(self, status: int) -> None:
        with receiver((status, {}, jwks(KEY))) as server:
            assert fetched(server.url) == []

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_redirects_are_not_followed(self, status: int) -> None:
        with receiver(SET) as target, receiver((status, {"Location": target.url}, jwks(KEY))) as server:
            assert fetched(server.url) == []
            assert (len(server.requests), len(target.requests)) == (1, 0)

    def test_the_largest_there_may_be(self) -> None:
        room = MAX_BYTES - len(jwks(KEY, fill=""))
        for more, found in ((0, ["one"]), (1, [])):
            with receiver((200, {}, jwks(KEY, fill="a" * (room + more)))) as server:
                assert fetched(server.url) == found

    def test_one_without_end(self) -> None:
        def pours(connection: Any) -> None:
            connection.read()
            connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                while True:
                    connection.send(b" " * 65536)

        with receiver(Raw(pours)) as server:
            assert fetched(server.url) == []

    def test_compressed_is_not_taken(self) -> None:
        """Nothing is unpacked, so nothing can swell."""
        import gzip

        with receiver((200, {"Content-Encoding": "gzip"}, gzip.compress(jwks(KEY)))) as server:
            assert fetched(server.url) == []
            assert "accept-encoding" not in server.requests[0].headers

    def test_nobody_is_there(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        assert fetched(url) == []


class TestAddresses:
    def test_the_address_is_the_one_that_was_judged(self) -> None:
        """The name is looked up once; the system would find nothing, or something else, under it."""
        asked: list[tuple[str, int]] = []

        def look_up(name: str, port: int) -> list[str]:
            asked.append((name, port))
            return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.3"]

        with receiver(SET, host="127.0.0.2", name="keys.example") as server:
            assert fetched(server.url, look_up=look_up) == ["one"]
            assert asked == [("keys.example", server.port)]
            assert server.requests[0].headers["host"] == f"keys.example:{server.port}"

    def test_a_name_that_is_turned_to_another_address_is_judged_again(self) -> None:
        answers, foreign = [["127.0.0.1"], ["169.254.169.254"]], JwksCache()
        with receiver(SET, name="keys.example") as server:

            async def twice() -> None:
                fetcher = KeyFetcher(foreign, lambda _: DEV, lambda: NOW, look_up=lambda *_: answers.pop(0))
                for _ in range(2):
                    await fetcher.fetch(KeySetRequest(server.url))

            asyncio.run(twice())
            assert (answers, server.connections) == ([], 1)
            assert known(foreign, server.url) == ["one"], "what was known stays"

    @pytest.mark.parametrize(
        "address",
        [
            "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "169.254.1.1", "100.64.0.1",
            "0.0.0.0", "224.0.0.1", "255.255.255.255", "192.0.2.1", "::", "::1", "fc00::1", "fe80::1", "fd00:ec2::254",
            "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001:db8::1", "not an address", "127.1", "0x7f000001",
        ],
    )  # fmt: skip
    def test_where_no_public_server_is(self, address: str) -> None:
        with receiver(SET) as server:
            url = f"https://keys.example:{server.port}/jwks"
            for found in ([address], ["93.184.216.34", address], [address, "93.184.216.34"]):
                assert fetched(url, Policy(), leads_to(*found)) == []
            assert server.connections == 0

    @pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "0.0.0.0"])
    def test_where_not_even_a_developers_server_is(self, address: str) -> None:
        with receiver(SET) as server:
            assert fetched(f"http://keys.example:{server.port}/", DEV, leads_to(address)) == []
            assert server.connections == 0

    @pytest.mark.parametrize("found", [("127.0.0.1", "169.254.169.254"), ("169.254.169.254", "127.0.0.1")])
    def test_one_bad_address_spoils_them_all(self, found: tuple[str, ...]) -> None:
        with receiver(SET) as server:
            assert fetched(f"http://keys.example:{server.port}/", DEV, leads_to(*found)) == []
            assert server.connections == 0

    @pytest.mark.parametrize(
        "url",
        [
            "http://127.0.0.1:{port}/", "https://127.0.0.1:{port}/", "https://127.1:{port}/", "https://localhost:{port}/",
            "https://2130706433:{port}/", "https://0177.0.0.1:{port}/", "https://[::1]:{port}/",
            "https://[::ffff:127.0.0.1]:{port}/", "https://user@keys.example:{port}/", "https://keys.example:22/",
            "file:///etc/hostname", "ftp://keys.example/", "gopher://keys.example/", "https://", "https:///x", "//x/y",
            "", "x" * 3000, "https://keys.example:{port}/#part", "https://keys\u3002example/", "https://keys.example/\r\nx",
            "https://metadata.google.internal/",
        ],
        ids=range(22),
    )  # fmt: skip
    def test_urls_that_are_not_fetched(self, url: str) -> None:
        asked: list[str] = []

        def look_up(name: str, _port: int) -> list[str]:
            asked.append(name)
            return ["127.0.0.1"]

        with receiver(SET) as server:
            assert fetched(url.format(port=server.port), Policy(), look_up) == []
            assert (server.connections, asked) == (0, [])

    def test_never_ourselves(self) -> None:
        with receiver(SET) as server:
            ours = Policy(dev=True, own=(("127.0.0.1", server.port), ("gatepost.example", server.port)))
            for url in (server.url, f"http://localhost:{server.port}/", f"http://gatepost.example:{server.port}/"):
                assert fetched(url, ours, leads_to("127.0.0.1")) == []
            for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "127.0.0.9"):
                assert fetched(f"http://keys.example:{server.port}/", ours, leads_to(address)) == []
            assert server.connections == 0

    def test_the_socket_is_the_last_to_be_asked(self) -> None:
        """Whatever libcurl would connect to."""
        open_socket = remote_jwks._Opener(Policy()).open
        for address in ("127.0.0.1", "169.254.169.254"):
            target = (socket.AF_INET, socket.SOCK_STREAM, 6, (address, 443))
            assert open_socket(0, target) == pycurl.SOCKET_BAD
        opened = open_socket(0, (socket.AF_INET, socket.SOCK_STREAM, 6, ("93.184.216.34", 443)))
        socket.socket(fileno=opened).close()

    @pytest.mark.parametrize("error", [socket.gaierror(-2, "no such name"), OSError(), UnicodeError("label too long")])
    def test_a_name_that_cannot_be_looked_up(self, error: Exception) -> None:
        def look_up(_name: str, _port: int) -> list[str]:
            raise error

        assert fetched("http://keys.example:8000/", DEV, look_up) == []
        assert fetched("http://keys.example:8000/", DEV, leads_to()) == []

    def test_a_shortage_of_our_own_says_nothing_about_the_key_set(self) -> None:
        """The caller is asked to come again. Were it recorded as tried, its client would be refused for a while."""

        def look_up(_name: str, _port: int) -> list[str]:
            raise OSError(errno.EMFILE, "Too many open files")

        foreign, url = JwksCache(), "http://keys.example:8000/"
        fetcher = KeyFetcher(foreign, lambda _: DEV, lambda: NOW, look_up=look_up)

        async def test() -> bool:
            return await fetcher.fetch(KeySetRequest(url))

        assert not asyncio.run(test())
        assert not foreign.was_tried(KeySetRequest(url), NOW)

    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    def test_an_address_as_host(self, host: str) -> None:
        with receiver(SET, host=host) as server:
            assert fetched(server.url) == ["one"]

    @pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"])
    def test_a_proxy_of_the_environment_is_not_used(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with receiver(SET) as proxy, receiver(SET) as server:
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            assert fetched(server.url) == ["one"]
            assert (proxy.connections, server.connections) == (0, 1)

    def test_the_operators_proxy_is(self) -> None:
        """It judges names and addresses: nothing is looked up here."""
        with receiver(SET) as proxy:
            policy = Policy(dev=True, proxy=f"http://127.0.0.1:{proxy.port}")
            assert fetched("http://keys.example:8000/jwks", policy, leads_to("10.0.0.1")) == ["one"]
            assert proxy.requests[0].headers[":path"] == "http://keys.example:8000/jwks"


class TestEncryption:
    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path)

    def ask(self, authority: Authority, *names: str, **kind: bool) -> list[str]:
        with receiver(SET, tls=authority.context(*names, **kind), name="keys.example") as server:
            return fetched(server.url, HERE, leads_to("127.0.0.1"), ca=str(authority.file))

    def test_by_name(self, authority: Authority) -> None:
        assert self.ask(authority, "keys.example") == ["one"]

    def test_a_certificate_of_another(self, authority: Authority) -> None:
        assert self.ask(authority, "other.example") == []
        assert self.ask(authority, "127.0.0.1") == []

    def test_a_certificate_of_an_unknown_authority(self, authority: Authority) -> None:
        assert self.ask(authority, "keys.example", self_signed=True) == []
        assert self.ask(authority, "keys.example", expired=True) == []

    def test_an_authority_that_we_do_not_know(self, authority: Authority, tmp_path: Path) -> None:
        stranger = Authority(tmp_path / "stranger")
        with receiver(SET, tls=stranger.context("keys.example"), name="keys.example") as server:
            assert fetched(server.url, HERE, leads_to("127.0.0.1"), ca=str(authority.file)) == []

    def test_authorities_that_cannot_be_read_are_a_shortage(self, authority: Authority, tmp_path: Path) -> None:
        """The set does not count as tried, so it can be fetched as soon as the file is back."""
        foreign, file = JwksCache(), tmp_path / "authorities.pem"
        with receiver(SET, tls=authority.context("keys.example"), name="keys.example") as server:
            fetcher = KeyFetcher(foreign, lambda _: HERE, lambda: NOW, ca=str(file), look_up=leads_to("127.0.0.1"))
            request = KeySetRequest(server.url)

            async def test() -> tuple[bool, bool]:
                without = await fetcher.fetch(request)
                file.write_bytes(authority.file.read_bytes())
                return without, await fetcher.fetch(request)

            assert asyncio.run(test()) == (False, True)
            assert known(foreign, server.url) == ["one"]

    def test_the_proxy_has_a_certificate_of_the_operators_authority(self, authority: Authority) -> None:
        with receiver(SET, tls=authority.context("localhost")) as proxy:
            policy = Policy(dev=True, proxy=f"https://localhost:{proxy.port}")
            assert fetched("http://keys.example:8000/jwks", policy, ca=str(authority.file)) == ["one"]

    def test_plain_http_is_not_taken(self, authority: Authority) -> None:
        with receiver(SET, name="keys.example") as server:
            assert fetched(server.url, HERE, leads_to("127.0.0.1"), ca=str(authority.file)) == []
            assert server.connections == 0


class TestTogether:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fetch ends because its server answers or closes, not because the machine is slow."""
        monkeypatch.setattr(remote_jwks, "TIMEOUT", LIMIT)

    def test_many_who_wait_fetch_once(self) -> None:
        foreign = JwksCache()
        with receiver(SET) as server:

            async def at_once() -> None:
                fetcher = KeyFetcher(foreign, lambda _: DEV, lambda: NOW)
                await asyncio.gather(*(fetcher.fetch(KeySetRequest(server.url)) for _ in range(50)))
                assert len(server.requests) == 1
                await fetcher.fetch(KeySetRequest(server.url))

            asyncio.run(at_once())
            assert known(foreign, server.url) == ["one"]
            assert len(server.requests) == 2

    def test_one_that_gives_up_waiting_does_not_stop_the_others(self) -> None:
        foreign = JwksCache()
        with receiver(SET) as server:

            async def at_once() -> None:
                fetcher = KeyFetcher(foreign, lambda _: DEV, lambda: NOW)
                first, second = (asyncio.create_task(fetcher.fetch(KeySetRequest(server.url))) for _ in range(2))
                await asyncio.sleep(0)
                first.cancel()
                await second

            asyncio.run(at_once())
            assert known(foreign, server.url) == ["one"]

    @pytest.mark.parametrize("hosts", [1, 160])
    def test_tarpits_of_one_account_delay_no_other(self, hosts: int) -> None:
        """160 clients of one account, whose servers take connections and never answer."""
        foreign = JwksCache()
        with receiver(Raw(silent)) as tarpit, receiver(SET) as server:

            async def at_once() -> None:
                fetcher = KeyFetcher(foreign, lambda _: DEV, lambda: NOW, look_up=lambda _host, _port: ["127.0.0.1"])
                urls = [f"http://t{number % hosts}.example:{tarpit.port}/{number}" for number in range(160)]
                waiting = [
                    asyncio.create_task(fetcher.fetch(KeySetRequest(url, "greedy", f"cli_{number}")))
                    for number, url in enumerate(urls)
                ]
                await asyncio.sleep(0)
                others = [KeySetRequest(server.url, "acme"), KeySetRequest(server.url, "other")]
                if hosts == 1:  # the account's own servers elsewhere
                    others.append(KeySetRequest(f"http://localhost:{server.port}/", "greedy"))
                for wanted in others:
                    assert await fetcher.fetch(wanted)
                assert not any(task.done() for task in waiting)
                tarpit.close()
                for task in waiting:
                    task.cancel()

            asyncio.run(at_once())
        assert foreign.keys_for("a.b.c", server.url, NOW, account="acme")["keys"]

    def test_a_host_that_one_account_keeps_busy_answers_another(self) -> None:
        """Each account has a share of its own of every host."""
        ended = threading.Event()

        def answer(request: Request) -> Answer:
            if "fast" not in request.headers[":path"]:
                ended.wait()
            return SET

        with receiver(answer) as server:

            async def at_once() -> None:
                fetcher = KeyFetcher(JwksCache(), lambda _: DEV, lambda: NOW)
                slow = [
                    asyncio.create_task(fetcher.fetch(KeySetRequest(f"{server.url}/{number}", "greedy")))
                    for number in range(50)
                ]
                await asyncio.sleep(0)
                assert await fetcher.fetch(KeySetRequest(f"{server.url}/fast", "acme"))
                assert not any(task.done() for task in slow)
                ended.set()
                for task in slow:
                    task.cancel()

            asyncio.run(at_once())

    def test_a_look_up_that_never_ends_has_a_time_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remote_jwks, "TIMEOUT", 0.05)
        for_ever = threading.Event()

        def look_up(_name: str, _port: int) -> list[str]:
            for_ever.wait()
            return ["127.0.0.1"]

        try:
            assert fetched("http://keys.example:8000/", DEV, look_up) == []
        finally:
            for_ever.set()

    def test_servers_that_do_not_respond_delay_no_other_fetch(self) -> None:
        foreign = JwksCache()
        with contextlib.ExitStack() as those:
            dead = [those.enter_context(receiver(Raw(silent))) for _ in range(remote_jwks.MAX_PER_HOST - 1)]
            with receiver(SET) as server:

                async def at_once() -> None:
                    fetcher = KeyFetcher(foreign, lambda _: DEV, lambda: NOW)
                    waiting = [asyncio.create_task(fetcher.fetch(KeySetRequest(each.url))) for each in dead]
                    await asyncio.sleep(0)
                    await fetcher.fetch(KeySetRequest(server.url))
                    assert not any(task.done() for task in waiting)
                    for each in dead:
                        each.close()
                    await asyncio.gather(*waiting)

                asyncio.run(at_once())
                assert known(foreign, server.url) == ["one"]


URL = "https://keys.example/jwks"
SOON = timedelta(seconds=1)


def of(key: Any, **header: Any) -> str:
    return signed(key, {"iss": "x"}, **header)


class TestRemembering:
    def ids(self, foreign: JwksCache, token: str, at: datetime) -> list[str] | None:
        """Those to verify with; None when they must be fetched first."""
        with contextlib.suppress(KeySetMissing):
            return [key["kid"] for key in foreign.keys_for(token, URL, at)["keys"]]
        return None

    def having(self, *keys: Any) -> JwksCache:
        foreign = JwksCache()
        foreign.put(URL, json.loads(jwks(*keys)), NOW)
        return foreign

    def test_what_is_not_known_is_wanted(self) -> None:
        with pytest.raises(KeySetMissing) as wanted:
            JwksCache().keys_for(of(KEY), URL, NOW)
        assert wanted.value.request == KeySetRequest(URL)

    def test_what_is_known_is_used_while_it_is_fresh(self) -> None:
        foreign = self.having(KEY)
        assert self.ids(foreign, of(KEY), NOW + FRESH - SOON) == ["one"]
        assert not foreign.due

    def test_what_is_no_longer_fresh_serves_while_it_is_fetched_again(self) -> None:
        foreign = self.having(KEY)
        for at in (NOW + FRESH, NOW + REVALIDATED - SOON):
            assert self.ids(foreign, of(KEY), at) == ["one"]
            assert foreign.due.popitem() == (("", URL), KeySetRequest(URL))
        assert self.ids(foreign, of(KEY), NOW + REVALIDATED) is None
        assert self.ids(foreign, of(OTHER), NOW + FRESH) is None, "one that names an unknown key waits for it"
        assert not foreign.due

    def test_a_stale_key_set_is_fetched_in_the_background(self) -> None:
        with receiver((200, {}, jwks(OTHER))) as server:
            foreign = JwksCache()
            foreign.put(server.url, json.loads(jwks(KEY)), NOW, account="acme")

            async def story() -> list[str]:
                fetcher = KeyFetcher(foreign, lambda _: DEV, lambda: NOW + FRESH)
                foreign.keys_for(of(KEY), server.url, NOW + FRESH, account="acme")
                fetcher.refresh()
                await asyncio.gather(*fetcher._tasks.values())
                found = foreign.keys_for(of(OTHER), server.url, NOW + FRESH, account="acme")
                return [key["kid"] for key in found["keys"]]

            assert asyncio.run(story()) == ["two"]

    def test_each_account_has_its_own(self) -> None:
        """What one account may reach, another may not."""
        foreign = JwksCache()
        foreign.put(URL, json.loads(jwks(KEY)), NOW, account="acme")
        assert foreign.keys_for(of(KEY), URL, NOW, account="acme")["keys"]
        with pytest.raises(KeySetMissing):
            foreign.keys_for(of(KEY), URL, NOW, account="other")

    def test_no_account_makes_us_forget_the_sets_of_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gatepost.egress.jwks_cache.MAX_SETS", 5)
        foreign = JwksCache()
        foreign.put(URL, json.loads(jwks(KEY)), NOW, account="acme")
        for number in range(20):
            foreign.put(f"{URL}/{number}", None, NOW, account="greedy")
        assert foreign.keys_for(of(KEY), URL, NOW, account="acme")["keys"]

    def test_an_unknown_key_asks_again_but_not_again_and_again(self) -> None:
        foreign = self.having(KEY)
        assert self.ids(foreign, of(OTHER), NOW + RETRY_AFTER - SOON) == ["one"]
        at = NOW + RETRY_AFTER
        assert self.ids(foreign, of(OTHER), at) is None
        foreign.put(URL, json.loads(jwks(KEY)), at)
        assert self.ids(foreign, of(OTHER), at + RETRY_AFTER - SOON) == ["one"]
        foreign.put(URL, json.loads(jwks(OTHER)), at + RETRY_AFTER)
        assert self.ids(foreign, of(OTHER), at + RETRY_AFTER) == ["two"]
        assert self.ids(foreign, of(KEY), at + RETRY_AFTER) == ["two"], "and the old one is gone"

    def test_a_token_that_names_no_key_asks_for_nothing(self) -> None:
        foreign = self.having(KEY)
        assert self.ids(foreign, of(OTHER, kid=None), NOW + RETRY_AFTER) == ["one"]
        assert self.ids(foreign, "no token", NOW + RETRY_AFTER) == ["one"]

    def test_a_set_that_cannot_be_had_is_not_asked_for_all_the_time(self) -> None:
        foreign = JwksCache()
        foreign.put(URL, None, NOW)
        assert self.ids(foreign, of(KEY), NOW + RETRY_AFTER - SOON) == []
        assert self.ids(foreign, of(KEY), NOW + RETRY_AFTER) is None

    def test_what_is_known_serves_for_a_day_while_its_owner_does_not_answer(self) -> None:
        foreign = self.having(KEY)
        at = NOW + STALE - SOON
        foreign.put(URL, None, at)
        assert self.ids(foreign, of(KEY), at) == ["one"]
        foreign.put(URL, "no key set", NOW + STALE)
        assert self.ids(foreign, of(KEY), NOW + STALE) == []

    def test_a_set_without_keys_is_believed(self) -> None:
        foreign = self.having(KEY)
        foreign.put(URL, {"keys": []}, NOW + SOON)
        assert self.ids(foreign, of(KEY), NOW + SOON) == []

    def test_not_without_end(self) -> None:
        """The oldest goes when a new one comes, and no other."""
        foreign = self.having(KEY)
        for number in range(MAX_SETS):
            foreign.put(f"{URL}/{number}", {"keys": []}, NOW)
        assert len(foreign._sets[""]) == foreign._count == MAX_SETS
        assert self.ids(foreign, of(KEY), NOW) is None
        foreign.put(f"{URL}/0", json.loads(jwks(KEY)), NOW)
        assert known(foreign, f"{URL}/0") == ["one"]
        assert known(foreign, f"{URL}/1") == []
