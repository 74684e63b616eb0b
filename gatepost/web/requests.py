"""Reading requests: a frozen value of what was sent, and strict readers of forms, JSON and addresses."""

import ipaddress
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from gatepost.errors import Refusal

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_BODY = 64 * 1024
FORM = "application/x-www-form-urlencoded"
_MOST_PARAMETERS = 100
_DEEPEST = 32
_ONCE = ("authorization", "content-type", "gatepost-version", "idempotency-key")


class Request(msgspec.Struct):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    source: str
    id: str

    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def fields(sent: list[tuple[bytes, bytes]]) -> dict[str, str] | Refusal:
    """Header fields by name. RFC 9110, section 5.3: those that repeat are one list, unless they may not repeat."""
    found = {name.decode("latin-1"): value.decode("latin-1") for name, value in sent}
    if len(found) == len(sent):
        return found
    names = [name.decode("latin-1") for name, _ in sent]
    for name in _ONCE:
        if names.count(name) > 1:
            return Refusal("invalid_request", f"{name.title()}: sent more than once")
    return {
        name: ", ".join(value.decode("latin-1") for other, value in sent if other == name.encode("latin-1"))
        for name in found
    }


async def body(receive: Receive, declared: str | None) -> bytes | Refusal:
    """The whole body, or a refusal as soon as it is known to be too large."""
    too_large = Refusal("request_too_large", f"the body may have at most {MAX_BODY} bytes")
    if declared is not None and declared.isascii() and declared.isdigit() and int(declared[:12]) > MAX_BODY:
        return too_large
    message = await receive()
    found: bytes = message.get("body", b"")
    if not message.get("more_body") and message["type"] == "http.request":
        return found if len(found) <= MAX_BODY else too_large
    parts, size = [found], len(found)
    while message.get("more_body") and size <= MAX_BODY:
        message = await receive()
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
    if message["type"] != "http.request":
        return Refusal("invalid_request", "the body ended early: what was cut off is not acted on")
    return too_large if size > MAX_BODY else b"".join(parts)


def source(peer: str, headers: Mapping[str, str], trusted: tuple[str, ...]) -> str:
    """The caller's address. `Forwarded` and `X-Forwarded-For` count only as far as trusted proxies vouch for them.

    Where both are sent they must agree: a proxy that writes the one may pass on the other as the caller wrote it.
    """
    if not trusted or not _is_trusted(peer, trusted):
        return peer
    found = {_farthest(peer, chain, trusted) for chain in _chains(headers)}
    return found.pop() if len(found) == 1 else peer


def _farthest(peer: str, chain: list[str], trusted: tuple[str, ...]) -> str:
    """The first address, from the nearest on, that no trusted proxy has; or the last that is known."""
    for hop in reversed(chain):
        if not _is_address(hop):
            return peer
        if not _is_trusted(hop, trusted):
            return hop
        peer = hop
    return peer


def _chains(headers: Mapping[str, str]) -> list[list[str]]:
    """RFC 7239 `for=` values, and those of the older header; nearest last."""
    chains = []
    if "forwarded" in headers:
        chains.append([_bare(_for(element)) for element in headers["forwarded"].split(",")])
    if "x-forwarded-for" in headers:
        chains.append([_bare(part.strip()) for part in headers["x-forwarded-for"].split(",") if part.strip()])
    return chains


def _for(element: str) -> str:
    pairs = dict(part.strip().lower().partition("=")[::2] for part in element.split(";"))
    return pairs.get("for", "").strip('"')


def _bare(node: str) -> str:
    if node.startswith("["):
        return node[1:].partition("]")[0]
    return node.partition(":")[0] if node.count(":") == 1 else node


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def _is_trusted(address: str, trusted: tuple[str, ...]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(network) for network in trusted)


def form(request: Request, *, repeatable: tuple[str, ...] = ()) -> dict[str, list[str]] | Refusal:
    """Parameters of a form body. RFC 6749, sections 3.2 and B: empty is absent, none may repeat but those named."""
    if request.media_type() != FORM:
        return Refusal("invalid_request", f"the body must be {FORM}")
    return parameters(request.body, repeatable=repeatable)


