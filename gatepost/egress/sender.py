"""Sending: many HTTP requests at once by libcurl, driven by the event loop. For each request started, one result.

Each goes out once: nothing is sent again, no redirect is followed, nothing is taken from the environment, and every
address is judged by `guard` before it is connected to. What an answer means for a delivery is not decided here.
"""

import asyncio
import errno
import io
import math
import re
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import certifi
import pycurl  # type: ignore[import-untyped]

from gatepost.egress.address_guard import Policy, address_problem, url_problem
from gatepost.egress.curl_loop import Drive
from gatepost.egress.resolver import NOT_LOOKED_UP, NOT_PUBLIC, Found, LookUp, Resolver, addresses
from gatepost.egress.shortage import Shortage, lacking, of_connect, resource_of

MAX_READ = 64 * 1024  # of an answer's body
MAX_KEPT = 4 * 1024
MAX_CONNECTIONS_KEPT = 512
NAME_KEPT = 60  # seconds for which the addresses of a name are used


class Outgoing(NamedTuple):
    """One request to be made."""

    key: Any  # given back with the result
    url: str
    headers: list[str]  # "name: value" ready made, includes content-type and user-agent
    body: bytes  # never empty: what has no body libcurl would send again by itself
    timeout: float  # seconds, from start to the last byte of the answer
    account: str = ""  # its name: whose share of look-ups it takes
    fresh: bool = False  # on a new connection


class Sent(NamedTuple):
    """What became of it. Timings are milliseconds from the start until that was done."""

    key: Any
    code: int | None  # if a whole status line and headers came
    failure: str | None  # None, or one of FAILURES
    detail: str  # words a receiver's owner understands; never an address
    retry_after: str | None
    timings: dict[str, float]
    duration_ms: float
    remote_ip: str | None
    response: bytes  # the first 4 KiB of the body
    connection_closed: bool = False  # a kept connection was closed before any byte of an answer
    shortage: str = ""  # what this process lacked, so that nothing was sent


