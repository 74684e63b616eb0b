"""The connection to NATS: credentials, TLS, and the consumer of the stream."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import nats.errors
from nats.aio.client import Client
from nats.js import api
from nats.js.errors import NotFoundError

CONSUMER = "gatepost"
MAX_ACK_PENDING = 1000  # messages that all processes together may hold unacknowledged
ACK_WAIT = 30.0  # seconds after which NATS redelivers an unacknowledged message
CLOSE_TIMEOUT = 2.0  # seconds to send the last acknowledgements
OUTAGES = (OSError, TimeoutError, nats.errors.Error)


class _Client(Client):
    """A client that survives malformed subjects and headers, and requires TLS if `secure`.

    nats-py stops reading when it cannot decode a subject or headers, although the server accepts any bytes: one message
    would block the stream. It also sends credentials to a server without TLS. It has no public way to change either,
    so this class overrides private methods, and the version of nats-py is pinned (docs/decisions/0038).
    """

    def __init__(self, *, secure: bool) -> None:
        super().__init__()
        self._secure = secure

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self._secure and initial_connection and not info.get("tls_required"):
            raise nats.errors.SecureConnRequiredError
        await super()._process_info(info, initial_connection)

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (ValueError, IndexError):
            return None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Any:
        readable = subject.decode("utf-8", "replace").encode()
        return super()._build_message(sid, readable, reply, data, headers)


@contextlib.asynccontextmanager
async def connect(url: str, report: Callable[[Exception | None], None]) -> AsyncIterator[Client]:
    """A connection that does not reconnect by itself.

    `report` is called with an error that does not end the connection, such as a permission that is missing, and with
    None when the connection ends.
    """
    reasons: list[Exception] = []

    async def failed(error: Exception) -> None:
        reasons[:] = [error]
        if connection.is_connected:
            report(error)

    async def ended() -> None:
        report(None)

    user, password, token = credentials(url)
    connection = _Client(secure="tls://" in url)
    try:
        try:
            await connection.connect(
                url.split(","), name="gatepost", user=user, password=password, token=token,
                error_cb=failed, closed_cb=ended,
                allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
            )  # fmt: skip
        except nats.errors.NoServersError:
            raise OSError(str(reasons[0]) if reasons else "no server responds") from None
        yield connection
    finally:
        with contextlib.suppress(*OUTAGES):
            await asyncio.wait_for(connection.close(), CLOSE_TIMEOUT)


def credentials(url: str) -> tuple[str | None, str | None, str | None]:
    """The decoded user and password, or token, of the first URL that has any."""
    for server in url.split(","):
        parts = urlsplit(server)
        if parts.username is not None and parts.password is not None:
            return unquote(parts.username), unquote(parts.password), None
        if parts.username is not None:
            return None, None, unquote(parts.username)
    return None, None, None


async def prepare_consumer(connection: Client, stream: str) -> None:
    """Create the consumer unless it exists: the operator may have created it with a subject filter."""
    streams = connection.jetstream()
    try:
        config = (await streams.consumer_info(stream, CONSUMER)).config
    except NotFoundError:
        wanted = api.ConsumerConfig(
            name=CONSUMER, durable_name=CONSUMER, ack_policy=api.AckPolicy.EXPLICIT, ack_wait=ACK_WAIT,
            max_ack_pending=MAX_ACK_PENDING,
        )  # fmt: skip
        config = (await streams.add_consumer(stream, wanted)).config
    if config.deliver_subject or config.ack_policy != api.AckPolicy.EXPLICIT:
        raise nats.errors.Error(f"the consumer {CONSUMER} must be a pull consumer with explicit acknowledgement")
    await _try_to_acknowledge(connection, stream)


async def _try_to_acknowledge(connection: Client, stream: str) -> None:
    """Acknowledge no message, so that NATS reports a missing permission before a message is read.

    There is no message 0, and "+WPI" would only extend the time until it is redelivered. NATS checks the subject in
    either case, and reports an error before it responds to the flush.
    """
    await connection.publish(f"$JS.ACK.{stream}.{CONSUMER}.1.0.0.0.0", b"+WPI")
    await connection.flush()
