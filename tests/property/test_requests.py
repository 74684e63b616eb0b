"""Readers for any bytes: they never raise, never guess, and no stranger changes an address."""

import ipaddress
import json
from typing import Any
from urllib.parse import urlencode

from hypothesis import example, given
from hypothesis import strategies as st

from gatepost.core.errors import Refusal
from gatepost.web.body import MAX_BODY
from gatepost.web.requests import FORM, Request, fields, form, json_object, parameters, parameters_sent_once, source
from gatepost.web.responses import oauth_error, problem

BYTES = st.binary(max_size=500)
FORM_BYTES = st.lists(
    st.sampled_from([b"a", b"b", b"=", b"&", b"%", b"0", b"f", b"+", b"\xc3\xa9", b"\xff", b"\0"])
).map(b"".join)
JSON_BYTES = st.lists(
    st.sampled_from([b"{", b"}", b"[", b"]", b'"', b'"a"', b":", b",", b"1", b"-", b"e9", b".", b"\\", b"\\ud800",
                     b"\\u0000", b"NaN", b"null", b" ", b"\xff", b"9" * 30])
).map(b"".join)  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NUMBER = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


def request(body: bytes, media_type: str) -> Request:
    return Request("POST", "/", "", {"content-type": media_type}, body, "", "")


def has_error_response(refusal: Refusal) -> bool:
    return 400 <= oauth_error(refusal).status < 500 and bool(problem(refusal).body)


class TestForms:
    @given(BYTES | FORM_BYTES)
    def test_any_bytes_are_parameters_or_a_refusal(self, raw: bytes) -> None:
        found = form(request(raw, FORM))
        if isinstance(found, Refusal):
            assert has_error_response(found)
        else:
            assert all(
                len(values) == 1 and values[0] and "\0" not in name + values[0] for name, values in found.items()
            )

    @given(BYTES | FORM_BYTES)
    def test_parameters_that_a_form_has_once_are_read_from_any_form(self, raw: bytes) -> None:
        found, once = form(request(raw, FORM)), parameters_sent_once(raw, ("a", "\u00e9"))
        assert all(len(values) == 1 and values[0] and "\0" not in values[0] for values in once.values())
        if not isinstance(found, Refusal) and raw.isascii() and b"%" not in raw:
            assert once == {name: values for name, values in found.items() if name == "a"}

    @given(st.dictionaries(TEXT, TEXT.filter(bool), max_size=20))
    def test_what_a_library_writes_is_read(self, sent: dict[str, str]) -> None:
        assert parameters(urlencode(sent).encode()) == {name: [value] for name, value in sent.items()}

    @given(TEXT, st.lists(TEXT.filter(bool), min_size=2, max_size=5))
    def test_none_repeats_unless_it_may(self, name: str, values: list[str]) -> None:
        raw = urlencode([(name, value) for value in values]).encode()
        assert isinstance(parameters(raw), Refusal)
        assert parameters(raw, repeatable=(name,)) == {name: values}