class Sender:
    """Belongs to one event loop and is called in its thread.

    `finished` gets the results, all of one turn of the loop at once. With a proxy the receiver's address is the
    proxy's to judge: the guard then sees only what the URL says.
    """

    def __init__(
        self,
        policy: Policy,
        finished: Callable[[list[Sent]], None],
        *,
        proxy: str = "",
        ca: str = "",
        look_up: LookUp = addresses,
    ) -> None:
        self._policy = policy
        self._finished = finished
        self._proxy = proxy or policy.proxy
        self._ca = ca or certifi.where()
        self._resolver = Resolver(look_up, self._looked_up)
        self.refused: Callable[[str, int, str], None] = lambda _host, _port, _why: (
            None
        )  # called with names that resolve to private addresses
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, MAX_CONNECTIONS_KEPT)
        self._drive = Drive(self._multi, self._add, self._collect)
        self._idle: list[_Transfer] = []
        self._begun: list[_Transfer] = []
        self._running: dict[Any, _Transfer] = {}
        self._targets: dict[str, _Target] = {}
        self._hosts: dict[tuple[str, int], _Target] = {}
        self._waiting: set[_Wait] = set()
        self._done: list[Sent] = []

    @property
    def in_flight(self) -> int:
        return len(self._running) + len(self._waiting) + len(self._done)

    def start(self, outgoing: Outgoing) -> None:
        target = self._targets.get(outgoing.url) or self._target(outgoing.url)
        if target.problem:
            self._end_at_once(outgoing, "blocked_target", f"the URL {target.problem}")
        elif target.until > time.monotonic():
            self._begin(outgoing, target, 0.0)
        else:
            self._wait(outgoing, target)

    def abandon(self) -> list[Any]:
        """Give up all that is not finished: connections are closed, keys are returned, nothing more is heard of it."""
        keys = [transfer.outgoing.key for transfer in self._running.values()]
        keys += [wait.outgoing.key for wait in self._waiting]
        for curl in self._running:
            if curl in self._multi:
                self._multi.remove_handle(curl)
            curl.close()
        for wait in self._waiting:
            wait.alarm.cancel()
        self._running.clear()
        self._begun.clear()
        self._waiting.clear()
        return keys

    def close(self) -> None:
        """Give up all that is not finished, and kept connections too."""
        self.abandon()
        self._report()
        self._drive.close()
        for transfer in self._idle:
            transfer.curl.close()
        self._multi.close()

    def _target(self, url: str) -> "_Target":
        if len(self._targets) >= 10_000:
            self._targets.clear()
            self._hosts = {key: target for key, target in self._hosts.items() if target.waiting}
        target = self._targets[url] = self._judge(url)
        return target

    def _judge(self, url: str) -> "_Target":
        """The same for all URLs of a host and port. The policy may have changed since the URL was defined."""
        problem = url_problem(self._policy, url)
        parts = _ORIGIN.match(url)
        if problem or parts is None:
            return _Target("", 0, problem or "has no host")
        host, port = parts[2].lower(), int(parts[3] or {"http": 80, "https": 443}[parts[1]])
        target = self._hosts.setdefault((host, port), _Target(host, port))
        if self._proxy or host.startswith("[") or host.rpartition(".")[2].isdigit():
            target.until = math.inf
        return target

    # Names are not looked up by libcurl. It has twenty threads for all its transfers: a dozen names whose servers do
    # not answer would hold up the look-ups of everybody else, and closing would wait for them.

    def _wait(self, outgoing: Outgoing, target: "_Target") -> None:
        wait = _Wait(outgoing, target, time.monotonic())
        wait.alarm = self._loop.call_later(outgoing.timeout, self._give_up, wait)
        self._waiting.add(wait)
        target.waiting.append(wait)
        self._resolver.ask(outgoing.account, target.host, target.port)

    def _looked_up(self, host: str, port: int, found: Found) -> None:
        target = self._hosts.get((host, port))
        if target is None:  # forgotten meanwhile, with nobody waiting
            return
        if isinstance(found, list):
            found = self._allowed(target, found)
        if isinstance(found, list):
            target.until = time.monotonic() + NAME_KEPT
            listed = ",".join(f"[{each}]" if ":" in each else each for each in found)
            target.load = [f"+{target.host}:{target.port}:{listed}"]
        waiting, target.waiting = target.waiting, []
        for wait in self._waiting.intersection(waiting):
            wait.alarm.cancel()
            waited = time.monotonic() - wait.since
            if isinstance(found, list):
                self._waiting.remove(wait)
                self._begin(wait.outgoing, target, waited)
            elif isinstance(found, Shortage):
                self._end_wait(wait, "dns", NOT_LOOKED_UP, waited, found.resource)
            else:
                self._fail(wait, found, waited)

    def _allowed(self, target: "_Target", found: list[str]) -> Found:
        """Those that may be connected to. That there are others is for the operator to know, not for the account."""
        problems = {each: address_problem(self._policy, each, target.port) for each in found}
        allowed = [each for each in found if not problems[each]]
        if allowed:
            return allowed
        self.refused(target.host, target.port, problems[found[0]])
        return NOT_PUBLIC

    def _fail(self, wait: "_Wait", detail: str, waited: float) -> None:
        """End it when a whole number of seconds has passed: how long a look-up takes says whether the name exists."""
        after = waited if self._policy.dev else min(float(math.ceil(waited)), wait.outgoing.timeout)
        wait.alarm = self._loop.call_later(max(0.0, after - waited), self._end_wait, wait, "dns", detail, after)

    def _give_up(self, wait: "_Wait") -> None:
        wait.target.waiting.remove(wait)
        if not wait.target.waiting:
            self._resolver.withdraw(wait.target.host, wait.target.port)
        timeout = wait.outgoing.timeout
        self._end_wait(wait, "timeout", _out_of_time("dns", timeout), timeout)

    def _end_wait(self, wait: "_Wait", failure: str, detail: str, waited: float, shortage: str = "") -> None:
        self._waiting.remove(wait)
        self._end_at_once(wait.outgoing, failure, detail, waited, shortage)

    def _begin(self, outgoing: Outgoing, target: "_Target", waited: float) -> None:
        transfer = self._idle.pop() if self._idle else _Transfer(self._policy, self._drive, self._proxy, self._ca)
        try:
            transfer.prepare(outgoing, target, waited)
        except (ValueError, pycurl.error):
            transfer.curl.close()
            self._end_at_once(outgoing, "send", "the request could not be written: its headers must be ASCII", waited)
            return
        self._running[transfer.curl] = transfer
        self._begun.append(transfer)
        self._drive.soon()

    def _end_at_once(
        self, outgoing: Outgoing, failure: str, detail: str, waited: float = 0.0, shortage: str = ""
    ) -> None:
        duration = _milliseconds(int(waited * 1_000_000))
        ended = Sent(outgoing.key, None, failure, detail, None, {}, duration, None, b"", shortage=shortage)
        self._done.append(ended)
        self._drive.soon()

    def _add(self) -> None:
        now = time.monotonic()
        for transfer in self._begun:
            transfer.settle(now)
            self._multi.add_handle(transfer.curl)

    def _collect(self, running: float) -> None:
        for transfer in self._begun:  # libcurl has read the addresses by now, and keeps them for longer than we do
            transfer.target.load = []
        self._begun.clear()
        if running < len(self._running):
            _, succeeded, failed = self._multi.info_read()
            for curl in succeeded:
                self._end(curl, 0, "")
            for curl, error, words in failed:
                self._end(curl, error, words)
        self._report()

    def _end(self, curl: Any, error: int, words: str) -> None:
        transfer = self._running.pop(curl)
        self._multi.remove_handle(curl)
        sent = transfer.result(error, words)
        if sent.failure == "connect" and transfer.target.until < math.inf:
            transfer.target.until = 0.0  # the host may have moved
        self._idle.append(transfer)
        self._done.append(sent)

    def _report(self) -> None:
        if self._done:
            done, self._done = self._done, []
            self._finished(done)


