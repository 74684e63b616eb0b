"""The cost of every parser of foreign input grows linearly with the size of the input.

For each parser: inputs made for its worst case, at two sizes that it accepts. This is the one
file of tests that measures time: CPU time of the thread, the best of several.
"""

import gc
import json
import statistics
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from opentelemetry.sdk.trace import SpanProcessor

from gatepost.accounts import Account
from gatepost.core import clock, ids, jwk_sets
from gatepost.core.jose import MAX_BYTES, InvalidJwt, decode_unverified, verify_jws
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS
from gatepost.core.secrets import Box, ServerKeys
from gatepost.core.strict_json import read_json
from gatepost.core.tracing import Traces
from gatepost.egress.address_guard import Policy, url_problem
from gatepost.ingest import http
from gatepost.oauth import client_rules, dpop, scopes
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import KeyRing, StoredKey, generate
from gatepost.web import authorize, deliveries, tokens
from gatepost.web.body import MAX_BODY
from gatepost.web.context import Context
from gatepost.web.definitions import idempotency_key
from gatepost.web.error_page import prefers_html
from gatepost.web.requests import (
    Request,
    fields,
    form,
    json_object,
    parameters,
    parameters_sent_once,
    preferences,
    source,
)
from gatepost.webhooks import endpoint_rules, listing, subscriptions
from gatepost.webhooks.listing import Query
from gatepost.webhooks.plan import retry_after
from tests.unit.foreign import EC, encoded, public, token

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
BASE_URL = "https://gatepost.example"
MAX_HEADERS = 64 * 1024
LARGE = 32 * 1024  # enough to tell linear from quadratic
KEYS = ServerKeys({"hash": bytes(32), "seal": bytes(32), "data": bytes(32)})
SERVICE = Service(BASE_URL, KEYS, KeyRing(Box([bytes(32)])))
SURFACE = cast(Context, SimpleNamespace(service=SERVICE, now=lambda: NOW))
TRACES = Traces(SpanProcessor())

Make = Callable[[int], Any]


class Parser(NamedTuple):
    """A parser, the size up to which it is tried, and inputs of a given size that are made for its worst case."""

    parse: Callable[[Any], object]
    limit: int
    inputs: dict[str, Make]


