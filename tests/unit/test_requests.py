"""Reading requests: forms, JSON, headers, bodies and addresses, each as strict as the contract has it."""

import asyncio
import json
from typing import Any

import pytest

from gatepost.core.errors import Refusal
from gatepost.web.body import BODY, MAX_BODY, MAX_DISCARDED, BodyLimits, BodyReader
from gatepost.web.requests import (
    FORM,
    Request,
    fields,
    form,
    json_object,
    parameters,
    peer_address,
    preferences,
    source,
)


def request(sent: bytes, media_type: str) -> Request:
    return Request("POST", "/oauth/tokens", "", {"content-type": media_type}, sent, "192.0.2.1", "req_1")


def refused(found: Any) -> Refusal:
    assert isinstance(found, Refusal), found
    return found


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", []),
        ("explain", ["explain"]),
        ("Explain; a=b, respond-async", ["explain", "respond-async"]),
        ("foo=1; explain", ["foo=1"]),
        ('foo="a,explain,b"', ['foo=""']),
        ('foo="a\\",explain,b", wait=5', ['foo=""', "wait=5"]),
        ('foo="a,explain', ['foo=""']),
    ],
)
def test_preferences(header: str, found: list[str]) -> None:
    assert preferences(header) == found


def test_a_cookie_in_several_fields_is_one_list() -> None:
    assert fields([(b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"accept", b"x")]) == {
        "cookie": "a=1; b=2",
        "accept": "x",
    }


class TestForms:
    @pytest.mark.parametrize(
        ("raw", "found"),
        [
            (b"", {}),
            (b"&", {}),
            (b"&&a=1&&", {"a": ["1"]}),
            (b"a=1&b=2", {"a": ["1"], "b": ["2"]}),
            (b"a=", {}),
            (b"a", {}),
            (b"a=&a=1", {"a": ["1"]}),
            (b"a=1&a=&a", {"a": ["1"]}),
            (b"a=b=c", {"a": ["b=c"]}),
            (b"=1", {"": ["1"]}),
            (b"a=b+c%20d%2Be", {"a": ["b c d+e"]}),
            (b"a+b=1", {"a b": ["1"]}),
            (b"%61=%31", {"a": ["1"]}),
            (b"a=%26%3D", {"a": ["&="]}),
            (b"a=%C3%A9", {"a": ["é"]}),
            (b"a=\xc3\xa9", {"a": ["é"]}),
            (b"a=%f0%9f%98%80", {"a": ["😀"]}),
            (b"a=%", {"a": ["%"]}),
            (b"a=%zz%4", {"a": ["%zz%4"]}),
            (b"a=1;b=2", {"a": ["1;b=2"]}),
            (b"a=%0d%0a", {"a": ["\r\n"]}),
        ],
    )
    def test_read(self, raw: bytes, found: dict[str, list[str]]) -> None:
        assert parameters(raw) == found
        assert form(request(raw, FORM)) == found

    @pytest.mark.parametrize("raw", [b"a=1&a=2", b"a=1&a=1", b"a=1&b=2&a=3", b"a=1&%61=2"])
    def test_none_may_repeat(self, raw: bytes) -> None:
        found = refused(parameters(raw))
        assert (found.code, found.detail, found.pointer) == ("invalid_request", "a: sent more than once", "a")

    def test_but_those_named(self) -> None:
        assert parameters(b"resource=1&resource=2", repeatable=("resource",)) == {"resource": ["1", "2"]}
        assert refused(parameters(b"resource=1&a=1&a=2", repeatable=("resource",))).pointer == "a"

    @pytest.mark.parametrize("raw", [b"a=\xff", b"\xff=1", b"a=%ff", b"%ff=1", b"a=%C3", b"a=%ed%a0%80", b"a=%c0%80"])
    def test_what_is_not_utf_8(self, raw: bytes) -> None:
        assert refused(parameters(raw)) == Refusal("invalid_request", "the parameters are not UTF-8")

    @pytest.mark.parametrize("raw", [b"a=%00", b"a=\0", b"a=b%00c", b"%00=1", b"\0=1", b"resource=1&resource=%00"])
    def test_nul(self, raw: bytes) -> None:
        found = refused(parameters(raw, repeatable=("resource",)))
        assert found.code == "invalid_request"
        assert "NUL" in found.detail
        assert "\0" not in found.detail

    def test_at_most_a_hundred(self) -> None:
        assert len(json.dumps(parameters(b"&".join(b"a%d=1" % number for number in range(100))))) > 100
        assert refused(parameters(b"&" * 100)).detail == "at most 100 parameters are allowed"
        assert refused(parameters(b"&".join(b"a%d=1" % number for number in range(101)))).code == "invalid_request"

    @pytest.mark.parametrize(
        "media_type", [FORM, FORM.upper(), f"{FORM}; charset=UTF-8", f" {FORM} ;charset=utf-8", f"{FORM};"]
    )
    def test_the_media_type(self, media_type: str) -> None:
        assert form(request(b"a=1", media_type)) == {"a": ["1"]}

    @pytest.mark.parametrize(
        "media_type", ["", "application/json", "multipart/form-data", "text/plain", f"x{FORM}", f"{FORM}x"]
    )
    def test_no_other(self, media_type: str) -> None:
        assert refused(form(request(b"a=1", media_type))).code == "invalid_request"

    def test_a_long_name_is_said_in_short(self) -> None:
        assert len(refused(parameters(b"a" * 5000 + b"=1&" + b"a" * 5000 + b"=2")).detail) < 100