_ORIGIN = re.compile(r"(https?)://(\[[^]]*\]|[^/?:]+)(?::([0-9]+))?")


class _Target:
    """A host and port that requests go to, or why none may."""

    __slots__ = ("doubtful_until", "host", "load", "port", "problem", "until", "waiting")

    def __init__(self, host: str, port: int, problem: str = "") -> None:
        self.host = host
        self.port = port
        self.problem = problem
        self.until = 0.0  # when its addresses are to be looked up again
        self.load: list[str] = []  # its addresses, while libcurl has to be told them
        self.waiting: list[_Wait] = []
        self.doubtful_until = 0.0

    def lost(self) -> None:
        """It closed a kept connection. Until libcurl looks again, it might use that one."""
        self.doubtful_until = time.monotonic() + 1.1


class _Wait:
    """A request that waits for the addresses of its host."""

    __slots__ = ("alarm", "outgoing", "since", "target")

    alarm: asyncio.TimerHandle

    def __init__(self, outgoing: Outgoing, target: _Target, since: float) -> None:
        self.outgoing = outgoing
        self.target = target
        self.since = since


_OPTIONS = {
    pycurl.POST: 1,
    pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
    pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_2TLS,
    pycurl.FOLLOWLOCATION: 0,
    pycurl.PATH_AS_IS: 1,
    pycurl.NETRC: 0,
    pycurl.NOPROXY: "",  # else the environment's would count
    pycurl.SSL_VERIFYPEER: 1,
    pycurl.SSL_VERIFYHOST: 2,
    pycurl.SSLVERSION: pycurl.SSLVERSION_TLSv1_2,
    pycurl.DNS_CACHE_TIMEOUT: 2 * NAME_KEPT,
    pycurl.MAXLIFETIME_CONN: 300,
    pycurl.NOSIGNAL: 1,
}


