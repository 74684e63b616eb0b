"""Receivers of webhooks on real sockets: regular ones, misbehaving ones, and ones with any certificate.

with receiver([(503, {}, b""), (200, {}, b"ok")]) as r:   # in this order, the last for ever
    ...                                                   # send to r.url
    r.wait_for(2)                                         # r.requests: what came
"""

import contextlib
import ipaddress
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.waiting import LIMIT

Answer = tuple[int, dict[str, str], bytes]
OK: Answer = (200, {}, b"ok")


class Request(NamedTuple):
    headers: dict[str, str]  # names in lower case; `:method` and `:path` are there too
    body: bytes
    at: float  # time.monotonic()


class Connection:
    """A connection, for behaviours that do not follow HTTP. It ends with the receiver."""

    def __init__(self, stream: socket.socket, number: int, owner: "Receiver") -> None:
        self.number = number  # the first is 1
        self.stream = stream
        self._owner = owner
        self._buffer = b""

    def read(self) -> Request | None:
        """Read and record the next request; None if there are no more."""
        head = self._until(b"\r\n\r\n")
        if head is None:
            return None
        line, *fields = head.decode("latin-1").split("\r\n")
        method, path, _ = line.split(" ", 2)
        headers = {":method": method, ":path": path}
        for field in fields:
            name, _, value = field.partition(":")
            headers[name.lower()] = value.strip()
        size = int(headers.get("content-length", "0"))
        while len(self._buffer) < size:
            data = self.stream.recv(65536)
            if not data:
                return None
            self._buffer += data
        body, self._buffer = self._buffer[:size], self._buffer[size:]
        return self._owner.record(Request(headers, body, time.monotonic()))

    def _until(self, mark: bytes) -> bytes | None:
        while mark not in self._buffer:
            data = self.stream.recv(65536)
            if not data:
                return None
            self._buffer += data
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def send(self, data: bytes) -> None:
        self.stream.sendall(data)

    def answer(self, answer: Answer) -> None:
        status, headers, body = answer
        lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
        if status >= 200 and status not in (204, 304):
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def wait(self, seconds: float = 60.0) -> bool:
        """Wait for this many seconds. True if the receiver has ended in the meantime."""
        return self._owner.ended.wait(seconds)

    def trickle(self, data: bytes, every: float) -> None:
        """Send one byte at a time."""
        for byte in data:
            self.send(bytes([byte]))
            if self.wait(every):
                return

    def reset(self) -> None:
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.close()


@dataclass(frozen=True)
class Raw:
    """A behaviour that handles each connection itself. The connection is closed afterwards."""

    act: Callable[[Connection], object]


Behaviour = Answer | list[Answer] | Callable[[Request], Answer] | Raw


def silent(connection: Connection) -> None:
    """Reads requests and never responds."""
    while connection.read():
        pass


def hangs_up(connection: Connection) -> None:
    """Reads the request and closes the connection without a response."""
    connection.read()


def resets(connection: Connection) -> None:
    """Reads the request and resets the connection."""
    connection.read()
    connection.reset()


def says(data: bytes) -> Callable[[Connection], None]:
    """Reads the request, sends these bytes, and closes the connection."""

    def act(connection: Connection) -> None:
        connection.read()
        connection.send(data)

    return act


def says_and_waits(data: bytes) -> Callable[[Connection], None]:
    def act(connection: Connection) -> None:
        connection.read()
        connection.send(data)
        connection.wait()

    return act


class Receiver:
    """One listener, a thread for each connection. `behaviour` may be changed while it runs."""

    def __init__(self, behaviour: Behaviour, host: str, tls: ssl.SSLContext | None, name: str, port: int = 0) -> None:
        self.behaviour = behaviour
        self.requests: list[Request] = []
        self.connections = 0
        self.ended = threading.Event()
        self._tls = tls
        self._changed = threading.Condition()
        self.streams: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=1000)
        self.port: int = self._listener.getsockname()[1]
        shown = name or (f"[{host}]" if ":" in host else host)
        self.url = f"{'https' if tls else 'http'}://{shown}:{self.port}/hooks"

    def wait_for(self, count: int, timeout: float = LIMIT) -> list[Request]:
        """Wait until this many requests have arrived."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.requests) >= count, timeout)
        assert came, f"{len(self.requests)} requests came, not {count}"
        return self.requests

    def record(self, request: Request) -> Request:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        return request

    def start(self) -> None:
        self._run(self._accept)

    def close(self) -> None:
        self.ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for stream in list(self.streams):
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self.ended.is_set():
                stream, _ = self._listener.accept()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                self._run(self._serve, stream, self.connections)

    def _serve(self, plain: socket.socket, number: int) -> None:
        stream = plain
        self.streams.add(plain)
        try:
            if self._tls is not None:
                stream = self._tls.wrap_socket(plain, server_side=True)
                self.streams.add(stream)
            self._behave(Connection(stream, number, self))
        except (OSError, ValueError):
            pass  # the sender has closed, or will not speak to us, or not HTTP
        finally:
            self.streams -= {plain, stream}
            stream.close()
            plain.close()

    def _behave(self, connection: Connection) -> None:
        while True:
            behaviour = self.behaviour
            if isinstance(behaviour, Raw):
                behaviour.act(connection)
                return
            request = connection.read()
            if request is None:
                return
            connection.answer(self._answer(behaviour, request))

    def _answer(self, behaviour: Behaviour, request: Request) -> Answer:
        if isinstance(behaviour, tuple):
            return behaviour
        if isinstance(behaviour, list):
            with self._changed:
                return behaviour.pop(0) if len(behaviour) > 1 else behaviour[0]
        assert callable(behaviour)
        return behaviour(request)


@contextlib.contextmanager
def receiver(
    behaviour: Behaviour = OK, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, name: str = "",
    port: int = 0,
) -> Iterator[Receiver]:  # fmt: skip
    """Run a receiver. `name` is the host of its URL; with `tls` it must be in the certificate."""
    made = Receiver(behaviour, host, tls, name, port)
    made.start()
    try:
        yield made
    finally:
        made.close()


class Authority:
    """A certificate authority for tests. `file` is the certificate that senders trust."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._made = 0
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _certificate("a test authority", [], self._key, None)
        self.file = directory / "authority.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def context(self, *names: str, expired: bool = False, self_signed: bool = False) -> ssl.SSLContext:
        """Return a context for a receiver with these names or addresses."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.files(*names, expired=expired, self_signed=self_signed))
        return context

    def files(self, *names: str, expired: bool = False, self_signed: bool = False) -> tuple[Path, Path]:
        """Return the files of a certificate and its key."""
        self._made += 1
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = None if self_signed else (self._certificate, self._key)
        certificate = _certificate(names[0], list(names), key, issuer, expired=expired)
        files = self._directory / f"{self._made}.pem", self._directory / f"{self._made}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files


def _certificate(
    common_name: str,
    names: list[str],
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    *,
    expired: bool = False,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    end = datetime.now(UTC) + timedelta(days=-1 if expired else 30)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=60))
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=issuer is None and not names, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
    if issuer:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key())
        builder = builder.add_extension(identifier, critical=False)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256())


def _name(text: str) -> x509.GeneralName:
    if re.fullmatch(r"[0-9.]+|.*:.*", text):
        return x509.IPAddress(ipaddress.ip_address(text))
    return x509.DNSName(text)
