"""Publishes events from a NATS JetStream stream. A message is acknowledged after the commit.

NATS may redeliver a message at any time. It is identified by its id, or else by its position in the stream, and is
published once. A message that cannot be published is recorded once in the operator's own ledger, and terminated.
"""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from gatepost.core import clock
from gatepost.core.errors import Refusal, Unavailable
from gatepost.core.logging import log
from gatepost.ingest.message import (
    Message,
    Position,
    Unit,
    Unreachable,
    parts,
    publish_some,
    read,
    refuse_all,
)
from gatepost.ingest.nats_connection import BATCH, CONSUMER, OUTAGES, REQUEST_EXPIRES, connect, prepare_consumer, text
from gatepost.store.interface import Store
from gatepost.webhooks.publish import MAX_TRIES, Published

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

REQUEST_BYTES = 16 * 1024 * 1024  # in a request: NATS disconnects a client that leaves 64 MB unread
MESSAGE_OVERHEAD = 64 * 1024  # bytes of subjects, which NATS counts in addition to the payload
SILENCE = REQUEST_EXPIRES + 5.0  # NATS responds to each request in time, if only to report that there are no messages
STOP_TIMEOUT = 8.0  # seconds to finish the current work
RETRY_PAUSES = (0.5, 1.0)  # seconds before the next try; the last one repeats
NODE_PAUSES = (1.0, 2.0, 5.0, 10.0)  # the same while the database node of the account is down
MAX_COUNTED = 100_000  # messages whose internal errors are counted: far more than NATS leaves unacknowledged

_NO_MORE_FIT = "Message Size Exceeds MaxBytes"  # the next message exceeds what is left of a request
_NO_MESSAGES = ("404", "408")  # statuses: there are no messages; none arrived before the request expired


async def consume(
    store: Store, url: str, stream: str, stopping: asyncio.Event, traces: "Traces | None" = None
) -> None:  # fmt: skip
    """Publish messages until `stopping` is set. Outages of NATS or the store are retried."""
    reading = asyncio.create_task(_Reader(store, url, stream, stopping, traces).run())
    await stopping.wait()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reading, STOP_TIMEOUT)


class Received(NamedTuple):
    """A message, and the means to acknowledge it."""

    raw: Msg
    message: Message


