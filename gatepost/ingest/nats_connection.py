"""The connection to NATS: credentials, TLS, and the consumer of the stream."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import nats.errors
from nats.aio.client import Client
from nats.js import api

CONSUMER = "gatepost"
MAX_ACK_PENDING = 1000  # messages that all processes together may hold unacknowledged
ACK_WAIT = 30.0  # seconds after which NATS redelivers an unacknowledged message
BATCH = 100  # messages requested at a time
REQUEST_EXPIRES = 5.0  # seconds for which NATS keeps a request for messages
REQUEST_TIMEOUT = 5.0  # seconds
CLOSE_TIMEOUT = 2.0  # seconds to send the last acknowledgements
_NO_CONSUMER = 10014  # the error code of JetStream
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


async def prepare_consumer(connection: Client, stream: str) -> int:
    """Create the consumer unless it exists: the operator may have created it with a subject filter.

    Returns the largest number of bytes that it allows in a request, or 0 if it has no limit.
    """
    await _try_to_acknowledge(connection, stream)
    config = await _consumer(connection, stream)
    if config is None:
        wanted = api.ConsumerConfig(
            name=CONSUMER, durable_name=CONSUMER, ack_policy=api.AckPolicy.EXPLICIT, ack_wait=ACK_WAIT,
            max_ack_pending=MAX_ACK_PENDING,
        )  # fmt: skip
        await connection.jetstream().add_consumer(stream, wanted)
        config = {"ack_policy": "explicit"}
    _check_consumer(config)
    return int(config.get("max_bytes", 0))


async def problem(url: str, stream: str) -> str:
    """Why the stream cannot be read, or "" if it can. Creates nothing."""
    reported: list[Exception | None] = []
    try:
        async with connect(url, reported.append) as connection:
            await _try_to_acknowledge(connection, stream)
            config = await _consumer(connection, stream)
            if config is not None:
                _check_consumer(config)
            return next((text(error) for error in reported if error), "")
    except OUTAGES as error:
        return text(next((each for each in reported if each), error))


def text(error: Exception) -> str:
    """What an error of NATS says."""
    return getattr(error, "description", None) or str(error) or "no response in time"


async def _consumer(connection: Client, stream: str) -> dict[str, Any] | None:
    """The configuration of the consumer, with members that nats-py does not know, or None if there is no consumer."""
    response = await connection.request(f"$JS.API.CONSUMER.INFO.{stream}.{CONSUMER}", timeout=REQUEST_TIMEOUT)
    found: dict[str, Any] = json.loads(response.data)
    error = found.get("error")
    if error and error.get("err_code") != _NO_CONSUMER:
        raise nats.errors.Error(error.get("description") or f"error {error.get('code')}")
    return None if error else found["config"]


def _check_consumer(config: dict[str, Any]) -> None:
    if config.get("deliver_subject") or config.get("ack_policy") != "explicit":
        raise nats.errors.Error(f"the consumer {CONSUMER} must be a pull consumer with explicit acknowledgement")
    if config.get("headers_only"):
        raise nats.errors.Error(f"the consumer {CONSUMER} must not have headers_only: messages would have no content")
    if 0 < config.get("max_batch", 0) < BATCH:
        raise nats.errors.Error(f"the consumer {CONSUMER} must allow a max_batch of {BATCH}")
    if 0 < config.get("max_expires", 0) < REQUEST_EXPIRES * 1_000_000_000:
        raise nats.errors.Error(f"the consumer {CONSUMER} must allow a max_expires of {REQUEST_EXPIRES:.0f} seconds")


async def _try_to_acknowledge(connection: Client, stream: str) -> None:
    """Acknowledge no message, so that NATS reports a missing permission before a message is read.

    There is no message 0, and "+WPI" would only extend the time until it is redelivered. NATS checks the subject in
    either case. It reports an error before it responds to a request that is sent afterwards.
    """
    await connection.publish(f"$JS.ACK.{stream}.{CONSUMER}.1.0.0.0.0", b"+WPI")