def repeated(part: str, before: str = "", after: str = "", between: str = "") -> Callable[[int], bytes]:
    """The part over and over, up to about `size` bytes. `#` becomes the number of the repetition."""

    def make(size: int) -> bytes:
        longest = len(part.replace("#", "00000")) + len(between)
        count = max(1, (size - len(before) - len(after)) // longest)
        return (before + between.join(part.replace("#", f"{each:05}") for each in range(count)) + after).encode()

    return make


JSON: dict[str, Make] = {
    "many members": repeated('"#": 0', "{", "}", ","),
    "many members and one twice": repeated('"#": 0', '{"00000": 0,', "}", ","),
    "many members, all twice": repeated('"#": 0, "#": 0', "{", "}", ","),
    "many objects with a member twice": repeated('{"a": 0, "a": 0}', "[", "]", ","),
    "one member over and over": repeated('"a": 0', "{", "}", ","),
    "empty names": repeated('"": 0', "{", "}", ","),
    "nested lists": repeated("["),
    "nested objects": repeated('{"a":'),
    "closing brackets": repeated("]", "["),
    "many lists": repeated("[]", "[", "]", ","),
    "a long list at the greatest depth": repeated("0", '{"abcdefgh":' * 30 + "[", "]" + "}" * 30, ","),
    "a NUL at the end of a long list": repeated("0", "[", ',"\\u0000"]', ","),
    "a long integer": repeated("9"),
    "a long negative integer": repeated("9", "-"),
    "many long integers": repeated("9" * 4000, "[", "]", ","),
    "a long fraction": repeated("9", "0."),
    "a long exponent": repeated("9", "1e"),
    "a long negative exponent": repeated("9", "1e-"),
    "a long number with an exponent": repeated("9", "", "e-99999"),
    "zeros": repeated("0", "0.", "1"),
    "a long string": repeated("a", '"', '"'),
    "a string without an end": repeated("a", '"'),
    "escapes": repeated("\\n", '"', '"'),
    "backslashes": repeated("\\\\", '"', '"'),
    "halves of pairs": repeated("\\ud800", '"', '"'),
    "pairs": repeated("\\ud83d\\ude00", '"', '"'),
    "spaces": repeated(" ", "[", "]"),
    "line breaks": repeated("\n", "[", "1,]"),
    "commas": repeated(",", "[", "]"),
    "quotes": repeated('"'),
    "not UTF-8 at the end": lambda size: b" " * size + b"\xff",
    "constants": repeated("NaN", "[", "]", ","),
}
FORMS: dict[str, Make] = {
    "separators": repeated("&"),
    "empty parameters": repeated("=&"),
    "many parameters": repeated("a#=1", between="&"),
    "one parameter over and over": repeated("a=1", between="&"),
    "as many parameters as allowed": lambda size: b"&".join(b"%05d=" % n + b"x" * (size // 100) for n in range(100)),
    "an encoded value": repeated("%41", "a="),
    "an encoded name": repeated("%41", "", "=1"),
    "percent signs": repeated("%", "a="),
    "pluses": repeated("+", "a="),
    "encoded NULs": repeated("%00", "a="),
    "encoded bytes that are not UTF-8": repeated("%C3", "a="),
    "equals signs": repeated("=", "a="),
    "many scopes": repeated("s# ", "scope="),
    "spaces": repeated("+", "grant_type=client_credentials&scope="),
}


def text_of(make: Make) -> Make:
    return lambda size: make(size).decode("latin-1")


def jwt(*, header: dict[str, Any], payload: Make) -> Make:
    """A token of `size` bytes, signed, so that its claims are looked at."""
    return lambda size: token(header, payload((size - 400) * 3 // 4))


def jwts(header: dict[str, Any], limit: int) -> tuple[int, dict[str, Make]]:
    """Tokens with claims and headers of every bad kind."""
    made: dict[str, Make] = {f"claims: {name}": jwt(header=header, payload=make) for name, make in JSON.items()}
    made |= {
        f"header: {name}": lambda size, make=make: f"{encoded(make(size * 3 // 4 - 300))}.e30.AAAA"  # type: ignore[misc]
        for name, make in JSON.items()
    }
    return limit, made | MALFORMED


MALFORMED: dict[str, Make] = {
    "dots": text_of(repeated(".")),
    "a long signature": lambda size: f"e30.e30.{'A' * size}",
    "not base64": text_of(repeated("*", "e30.", ".AAAA")),
    "padding": text_of(repeated("=", "e30.", ".AAAA")),
}


def readable(text: str) -> object:
    try:
        return verify_jws(text, {"keys": [public(EC)]}, algorithms=ASSERTION_ALGORITHMS, typ=(None, "JWT", "at+jwt"))
    except InvalidJwt as error:
        return error


GENERATED = generate("ES256", NOW)
OWN = SimpleNamespace(ring=KeyRing(Box([bytes(32)])), keys=[GENERATED.key])
OWN.ring.load(StoredKey(GENERATED.key, Box([bytes(32)]).encrypt(GENERATED.private, GENERATED.key.id)))


def own_token(payload: Make) -> Make:
    return lambda size: OWN.ring.sign(GENERATED.key, payload((size - 400) * 3 // 4), "at+jwt").decode()


def read_own(text: str) -> object:
    try:
        return OWN.ring.read(text, OWN.keys, "at+jwt")
    except InvalidJwt as error:
        return error


def check_proof(text: str) -> object:
    return dpop.check(text, method="POST", urls=[f"{BASE_URL}/oauth/tokens"], key=KEYS.nonce, at=NOW)


def proof(payload: Make) -> Make:
    return jwt(header={"alg": "ES256", "typ": "dpop+jwt", "jwk": public(EC)}, payload=payload)


def request(raw: bytes = b"", media_type: str = "application/json", **headers: str) -> Request:
    sent = {"content-type": media_type} | {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("POST", "/oauth/tokens", "", sent, raw, "192.0.2.1", "req_1")


def members(name: str, make: Make) -> Make:
    """A definition with one member that is read from JSON."""
    return lambda size: {name: json.loads(make(size - 100))}


TEXTS: dict[str, Make] = {
    "letters": text_of(repeated("a")),
    "digits": text_of(repeated("9")),
    "dots": text_of(repeated(".")),
    "labels": text_of(repeated("a.")),
    "slashes": text_of(repeated("/")),
    "tildes": text_of(repeated("~")),
    "pointers": text_of(repeated("/a~1b")),
    "colons": text_of(repeated(":")),
    "brackets": text_of(repeated("[")),
    "spaces": text_of(repeated(" ", "a", "b")),
    "commas": text_of(repeated(", ")),
    "minus signs": text_of(repeated("-")),
    "parentheses": text_of(repeated("(")),
    "a URL with a long path": text_of(repeated("a/../", "https://api.example.com/")),
    "a URL with a long host": text_of(repeated("a.", "https://", "com/")),
    "a URL with a long user": text_of(repeated("a:@", "https://", "example.com/")),
    "a URL with a long port": text_of(repeated("9", "https://example.com:", "/")),
    "a long date": text_of(repeated("0", "2026-11-15T08:00:00.", "Z")),
    "a mail date": text_of(repeated("Sun, 15 Nov 2026 08:00:00 +0000 ")),
}
FORWARDED: dict[str, Make] = {
    "many elements": text_of(repeated("for=192.0.2.1", between=",")),
    "many trusted elements": text_of(repeated("for=127.0.0.1", between=",")),
    "many parameters": text_of(repeated("for=192.0.2.1", between=";")),
    "semicolons": text_of(repeated(";")),
    "commas": text_of(repeated(",")),
    "quotes": text_of(repeated('"', "for=")),
    "spaces": text_of(repeated(" ", "for=", "x")),
    "a long node": text_of(repeated("1", "for=")),
    "colons": text_of(repeated(":", "for=")),
    "brackets": text_of(repeated("[", "for=")),
    "a zone": text_of(repeated("z", "for=fe80::1%")),
}
WORDS: dict[str, Make] = TEXTS | {
    "semicolons": text_of(repeated(";")),
    "equals signs": text_of(repeated("=")),
    "many pairs": text_of(repeated("k#=v", between="; ")),
    "our cookie, over and over": text_of(repeated("__Host-gatepost=x", between=";")),
    "many words": text_of(repeated("explain", between=",")),
    "many members": text_of(repeated("k#=v", between=",")),
    "trailing spaces": text_of(repeated(" ", "k=v", ",x")),
    "base64": lambda size: "Basic " + b64encode(b"%41" * (size // 4)).decode(),
    "a long bearer": text_of(repeated("a", "Bearer ")),
}
POSTED = "application/x-www-form-urlencoded"


def basic(header: str) -> object:
    return tokens._parse_basic(KEYS.hash, header)


def credentials(raw: bytes) -> object:
    sent = form(request(raw, POSTED), repeatable=("resource",))
    return tokens.read_credentials(SURFACE, request(raw, POSTED), cast(Any, sent)) if isinstance(sent, dict) else sent


def cursor(text: str) -> object:
    return listing._position(SERVICE, Account("acc_1", "a", NOW), Query(cursor=text))


def define_client(body: dict[str, Any]) -> object:
    return client_rules.define(body, None, account="acc_1", base_url=BASE_URL, at=NOW)


def define_scope(body: dict[str, Any]) -> object:
    return scopes.define(body, None, account="acc_1", base_url=BASE_URL, at=NOW)


def define_endpoint(body: dict[str, Any]) -> object:
    return endpoint_rules.define(
        body, None, account="acc_1", at=NOW, url_problem=lambda url: url_problem(Policy(), url)
    )  # fmt: skip


def define_subscription(body: dict[str, Any]) -> object:
    return subscriptions.define(body, None, account="acc_1", at=NOW, endpoint_exists=lambda _id: True)


def in_member(name: str, makers: dict[str, Make], /, **more: Any) -> dict[str, Make]:
    """Definitions with one member that holds each of the texts."""
    return {f"{name}: {kind}": lambda size, make=make: {name: make(size)} | more for kind, make in makers.items()}  # type: ignore[misc]


def listed(name: str, item: str, **more: Any) -> Make:
    make = repeated(json.dumps(item), "[", "]", ",")
    return lambda size: {name: json.loads(make(size))} | more


LISTS: dict[str, Make] = {
    "redirect_uris": listed("redirect_uris", "https://a.example/#"),
    "redirect_uris, one over and over": listed("redirect_uris", "https://a.example/"),
    "contacts": listed("contacts", "a#"),
    "grant_types": listed("grant_types", "a#"),
    "unknown members": lambda size: {f"m{each:05}": 0 for each in range(size // 12)},
    "scope": lambda size: {"scope": " ".join(f"s{each:05}" for each in range(size // 7))},
    "metadata": lambda size: {"metadata": {f"m{each:05}": "v" for each in range(size // 12)}},
    "claims": lambda size: {"claims": {f"m{each:05}": "v" for each in range(size // 12)}},
}


def key_set(part: Make) -> Make:
    """A set whose one key has a long member."""
    return lambda size: {"keys": [public(EC) | {"kid": "a", "x": part(size).decode("latin-1")}]}


KEY_SETS: dict[str, Make] = {
    "many keys": lambda size: {"keys": [public(EC) | {"kid": f"{each}"} for each in range(size // 150)]},
    "many keys of one id": lambda size: {"keys": [public(EC) | {"kid": "a"} for _ in range(size // 150)]},
    "many things that are no keys": lambda size: {"keys": [0] * (size // 2)},
    "a long coordinate": key_set(repeated("A")),
    "a key with many members": lambda size: {"keys": [public(EC) | {f"{n:05}": 0 for n in range(size // 12)}]},
    "a long modulus": lambda size: {"keys": [{"kty": "RSA", "e": "AQAB", "n": "/" + "A" * size}]},
    "a long exponent": lambda size: {"keys": [{"kty": "RSA", "n": "_" + "A" * 341, "e": "_" + "A" * size}]},
}
EVENT = '{"specversion":"1.0","id":"#","source":"/shop","type":"invoice.paid","data":{}}'
BATCHES: dict[str, Make] = {
    "many events": repeated(EVENT, "[", "]", ","),
    "as many events as allowed": lambda size: repeated(
        EVENT.replace('"data":{}', f'"data":"{"x" * (size // 101 - len(EVENT))}"'), "[", "]", ","
    )(size),
    "many attributes": repeated('"a#":"1"', '[{"specversion":"1.0",', "}]", ","),
    "a long type": repeated("a.", '[{"specversion":"1.0","id":"1","source":"/","type":"', 'a"}]'),
    "a long source": repeated("/", '[{"specversion":"1.0","id":"1","type":"a.b","source":"', '"}]'),
    "a long time": repeated(
        "0", '[{"specversion":"1.0","id":"1","type":"a.b","source":"/","time":"2026-11-15T08:00:00.', 'Z"}]'
    ),
    "data of many members": repeated(
        '"#":0', '[{"specversion":"1.0","id":"1","type":"a.b","source":"/","data":{', "}}]", ","
    ),
}
FIELDS: dict[str, Make] = {
    "many fields": lambda size: [(b"x-%05d" % each, b"v") for each in range(size // 10)],
    "one field over and over": lambda size: [(b"x", b"v")] * (size // 4),
    "many fields, all twice": lambda size: [(b"x-%05d" % (each // 2), b"v") for each in range(size // 10)],
    "Authorization over and over": lambda size: [(b"authorization", b"v")] * (size // 16),
    "Host over and over": lambda size: [(b"host", b"v")] * (size // 7),
}
QUERIES: dict[str, Make] = FORMS | {
    f"{name}={kind}": lambda size, name=name, make=make: f"{name}=".encode() + make(size).encode("latin-1")
    for name in deliveries.PARAMETERS
    for kind, make in TEXTS.items()
    if kind in ("digits", "labels", "commas")
}


PARSERS: dict[str, Parser] = {
    "JSON": Parser(read_json, MAX_BODY, JSON),
    "JSON bodies": Parser(lambda raw: json_object(request(raw)), MAX_BODY, {
        name: JSON[name] for name in ("many members and one twice", "many members, all twice", "a long string")
    }),
    "credentials in invalid forms": Parser(
        lambda raw: parameters_sent_once(raw, ("client_id", "client_secret")), MAX_BODY, FORMS
    ),
    "forms": Parser(lambda raw: parameters(raw, repeatable=("resource",)), MAX_BODY, FORMS),
    "client credentials in a form": Parser(credentials, MAX_BODY, FORMS | {
        "a long assertion": repeated("eyJ", f"client_assertion_type={tokens.ASSERTION_TYPE}&client_assertion=e30."),
        "an assertion of dots": repeated(".", f"client_assertion_type={tokens.ASSERTION_TYPE}&client_assertion="),
    }),
    "JWTs, unverified": Parser(decode_unverified, *jwts({"alg": "ES256"}, MAX_BYTES)),
    "client assertions, handoffs and tokens of other issuers": Parser(
        readable, *jwts({"alg": "ES256", "typ": "JWT"}, MAX_BYTES)
    ),
    "access tokens and subject tokens": Parser(read_own, MAX_BYTES, {
        **MALFORMED, **{f"signed: {name}": own_token(make) for name, make in JSON.items()},
    }),
    "DPoP proofs": Parser(check_proof, MAX_BYTES, {
        **MALFORMED, **{f"signed: {name}": proof(make) for name, make in JSON.items()},
    }),
    "scopes": Parser(scopes.split, MAX_BODY, TEXTS | {
        "many": text_of(repeated("s#", between=" ")), "one over and over": text_of(repeated("s", between=" ")),
    }),
    "cursors": Parser(cursor, MAX_HEADERS, TEXTS),
    "ids": Parser(lambda text: ids.parse("dlv", text), MAX_HEADERS, TEXTS),
    "times": Parser(clock.parse_rfc3339, MAX_HEADERS, TEXTS),
    "queries of deliveries": Parser(deliveries.query, MAX_HEADERS, QUERIES),
    "header fields": Parser(fields, MAX_HEADERS, FIELDS),
    "Forwarded": Parser(
        lambda text: source("127.0.0.1", {"forwarded": text}, ("127.0.0.0/8",)), MAX_HEADERS, FORWARDED
    ),
    "X-Forwarded-For": Parser(
        lambda text: source("127.0.0.1", {"x-forwarded-for": text.replace("for=", "")}, ("127.0.0.0/8",)),
        MAX_HEADERS, FORWARDED,
    ),
    "Authorization": Parser(basic, MAX_HEADERS, WORDS),
    "Cookie": Parser(lambda text: authorize.browser_cookie(SURFACE, request(cookie=text)), MAX_HEADERS, WORDS),
    "Prefer": Parser(preferences, MAX_HEADERS, WORDS),
    "Accept": Parser(prefers_html, MAX_HEADERS, WORDS | {
        "many types": text_of(repeated("a/b;q=0.5", between=",")),
        "many parameters": text_of(repeated(";q=0.5", "text/html")),
        "a long quality": text_of(repeated("9", "text/html;q=0.")),
    }),
    "Content-Type": Parser(lambda text: request(media_type=text).media_type(), MAX_HEADERS, WORDS),
    "Idempotency-Key": Parser(lambda text: idempotency_key(request(idempotency_key=text)), MAX_HEADERS, WORDS),
    "traceparent": Parser(lambda text: TRACES.start_request([
        (b"traceparent", text.encode()),
    ], "GET", ""), MAX_HEADERS, {
        **WORDS, "extended": text_of(repeated("-a", f"01-{'a' * 32}-{'b' * 16}-01")),
    }),
    "tracestate": Parser(lambda text: TRACES.start_request([
        (b"traceparent", f"00-{'a' * 32}-{'b' * 16}-01".encode()), (b"tracestate", text.encode()),
    ], "GET", ""), MAX_HEADERS, WORDS),
    "Retry-After": Parser(lambda text: retry_after(text, NOW, 3600), MAX_HEADERS, TEXTS),
    "JWK sets of clients": Parser(jwk_sets.jwks_problem, MAX_BODY, KEY_SETS),
    "JWK sets that were fetched": Parser(jwk_sets.usable_keys, MAX_BODY, KEY_SETS),
    "CloudEvents": Parser(
        lambda raw: http.read(request(raw, http.BATCH)), http.MAX_BODY, BATCHES
    ),
    "clients": Parser(define_client, MAX_BODY, LISTS | {
        name: make for member in ("client_uri", "scope")
        for name, make in in_member(member, TEXTS).items()
    } | {"grants beyond the scope": lambda size: {
        "scope": " ".join(f"a{n}" for n in range(size // 14)),
        "grants": [{"grant_type": "client_credentials", "scopes": [f"b{n}" for n in range(size // 14)]}],
    }}),
    "scope definitions": Parser(define_scope, MAX_BODY, LISTS | in_member("name", TEXTS) | in_member(
        "resource", TEXTS, name="a"
    )),
    "endpoints": Parser(define_endpoint, MAX_BODY, LISTS | in_member("url", TEXTS) | in_member(
        "secret", TEXTS, url="https://a.example/"
    ) | {"headers": lambda size: {"url": "https://a.example/", "headers": {f"x-{n}": "v" for n in range(size // 12)}}}),
    "filters": Parser(define_subscription, MAX_BODY, {
        "many pointers": lambda size: {"endpoint_id": "ep_1", "filter": {f"/{n:05}": 0 for n in range(size // 12)}},
        **{f"a pointer: {name}": lambda size, make=make: {  # type: ignore[misc]
            "endpoint_id": "ep_1", "events": ["a.b"], "filter": {f"/{make(size)}": 0},
        } for name, make in TEXTS.items()},
        **{f"a pattern: {name}": lambda size, make=make: {"endpoint_id": "ep_1", "events": [make(size)]}  # type: ignore[misc]
           for name, make in TEXTS.items()},
        "many patterns": listed("events", "a.b", endpoint_id="ep_1"),
    }),
}  # fmt: skip
CASES = [(parser, name) for parser, each in PARSERS.items() for name in each.inputs]


@pytest.mark.parametrize(("parser", "name"), CASES, ids=[f"{parser}: {name}" for parser, name in CASES])
def test_cost_grows_linearly(parser: str, name: str) -> None:
    parse, limit, inputs = PARSERS[parser]
    size = min(limit, LARGE)
    assert grows_linearly(parse, inputs[name](size // 2), inputs[name](size))


def grows_linearly(parse: Callable[[Any], object], half: Any, whole: Any) -> bool:
    """Whether the whole takes at most three times as much CPU time, by the best measurement of each.

    A busy machine disturbs single measurements, so there are five to 25. With a quadratic parser the
    best ones show 4, the more surely the more there are. A virtual machine sometimes counts too little for one of them,
    which then stays the best, so the median of the pairs decides in the end.
    """
    gc.disable()
    try:
        times = 1
        while min(cost(parse, half, times) for _ in range(3)) < 0.0003:  # shorter spans cannot be compared
            times *= 2
        halves, wholes = [], []
        for number in range(25):
            halves.append(cost(parse, half, times))
            wholes.append(cost(parse, whole, times))
            if number >= 4 and min(wholes) <= 3 * min(halves):
                return True
    finally:
        gc.enable()
    return statistics.median(wholes) <= 3 * statistics.median(halves)


def cost(parse: Callable[[Any], object], made: Any, times: int) -> float:
    """CPU seconds of this thread."""
    began = time.thread_time()
    for _ in range(times):
        parse(made)
    return time.thread_time() - began