class _Reader:
    """Reads the stream in one process, and connects again after an outage."""

    def __init__(
        self, store: Store, url: str, stream: str, stopping: asyncio.Event, traces: "Traces | None"
    ) -> None:  # fmt: skip
        self._traces = traces
        self._store = store
        self._url = url
        self._stream = stream
        self._stopping = stopping
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()  # None wakes the reader to check whether to stop
        self._reported: Exception | None = None  # the last error that NATS reported on this connection
        self._is_reading = False
        self._failures = 0
        self._logged: set[str] = set()  # warnings of the current outage
        self._errors: dict[tuple[int, int], int] = {}  # internal errors by message, the latest last

    async def run(self) -> None:
        while not self._stopping.is_set():
            warning = "cannot read from NATS"
            self._reported = None
            try:
                async with connect(self._url, self._report) as connection:
                    warning = "the NATS stream cannot be read"
                    most_bytes = await prepare_consumer(connection, self._stream)
                    warning = "cannot read from NATS"
                    await self._read(connection, most_bytes)
            except OUTAGES as error:
                self._warn(warning, text(self._reported or error))
            except Exception:  # noqa: BLE001 (NATS redelivers what was not acknowledged)
                log.exception("reading from NATS failed", stream=self._stream)
            self._is_reading = False
            await self._pause()

    def _report(self, error: Exception | None) -> None:
        """NATS refused something, such as a subject without permission, or the connection ended."""
        self._reported = error or self._reported
        self._wake()

    def _wake(self) -> None:
        self._arrived.put_nowait(None)

    def _warn(self, warning: str, error: str) -> None:
        if warning not in self._logged and not self._stopping.is_set():
            self._logged.add(warning)
            log.warning(warning, stream=self._stream, error=error)

    async def _pause(self) -> None:
        pause = RETRY_PAUSES[min(self._failures, len(RETRY_PAUSES) - 1)]
        self._failures += 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause)

    def _note_response(self) -> None:
        """NATS responded, and the stream exists."""
        if not self._is_reading:
            log.info("reading events from NATS", stream=self._stream, consumer=CONSUMER)
            self._is_reading = True
            self._failures = 0
            self._logged.clear()

    async def _read(self, connection: Client, most_bytes: int) -> None:
        self._arrived = asyncio.Queue()  # messages of an earlier connection cannot be acknowledged any more
        inbox = connection.new_inbox()
        await connection.subscribe(inbox, cb=self._arrived.put)
        max_bytes = max(REQUEST_BYTES, connection.max_payload + MESSAGE_OVERHEAD)
        max_bytes = min(max_bytes, most_bytes or max_bytes)
        expected = requested = 0
        is_too_large = False  # the next message was larger than a request, which depends on max_payload
        waking = asyncio.create_task(self._stopping.wait())
        waking.add_done_callback(lambda _: self._wake())
        try:
            while not self._stopping.is_set() and not connection.is_closed:
                if self._reported is not None:  # without an acknowledgement or a request, reading would stop silently
                    raise nats.errors.Error(str(self._reported))
                if expected <= 0:
                    request = {"batch": 1} if is_too_large else {"batch": BATCH, "max_bytes": max_bytes}
                    request["expires"] = int(REQUEST_EXPIRES * 1_000_000_000)
                    subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{CONSUMER}"
                    await connection.publish(subject, json.dumps(request).encode(), inbox)
                    expected = requested = request["batch"]
                messages, statuses = await self._next()
                expected -= len(messages)
                is_too_large = expected == requested and any(map(_has_no_room, statuses))
                expected = 0 if statuses else expected
                if messages:
                    self._note_response()
                await self._publish(messages)
                for status in statuses:
                    _check(status)
                    self._note_response()
        finally:
            waking.cancel()
        await _return(self._take_arrived())
        if connection.is_closed:
            raise nats.errors.ConnectionClosedError

    async def _next(self) -> tuple[list[Msg], list[Msg]]:
        """Messages of the stream that arrived, and statuses of the request, which have no reply subject.

        Headers would not distinguish the two, because a publisher may set any header.
        """
        first = await asyncio.wait_for(self._arrived.get(), SILENCE)
        arrived = [*([first] if first else []), *self._take_arrived()]
        messages = [message for message in arrived if message.reply.startswith("$JS.ACK.")]
        return messages, [message for message in arrived if not message.reply]

    def _take_arrived(self) -> list[Msg]:
        arrived = [self._arrived.get_nowait() for _ in range(self._arrived.qsize())]
        return [message for message in arrived if message is not None]

    # --- publishing

    async def _publish(self, messages: list[Msg]) -> None:
        for part in parts(messages, lambda message: len(message.data)):
            if self._stopping.is_set():
                await _return(part)
                continue
            batch = [Received(message, _parse(message)) for message in part]
            while batch:
                batch = batch[await self._settle(batch, publish_some) :]

    async def _settle(self, batch: list[Received], unit: Unit) -> int:
        """Run a unit, and acknowledge the messages that it handled. Returns their number."""
        messages = [received.message for received in batch]
        try:
            outcomes = await self._store.run(lambda tx: unit(tx, messages))
        except Unavailable as error:
            self._warn("events from NATS wait for the store", str(error))
            await _redeliver_later(batch, RETRY_PAUSES)
            await self._pause()
            return len(batch)
        except Exception:  # noqa: BLE001 (an error in one message must not stop the others)
            log.exception("messages from NATS could not be published", stream=self._stream, messages=len(batch))
            return await self._settle_each(batch, unit)
        self._failures = 0
        self._logged.clear()
        for received, outcome in zip(batch, outcomes, strict=False):
            if isinstance(outcome, Unreachable):
                await _redeliver_later([received], NODE_PAUSES)
                continue
            self._trace(received, outcome)
            self._errors.pop(_key(received.message), None)
            if isinstance(outcome, Published):
                await received.raw.ack()
            else:
                sequence = received.message.position.number
                log.error("message refused", stream=self._stream, sequence=sequence, error=outcome.detail)
                await received.raw.term()
        return len(outcomes)

    def _trace(self, received: Received, outcome: Refusal | Published) -> None:
        if self._traces is None:
            return
        error, deliveries = (outcome.code, []) if isinstance(outcome, Refusal) else ("", outcome.created)
        headers, subject = received.raw.headers or {}, received.message.position.details["subject"]
        self._traces.record_message("nats", headers, self._stream, subject, deliveries, error)

    async def _settle_each(self, batch: list[Received], unit: Unit) -> int:
        """Settle messages one by one, so that only those that cannot be published are retried, MAX_TRIES times."""
        if len(batch) > 1:
            for received in batch:
                await self._settle([received], unit)
        elif unit is not refuse_all and self._count_error(batch[0].message) >= MAX_TRIES:
            await self._settle(batch, refuse_all)
        else:
            await _redeliver_later(batch, RETRY_PAUSES)
        return len(batch)

    def _count_error(self, message: Message) -> int:
        """Count an internal error. Returns how many this process had with the message.

        The count of NATS is not used: it includes redeliveries after an outage of the store or the end of a process.
        """
        key = _key(message)
        errors = self._errors[key] = self._errors.pop(key, 0) + 1
        if len(self._errors) > MAX_COUNTED:  # another process settled those that stay
            del self._errors[next(iter(self._errors))]
        return errors


def _key(message: Message) -> tuple[int, int]:
    """Identifies a message of the stream. A stream that is created again counts from one again."""
    return message.position.number, message.position.stored_at


def _parse(raw: Msg) -> Message:
    metadata = raw.metadata
    stream, sequence = metadata.stream, metadata.sequence.stream
    subject = "".join(char if char.isprintable() else "�" for char in raw.subject)
    details = {"stream": stream, "sequence": sequence, "subject": subject[:256]}
    position = Position("nats", stream, sequence, clock.milliseconds(metadata.timestamp), details)
    return read(position, raw.data, (raw.headers or {}).get("Nats-Msg-Id"))


async def _redeliver_later(batch: list[Received], pauses: Sequence[float]) -> None:
    """Have messages redelivered, with a longer pause after each try."""
    for received in batch:
        await received.raw.nak(delay=pauses[min(received.raw.metadata.num_delivered, len(pauses)) - 1])


async def _return(messages: list[Msg]) -> None:
    """Have messages redelivered to another process at once."""
    for message in messages:
        if message.reply:
            await message.nak()


def _check(status: Msg) -> None:
    """Raise if NATS reports an error, and not only that there are no messages, or none that fit into the request."""
    headers = status.headers or {}
    if headers.get("Status") not in _NO_MESSAGES and not _has_no_room(status):
        raise nats.errors.Error(headers.get("Description") or f"status {headers.get('Status')}")


def _has_no_room(status: Msg) -> bool:
    return (status.headers or {}).get("Description") == _NO_MORE_FIT
