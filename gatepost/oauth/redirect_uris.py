"""Redirect URIs: which ones may be registered, and whether a request names a registered one. Rules, no I/O."""

import re
from urllib.parse import urlsplit

from gatepost.core.json_schema import HOST, PATH_AND_QUERY

# What JSON Schema can express of the rules: for web clients, and what native clients may register besides.
WEB_PATTERN = (
    rf"^https://{HOST}{PATH_AND_QUERY}$"
    rf"|^http://(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{{1,5}})?{PATH_AND_QUERY}$"
)
NATIVE_PATTERN = r"^[a-z][a-z0-9+-]*\.[a-z0-9+.-]*:/?(?:[!-\"$-.0-\[\]-~][!-\"$-\[\]-~]*)?$"
_LOOPBACK = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::([0-9]{1,5}))?([/?].*)?")


def problem(uri: str, *, native: bool) -> str:
    """What is wrong with a redirect URI; empty if nothing is. RFC 9700, section 4.1; RFC 8252, section 7."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return "is not a URI"
    if not uri.isascii() or not uri.isprintable() or len(uri) > 2048:
        return "must be at most 2048 printable ASCII characters"
    if " " in uri or "\\" in uri:
        return f"must have no {'space' if ' ' in uri else 'backslash'}"
    if not parts.scheme:
        return "must be an absolute URI, such as https://app.example.com/callback"
    if "#" in uri:
        return "must have no fragment"
    if "@" in parts.netloc:
        return "must have no user or password"
    if not uri.startswith(parts.scheme + ":"):
        return "must have its scheme in lower case, since redirect URIs are compared as strings"
    if parts.scheme in ("https", "http") and not re.fullmatch(HOST, parts.netloc):
        return "must have a host: a name or an address, without wildcards"
    if parts.scheme == "https":
        return ""
    if parts.scheme == "http":
        loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
        return "" if loopback else "must be https, or http on loopback"
    if native and "." in parts.scheme:
        return ""
    return (
        "must be https, http on loopback, or (native) a private-use scheme with a dot, like com.example.app:/callback"
    )


def matches(sent: str, registered: str) -> bool:
    """Whether the two are the same string. On http loopback the port may differ: RFC 8252, section 7.3.

    `localhost` is treated like the loopback addresses, because many development tools register it and listen on a
    port that they choose at start. `localhost` and an address never match each other.
    """
    if sent == registered:
        return True
    registered_parts, sent_parts = _LOOPBACK.fullmatch(registered), _LOOPBACK.fullmatch(sent)
    if registered_parts is None or sent_parts is None or int(sent_parts[2] or 80) > 65535:
        return False
    return registered_parts[1] == sent_parts[1] and registered_parts[3] == sent_parts[3]