def parameters(raw: bytes, *, repeatable: tuple[str, ...] = ()) -> dict[str, list[str]] | Refusal:
    found: dict[str, list[str]] = {}
    if raw.count(b"&") >= _MOST_PARAMETERS:
        return Refusal("invalid_request", f"at most {_MOST_PARAMETERS} parameters")
    try:
        text = raw.decode("utf-8")
        for pair in text.split("&"):
            if not pair:
                continue
            name, _, value = pair.partition("=")
            if value:
                found.setdefault(_decoded(name), []).append(_decoded(value))
    except UnicodeDecodeError:
        return Refusal("invalid_request", "the parameters are not UTF-8")
    for name, values in found.items():
        if len(values) > 1 and name not in repeatable:
            return Refusal("invalid_request", f"{name[:64]}: sent more than once", name[:64])
        if any("\0" in value for value in values) or "\0" in name:
            return Refusal("invalid_request", f"{name[:64]!a}: holds a NUL character", "")
    return found


def _decoded(text: str) -> str:
    if "+" in text:
        text = text.replace("+", " ")
    return unquote_to_bytes(text).decode("utf-8") if "%" in text else text


def json_object(request: Request) -> dict[str, Any] | Refusal:
    """A JSON object without duplicate keys, NUL, what is not UTF-8, and what no store or reader could give back."""
    if request.media_type() != "application/json":
        return Refusal("unsupported_media_type", "the body must be application/json")
    try:
        text = request.body.decode("utf-8")
    except UnicodeDecodeError:
        return Refusal("invalid_request", "the body is not UTF-8")
    duplicate: list[str] = []
    try:
        found = _strict_json(text, duplicate)
    except ValueError as error:
        return Refusal("invalid_request", f"the body is not JSON: {error}")
    except RecursionError:
        return Refusal("invalid_request", f"the body is nested more than {_DEEPEST} deep")
    if duplicate:
        name = duplicate[0][:64].encode("utf-8", "replace").decode()
        return Refusal("invalid_request", f"{name!a}: the member stands twice", f"/{name}")
    if not isinstance(found, dict):
        return Refusal("invalid_request", "the body must be a JSON object")
    fault = _fault(found, "", 0)
    if fault is not None:
        return Refusal("invalid_request", f"{fault[0] or 'the body'} {fault[1]}", fault[0])
    return found


def _strict_json(text: str, duplicate: list[str]) -> Any:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        whole = dict(found)
        if len(whole) != len(found):
            names = [name for name, _ in found]
            duplicate.extend(name for name in whole if names.count(name) > 1)
        return whole

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def integer(digits: str) -> int:
        return int(digits[:25])  # enough to see that it is too large; Python refuses to read thousands of digits

    return json.loads(text, object_pairs_hook=pairs, parse_constant=no_constant, parse_int=integer)


def _fault(value: Any, pointer: str, depth: int) -> tuple[str, str] | None:
    """Where, and what is wrong there: what a database cannot take or a reader of ours could not give back."""
    match value:
        case str():
            return None if value.isprintable() or _storable(value) else (pointer, _UNSTORABLE)
        case int() if not -(1 << 63) <= value < 1 << 63:
            return pointer, "is a number beyond 64 bits"
        case float() if not math.isfinite(value):
            return pointer, "is a number beyond 64 bits"
        case dict() | list() if depth == _DEEPEST:
            return pointer, f"is nested more than {_DEEPEST} deep"
        case dict():
            for name, inner in value.items():
                within = f"{pointer}/{name[:64].replace('~', '~0').replace('/', '~1')}"  # RFC 6901, section 3
                found = _fault(inner, within, depth + 1) if _storable(name) else (pointer, _UNSTORABLE)
                if found is not None:
                    return found
        case list():
            for index, inner in enumerate(value):
                found = _fault(inner, f"{pointer}/{index}", depth + 1)
                if found is not None:
                    return found
    return None


_UNSTORABLE = "holds a NUL or half a character pair"


def _storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
