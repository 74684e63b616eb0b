"""Requests as frozen values, and strict parsers of forms, JSON and addresses."""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from gatepost.core.errors import Refusal
from gatepost.core.strict_json import read_json

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]

FORM = "application/x-www-form-urlencoded"
MAX_PARAMETERS = 100
_MAX_ADDRESS = 45  # characters of an IPv6 address that ends in an IPv4 one
NO_HOST = Refusal("invalid_request", "Host: missing; HTTP/1.1 requires it (RFC 9112, section 3.2)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"?')
_ONCE = ("host", "authorization", "content-type", "gatepost-version", "idempotency-key")


class Request(msgspec.Struct):
    """A request whose body has arrived. `source` is the address of the caller."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    source: str
    id: str
    bases: tuple[str, ...] = ()  # that the requested URL may have, if it is not the public one

    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def fields(sent: list[tuple[bytes, bytes]]) -> dict[str, str] | Refusal:
    """Header fields by name. Repeated fields are joined to a list if that is allowed (RFC 9110, section 5.3).

    A proxy may have received `Cookie` in several fields, as HTTP/2 allows.
    """
    single = {name.decode("latin-1"): value.decode("latin-1") for name, value in sent}
    if len(single) == len(sent):
        return single
    values: dict[str, list[str]] = {}
    for name, value in sent:
        values.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    for once in _ONCE:
        if len(values.get(once, ())) > 1:
            return Refusal("invalid_request", f"{once.title()}: sent more than once")
    return {name: ("; " if name == "cookie" else ", ").join(repeated) for name, repeated in values.items()}


def has_encoded_slash(scope: Scope) -> bool:
    """Whether the path had a slash as `%2F`, which does not separate. A proxy's rules for paths may miss it."""
    return b"%2f" in scope.get("raw_path", b"").lower()


def peer_address(scope: Scope) -> str:
    """The address of the other end of the connection. A listener on `::` sees IPv4 addresses mapped to IPv6."""
    return _unmapped(scope["client"][0]) if scope.get("client") else ""


@lru_cache(maxsize=4096)
def _unmapped(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(getattr(parsed, "ipv4_mapped", None) or address)


def source(peer: str, headers: Mapping[str, str], trusted: tuple[str, ...]) -> str:
    """The caller's address. `Forwarded` and `X-Forwarded-For` are used as far as trusted proxies wrote them.

    If both are sent, they must agree: a proxy that writes one of them may forward the other as the caller wrote it.
    """
    if not trusted or not is_trusted(peer, trusted):
        return peer
    addresses = {_farthest(peer, hops, trusted) for hops in _hops(headers)}
    return addresses.pop() if len(addresses) == 1 else peer


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Whether the request has a header that says for whom it was forwarded."""
    return "forwarded" in headers or "x-forwarded-for" in headers


def _farthest(peer: str, hops: Iterable[str], trusted: tuple[str, ...]) -> str:
    """The first address, starting with the nearest, that is not of a trusted proxy; otherwise the last known one."""
    for hop in hops:
        if not _is_address(hop):
            return peer
        peer = _unmapped(hop)
        if not is_trusted(peer, trusted):
            return peer
    return peer


def _hops(headers: Mapping[str, str]) -> Iterator[Iterator[str]]:
    """The `for=` values of RFC 7239, or those of the older header, nearest first. They are parsed on demand."""
    if "forwarded" in headers:
        yield (_without_port(_for(element)) for element in _parts(headers["forwarded"], ","))
    if "x-forwarded-for" in headers:
        parts = reversed(headers["x-forwarded-for"].split(","))
        yield (_without_port(part.strip()) for part in parts if part.strip())


def _for(element: str) -> str:
    """The value of `for`, which an element has at most once."""
    pairs = (part.strip().lower().partition("=") for part in _parts(element, ";"))
    values = [value.strip('"') for name, _, value in pairs if name == "for"]
    return values[0] if len(values) == 1 else ""


def _parts(text: str, separator: str) -> Iterator[str]:
    """The parts from right to left. A separator in a quoted string does not separate: it may come from the caller.

    So may the part that is farthest to the left, in which a quoted string has no beginning. It is returned empty.
    """
    end, quoted = len(text), False
    for place in range(len(text) - 1, -1, -1):
        if text[place] == '"' and not _is_escaped(text, place):
            quoted = not quoted
        elif text[place] == separator and not quoted:
            yield text[place + 1 : end]
            end = place
    yield "" if quoted else text[:end]


def _is_escaped(text: str, place: int) -> bool:
    before = place
    while before and text[before - 1] == "\\":
        before -= 1
    return (place - before) % 2 == 1


def _without_port(node: str) -> str:
    if node.startswith("["):
        return node[1:].partition("]")[0]
    return node.partition(":")[0] if node.count(":") == 1 else node


def _is_address(text: str) -> bool:
    if len(text) > _MAX_ADDRESS or "%" in text:  # a zone (RFC 4007) has no meaning on another machine
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def is_trusted(address: str, trusted: tuple[str, ...]) -> bool:
    """Whether the address is in one of the networks."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in ipaddress.ip_network(network) for network in trusted)


def preferences(header: str) -> list[str]:
    """The preferences in a `Prefer` header without their parameters, in lower case (RFC 7240, section 2)."""
    parts = _QUOTED.sub('""', header).split(",") if header else []
    return [part.partition(";")[0].strip().lower() for part in parts]


def form(request: Request, *, repeatable: tuple[str, ...] | None = ()) -> dict[str, list[str]] | Refusal:
    """The parameters of a form body. RFC 6749, section 3.2 and appendix B."""
    if request.media_type() != FORM:
        return Refusal("invalid_request", f"the body must be {FORM}")
    return parameters(request.body, repeatable=repeatable)


def parameters(raw: bytes, *, repeatable: tuple[str, ...] | None = ()) -> dict[str, list[str]] | Refusal:
    """The parameters of a form or query by name. A parameter without a value is omitted.

    Only those in `repeatable` may be repeated. With None all may be, and the caller checks which must not.
    """
    values_by_name: dict[str, list[str]] = {}
    if raw.count(b"&") >= MAX_PARAMETERS:
        return Refusal("invalid_request", f"at most {MAX_PARAMETERS} parameters are allowed")
    try:
        for pair in raw.decode("utf-8").split("&"):
            name, _, value = pair.partition("=")
            if value:
                values_by_name.setdefault(_unquote(name), []).append(_unquote(value))
    except UnicodeDecodeError:
        return Refusal("invalid_request", "the parameters are not UTF-8")
    has_nul = b"\0" in raw or b"%00" in raw
    for name, values in values_by_name.items():
        if len(values) > 1 and repeatable is not None and name not in repeatable:
            return Refusal("invalid_request", f"{name[:64]}: sent more than once", name[:64])
        if has_nul and "\0" in "".join((name, *values)):
            return Refusal("invalid_request", f"{name[:64]!a}: contains a NUL character", "")
    return values_by_name


def parameters_sent_once(raw: bytes, names: Collection[str]) -> dict[str, list[str]]:
    """These parameters of a form, even if the form is invalid; none if one of them is repeated."""
    pairs = [pair.partition(b"=") for pair in raw.split(b"&")]
    sent: dict[str, list[str]] = {}
    for name in names:
        values = [value for sent_name, _, value in pairs if value and sent_name == name.encode()]
        if len(values) > 1:
            return {}
        try:
            value = _unquote(values[0].decode("utf-8")) if values else ""
        except UnicodeDecodeError:
            continue
        if value and "\0" not in value:
            sent[name] = [value]
    return sent


def _unquote(text: str) -> str:
    if "+" in text:
        text = text.replace("+", " ")
    return unquote_to_bytes(text).decode("utf-8") if "%" in text else text


def json_object(request: Request) -> dict[str, Any] | Refusal:
    """The body as a JSON object, parsed strictly."""
    if request.media_type() != "application/json":
        return Refusal("unsupported_media_type", "the body must be application/json")
    parsed = read_json(request.body)
    if isinstance(parsed, Refusal):
        return parsed
    if not isinstance(parsed.value, dict):
        return Refusal("invalid_request", "the body must be a JSON object")
    return parsed.value
