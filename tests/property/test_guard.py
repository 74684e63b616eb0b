"""The guard against any address and any text: no spelling of a private address gets through, and nothing raises."""

import ipaddress
import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.egress.address_guard import Policy, address_problem, url_problem

STRICT = Policy()
DEV = Policy(dev=True)
INSIDE = [
    ipaddress.IPv4Network(each)
    for each in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
]
PRIVATE = st.sampled_from(INSIDE).flatmap(lambda network: st.ip_addresses(v=4, network=network))

# How an IPv4 address is written inside an IPv6 one.
EMBEDDED = {
    "mapped": lambda v4: (0xFFFF << 32) | v4,
    "translated": lambda v4: (0xFFFF << 48) | v4,
    "compatible": lambda v4: v4,
    "NAT64": lambda v4: (0x64FF9B << 96) | v4,
    "local NAT64": lambda v4: (0x64FF9B0001 << 80) | v4,
    "6to4": lambda v4: (0x2002 << 112) | (v4 << 80),
    "Teredo": lambda v4: (0x20010000 << 96) | (v4 ^ 0xFFFFFFFF),
    "Teredo server": lambda v4: (0x20010000 << 96) | (v4 << 64),
}
DOTTED = {"mapped": "::ffff:{}", "compatible": "::{}", "NAT64": "64:ff9b::{}"}
FORMS: list[Callable[[int], str]] = [str, hex, "0{:o}".format, "0X{:X}".format, "0x00{:x}".format]


@pytest.mark.parametrize("form", EMBEDDED)
@given(PRIVATE)
def test_a_private_address_inside_another(form: str, inner: IPv4Address) -> None:
    outer = IPv6Address(EMBEDDED[form](int(inner)))
    for text in (str(outer), outer.exploded, outer.exploded.upper()):
        assert address_problem(STRICT, text, 443)
        assert url_problem(STRICT, f"https://[{text}]/")
        assert form == "mapped" or address_problem(DEV, text, 443)
    if form in DOTTED:
        text = DOTTED[form].format(inner)
        assert IPv6Address(text) == outer
        assert address_problem(STRICT, text, 443)
        assert url_problem(STRICT, f"https://[{text}]/")


@given(PRIVATE, st.data())
def test_a_private_address_in_the_forms_of_old(inner: IPv4Address, data: st.DataObject) -> None:
    """As inet_aton takes them: fewer parts, octal, hexadecimal."""
    value = int(inner)
    parts = data.draw(st.sampled_from([1, 2, 3, 4]))
    first = [(value >> shift) & 0xFF for shift in (24, 16, 8)][: parts - 1]
    numbers = [*first, value & ((1 << (8 * (5 - parts))) - 1)]
    text = ".".join(data.draw(st.sampled_from(FORMS))(number) for number in numbers)
    assert url_problem(STRICT, f"https://{text}/")
    assert url_problem(STRICT, f"https://{text}./")
    if text != str(inner):
        assert url_problem(DEV, f"http://{text}:8000/")


@given(st.ip_addresses())
def test_what_is_not_global_is_refused(address: IPv4Address | IPv6Address) -> None:
    problem = address_problem(STRICT, str(address), 443)
    assert problem or address.is_global
    assert str(address) not in problem
    assert (url_problem(STRICT, f"https://[{address}]/" if address.version == 6 else f"https://{address}/")) == problem


@given(st.ip_addresses(v=4))
def test_the_mapped_form_is_never_freer(address: IPv4Address) -> None:
    for policy in (STRICT, DEV, Policy(allow_networks=(ipaddress.IPv4Network("10.0.0.0/8"),))):
        if address_problem(policy, str(address), 443):
            assert address_problem(policy, f"::ffff:{address}", 443)


TEXTS = st.one_of(
    st.text(st.characters(), max_size=50),
    st.from_regex(r"https?://[\x00-\x7fé]{0,40}", fullmatch=True),
    st.from_regex(r"https?://[a-zA-Z0-9.\[\]:@%_-]{0,30}[/?#\\]?[!-~]{0,10}", fullmatch=True),
)
POLICIES = st.builds(
    Policy,
    allow_networks=st.sampled_from([(), (ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0"))]),
    dev=st.booleans(),
    own=st.lists(st.tuples(st.sampled_from(["localhost", "::", "1.1.1.1", "a.b", ""]), st.integers(1, 9999))).map(
        tuple
    ),
)


@given(POLICIES, TEXTS)
def test_any_text_is_a_url_or_a_problem(policy: Policy, text: str) -> None:
    if url_problem(policy, text):
        return
    assert re.fullmatch(r"[!-~]+", text)
    url = urlsplit(text)
    assert url.scheme == "https" or (url.scheme == "http" and policy.dev)
    assert url.hostname
    assert url.username is None
    assert url.password is None
    assert "#" not in text
    assert "\\" not in text
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    assert port == 443 or (port == 80 and policy.dev) or port >= 1024


@given(POLICIES, st.text(st.characters(), max_size=50), st.integers(0, 65535))
def test_any_text_is_an_address_or_a_problem(policy: Policy, text: str, port: int) -> None:
    assert isinstance(address_problem(policy, text, port), str)