def read(text: str | bytes, media_type: str = "application/json") -> dict[str, Any] | Refusal:
    return json_object(request(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"), media_type))


class TestJSON:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("{}", {}),
            (' \r\n{"a" : 1}\t', {"a": 1}),
            ('{"a":[1,2.5,"x",null,true,{"b":{}}]}', {"a": [1, 2.5, "x", None, True, {"b": {}}]}),
            ('{"a":{"x":1},"b":{"x":1}}', {"a": {"x": 1}, "b": {"x": 1}}),
            ('{"é":"😀 \\ud83d\\ude00 \\u00e9"}', {"é": "😀 😀 é"}),
            ('{"a":9223372036854775807}', {"a": 9223372036854775807}),
            ('{"a":-9223372036854775808}', {"a": -9223372036854775808}),
            ('{"a":1e308}', {"a": 1e308}),
            ('{"a":"\\n\\t\\u007f"}', {"a": "\n\t\x7f"}),
            ('{"":1}', {"": 1}),
        ],
    )
    def test_read(self, text: str, found: dict[str, Any]) -> None:
        assert read(text) == found

    @pytest.mark.parametrize("media_type", ["application/json", "Application/JSON", "application/json; charset=utf-8"])
    def test_the_media_type(self, media_type: str) -> None:
        assert read("{}", media_type) == {}

    @pytest.mark.parametrize(
        "media_type", ["", FORM, "text/json", "application/jsonp", "application/problem+json", "text/plain"]
    )
    def test_no_other(self, media_type: str) -> None:
        found = refused(read("{}", media_type))
        assert (found.code, found.status) == ("unsupported_media_type", 415)

    @pytest.mark.parametrize(
        "text",
        [
            "", " ", "{", "}", '{"a"', '{"a":}', "{a:1}", "{'a':1}", '{"a":1,}', '{"a":1}x', '{"a":1}{}', "\ufeff{}",
            '{"a":01}', '{"a":+1}', '{"a":.5}', '{"a":0x1}', '{"a":"\n"}', '{"a":"\\x"}', "// a\n{}", '{"a":undefined}',
            '{"a":NaN}', '{"a":Infinity}', '{"a":-Infinity}', '{"a":[NaN]}', "NaN",
        ],
    )  # fmt: skip
    def test_what_is_not_json(self, text: str) -> None:
        found = refused(read(text))
        assert (found.code, found.status) == ("invalid_request", 400)
        assert found.detail.startswith("the body is not JSON: ")

    @pytest.mark.parametrize("text", ["[]", '[{"a":1}]', "null", "true", "5", '"a"', "1.5"])
    def test_what_is_no_object(self, text: str) -> None:
        assert refused(read(text)).detail == "the body must be a JSON object"

    @pytest.mark.parametrize("raw", [b'{"a":"\xff"}', b"\xff\xfe{\0}\0", b'{"\xc3":1}', b'{"a":"\xed\xa0\x80"}'])
    def test_what_is_not_utf_8(self, raw: bytes) -> None:
        assert refused(read(raw)).detail == "the body is not UTF-8"

    @pytest.mark.parametrize(
        "text",
        [
            '{"a":1,"a":2}', '{"a":1,"a":1}', '{"b":0,"a":1,"a":2}', '{"a":1,"b":2,"a":3}', '{"b":{"a":1,"a":2}}',
            '{"b":[{"a":1,"a":2}]}', '{"a":1,"\\u0061":2}', '{"b":{"c":{"a":{},"a":{}}},"d":1}', '[{"a":1,"a":2}]',
        ],
    )  # fmt: skip
    def test_no_member_stands_twice_at_any_depth(self, text: str) -> None:
        found = refused(read(text))
        assert (found.code, found.detail, found.pointer) == ("invalid_request", "'a': the member is repeated", "/a")

    def test_a_strange_member_that_stands_twice_is_said_in_ascii(self) -> None:
        for name in ("\\ud800", "\\u0000", "é" * 500):
            found = refused(read(f'{{"{name}":1,"{name}":2}}'))
            assert found.detail.isascii()
            assert len(found.detail) < 1000
            assert found.pointer.encode()

    @pytest.mark.parametrize(
        ("text", "pointer"),
        [
            ('{"a":"\\u0000"}', "/a"),
            ('{"a":"\0"}', None),
            ('{"a":["x","\\ud800"]}', "/a/1"),
            ('{"a":"\\udc00\\ud800"}', "/a"),
            ('{"a":"\\udfff"}', "/a"),
            ('{"a":{"b":"x\\u0000y"}}', "/a/b"),
            ('{"a":{"\\u0000":1}}', "/a"),
            ('{"\\ud800":1}', ""),
            ('{"a/b":{"c~d":"\\u0000"}}', "/a~1b/c~0d"),
        ],
    )
    def test_what_no_store_could_give_back(self, text: str, pointer: str | None) -> None:
        found = refused(read(text))
        assert found.code == "invalid_request"
        if pointer is not None:
            assert (found.pointer, found.detail) == (
                pointer, f"{pointer or 'the body'} contains a NUL or an unpaired surrogate"
            )  # fmt: skip

    @pytest.mark.parametrize(
        "number",
        ["9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" * 30, "-" + "9" * 30, "1" * 5000,
         "1e309", "-1e309", "1" * 400 + ".5"],
    )  # fmt: skip
    def test_numbers_beyond_64_bits(self, number: str) -> None:
        for text, pointer in ((f'{{"a":{number}}}', "/a"), (f'{{"a":[0,{number}]}}', "/a/1")):
            found = refused(read(text))
            assert (found.pointer, found.detail) == (pointer, f"{pointer} is a number beyond 64 bits")

    @pytest.mark.parametrize(
        "number",
        ["12345678901234567.89", "3.14159265358979323846", "1234567890.12345678", "1e-400", "-1e-400", "1.6e-323",
         "0." + "1" * 5000, "0.123456789012345678e5"],
    )  # fmt: skip
    def test_numbers_with_more_digits_than_64_bits_can_hold(self, number: str) -> None:
        found = refused(read(f'{{"a":{number}}}'))
        assert found.pointer == "/a"
        assert "more digits than 64-bit floating point can hold" in found.detail

    @pytest.mark.parametrize(
        "number",
        ["0.1", "-0.0", "0e5", "1.10", "100.00", "1" + "." + "0" * 400, "0.10000000000000001", "0.30000000000000004",
         "1.7976931348623157e308", "5e-324", "-2.2250738585072014E-308", "1e22", "1E+5", "123456789.123456",
         "0.1000000000000000055511151231257827021181583404541015625"],
    )  # fmt: skip
    def test_numbers_that_are_returned_as_sent(self, number: str) -> None:
        assert read(f'{{"a":{number}}}') == {"a": float(number)}

    def test_at_most_32_deep(self) -> None:
        deepest = '{"a":' * 31 + "[]" + "}" * 31
        assert not isinstance(read(deepest), Refusal)
        for text in ('{"a":' * 32 + "[]" + "}" * 32, '{"a":' + "[" * 32 + "]" * 32 + "}"):
            found = refused(read(text))
            assert found.code == "invalid_request"
            assert found.detail.endswith("is nested more than 32 deep")

    @pytest.mark.parametrize("opening", ['{"a":', "[", '{"a":['])
    def test_however_deep_it_is_refused(self, opening: str) -> None:
        assert refused(read(opening * (MAX_BODY // len(opening)))).code == "invalid_request"


class TestFields:
    def test_by_name(self) -> None:
        assert fields([(b"accept", b"*/*"), (b"x", b"\xe9")]) == {"accept": "*/*", "x": "é"}
        assert fields([]) == {}

    def test_those_that_may_not_repeat_may_stand_beside_those_that_do(self) -> None:
        sent = [(b"authorization", b"x"), (b"a", b"1"), (b"a", b"2")]
        assert fields(sent) == {"authorization": "x", "a": "1, 2"}

    def test_those_that_repeat_are_one_list(self) -> None:
        assert fields([(b"a", b"1"), (b"b", b"2"), (b"a", b"3, 4")]) == {"a": "1, 3, 4", "b": "2"}

    @pytest.mark.parametrize("name", ["authorization", "content-type", "gatepost-version", "idempotency-key"])
    def test_some_may_not_repeat(self, name: str) -> None:
        sent = [(name.encode(), b"1"), (b"a", b"2"), (name.encode(), b"1")]
        assert refused(fields(sent)) == Refusal("invalid_request", f"{name.title()}: sent more than once")


def receive_body(*messages: dict[str, Any], declared: str | None = None, **headers: str) -> tuple[bytes | Refusal, int]:
    """What `body` makes of these messages, and how many it left."""
    waiting = [{"type": "http.request"} | message for message in messages]

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    if declared is not None:
        headers["content-length"] = declared
    return asyncio.run(BodyReader().read(receive, headers)), len(waiting)


DISCONNECT = {"type": "http.disconnect"}


class TestBodies:
    def test_the_contracts_limit(self) -> None:
        assert MAX_BODY == 65_536

    @pytest.mark.parametrize(
        ("messages", "found"),
        [
            ([{}], b""),
            ([{"body": b"abc"}], b"abc"),
            ([{"body": b"ab", "more_body": True}, {"body": b"c"}], b"abc"),
            ([{"more_body": True}, {"body": b"abc", "more_body": True}, {}], b"abc"),
            ([{"body": b"a" * MAX_BODY}], b"a" * MAX_BODY),
            ([{"body": b"a", "more_body": True}, {"body": b"a" * (MAX_BODY - 1)}], b"a" * MAX_BODY),
        ],
    )
    def test_whole(self, messages: list[dict[str, Any]], found: bytes) -> None:
        assert receive_body(*messages) == (found, 0)

    @pytest.mark.parametrize(
        "messages",
        [
            [{"body": b"a" * (MAX_BODY + 1)}],
            [{"body": b"a" * MAX_BODY, "more_body": True}, {"body": b"a"}],
            [{"body": b"a" * MAX_BODY, "more_body": True}, {"body": b"a", "more_body": True}, {}],
        ],
    )
    def test_too_large(self, messages: list[dict[str, Any]]) -> None:
        found, _ = receive_body(*messages)
        assert refused(found).status == 413

    @pytest.mark.parametrize("declared", [None, str(2 * MAX_BODY + 2)])
    def test_one_that_is_too_large_is_read_to_its_end(self, declared: str | None) -> None:
        """A sender that is interrupted may not see the response."""
        half = {"body": b"a" * (MAX_BODY + 1)}
        found, left = receive_body(half | {"more_body": True}, half, declared=declared)
        assert (refused(found).code, left) == ("request_too_large", 0)

    def test_no_more_than_a_mebibyte_is_read(self) -> None:
        assert MAX_DISCARDED == 1024 * 1024
        large = {"body": b"a" * (MAX_DISCARDED // 2), "more_body": True}
        found, left = receive_body(*[large] * 5)
        assert (refused(found).code, left) == ("request_too_large", 3)

    @pytest.mark.parametrize("declared", [str(MAX_DISCARDED + 1), "9" * 12, "9" * 5000])
    def test_a_length_declared_far_too_large_is_not_read(self, declared: str) -> None:
        found, left = receive_body({"body": b"a"}, declared=declared)
        assert (refused(found).code, left) == ("request_too_large", 1)

    def test_one_that_is_too_large_is_not_asked_for(self) -> None:
        """The sender waits for `100 Continue`, which the server sends when the body is read."""
        found, left = receive_body({"body": b"a"}, declared=str(MAX_BODY + 1), expect="100-continue")
        assert (refused(found).code, left) == ("request_too_large", 1)

    def test_one_that_is_too_large_and_slow_is_too_large(self) -> None:
        async def receive() -> dict[str, Any]:
            return await asyncio.Future()

        reader = BodyReader(BodyLimits(seconds=0.02, patience=0.01))
        found = asyncio.run(reader.read(receive, {"content-length": str(MAX_BODY + 1)}))
        assert refused(found).code == "request_too_large"

    @pytest.mark.parametrize("declared", ["", "x", "-1", "²", str(MAX_BODY), "0", "1e9"])
    def test_what_is_declared_is_not_believed_otherwise(self, declared: str) -> None:
        assert receive_body({"body": b"abc"}, declared=declared) == (b"abc", 0)

    @pytest.mark.parametrize("before", [[], [{"body": b"a=1", "more_body": True}]])
    def test_half_a_body_is_not_acted_on(self, before: list[dict[str, Any]]) -> None:
        found, _ = receive_body(*before, DISCONNECT)
        assert refused(found).code == "invalid_request"

    @pytest.mark.parametrize("before", [0, 1, 2])
    def test_that_do_not_arrive_are_given_up(self, before: int) -> None:
        """However many parts arrived, and though the sender never goes away."""
        sent: list[dict[str, Any]] = [{"type": "http.request", "body": b"a", "more_body": True}] * before

        async def receive() -> dict[str, Any]:
            return sent.pop() if sent else await asyncio.Future()

        reader = BodyReader(BodyLimits(seconds=0.02, patience=0.01))
        found = asyncio.run(reader.read(receive, {"content-length": "10"}))
        assert refused(found) == Refusal("request_timeout", f"the body did not arrive in time; {before} bytes did")

    def test_of_a_request_that_is_cancelled_are_not_answered(self) -> None:
        async def receive() -> dict[str, Any]:
            return await asyncio.Future()

        async def cancelled() -> None:
            task = asyncio.create_task(BodyReader().read(receive, {}))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())

    @pytest.mark.parametrize(
        ("received", "seconds"), [(0, 10), (1, 10 + 1 / 1024), (1024, 11), (20 * 1024, 30), (64 * 1024, 30)]
    )
    def test_have_time_for_what_arrived(self, received: int, seconds: float) -> None:
        assert BODY.time_for(received) == seconds


TRUSTED = ("10.0.0.0/8", "2001:db8::/32")


def caller(peer: str, trusted: tuple[str, ...] = TRUSTED, **headers: str) -> str:
    return source(peer, {name.replace("_", "-"): value for name, value in headers.items()}, trusted)


class TestSources:
    @pytest.mark.parametrize("peer", ["192.0.2.1", "2001:db9::1", "", "unix", "10.0.0.1.example"])
    def test_a_peer_that_is_not_trusted_speaks_for_itself_only(self, peer: str) -> None:
        assert caller(peer, forwarded="for=198.51.100.1", x_forwarded_for="198.51.100.1") == peer
        assert caller("10.0.0.1", (), x_forwarded_for="198.51.100.1") == "10.0.0.1"

    @pytest.mark.parametrize("peer", ["10.0.0.1", "2001:db8::1"])
    @pytest.mark.parametrize(
        ("chain", "found"),
        [
            ("198.51.100.1", "198.51.100.1"),
            ("203.0.113.9, 198.51.100.1", "198.51.100.1"),
            ("203.0.113.9, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
            ("203.0.113.9,198.51.100.1,10.0.0.2,10.0.0.3", "198.51.100.1"),
            ("2001:db9::7", "2001:db9::7"),
            ("198.51.100.1:4711", "198.51.100.1"),
            ("[2001:db9::7]:4711", "2001:db9::7"),
            ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
            ("evil, 10.0.0.2", "10.0.0.2"),
            ("203.0.113.9, unknown, 10.0.0.2", "10.0.0.2"),
        ],
    )
    def test_the_last_hop_that_is_not_trusted_is_taken(self, peer: str, chain: str, found: str) -> None:
        assert caller(peer, x_forwarded_for=chain) == found

    @pytest.mark.parametrize(
        "chain",
        ["", " ", ",", "unknown", "evil", "_hidden", "198.51.100.1, ?", "198.51.100.999", "fe80::1%" + "z" * 999],
    )
    def test_what_is_no_address_is_not_taken(self, chain: str) -> None:
        assert caller("10.0.0.1", x_forwarded_for=chain) == "10.0.0.1"

    @pytest.mark.parametrize(
        ("forwarded", "found"),
        [
            ("for=198.51.100.1", "198.51.100.1"),
            ('For="198.51.100.1:4711"', "198.51.100.1"),
            ('for="[2001:db9::7]:4711"', "2001:db9::7"),
            ("for=203.0.113.9;proto=https;by=10.0.0.2, for=198.51.100.1;host=a", "198.51.100.1"),
            ("for=203.0.113.9, for=198.51.100.1, for=10.0.0.2", "198.51.100.1"),
            ("proto=https; for=198.51.100.1", "198.51.100.1"),
            ("for=203.0.113.9, proto=https", "10.0.0.1"),
            ("for=unknown", "10.0.0.1"),
            ("for=_gazonk", "10.0.0.1"),
            ("198.51.100.1", "10.0.0.1"),
            ("", "10.0.0.1"),
            ('for="203.0.113.9, for=198.51.100.1', "198.51.100.1"),
            ('for=198.51.100.1;host="a;for=203.0.113.9"', "198.51.100.1"),
            ('for=198.51.100.1;host="a,for=203.0.113.9"', "198.51.100.1"),
            ('for=198.51.100.1;host="a\\",for=203.0.113.9"', "198.51.100.1"),
            ('for=198.51.100.1;host="a\\\\", for=10.0.0.2', "198.51.100.1"),
            ('for=203.0.113.9;host="a, for=198.51.100.1;host="b"', "198.51.100.1"),
            ('for=203.0.113.9;host="a, for=10.0.0.2;host="b"', "10.0.0.2"),
            ("for=198.51.100.1;for=203.0.113.9", "10.0.0.1"),
        ],
    )
    def test_the_header_of_rfc_7239(self, forwarded: str, found: str) -> None:
        assert caller("10.0.0.1", forwarded=forwarded) == found

    @pytest.mark.parametrize("peer", ["::ffff:10.0.0.1", "::FFFF:a00:1"])
    def test_addresses_as_a_listener_on_ipv6_sees_them(self, peer: str) -> None:
        connected = peer_address({"client": (peer, 4711)})
        assert connected == "10.0.0.1"
        assert caller(connected, x_forwarded_for="203.0.113.9, ::ffff:198.51.100.1, ::ffff:10.0.0.2") == "198.51.100.1"

    def test_a_connection_without_an_address(self) -> None:
        assert (peer_address({}), peer_address({"client": ("unix", 0)})) == ("", "unix")

    def test_two_headers_must_agree(self) -> None:
        """A proxy that writes one of them may pass on the other as the caller wrote it."""
        assert caller("10.0.0.1", forwarded="for=198.51.100.1", x_forwarded_for="198.51.100.1") == "198.51.100.1"
        assert caller("10.0.0.1", forwarded="for=203.0.113.9", x_forwarded_for="198.51.100.1") == "10.0.0.1"
        assert caller("10.0.0.1", forwarded="for=198.51.100.1", x_forwarded_for="203.0.113.9") == "10.0.0.1"

    def test_no_other_header_counts(self) -> None:
        headers = {"x_real_ip": "198.51.100.1", "x_forwarded_host": "evil", "client_ip": "198.51.100.1", "via": "1.1 a"}
        assert caller("10.0.0.1", TRUSTED, **headers) == "10.0.0.1"