class TestJSON:
    @given(BYTES | JSON_BYTES | st.text(st.characters()).map(lambda text: text.encode("utf-8", "surrogatepass")))
    @example(b"[" * MAX_BODY)
    @example(b'{"a":' * (MAX_BODY // 5))
    @example(b'{"a":' + b"9" * 60_000 + b"}")
    def test_any_bytes_are_an_object_or_a_refusal(self, raw: bytes) -> None:
        found = json_object(request(raw, "application/json"))
        assert has_error_response(found) if isinstance(found, Refusal) else isinstance(found, dict)

    @given(st.dictionaries(TEXT, JSON, max_size=5), st.booleans())
    def test_what_a_library_writes_is_read(self, sent: dict[str, Any], ascii_only: bool) -> None:
        raw = json.dumps(sent, ensure_ascii=ascii_only).encode()
        assert json_object(request(raw, "application/json")) == sent

    @given(st.dictionaries(TEXT, JSON, min_size=1, max_size=3), st.data())
    def test_a_member_that_stands_twice_is_refused_wherever_it_is(
        self, sent: dict[str, Any], data: st.DataObject
    ) -> None:
        name = json.dumps(data.draw(st.sampled_from(sorted(sent))))
        twice = f"{{{name}:1,{json.dumps(sent)[1:-1]}}}"
        for raw in (twice, f'{{"outer":[{{"inner":{twice}}}]}}'):
            found = json_object(request(raw.encode(), "application/json"))
            assert isinstance(found, Refusal)
            assert found.detail.endswith("the member is repeated")

    @given(st.binary(max_size=50), st.text(max_size=50))
    def test_another_media_type_is_never_read(self, raw: bytes, media_type: str) -> None:
        found = json_object(request(raw, media_type + "x"))
        assert isinstance(found, Refusal)
        assert found.status == 415


ONCE = [b"authorization", b"content-type", b"gatepost-version", b"idempotency-key"]


@given(st.lists(st.tuples(st.sampled_from([*ONCE, b"a", b"b"]) | BYTES, BYTES), max_size=8))
def test_any_header_fields_are_read_or_refused(sent: list[tuple[bytes, bytes]]) -> None:
    found = fields(sent)
    names = [name for name, _ in sent]
    assert isinstance(found, Refusal) == any(names.count(name) > 1 for name in ONCE)
    if not isinstance(found, Refusal):
        assert set(found) == {name.decode("latin-1") for name in names}


ADDRESS = st.ip_addresses().filter(lambda address: getattr(address, "ipv4_mapped", None) is None).map(str)
TRUSTED = ("10.0.0.0/8", "2001:db8::/32")
PROXY = st.ip_addresses(v=4, network="10.0.0.0/8").map(str) | st.ip_addresses(v=6, network="2001:db8::/32").map(str)
STRANGER = ADDRESS.filter(lambda text: not any(ipaddress.ip_address(text) in ipaddress.ip_network(n) for n in TRUSTED))
HEADERS = st.dictionaries(
    st.sampled_from(["forwarded", "x-forwarded-for", "x-real-ip", "host", "x-forwarded-host"]),
    st.text() | st.lists(ADDRESS).map(", ".join) | st.lists(ADDRESS.map("for={}".format)).map(", ".join),
)


def forwarded(hop: str) -> str:
    return f'for="[{hop}]:443"' if ":" in hop else f"for={hop};proto=https"


class TestSources:
    @given(STRANGER | st.text(), HEADERS)
    def test_a_stranger_is_who_it_is_whatever_it_says(self, peer: str, headers: dict[str, str]) -> None:
        assert source(peer, headers, TRUSTED) == peer
        assert source(peer, headers, ()) == peer

    @given(PROXY, st.lists(PROXY, max_size=3), STRANGER, st.text(st.characters(exclude_characters=","), max_size=20))
    def test_behind_proxies_the_last_hop_that_is_no_proxy_is_taken(
        self, peer: str, between: list[str], caller: str, invented: str
    ) -> None:
        """Whatever the caller wrote into the header before the first proxy appended to it."""
        chain = [caller, *between]
        for headers in (
            {"x-forwarded-for": ", ".join(chain)},
            {"x-forwarded-for": ", ".join([invented, *chain])},
            {"forwarded": ", ".join(map(forwarded, chain))},
            {"forwarded": ", ".join([invented, *map(forwarded, chain)])},
        ):
            assert source(peer, headers, TRUSTED) == caller

    @given(PROXY, STRANGER, STRANGER)
    def test_a_header_that_the_proxy_did_not_write_is_worth_nothing(
        self, peer: str, caller: str, invented: str
    ) -> None:
        for headers in (
            {"x-forwarded-for": caller, "forwarded": forwarded(invented)},
            {"x-forwarded-for": invented, "forwarded": forwarded(caller)},
        ):
            assert source(peer, headers, TRUSTED) in ({caller} if caller == invented else {peer})

    @given(PROXY, st.ip_addresses(v=4).map(str).filter(lambda text: not text.startswith("10.")))
    def test_an_ipv4_address_mapped_to_ipv6_is_the_ipv4_address(self, peer: str, caller: str) -> None:
        mapped = f"::ffff:{caller}"
        for headers in (
            {"x-forwarded-for": mapped},
            {"forwarded": forwarded(mapped)},
            {"x-forwarded-for": caller, "forwarded": forwarded(mapped)},
        ):
            assert source(peer, headers, TRUSTED) == caller

    @given(PROXY, HEADERS)
    def test_the_answer_is_always_an_address(self, peer: str, headers: dict[str, str]) -> None:
        assert ipaddress.ip_address(source(peer, headers, TRUSTED))
