"""Resources: the audiences of tokens, absolute URIs in normal form. RFC 8707, section 2.

The normal form is that of RFC 3986, sections 6.2.2 and 6.2.3, without userinfo and fragment. Verifiers normalize URLs
in different ways. Because only the normal form is accepted, two different resources stay different after any of these.
"""

import ipaddress
import re
import unicodedata
from typing import Any
from urllib.parse import SplitResult, urlsplit

MAX_LENGTH = 512
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}  # schemes whose URLs always have a host
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*")  # RFC 3986, appendix A
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_EXAMPLE = "such as https://api.example.com"


def owned_as(resource: str) -> str:
    """The name under which a resource belongs to an account. Many verifiers ignore a trailing slash, so it is left out.

    The same applies to a slash before a query: `https://a.example?v=1` and `https://a.example/?v=1` are
    the same by RFC 3986, section 6.2.3.
    """
    path, _, query = resource.rstrip("/").partition("?")
    return f"{path.rstrip('/')}?{query}" if query else path.rstrip("/")


def problem(value: Any, base_url: str) -> str:
    """What is wrong with a resource; empty if nothing is."""
    if not isinstance(value, str) or not value or not value.isprintable() or " " in value:
        return f"must be an absolute URI, {_EXAMPLE}"
    if len(value) > MAX_LENGTH:
        return f"must have at most {MAX_LENGTH} characters"
    normal = normal_form(value)
    if base_url and is_base_url(value, base_url):
        return "must not be Gatepost's own base URL, which is the resource of the gatepost: scopes"
    if normal is None:
        return f"must be an absolute URI in normal form, {_EXAMPLE}"
    if normal.startswith("urn:gatepost:"):
        return "must not start with urn:gatepost: (leave resource out for the account's own resource)"
    return "" if normal == value else f"must be in normal form: {normal}"


def is_base_url(value: str, base_url: str) -> bool:
    """Whether the value is the base URL, or another spelling of it."""
    normal = normal_form(owned_as(value))
    return normal is not None and owned_as(normal) == normal_form(base_url)


def normal_form(value: str) -> str | None:
    """The only spelling that is accepted; None if the value is not a URI or is ambiguous."""
    try:
        uri = urlsplit(value)
        scheme = uri.scheme.lower()
        host = _host(uri, scheme) if uri.netloc else ""
    except (ValueError, UnicodeError):
        return None
    rest = value.partition("#")[0].partition(":")[2]
    if not _SCHEME.fullmatch(scheme) or host is None or (scheme in _PORTS and not host):
        return None
    path, _, query = rest.partition("?")
    if host:
        path = path.removeprefix("//")[len(uri.netloc) :]
    path, query = _escapes(path), _escapes(query)
    if not _CHARACTERS.fullmatch(path + query) or _is_ambiguous(path):
        return None
    path = _without_dot_segments(path)
    if not (host or path) or "%" in _ESCAPE.sub("", query):
        return None
    if scheme == "urn":  # RFC 8141, section 3.1: the namespace identifier is case-insensitive
        namespace, colon, name = path.partition(":")
        path = namespace.lower() + colon + name
    return f"{scheme}:{f'//{host}' if host else ''}{path}{f'?{query}' if query else ''}"


def _host(uri: SplitResult, scheme: str) -> str | None:
    """Host and port in normal form, without userinfo."""
    name = (uri.hostname or "").rstrip(".")
    if not name.isascii():
        name = name.encode("idna").decode()
    port = "" if uri.port is None or uri.port == _PORTS.get(scheme) else f":{uri.port}"
    if uri.netloc.rpartition("@")[2].startswith("["):
        address = ipaddress.IPv6Address(name)
        mapped = address.ipv4_mapped
        text = f"::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}" if mapped else str(address)
        return None if address.scope_id else f"[{text}]{port}"
    labels = name.split(".")
    if not all(_LABEL.fullmatch(label) and _is_sound(label) for label in labels) or len(name) > 253:
        return None
    if _NUMBER.fullmatch(labels[-1]):  # an IPv4 address, which many parsers also read in hexadecimal or in part
        return f"{ipaddress.IPv4Address(name)}{port}"
    return f"{name}{port}"


def _is_sound(label: str) -> bool:
    """Whether a label in punycode (RFC 3492) encodes characters that have no simpler spelling."""
    if not label.startswith("xn--"):
        return True
    letters = label[4:].encode().decode("punycode")
    plain = unicodedata.normalize("NFKC", letters).lower()
    return not letters.isascii() and plain == letters and letters.encode("punycode").decode() == label[4:]


def _escapes(text: str) -> str:
    """Normalizes escapes (RFC 3986, section 6.2.2): upper-case digits, and none for a character that needs none."""

    def escape(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        return character if _UNRESERVED.fullmatch(character) else match[0].upper()

    return _ESCAPE.sub(escape, text)


def _is_ambiguous(path: str) -> bool:
    """Whether verifiers read the path differently: a lone %, an escaped slash or control character, `..;`, `//`."""
    if "%" in _ESCAPE.sub("", path) or re.search(r"%(2F|5C|[01][0-9A-F]|7F)", path):
        return True
    segments = path.split("/")
    return any(re.match(r"\.\.?;", segment) for segment in segments) or "" in segments[1:-1]


def _without_dot_segments(path: str) -> str:
    """Removes dot segments (RFC 3986, section 5.2.4) from a path without empty segments."""
    if not {".", ".."}.intersection(path.split("/")):
        return path
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == ".." and len(kept) > 1:
            kept.pop()
        elif segment not in (".", ".."):
            kept.append(segment)
    if segments[-1] in (".", "..") and kept[-1:] != [""]:
        kept.append("")
    return "/".join(kept)
