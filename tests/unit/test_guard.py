"""The guard: every kind of address that is no receiver's, every spelling that hides one, and what is allowed."""

import socket
from ipaddress import ip_network

import pytest

from gatepost.egress import address_guard
from gatepost.egress.address_guard import Policy, address_problem, url_problem

STRICT = Policy()
DEV = Policy(dev=True)

REFUSED = {
    "unspecified": ["0.0.0.0", "0.0.0.1", "0.255.255.255", "::"],
    "loopback": ["127.0.0.1", "127.0.0.2", "127.255.255.255", "::1"],
    "private network": [
        "10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255",
        "fc00::1", "fdff:ffff::1", "fd12:3456:789a::1", "100.64.0.1", "100.127.255.255",
    ],
    "link-local": ["169.254.0.1", "169.254.255.255", "fe80::1", "febf::1", "fe80::1%eth0"],
    "site-local": ["fec0::1"],
    "metadata": [
        "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254",
        "fd20:ce::254",
    ],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.255", "2001:db8::1", "3fff::1", "3fff:fff::1"],
    "benchmarks": ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    "reserved": [
        "192.0.0.1", "192.88.99.1", "240.0.0.1", "255.255.255.254", "255.255.255.255", "100::1", "100:0:0:1::1",
        "2001:10::1", "2001:20::1", "2001:1ff::1", "5f00::1",
    ],
    "mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:7f00:1", "::ffff:8.8.8.8", "::ffff:0:10.0.0.1"],
    "compatible": ["::127.0.0.1", "::10.0.0.1", "::2"],
    "NAT64": ["64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "64:ff9b:1:ffff::a00:1"],
    "6to4": ["2002:7f00:1::1", "2002:a00:1::", "2002::"],
    "Teredo": ["2001::1", "2001:0:53aa:64c:0:0:80ff:fffe"],
    "unallocated address": ["1::1", "200::1", "1000::1", "4000::1", "e000::1"],
    "invalid address": ["", "example.com", "127.1", "0177.0.0.1", "2130706433", "1.2.3.4.5", "[::1]", "1.2.3.4 "],
}  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
    "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.88.98.1", "192.167.255.255",
    "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "2001:4860:4860::8888", "2606:4700::1111",
    "2a00:1450::1", "2001:200::1", "2003::1", "3ffe::1",
]  # fmt: skip
IN_DEV = {
    "127.0.0.1", "::1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12:3456:789a::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
}  # fmt: skip

WRONG = {
    "https://": [
        "", "example.com", "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com",
        "javascript:alert(1)", "https:/example.com", "https:example.com", "HTTPS://example.com/", "//example.com",
        "unix:///x",
    ],
    "must have a host, as in": [
        "https://", "https:///x", "https://?x", "https://:443/", "https://example.com:/", "https://example.com:x/",
        "https://example.com:443:1/", "https://[::1", "https://[::1]x/", "https://[fe80::1%25eth0]/",
        "https://[v1.a]/", "https://[1.1.1.1]:x/", "https://[1.1.1.1]/",
    ],
    "user": [
        "https://user@example.com/", "https://user:pass@example.com/", "https://@example.com/",
        "https://example.com:80@1.1.1.1/",
    ],
    "fragment": ["https://example.com#", "https://example.com/#a", "https://example.com#@1.1.1.1/"],
    "backslash": ["https://example.com\\@1.1.1.1/"],
    "space": ["https://example.com/a b", " https://a.b"],
    "control": [
        "https://example.com/a\r\nx: y", "https://example.com/\0", "https://example.com/\t",
        "https://example.com/\x7f",
    ],
    "xn--": [
        "https://bücher.example/", "https://ⓔxample.com/", "https://example。com/", "https://１２７.0.0.1/",
        "https://a\ud800.b/",
    ],
    "%XX": ["https://example.com/ü"],
    "port 443": [
        "https://example.com:80/", "https://example.com:22/", "https://example.com:0/", "https://example.com:1023/",
        "https://example.com:65536/", "https://example.com:99999/",
    ],
    "2048": ["https://example.com/" + "a" * (2049 - 20)],
    "usual form": [
        "https://2130706433/", "https://0177.0.0.1/", "https://127.1/", "https://0x7f.1/", "https://0x7f000001/",
        "https://127.0.1/", "https://017700000001/", "https://127.0.0.01/", "https://1/", "https://1.1.1.1./",
        "https://256.1.1.1/", "https://1.1.1.1.1/", "https://a.b.0x/", "https://example.com.1/",
        "https://0X7F.0.0.1/",
    ],
    "dot at its end": ["https://example.com./", "https://localhost./"],
    "host name": [
        "https://a..b/", "https://.a.b/", "https://-a.b/", "https://a-.b/", "https://a%2eb/", "https://a,b.c/",
        "https://*.example.com/", "https://" + "a" * 64 + ".b/", "https://" + "a." * 126 + "bc/", "https://a+b.c/",
        "https://./",
    ],
    "with a dot": ["https://example/"],
    "private network": [
        "https://billing.internal/", "https://printer.local/", "https://x.home.arpa/", "https://10.0.0.1:8443/",
    ],
    "loopback": [
        "https://localhost/", "https://a.b.localhost/", "https://LocalHost/", "https://127.0.0.1/", "https://[::1]/",
    ],
    "mapped": ["https://[::ffff:10.0.0.1]/"],
    "unspecified": ["https://[::]/"],
    "metadata": [
        "https://[fd00:ec2::254]/", "https://169.254.169.254/latest", "https://metadata.google.internal/",
        "https://METADATA.google.internal/x", "https://metadata/", "https://instance-data/", "https://metadata.goog/",
    ],
}  # fmt: skip


