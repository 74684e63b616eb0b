"""libcurl's errors: the phase in which a request failed, and a description that a receiver's owner understands."""

import errno
import re
from typing import Any

import pycurl  # type: ignore[import-untyped]

from gatepost.egress.resolver import NOT_PUBLIC


def timed_out(phase: str, timeout: float) -> str:
    """Describe a timeout in this phase."""
    return f"no complete response within {timeout:g} s: timed out while {_ACTIVITIES[phase]}"


def describe(phase: str, error: int, message: str, curl: Any, *, proxied: bool, headers: bool) -> str:
    """Describe a failure other than a timeout. `headers` tells whether some of the response headers arrived."""
    match phase:
        case "connect" if proxied:  # the proxy's status would disclose which internal names exist
            return "the egress proxy could not connect"
        case "connect":
            return _CONNECT_ERRORS.get(curl.getinfo(pycurl.OS_ERRNO), "the connection could not be established")
        case "tls":
            return _describe_tls(error, message, curl)
        case "send" | "first_byte" if error == _HTTP2_STREAM:
            code = re.search(r"\b[A-Z1_]{8,}\b", message)  # such as INTERNAL_ERROR
            return "the HTTP/2 stream was reset" + (f": {code[0]}" if code else "")
        case "first_byte" if error == _TOO_LARGE or message.startswith("Too large response headers"):
            return "the response headers are too large"
        case "first_byte" if error not in _CLOSED:
            return "the response is not HTTP"
        case "first_byte" if headers:
            return "the response ended in the middle of its headers"
        case _:
            return _INTERRUPTED[phase]


def is_tls_alert(message: str) -> bool:
    """Whether this is libcurl's message about an alert of the receiver, which may follow the handshake in TLS 1.3."""
    reason = _TLS_REASON.search(message)
    return reason is not None and " alert " in reason[1]


def _describe_tls(error: int, message: str, curl: Any) -> str:
    result = curl.getinfo(pycurl.SSL_VERIFYRESULT)
    if error == pycurl.E_PEER_FAILED_VERIFICATION:
        return f"the certificate {_CERTIFICATE_ERRORS.get(result, 'was not accepted')}"
    reason = _TLS_REASON.search(message)
    if reason is None and error in LOST and curl.getinfo(pycurl.APPCONNECT_TIME_T):
        return "the receiver closed the connection after the TLS handshake; it may require a client certificate"
    return "the TLS handshake failed" + (f": {reason[1]}" if reason else "")


_TOO_LARGE, _PROXY, _HTTP2_STREAM = 100, 97, 92  # errors that pycurl does not name
_TLS_REASON = re.compile(r"routines::([a-z0-9/ ]+)")
_CLOSED = {0, pycurl.E_HTTP2, pycurl.E_GOT_NOTHING, pycurl.E_RECV_ERROR, pycurl.E_SEND_FAIL_REWIND}
LOST = {pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR}  # errors if a connection breaks
CLOSED_REUSED = {*_CLOSED, pycurl.E_SEND_ERROR} - {0}  # errors if the receiver closes a reused connection
PHASES = {
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    **dict.fromkeys((pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_COULDNT_CONNECT, _PROXY), "connect"),
    **dict.fromkeys(
        (
            pycurl.E_SSL_CONNECT_ERROR, pycurl.E_SSL_ENGINE_NOTFOUND, pycurl.E_SSL_ENGINE_SETFAILED,
            pycurl.E_SSL_ENGINE_INITFAILED, pycurl.E_SSL_CERTPROBLEM, pycurl.E_SSL_CIPHER,
            pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_SSL_SHUTDOWN_FAILED,
            pycurl.E_SSL_CRL_BADFILE, pycurl.E_SSL_ISSUER_ERROR, pycurl.E_SSL_PINNEDPUBKEYNOTMATCH,
            pycurl.E_SSL_INVALIDCERTSTATUS, pycurl.E_USE_SSL_FAILED,
        ),
        "tls",
    ),
    **dict.fromkeys((pycurl.E_SEND_ERROR, pycurl.E_READ_ERROR), "send"),
    **dict.fromkeys((pycurl.E_GOT_NOTHING, pycurl.E_SEND_FAIL_REWIND), "first_byte"),
}  # fmt: skip
_ACTIVITIES = {
    "dns": "looking up the host name",
    "connect": "connecting",
    "tls": "performing the TLS handshake",
    "send": "sending the request",
    "first_byte": "waiting for the response",
    "body": "reading the response body",
}
_INTERRUPTED = {
    "dns": NOT_PUBLIC,
    "send": "the connection was lost while the request was being sent",
    "first_byte": "the receiver closed the connection without a response",
    "body": "the response ended in the middle of its body",
}
_CONNECT_ERRORS = {
    errno.ECONNREFUSED: "the connection was refused",
    errno.ETIMEDOUT: "the host did not respond",
    errno.EHOSTUNREACH: "the host cannot be reached",
    errno.ENETUNREACH: "the host cannot be reached",
    errno.ECONNRESET: "the connection was reset",
}
_CERTIFICATE_ERRORS = {  # OpenSSL's X509_V_ERR_…
    9: "is not valid yet",
    10: "has expired",
    18: "is self-signed",
    19: "is signed by an authority that is not trusted",
    20: "is signed by an unknown authority, or an intermediate certificate is missing",
    21: "is signed by an unknown authority, or an intermediate certificate is missing",
    23: "has been revoked",
    24: "is signed by a certificate that is not an authority's",
    26: "may not be used by servers, according to its extended key usage",
    66: "has a key that is too small",
    67: "is signed by an authority whose key is too small",
    68: "is signed with a hash algorithm that is too weak",
    79: "is signed by a certificate that is not an authority's",
    **dict.fromkeys((0, 1, 62, 64), "is not for this host"),
}
