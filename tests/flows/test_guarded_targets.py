"""Outside of --dev: only public https targets, judged when they are defined and again when they are connected to.

The names of these tests are found by a look-up of our own, so that they lead where a test wants them to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import service
from tests.flows.test_delivery import Platform
from tests.receiver import Authority, Receiver, receiver
from tests.service import Service

pytestmark = pytest.mark.xdist_group("guarded")

ALLOWED = ("allowed", "itself", "certified")  # accounts that the operator allows this machine to
INSIDE = "inside.example.com"  # leads to this machine

_NAMES = f"""
import socket
found = socket.getaddrinfo
def look_up(host, *arguments, **options):
    return found("127.0.0.1" if host == {INSIDE!r} else host, *arguments, **options)
socket.getaddrinfo = look_up
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def guarded(directory: Path, authority: Authority, **settings: str) -> Iterator[Service]:
    """A service as it runs in earnest, but for where INSIDE leads and whom it trusts."""
    (directory / "names").mkdir()
    (directory / "names" / "sitecustomize.py").write_text(_NAMES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory / "names"))
        ca = str(authority.file)
        with service.running(directory / "data", dev=False, intake="http", egress_ca=ca, **settings) as running:
            yield running


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Service]:
    with guarded(tmp_path_factory.mktemp("strict"), authority) as running:
        yield running


@pytest.fixture(scope="module")
def friendly(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Service]:
    """The operator has receivers of its own on this machine."""
    with guarded(
        tmp_path_factory.mktemp("friendly"),
        authority,
        allow_networks=" ".join(f"{name}=127.0.0.0/8" for name in ALLOWED),
    ) as running:
        yield running


@pytest.fixture
def inside(authority: Authority) -> Iterator[Receiver]:
    with receiver(tls=authority.context(INSIDE), name=INSIDE) as found:
        yield found


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://example.com/hooks", "https://"),
        ("ftp://example.com/", "https://"),
        ("https://user:word@example.com/", "user or password"),
        ("https://example.com/#top", "fragment"),
        ("https://example.com:25/", "port"),
        ("https://exämple.com/", "xn--"),
        ("https://example.com/" + "a" * 2048, "2048"),
        ("https://example.com/a\r\nwebhook-id: x", "control character"),
        ("https://127.0.0.1/", "loopback"),
        ("https://10.1.2.3/", "private network"),
        ("https://[fd00::1]/", "private network"),
        ("https://[::ffff:10.0.0.1]/", "IPv4 address written as IPv6"),
        ("https://[64:ff9b::7f00:1]/", "IPv4 address written as IPv6"),
        ("https://169.254.169.254/latest/meta-data/", "metadata"),
        ("https://metadata.google.internal/", "metadata"),
        ("https://2130706433/", "usual form"),
        ("https://0177.0.0.1/", "usual form"),
        ("https://127.1/", "usual form"),
        ("https://localhost/", "loopback"),
        ("https://api.localhost/", "loopback"),
        ("https://billing/", "full host name"),
        ("https://billing.internal/", "private network"),
    ],
)
def test_what_no_endpoint_can_have(strict: Service, account_name: str, url: str, words: str) -> None:
    platform = Platform(strict, account_name)
    endpoint = platform.endpoint("https://example.com/hooks")
    for body in ({"url": url}, {"id": endpoint["id"], "url": url}):
        result = platform.post("/webhooks/endpoints", body, 400)
        assert result["errors"][0]["pointer"] == "/url"
        assert words in result["detail"]
    assert platform.redefine(endpoint)["url"] == "https://example.com/hooks"


def test_a_name_that_leads_inside_is_blocked_each_time_it_is_tried(
    strict: Service, account_name: str, inside: Receiver
) -> None:
    """The definition cannot detect it. The attempts follow the plan, and do not reveal the address."""
    platform = Platform(strict, account_name)
    platform.connect(inside.url, retry_schedule=[1])
    delivery = platform.send()
    first = platform.once(delivery, "pending", 1)
    assert first["retries"]["plan"][0]["because"] == "schedule"
    record = platform.once(delivery, "failed")
    assert inside.connections == 0
    assert (record["ended_reason"], len(record["attempts"])) == ("attempts_exhausted", 2)
    for attempt in record["attempts"]:
        assert (attempt["outcome"], attempt["failure"], attempt["response_code"]) == ("failed", "dns", None)
        assert (attempt["remote_ip"], attempt["timings"], attempt["duration_ms"]) == (None, {}, 1000)
        assert attempt["detail"] == "the host name does not exist or has no public address"
    shown = platform.read(id=delivery, include="payload,responses").text
    assert "127.0.0.1" not in shown
    assert [each["id"] for each in platform.records(failure="dns")] == [delivery]


def test_a_network_that_the_operator_allows(friendly: Service, account_name: str, inside: Receiver) -> None:
    platform = Platform(friendly, "allowed")
    platform.connect(inside.url)
    record = platform.once(platform.send(), "succeeded")
    [attempt] = record["attempts"]
    assert attempt["remote_ip"] == "127.0.0.1"
    assert 0 < attempt["timings"]["connect_ms"] <= attempt["timings"]["tls_ms"] <= attempt["timings"]["first_byte_ms"]
    [request] = inside.requests
    assert request.headers["host"] == f"{INSIDE}:{inside.port}"
    result = platform.post("/webhooks/endpoints", {"url": "https://10.0.0.1/"}, 400)
    assert "private network" in result["detail"], "that one only"
    other = Platform(friendly, account_name)
    other.connect(inside.url, retry_schedule=[])
    [refused] = other.once(other.send(), "failed")["attempts"]
    assert (refused["failure"], refused["remote_ip"], len(inside.requests)) == ("dns", None, 1), "to that account only"
    for url in ("https://127.0.0.1/", "https://billing.internal/"):
        assert platform.endpoint(url)["url"] == url
        assert other.post("/webhooks/endpoints", {"url": url}, 400)["errors"][0]["pointer"] == "/url"


def test_a_name_that_leads_to_gatepost_itself_is_blocked_though_the_network_is_allowed(
    friendly: Service,
) -> None:
    platform = Platform(friendly, "itself")
    port = friendly.ops.rpartition(":")[2]
    platform.connect(f"https://{INSIDE}:{port}/events", retry_schedule=[])
    [attempt] = platform.once(platform.send(), "failed")["attempts"]
    assert (attempt["failure"], attempt["remote_ip"]) == ("dns", None)


def test_a_certificate_is_always_verified(friendly: Service, authority: Authority) -> None:
    platform = Platform(friendly, "certified")
    with receiver(tls=authority.context(INSIDE, self_signed=True), name=INSIDE) as found:
        platform.connect(found.url, retry_schedule=[])
        [attempt] = platform.once(platform.send(), "failed")["attempts"]
        assert found.requests == []
    assert (attempt["failure"], attempt["response_code"]) == ("tls", None)
    assert "self-signed" in attempt["detail"]
    for name in ("verify", "insecure", "tls_verify"):
        body = {"url": "https://example.com/", name: False}
        assert "unknown member" in platform.post("/webhooks/endpoints", body, 400)["detail"]