class TestAddresses:
    @pytest.mark.parametrize(("kind", "address"), [(kind, each) for kind, all_ in REFUSED.items() for each in all_])
    def test_refused(self, kind: str, address: str) -> None:
        problem = address_problem(STRICT, address, 443)
        assert kind in problem
        assert not address or address not in problem, "no address in what tenants read"

    @pytest.mark.parametrize("policy", [STRICT, DEV])
    @pytest.mark.parametrize("address", PUBLIC)
    def test_public(self, address: str, policy: Policy) -> None:
        assert address_problem(policy, address, 443) == ""

    @pytest.mark.parametrize("address", sorted(IN_DEV))
    def test_ones_own_network_with_dev(self, address: str) -> None:
        assert address_problem(DEV, address, 8000) == ""

    @pytest.mark.parametrize("kind", sorted(set(REFUSED) - {"loopback", "private network", "mapped"}))
    def test_what_dev_does_not_allow(self, kind: str) -> None:
        for address in REFUSED[kind]:
            assert kind in address_problem(DEV, address, 8000)
        assert "mapped" in address_problem(DEV, "::ffff:0:10.0.0.1", 8000)


class TestAllowed:
    POLICY = Policy(allow_networks=(ip_network("10.1.0.0/16"), ip_network("fd00:1::/32")))

    @pytest.mark.parametrize("address", ["10.1.0.1", "10.1.255.255", "fd00:1::1", "::ffff:10.1.2.3", "8.8.8.8"])
    def test_inside(self, address: str) -> None:
        assert address_problem(self.POLICY, address, 443) == ""

    @pytest.mark.parametrize(
        "address",
        ["10.0.255.255", "10.2.0.0", "fd00:2::1", "::ffff:10.2.0.0", "127.0.0.1", "64:ff9b::10.1.0.1", "::10.1.0.1"],
    )
    def test_outside(self, address: str) -> None:
        assert address_problem(self.POLICY, address, 443)

    def test_mapped_networks_may_be_written_as_such(self) -> None:
        policy = Policy(allow_networks=(ip_network("::ffff:10.1.0.0/112"),))
        assert address_problem(policy, "::ffff:10.1.0.1", 443) == ""
        assert address_problem(policy, "10.1.0.1", 443)

    def test_names_of_internal_receivers(self) -> None:
        for name in ("billing", "billing.internal", "billing.corp.local", "host.home.arpa"):
            assert url_problem(self.POLICY, f"https://{name}/") == ""
            assert url_problem(STRICT, f"https://{name}/")


