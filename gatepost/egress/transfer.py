"""One HTTP request by libcurl: what goes out, the handle that sends it, and what came back.

A request goes out once: nothing is sent again, no redirect is followed, nothing is taken from the environment, and
`address_guard` checks every address before a connection to it is made.

libcurl would send a request again by itself in two cases. The receiver closes a reused connection instead of
responding: the body comes from a function that cannot rewind, so libcurl gives up. The receiver accepts no HTTP/2:
`Transfer` aborts when libcurl begins the request a second time, and uses HTTP/1.1 for the next request to that host.
"""

import asyncio
import io
import math
import socket
import time
from typing import Any, NamedTuple

import msgspec
import pycurl  # type: ignore[import-untyped]

from gatepost.egress.address_guard import Policy, address_problem
from gatepost.egress.curl_errors import CLOSED_REUSED, LOST, PHASES, describe, is_tls_alert, timed_out
from gatepost.egress.curl_loop import CurlLoop
from gatepost.egress.resolver import NOT_PUBLIC
from gatepost.egress.shortage import of_transfer, resource_of

MAX_READ = 64 * 1024  # bytes of a response body
MAX_STORED = 4 * 1024  # bytes of a response body
NAME_TTL = 60  # seconds for which the addresses of a name are used
_END_OF_HEADERS = (b"\r\n", b"\n")


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A request to make."""

    key: Any  # returned with the result
    url: str
    headers: list[str]  # as "name: value", content-type and user-agent included
    body: bytes  # never empty: libcurl resends a request without a body by itself
    timeout: float  # seconds, from the start to the last byte of the response
    account: str = ""  # its name: the look-up counts towards this account's share
    new_connection: bool = False  # do not reuse a connection


class SendResult(NamedTuple):
    """The result of a request. Timings are milliseconds from the start to the end of that phase."""

    key: Any
    code: int | None  # if complete response headers arrived
    failure: str | None  # None, or one of FAILURES
    detail: str  # for the receiver's owner; never holds an address
    retry_after: str | None
    timings: dict[str, float]
    duration_ms: float
    remote_ip: str | None
    response: bytes  # the first 4 KiB of the body
    connection_closed: bool = False  # the receiver closed a reused connection before any byte of a response
    shortage: str = ""  # the resource that this process ran out of, so that nothing was sent


class Target:
    """A host and port that requests go to, or the problem that forbids it."""

    __slots__ = ("host", "lookup", "new_until", "only_http1", "port", "problem", "valid_until", "waiting")

    def __init__(self, host: str, port: int, problem: str = "") -> None:
        self.host = host
        self.port = port
        self.problem = problem
        self.valid_until = 0.0  # when its addresses must be looked up again
        self.lookup: list[str] = []  # its addresses for libcurl's RESOLVE option, until libcurl has them
        self.waiting: list[PendingLookup] = []
        self.new_until = 0.0  # no connection is reused before this time
        self.only_http1 = False  # it refused a request over HTTP/2

    def connection_lost(self) -> None:
        """The receiver closed an idle connection. libcurl might use it until it checks again, a second later."""
        self.new_until = time.monotonic() + 1.1


class PendingLookup:
    """A request that waits for the addresses of its host."""

    __slots__ = ("alarm", "outgoing", "since", "target")

    alarm: asyncio.TimerHandle  # set by the sender

    def __init__(self, outgoing: Outgoing, target: Target, since: float) -> None:
        self.outgoing = outgoing
        self.target = target
        self.since = since


SAFE_OPTIONS = {  # for every request that leaves the service
    pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
    pycurl.FOLLOWLOCATION: 0,
    pycurl.NETRC: 0,
    pycurl.NOPROXY: "",  # otherwise the environment variable would apply
    pycurl.SSL_VERIFYPEER: 1,
    pycurl.SSL_VERIFYHOST: 2,
    pycurl.SSLVERSION: pycurl.SSLVERSION_TLSv1_2,
    pycurl.NOSIGNAL: 1,
}
_OPTIONS = SAFE_OPTIONS | {
    pycurl.POST: 1,
    pycurl.PATH_AS_IS: 1,
    pycurl.DNS_CACHE_TIMEOUT: 2 * NAME_TTL,
    pycurl.MAXLIFETIME_CONN: 300,
}


class Transfer:
    """A libcurl handle, reused for one request after the other."""

    outgoing: Outgoing
    target: Target

    def __init__(self, policy: Policy, curl_loop: CurlLoop, proxy: str, ca: str) -> None:
        self._policy = policy
        self._curl_loop = curl_loop
        self._proxied = bool(proxy)
        self._over_socks = proxy.startswith("socks")
        self._waited = 0.0
        self._timeout = 0.0
        self._new_connection = False
        self._lines: list[bytes] = []  # status line and headers
        self._tunnel_lines: list[bytes] = []  # those of the proxy's response to CONNECT
        self._body = bytearray()  # its beginning
        self._read = 0
        self._refused = ""
        self._shortage = ""
        self._address: Any = None
        self._opened = False
        self._begun = 0  # how often libcurl has begun the request
        self._reused = False  # it was begun on a connection that had been opened before
        self._version: int | None = None
        self.curl = curl = pycurl.Curl()
        for option, value in _OPTIONS.items():
            curl.setopt(option, value)
        curl.setopt(pycurl.PROXY, proxy)  # an empty value ignores the proxies of the environment
        curl.setopt(pycurl.CAINFO, ca)
        curl.setopt(pycurl.PROXY_CAINFO, ca)
        curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open)
        curl.setopt(pycurl.PREREQFUNCTION, self._begin)
        curl.setopt(pycurl.HEADERFUNCTION, self._receive_header if proxy else self._lines.append)
        curl.setopt(pycurl.WRITEFUNCTION, self._receive)

    def prepare(self, outgoing: Outgoing, target: Target, waited: float) -> None:
        """Set the options of the next request. `waited` are the seconds that the look-up of its host took."""
        self.outgoing = outgoing
        self.target = target
        self._waited = waited
        self._lines.clear()
        self._tunnel_lines.clear()
        self._body.clear()
        self._read = 0
        self._refused = ""
        self._shortage = ""
        self._opened = False
        self._begun = 0
        setopt = self.curl.setopt
        setopt(pycurl.URL, outgoing.url)
        setopt(pycurl.HTTPHEADER, [*outgoing.headers, "Expect:"])
        setopt(pycurl.POSTFIELDSIZE_LARGE, len(outgoing.body))
        setopt(pycurl.READFUNCTION, io.BytesIO(outgoing.body).read)
        left = outgoing.timeout - waited
        if left != self._timeout:
            self._timeout = left
            setopt(pycurl.TIMEOUT_MS, max(1, int(left * 1000)))
            setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(left * 1000)))

    def set_connection(self, now: float) -> None:
        """Set the options that are known only just before the transfer is added."""
        if self.target.lookup:
            self.curl.setopt(pycurl.RESOLVE, self.target.lookup)
        new_connection = self.outgoing.new_connection or self.target.new_until > now
        if new_connection != self._new_connection:
            self._new_connection = new_connection
            self.curl.setopt(pycurl.FRESH_CONNECT, new_connection)
        version = pycurl.CURL_HTTP_VERSION_1_1 if self.target.only_http1 else pycurl.CURL_HTTP_VERSION_2TLS
        if version != self._version:
            self._version = version
            self.curl.setopt(pycurl.HTTP_VERSION, version)

    def _open(self, _purpose: int, address: Any) -> int:
        """Open a socket for a connection to this address, if the policy allows it."""
        host, port = address.addr[:2]
        problem = "" if self._proxied else address_problem(self._policy, host, port)
        if problem:
            self._refused = problem
            return int(pycurl.SOCKET_BAD)
        self._opened = True
        self._address = address
        try:
            fd = socket.socket(address.family, address.socktype, address.protocol).detach()
        except OSError as error:
            self._shortage = resource_of(error)
            return int(pycurl.SOCKET_BAD)
        self._curl_loop.add_connection(fd, self.target.connection_lost)
        return fd

    def _begin(self, *_addresses: object) -> int:
        """Let libcurl begin the request on a connection, but only once."""
        self._begun += 1
        if self._begun == 1:
            self._reused = not self._opened
            return int(pycurl.PREREQFUNC_OK)
        return int(pycurl.PREREQFUNC_ABORT)

    def _receive_header(self, line: bytes) -> None:
        """Store a line of a response through a proxy. The proxy's own response precedes the request."""
        (self._lines if self._begun else self._tunnel_lines).append(line)

    def _receive(self, chunk: bytes) -> int | None:
        self._read += len(chunk)
        if len(self._body) < MAX_STORED:
            self._body += chunk[: MAX_STORED - len(self._body)]
        return None if self._read <= MAX_READ else 0

    def result(self, error: int, message: str) -> SendResult:
        """The result of the transfer that ended with this libcurl error; 0 if it completed."""
        getinfo = self.curl.getinfo
        code: int | None = getinfo(pycurl.RESPONSE_CODE)
        failure: str | None = None
        detail = ""
        if error or not _is_complete(self._lines):  # libcurl accepts truncated headers
            code, failure, detail = self._failure(error, message, code or 0)
        if code is not None and 300 <= code < 400:
            failure = "redirect"
            detail = "the receiver responded with a redirect, which is not followed: give the endpoint its new URL"
        waited = int(self._waited * 1_000_000)
        return SendResult(
            self.outgoing.key,
            code,
            failure,
            detail,
            None if code is None or code < 300 else self._retry_after(),
            self._timings(waited, error),
            milliseconds(waited + getinfo(pycurl.TOTAL_TIME_T)),
            None if self._proxied or failure in ("blocked_target", "dns") else getinfo(pycurl.PRIMARY_IP) or None,
            bytes(self._body),
            failure is not None and (error in CLOSED_REUSED or self._begun > 1) and self._reused and not self._lines,
            self._find_shortage(error) if failure is not None and not self._lines else "",
        )

    def _find_shortage(self, error: int) -> str:
        """The resource that this process ran out of, so that nothing was sent."""
        if error != pycurl.E_SSL_CACERT_BADFILE and self.curl.getinfo(pycurl.REQUEST_SIZE):
            return ""  # at least a part of the request was sent, or of that for a tunnel, which precedes the handshake
        if error == pycurl.E_COULDNT_CONNECT and self._shortage:
            return self._shortage
        return of_transfer(error, self.curl, self._address)

    def _timings(self, waited: int, error: int) -> dict[str, float]:
        getinfo = self.curl.getinfo
        timings = {"dns_ms": milliseconds(waited)} if waited else {}
        if self._opened and self._is_connected(error):
            for name, option in (("connect_ms", pycurl.CONNECT_TIME_T), ("tls_ms", pycurl.APPCONNECT_TIME_T)):
                if microseconds := getinfo(option):
                    timings[name] = milliseconds(waited + microseconds)
        if self._lines and (microseconds := getinfo(pycurl.STARTTRANSFER_TIME_T)):
            timings["first_byte_ms"] = milliseconds(waited + microseconds)
        return timings

    def _retry_after(self) -> str | None:
        """The Retry-After among the headers of the final response: not of an interim one, and not in a trailer."""
        found, in_headers = None, False
        for line in self._lines:
            if line.startswith(b"HTTP/"):
                found, in_headers = None, True
            elif line in _END_OF_HEADERS:
                in_headers = False
            elif in_headers and line[:12].lower() == b"retry-after:":
                found = line[12:].strip()[:64].decode("latin-1")
        return found

    def _failure(self, error: int, message: str, status: int) -> tuple[int | None, str | None, str]:
        """Status code, failure and detail of a transfer that did not complete."""
        complete = status >= 200 and _is_complete(self._lines)
        code = status if complete else None
        if complete and self._read > MAX_READ:  # `_receive` ended it
            return code, None, ""
        if self._refused and not self._opened:
            if self.target.valid_until < math.inf:  # a name: the detail must not disclose what it resolves to
                return None, "dns", NOT_PUBLIC
            return None, "blocked_target", f"the URL {self._refused}"
        if self._begun > 1 and not self._reused:
            self.target.only_http1 = True
            return None, "first_byte", "the receiver refused the request over HTTP/2; the next attempt uses HTTP/1.1"
        phase = "body" if complete else self._phase(error, message)
        if error == pycurl.E_OPERATION_TIMEDOUT:
            return code, "timeout", timed_out(phase, self.outgoing.timeout)
        return code, phase, describe(phase, error, message, self.curl, proxied=self._proxied, headers=bool(self._lines))

    def _phase(self, error: int, message: str) -> str:
        """The phase that a transfer without complete response headers reached."""
        getinfo = self.curl.getinfo
        if self._opened and not self._is_connected(error):
            return "connect"
        secure = self._is_secure()
        if self._opened and secure and error in LOST and not self._lines and not getinfo(pycurl.REQUEST_SIZE):
            return "tls"  # a receiver that requires a client certificate can end a TLS 1.3 handshake so late
        if error in PHASES:
            return PHASES[error]
        if self._opened:  # otherwise the connection was reused
            if not getinfo(pycurl.CONNECT_TIME_T):
                return "connect"
            if secure and (not getinfo(pycurl.APPCONNECT_TIME_T) or (not self._lines and is_tls_alert(message))):
                return "tls"
        uploaded = getinfo(pycurl.SIZE_UPLOAD_T) == len(self.outgoing.body)
        return "first_byte" if uploaded or self._lines else "send"

    def _is_connected(self, error: int) -> bool:
        """Whether the proxy, if there is one, has connected a new connection to the receiver, as far as known.

        libcurl does not report when a SOCKS proxy has. Errors of TLS are then the receiver's.
        """
        if not self._proxied or self._begun or not self._is_secure():
            return True
        if self._over_socks:
            return PHASES.get(error) == "tls"
        return 200 <= self.curl.getinfo(pycurl.HTTP_CONNECTCODE) < 300 and _is_complete(self._tunnel_lines)

    def _is_secure(self) -> bool:
        return self.outgoing.url.startswith("https:")


def _is_complete(lines: list[bytes]) -> bool:
    """Whether the last response's headers are complete. Interim responses precede them, trailers may follow."""
    for line in reversed(lines):
        if line in _END_OF_HEADERS:
            return True
        if line.startswith(b"HTTP/"):
            return False
    return False


def milliseconds(microseconds: int) -> float:
    """Milliseconds, rounded down to a tenth."""
    return microseconds // 100 / 10