class _Transfer:
    """One of libcurl's handles, used for one request after the other."""

    outgoing: Outgoing
    target: _Target

    def __init__(self, policy: Policy, drive: Drive, proxy: str, ca: str) -> None:
        self._policy = policy
        self._drive = drive
        self._proxied = bool(proxy)
        self._waited = 0.0
        self._timeout = 0.0
        self._fresh = False
        self._lines: list[bytes] = []  # status line and headers
        self._kept = bytearray()
        self._read = 0
        self._refused = ""
        self._shortage = ""
        self._address: Any = None
        self._opened = False
        self.curl = curl = pycurl.Curl()
        for option, value in _OPTIONS.items():
            curl.setopt(option, value)
        curl.setopt(pycurl.PROXY, proxy)  # an empty one means none, whatever the environment says
        curl.setopt(pycurl.CAINFO, ca)
        curl.setopt(pycurl.PROXY_CAINFO, ca)
        curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open)
        curl.setopt(pycurl.HEADERFUNCTION, self._lines.append)
        curl.setopt(pycurl.WRITEFUNCTION, self._take)

    def prepare(self, outgoing: Outgoing, target: _Target, waited: float) -> None:
        self.outgoing = outgoing
        self.target = target
        self._waited = waited
        self._lines.clear()
        self._kept.clear()
        self._read = 0
        self._refused = ""
        self._shortage = ""
        self._opened = False
        setopt = self.curl.setopt
        setopt(pycurl.URL, outgoing.url)
        setopt(pycurl.HTTPHEADER, [*outgoing.headers, "Expect:"])
        # The body comes from a function that cannot rewind. One that libcurl holds it sends again, without a word,
        # when the receiver closes a kept connection instead of answering.
        setopt(pycurl.POSTFIELDSIZE_LARGE, len(outgoing.body))
        setopt(pycurl.READFUNCTION, io.BytesIO(outgoing.body).read)
        left = outgoing.timeout - waited
        if left != self._timeout:
            self._timeout = left
            setopt(pycurl.TIMEOUT_MS, max(1, int(left * 1000)))
            setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(left * 1000)))

    def settle(self, now: float) -> None:
        """What can be said only in the last moment."""
        if self.target.load:
            self.curl.setopt(pycurl.RESOLVE, self.target.load)
        fresh = self.outgoing.fresh or self.target.doubtful_until > now
        if fresh != self._fresh:
            self._fresh = fresh
            self.curl.setopt(pycurl.FRESH_CONNECT, fresh)

    def _open(self, _purpose: int, address: Any) -> int:
        """A socket for a connection to this address, if it may be made."""
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
        self._drive.opened(fd, self.target.lost)
        return fd

    def _take(self, chunk: bytes) -> int | None:
        self._read += len(chunk)
        if len(self._kept) < MAX_KEPT:
            self._kept += chunk[: MAX_KEPT - len(self._kept)]
        return None if self._read <= MAX_READ else 0

    def result(self, error: int, words: str) -> Sent:
        getinfo = self.curl.getinfo
        code: int | None = getinfo(pycurl.RESPONSE_CODE)
        failure: str | None = None
        detail = ""
        if error or not _ended(self._lines):  # libcurl does not mind headers that break off
            code, failure, detail = self._failure(error, words, code or 0)
        if code is not None and 300 <= code < 400:
            failure = "redirect"
            detail = "the receiver answered with a redirect, which is not followed: give the endpoint its new URL"
        waited = int(self._waited * 1_000_000)
        return Sent(
            self.outgoing.key,
            code,
            failure,
            detail,
            None if code is None or code < 300 else self._retry_after(),
            self._timings(waited),
            _milliseconds(waited + getinfo(pycurl.TOTAL_TIME_T)),
            None if self._proxied or failure in ("blocked_target", "dns") else getinfo(pycurl.PRIMARY_IP) or None,
            bytes(self._kept),
            failure is not None and error in _CLOSED_KEPT and not self._opened and not self._lines,
            self._short_of(error) if failure is not None and not self._lines else "",
        )

    def _short_of(self, error: int) -> str:
        """What this process lacked, so that the receiver was never reached and is not to blame."""
        if error == pycurl.E_OUT_OF_MEMORY:
            return "memory"
        if error in _READS_FILES:
            return lacking()
        if error != pycurl.E_COULDNT_CONNECT:
            return ""
        return self._shortage or of_connect(self.curl.getinfo(pycurl.OS_ERRNO), self._address)

    def _timings(self, waited: int) -> dict[str, float]:
        getinfo = self.curl.getinfo
        timings = {"dns_ms": _milliseconds(waited)} if waited else {}
        if self._opened:
            for name, option in (("connect_ms", pycurl.CONNECT_TIME_T), ("tls_ms", pycurl.APPCONNECT_TIME_T)):
                if microseconds := getinfo(option):
                    timings[name] = _milliseconds(waited + microseconds)
        if self._lines and (microseconds := getinfo(pycurl.STARTTRANSFER_TIME_T)):
            timings["first_byte_ms"] = _milliseconds(waited + microseconds)
        return timings

    def _retry_after(self) -> str | None:
        for line in reversed(self._lines):
            name, _, value = line.partition(b":")
            if name.lower() == b"retry-after":
                return value.strip()[:64].decode("latin-1")
        return None

    def _failure(self, error: int, words: str, status: int) -> tuple[int | None, str | None, str]:
        """What a transfer that broke off amounts to: status code, failure, and words for it."""
        whole = status >= 200 and _ended(self._lines)
        code = status if whole else None
        if whole and self._read > MAX_READ:  # it was we who broke it off
            return code, None, ""
        if self._refused and not self._opened:
            if self.target.until < math.inf:  # a name: what it leads to is not told
                return None, "dns", NOT_PUBLIC
            return None, "blocked_target", f"the URL {self._refused}"
        phase = "body" if whole else _PHASES.get(error) or self._phase()
        if error == pycurl.E_OPERATION_TIMEDOUT:
            return code, "timeout", _out_of_time(phase, self.outgoing.timeout)
        return code, phase, self._words(phase, error, words)

    def _phase(self) -> str:
        """How far it came without the whole headers of an answer."""
        getinfo = self.curl.getinfo
        if self._opened:  # else the connection was a kept one
            if not getinfo(pycurl.CONNECT_TIME_T) or self._proxy_refusal():
                return "connect"
            if self.outgoing.url.startswith("https:") and not getinfo(pycurl.APPCONNECT_TIME_T):
                return "tls"
        whole = getinfo(pycurl.SIZE_UPLOAD_T) == len(self.outgoing.body)
        return "first_byte" if whole or self._lines else "send"

    def _proxy_refusal(self) -> int:
        code: int = self.curl.getinfo(pycurl.HTTP_CONNECTCODE)
        return code if code >= 300 else 0

    def _words(self, phase: str, error: int, words: str) -> str:
        match phase:
            case "connect" if self._proxied:  # its status would tell which internal names exist
                return "the egress proxy made no connection"
            case "connect":
                return _CONNECTING.get(self.curl.getinfo(pycurl.OS_ERRNO), "no connection could be made")
            case "tls":
                return self._words_for_tls(error, words)
            case "first_byte" if error == _TOO_LARGE or words.startswith("Too large response headers"):
                return "the answer has more headers than can be read"
            case "first_byte" if error not in _CLOSED:
                return "the answer is not HTTP"
            case "first_byte" if self._lines:
                return "the answer broke off in its headers"
            case _:
                return _BROKEN_OFF[phase]

    def _words_for_tls(self, error: int, words: str) -> str:
        reason = _CERTIFICATES.get(self.curl.getinfo(pycurl.SSL_VERIFYRESULT))
        if reason:
            return f"the certificate {reason}"
        if error == pycurl.E_PEER_FAILED_VERIFICATION:
            return "the certificate is not for this host"
        alert = re.search(r"routines::([a-z0-9 ]+)$", words)
        return "no TLS connection could be agreed on" + (f": {alert[1]}" if alert else "")