class TestOwnListeners:
    @pytest.mark.parametrize("listener", ["127.0.0.1", "localhost", "0.0.0.0", "::", "::1", "127.0.0.9"])
    @pytest.mark.parametrize("dev", [True, False])
    def test_this_machine_by_any_address(self, listener: str, *, dev: bool) -> None:
        everything = (ip_network("0.0.0.0/0"), ip_network("::/0"))
        policy = Policy(allow_networks=everything, dev=dev, own=(("10.9.9.9", 1), (listener, 8080)))
        for address in ("127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"):
            assert address_problem(policy, address, 8080) == "leads to Gatepost itself"
            assert address_problem(policy, address, 8081) == ""
            host = f"[{address}]" if ":" in address else address
            assert url_problem(policy, f"https://{host}:8080/webhooks") == "leads to Gatepost itself"
        for name in ("localhost", "LOCALHOST", "a.localhost"):
            assert url_problem(policy, f"https://{name}:8080/") == "leads to Gatepost itself"
            assert url_problem(policy, f"https://{name}:8081/") == ""

    @pytest.mark.parametrize("listener", ["0.0.0.0", "::"])
    def test_an_address_of_an_interface(self, listener: str) -> None:
        """A listener on all interfaces is reached by the addresses of each, which other addresses do not have."""
        policy = Policy(dev=True, own=((listener, 8080),))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("10.255.255.254", 9))  # sends nothing
            except OSError:
                pytest.skip("this machine has no network interface but loopback")
            mine = probe.getsockname()[0]
        assert address_problem(policy, mine, 8080) == "leads to Gatepost itself"
        assert address_problem(policy, f"::ffff:{mine}", 8080) == "leads to Gatepost itself"
        assert address_problem(policy, mine, 8081) != "leads to Gatepost itself"
        assert address_problem(policy, "10.255.255.254", 8080) == ""

    def test_an_address_of_its_own(self) -> None:
        policy = Policy(dev=True, own=(("192.168.1.5", 8080), ("2001:db8::5", 9090), ("1.1.1.1", 8443)))
        assert address_problem(policy, "192.168.1.5", 8080) == "leads to Gatepost itself"
        assert address_problem(policy, "::ffff:192.168.1.5", 8080) == "leads to Gatepost itself"
        assert address_problem(policy, "2001:db8:0::5", 9090) == "leads to Gatepost itself"
        assert address_problem(policy, "192.168.1.6", 8080) == ""
        assert address_problem(policy, "127.0.0.1", 8080) == ""

    def test_a_name_of_its_own(self) -> None:
        policy = Policy(own=(("Gatepost.example", 443),))
        assert url_problem(policy, "https://gatepost.EXAMPLE/events") == "leads to Gatepost itself"
        assert url_problem(policy, "https://gatepost.example:443/") == "leads to Gatepost itself"
        assert url_problem(policy, "https://gatepost.example:8443/") == ""
        assert address_problem(policy, "1.1.1.1", 443) == ""


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "https://example.com", "https://example.com/", "https://example.com/a/b?c=d&e=%20", "https://example.com?a",
            "https://EXAMPLE.com/", "https://hooks.example.co.uk:8443/x", "https://example.com:443/",
            "https://example.com:1024/", "https://example.com:65535/", "https://xn--bcher-kva.example/",
            "https://1.1.1.1/", "https://[2606:4700::1111]/", "https://[2606:4700::1111]:8443/x", "https://a_b.example/",
            "https://3com.example/", "https://0x.example/", "https://example.com/@user", "https://example.com/a;b,c:d",
            "https://example.com/" + "a" * (2048 - 20), "https://example.com/..//x", 'https://example.com/"<>{}|^`',
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("policy", [STRICT, DEV])
    def test_right(self, url: str, policy: Policy) -> None:
        assert url_problem(policy, url) == ""

    @pytest.mark.parametrize(("words", "url"), [(words, each) for words, all_ in WRONG.items() for each in all_])
    def test_wrong(self, words: str, url: str) -> None:
        assert words in url_problem(STRICT, url)

    @pytest.mark.parametrize(
        "url",
        [
            "http://localhost:8000/hooks", "http://127.0.0.1/", "http://[::1]:3000/", "http://192.168.1.7/",
            "http://receiver:8000/", "https://host.docker.internal:8000/", "http://example.com:443/",
        ],
    )  # fmt: skip
    def test_with_dev(self, url: str) -> None:
        assert url_problem(DEV, url) == ""
        assert url_problem(STRICT, url)

    @pytest.mark.parametrize(
        "url",
        [
            "http://metadata.google.internal/", "http://169.254.169.254/", "http://0.0.0.0:8000/", "http://[::]:8000/",
            "http://224.0.0.1:8000/", "http://[fe80::1]:8000/", "http://[fd00:ec2::254]/", "http://127.1/", "ftp://localhost",
            "http://localhost:22/", "http://u@localhost:8000/", "http://2130706433/", "http://[64:ff9b::7f00:1]/",
        ],
    )  # fmt: skip
    def test_what_dev_does_not_allow(self, url: str) -> None:
        assert url_problem(DEV, url)

    def test_http_is_for_dev_alone(self) -> None:
        policy = Policy(allow_networks=(ip_network("10.0.0.0/8"),))
        assert "https://" in url_problem(policy, "http://10.0.0.1/")
        assert url_problem(policy, "https://10.0.0.1/") == ""

    def test_loopback_may_be_an_allowed_network(self) -> None:
        policy = Policy(allow_networks=(ip_network("127.0.0.0/8"),))
        assert url_problem(policy, "https://localhost:8443/") == ""
        assert url_problem(policy, "https://127.0.0.1:8443/") == ""

    def test_a_proxy_does_not_excuse_the_url(self) -> None:
        policy = Policy(proxy="http://egress.internal:3128")
        assert url_problem(policy, "https://10.0.0.1/")
        assert url_problem(policy, "https://localhost/")
        assert url_problem(policy, "https://example.com/") == ""


def test_the_table_is_read_in_order() -> None:
    """A metadata service is named as such, though its network has a name too."""
    first = next(each for each in address_guard.SPECIAL if "169.254.169.254" in str(each.network))
    wide = next(each for each in address_guard.SPECIAL if str(each.network) == "169.254.0.0/16")
    assert address_guard.SPECIAL.index(first) < address_guard.SPECIAL.index(wide)
    assert not any(each.in_dev for each in address_guard.SPECIAL if "metadata" in each.description)
