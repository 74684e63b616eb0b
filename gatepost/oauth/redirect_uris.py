"""Redirect URIs: which may be registered, and which registered one a request names. Rules, no I/O."""

import re
from urllib.parse import urlsplit

HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_LOOPBACK = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::([0-9]{1,5}))?([/?].*)?")


def problem(uri: str, *, native: bool) -> str:
    """What is wrong with a redirect URI; empty when nothing is. RFC 9700, section 4.1; RFC 8252, section 7."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return "is not a URI"
    if not uri.isascii() or not uri.isprintable() or " " in uri or "\\" in uri or len(uri) > 2048:
        return "must be at most 2048 printable ASCII characters"
    if "#" in uri:
        return "must have no fragment"
    if "@" in parts.netloc:
        return "must have no user or password"
    if not uri.startswith(parts.scheme + ":"):
        return "must have its scheme in lower case: it is compared as it is"
    if parts.scheme in ("https", "http") and not re.fullmatch(HOST, parts.netloc):
        return "must have a host: a name or an address, without wildcards"
    if parts.scheme == "https":
        return ""
    if parts.scheme == "http":
        loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
        return "" if loopback else "must be https, or http on loopback"
    if native and "." in parts.scheme:
        return ""
    return "must be https, http on loopback, or (native) a private-use scheme with a dot, as com.example.app:/callback"


def matches(sent: str, registered: str) -> bool:
    """Whether the two are the same string. On http loopback the port may differ: RFC 8252, section 7.3.

    `localhost` is treated like the loopback addresses, because many development tools register it and listen on a
    port that they choose at start. It never matches an address, nor an address it.
    """
    if sent == registered:
        return True
    known, found = _LOOPBACK.fullmatch(registered), _LOOPBACK.fullmatch(sent)
    if known is None or found is None or int(found[2] or 80) > 65535:
        return False
    return known[1] == found[1] and known[3] == found[3]