def _ended(lines: list[bytes]) -> bool:
    """Whether the headers of the last answer are whole. Trailers may follow them, interim answers come before."""
    for line in reversed(lines):
        if line in (b"\r\n", b"\n"):
            return True
        if line.startswith(b"HTTP/"):
            return False
    return False


def _out_of_time(phase: str, timeout: float) -> str:
    return f"no whole answer within {timeout:g} s: the time ran out while {_DOING[phase]}"


def _milliseconds(microseconds: int) -> float:
    return microseconds // 100 / 10


_TOO_LARGE, _PROXY, _HTTP2_STREAM = 100, 97, 92  # errors that pycurl has no names for
_CLOSED = {0, _HTTP2_STREAM, pycurl.E_HTTP2, pycurl.E_GOT_NOTHING, pycurl.E_RECV_ERROR, pycurl.E_SEND_FAIL_REWIND}
_READS_FILES = {pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_SSL_CACERT_BADFILE}
_CLOSED_KEPT = {*_CLOSED, pycurl.E_SEND_ERROR} - {0}
_PHASES = {
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
_DOING = {
    "dns": "looking up the host name",
    "connect": "connecting",
    "tls": "agreeing on TLS",
    "send": "sending the request",
    "first_byte": "waiting for the answer",
    "body": "reading the answer's body",
}
_BROKEN_OFF = {
    "dns": NOT_PUBLIC,
    "send": "the connection broke while the request was being sent",
    "first_byte": "the receiver closed the connection without answering",
    "body": "the answer broke off in its body",
}
_CONNECTING = {
    errno.ECONNREFUSED: "the connection was refused",
    errno.ETIMEDOUT: "the host did not answer",
    errno.EHOSTUNREACH: "the host cannot be reached",
    errno.ENETUNREACH: "the host cannot be reached",
    errno.ECONNRESET: "the connection was reset",
}
_CERTIFICATES = {  # OpenSSL's X509_V_ERR_…
    9: "is not valid yet",
    10: "has expired",
    18: "is self-signed",
    19: "is signed by an authority that is not trusted",
    20: "is signed by an unknown authority, or an intermediate certificate is missing",
    21: "is signed by an unknown authority, or an intermediate certificate is missing",
    23: "was revoked",
    62: "is not for this host",
    64: "is not for this host",
}
