"""Publishing from a NATS JetStream stream: a message becomes an event, and is acknowledged after the commit.

A message may come again at any time: it is known by its id, else by its place in the stream, and published once. What
cannot be published is recorded in the operator's own ledger, once, and not asked for again.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api
from nats.js.errors import NotFoundError

from gatepost.accounts import OPERATOR, administration
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal, Unavailable
from gatepost.core.logging import log
from gatepost.core.strict_json import read_json
from gatepost.ledger import entries, published_ids
from gatepost.ledger import publishable as rules
from gatepost.ledger.entries import MAX_DATA, Origin
from gatepost.ledger.publishable import Event
from gatepost.ledger.record import append_entry
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from gatepost.webhooks import publish
from gatepost.webhooks.publish import Earlier, Published

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

CONSUMER = "gatepost"
BATCH = 100  # messages asked for at a time
MOST_UNANSWERED = 1000  # messages that all our processes together may have in hand
MOST_BYTES = 256 * 1024  # of messages read before others get their turn
MOST_BIRTHS = 500  # deliveries made in one commit, unless a single event makes more
MAX_BODY = 2 * MAX_DATA  # data may come with escapes and spaces that are not kept
ACK_WAIT = 30.0  # seconds after which NATS sends again what was not answered
ASK_FOR = 5.0  # seconds for which one request for messages stands
SILENCE = ASK_FOR + 5.0  # NATS answers each request in time, if only to say that there is nothing
LEAVE = 8.0  # seconds to finish what is under way
CLOSE = 2.0  # seconds to send the last answers
TRIES = 5  # of a message that cannot be published because of an internal error
WAITS = (0.5, 1.0)  # seconds before the next try; the last for ever, so that no outage is felt longer than it lasts

_ORIGIN = Origin("nats")
_MEMBERS = ("account", "type", "data", "id")
_NOTHING = ("404", "408")  # there are no messages; none came in the time asked for
_OUTAGES = (OSError, TimeoutError, nats.errors.Error)


# --- what a message says


class Place(NamedTuple):
    """Where a message is. The time as well: a stream that is made anew counts from one again."""

    stream: str
    sequence: int
    stored_at: int


class Message(NamedTuple):
    place: Place
    subject: str
    account: str
    event: Event | Refusal


def read(place: Place, subject: str, headers: Mapping[str, str], body: bytes) -> Message:
    """An event as {"account", "type", "data", "id"}. Without an id, the header Nats-Msg-Id is it, else the place."""
    found = _members(body)
    if isinstance(found, Refusal):
        return Message(place, subject, "", found)
    given, source = found.get("id"), ""
    if given is None:
        given = headers.get("Nats-Msg-Id")
    if given is None:
        given, source = f"{place.sequence} {place.stored_at}", f"nats:{place.stream}"
    return Message(place, subject, found["account"], rules.event(found["type"], found["data"], given, source=source))


def _members(body: bytes) -> dict[str, Any] | Refusal:
    if len(body) > MAX_BODY:
        return Refusal("request_too_large", f"a message may have at most {MAX_BODY} bytes")
    parsed = read_json(body)
    if isinstance(parsed, Refusal):
        return parsed
    found = parsed.value
    if not isinstance(found, dict):
        return Refusal("invalid_request", "must be a JSON object with account, type, data, and id as you like")
    for member in (*found, "account", "type", "data"):
        if member not in _MEMBERS or member not in found:
            what = "needed" if member in _MEMBERS else f"unknown member; there are {', '.join(_MEMBERS)}"
            return Refusal("invalid_request", f"{member[:64]}: {what}", f"/{member[:64]}")
    if not isinstance(found["account"], str):
        return Refusal("invalid_request", "account: must be the name or the id of an account", "/account")
    return found


# --- what becomes of it

Decide = Callable[[Tx, list[Message]], list[Refusal | Published]]


def publish_some(tx: Tx, messages: list[Message]) -> list[Refusal | Published]:
    """Publish each, or record why not. Fewer are told of than were given when there is enough for one commit."""
    told: list[Refusal | Published] = []
    earlier: Earlier = {}
    deliveries = 0
    for message in messages:
        outcome = _publish(tx, message, earlier)
        if isinstance(outcome, Refusal):
            _record(tx, message, outcome)
        else:
            deliveries += len(outcome.created)
        told.append(outcome)
        if deliveries >= MOST_BIRTHS:
            break
    return told


def give_up(tx: Tx, messages: list[Message]) -> list[Refusal | Published]:
    refusal = Refusal("server_error", f"internal error in each of {TRIES} tries; see the log")
    for message in messages:
        _record(tx, message, refusal)
    return [refusal] * len(messages)


def _publish(tx: Tx, message: Message, earlier: Earlier) -> Refusal | Published:
    if isinstance(message.event, Refusal):
        return message.event
    account = administration.find(tx, message.account)
    if account is None:
        return Refusal("not_found", f"account: there is no account {message.account[:64]}", "/account")
    return publish.one(tx, account, message.event, _ORIGIN, earlier)


def _record(tx: Tx, message: Message, refusal: Refusal) -> None:
    """In the operator's ledger. The insert decides: a message that comes again is not recorded again."""
    operator, raw, place = administration.named(tx, OPERATOR), ids.fresh(), message.place
    name = hashlib.sha256(f"refused\0{place.stream}\0{place.sequence}\0{place.stored_at}".encode()).digest()
    if not published_ids.add(tx, operator.id, name, raw, name):
        return
    data = {
        "error": refusal.code,
        "error_description": refusal.detail,
        "stream": place.stream,
        "sequence": place.sequence,
        "subject": message.subject[:256],
    }
    if refusal.pointer:
        data["member"] = refusal.pointer.lstrip("/")
    append_entry(
        tx,
        entries.new(
            "webhook.event.refused",
            account=operator.id,
            origin=_ORIGIN,
            subject=f"{place.stream}:{place.sequence}",
            data=data,
            at=tx.at,
            keep_days=operator.seconds("audit_retention") // 86400,
            raw_id=raw,
        ),
    )


# --- reading


async def consume(
    store: Store, url: str, stream: str, stopping: asyncio.Event, traces: "Traces | None" = None
) -> None:  # fmt: skip
    """Publish what comes until told to stop. When NATS or the store is away, until it is back."""
    reading = asyncio.create_task(_Reader(store, url, stream, stopping, traces).run())
    await stopping.wait()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reading, LEAVE)


class Taken(NamedTuple):
    """A message in hand, and the means to answer it."""

    raw: Msg
    message: Message


class _Reader:
    def __init__(
        self, store: Store, url: str, stream: str, stopping: asyncio.Event, traces: "Traces | None"
    ) -> None:  # fmt: skip
        self._traces = traces
        self._store = store
        self._url = url
        self._stream = stream
        self._stopping = stopping
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()  # None: look whether it is over
        self._reads = False
        self._failures = 0
        self._told: set[str] = set()  # what was logged in this outage

    async def run(self) -> None:
        while not self._stopping.is_set():
            what = "cannot read from NATS"
            try:
                async with _connected(self._url, self._wake) as connection:
                    what = "the NATS stream cannot be read"
                    await _prepare(connection, self._stream)
                    what = "cannot read from NATS"
                    await self._read_on(connection)
            except _OUTAGES as error:
                self._tell(what, getattr(error, "description", None) or str(error) or "no answer in time")
            except Exception:  # noqa: BLE001 (whatever it was, NATS still has what was not answered)
                log.exception("reading from NATS failed", stream=self._stream)
            self._reads = False
            await self._pause()

    def _wake(self) -> None:
        self._arrived.put_nowait(None)

    def _tell(self, what: str, error: str) -> None:
        if what not in self._told and not self._stopping.is_set():
            self._told.add(what)
            log.warning(what, stream=self._stream, error=error)

    async def _pause(self) -> None:
        wait = WAITS[min(self._failures, len(WAITS) - 1)]
        self._failures += 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait)

    def _answered(self) -> None:
        """NATS is there, and the stream with it."""
        if not self._reads:
            log.info("reading events from NATS", stream=self._stream, consumer=CONSUMER)
            self._reads = True
            self._failures = 0
            self._told.clear()

    async def _read_on(self, connection: Client) -> None:
        self._arrived = asyncio.Queue()  # what came over another connection can no longer be answered

        async def take(message: Msg) -> None:
            self._arrived.put_nowait(message)

        inbox = connection.new_inbox()
        await connection.subscribe(inbox, cb=take)
        ask = json.dumps({"batch": BATCH, "expires": int(ASK_FOR * 1_000_000_000)}).encode()
        expected = 0
        waking = asyncio.create_task(self._stopping.wait())
        waking.add_done_callback(lambda _: self._wake())
        try:
            while not self._stopping.is_set() and not connection.is_closed:
                if expected <= 0:
                    await connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{CONSUMER}", ask, inbox)
                    expected = BATCH
                messages, statuses = await self._next()
                expected = 0 if statuses else expected - len(messages)
                if messages:
                    self._answered()
                await self._publish(messages)
                for status in statuses:
                    _check(status)
                    self._answered()
        finally:
            waking.cancel()
        await _give_back(self._waiting())
        if connection.is_closed:
            raise nats.errors.ConnectionClosedError

    async def _next(self) -> tuple[list[Msg], list[Msg]]:
        """What has come: messages of the stream, and what NATS says of our request, which it expects no answer to.

        A header would not tell the two apart, since a publisher may write any.
        """
        first = await asyncio.wait_for(self._arrived.get(), SILENCE)
        some = [*([first] if first else []), *self._waiting()]
        return [each for each in some if each.reply.startswith("$JS.ACK.")], [each for each in some if not each.reply]

    def _waiting(self) -> list[Msg]:
        found: list[Msg] = []
        while not self._arrived.empty():
            each = self._arrived.get_nowait()
            if each is not None:
                found.append(each)
        return found

    # --- publishing

    async def _publish(self, messages: list[Msg]) -> None:
        for part in parts(messages):
            if self._stopping.is_set():
                await _give_back(part)
                continue
            some = [Taken(each, _read(each)) for each in part]
            while some:
                some = some[await self._settle(some, publish_some) :]

    async def _settle(self, some: list[Taken], decide: Decide) -> int:
        """One commit, and then the answers for as many as it reached; how many that were."""
        messages = [each.message for each in some]
        try:
            told = await self._store.run(lambda tx: decide(tx, messages))
        except Unavailable as error:
            self._tell("events from NATS wait for the store", str(error))
            await _later(some)
            await self._pause()
            return len(some)
        except Exception:  # noqa: BLE001 (a defect in one must not stop the others)
            log.exception("messages from NATS could not be published", stream=self._stream, messages=len(some))
            return await self._settle_each(some, decide)
        self._failures = 0
        self._told.clear()
        for each, outcome in zip(some, told, strict=False):
            self._trace(each, outcome)
            if isinstance(outcome, Published):
                await each.raw.ack()
            else:
                place = each.message.place
                log.error("message refused", stream=place.stream, sequence=place.sequence, error=outcome.detail)
                await each.raw.term()
        return len(told)

    def _trace(self, each: Taken, outcome: Refusal | Published) -> None:
        if self._traces is None:
            return
        error, born = (outcome.code, []) if isinstance(outcome, Refusal) else ("", outcome.created)
        self._traces.record_message(each.raw.headers or {}, self._stream, each.message.subject, born, error)

    async def _settle_each(self, some: list[Taken], decide: Decide) -> int:
        """One by one, to keep back only what cannot be published; and that not for ever."""
        if len(some) > 1:
            for each in some:
                await self._settle([each], decide)
        elif some[0].raw.metadata.num_delivered >= TRIES and decide is not give_up:
            await self._settle(some, give_up)
        else:
            await _later(some)
        return len(some)


def parts(messages: list[Msg]) -> Iterator[list[Msg]]:
    part: list[Msg] = []
    size = 0
    for each in messages:
        if part and size + len(each.data) > MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each.data)
    if part:
        yield part


def _read(raw: Msg) -> Message:
    about = raw.metadata
    place = Place(about.stream, about.sequence.stream, clock.milliseconds(about.timestamp))
    subject = "".join(each if each.isprintable() else "�" for each in raw.subject)
    return read(place, subject, raw.headers or {}, raw.data)


async def _later(some: list[Taken]) -> None:
    """Each comes again, the later the more often it did."""
    for each in some:
        await each.raw.nak(delay=WAITS[min(each.raw.metadata.num_delivered, len(WAITS)) - 1])


async def _give_back(messages: list[Msg]) -> None:
    """To whoever asks next."""
    for each in messages:
        if each.reply:
            await each.nak()


# --- NATS itself


class _Client(Client):
    """One that lives on when a message has a subject or headers that it cannot read, since the server takes any bytes;
    and that says who it is to no server without TLS when it is to be secure.
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
async def _connected(url: str, closed: Callable[[], None]) -> AsyncIterator[Client]:
    """A connection that ends when it breaks: whoever wants another begins anew."""
    reasons: list[Exception] = []

    async def failed(error: Exception) -> None:
        reasons[:] = [error]

    async def ended() -> None:
        closed()

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
            raise OSError(str(reasons[0]) if reasons else "no server answers") from None
        yield connection
    finally:
        with contextlib.suppress(*_OUTAGES):
            await asyncio.wait_for(connection.close(), CLOSE)


def credentials(url: str) -> tuple[str | None, str | None, str | None]:
    """User and password, or a token, of the first address that has any; as they are, not as an address writes them."""
    for each in url.split(","):
        found = urlsplit(each)
        if found.username is not None and found.password is not None:
            return unquote(found.username), unquote(found.password), None
        if found.username is not None:
            return None, None, unquote(found.username)
    return None, None, None


async def _prepare(connection: Client, stream: str) -> None:
    """Make the consumer, unless there is one: the operator may have made it with a filter of subjects."""
    streams = connection.jetstream()
    try:
        config = (await streams.consumer_info(stream, CONSUMER)).config
    except NotFoundError:
        wanted = api.ConsumerConfig(
            name=CONSUMER, durable_name=CONSUMER, ack_policy=api.AckPolicy.EXPLICIT, ack_wait=ACK_WAIT,
            max_ack_pending=MOST_UNANSWERED,
        )  # fmt: skip
        config = (await streams.add_consumer(stream, wanted)).config
    if config.deliver_subject or config.ack_policy != api.AckPolicy.EXPLICIT:
        raise nats.errors.Error(f"the consumer {CONSUMER} must be one to pull from, with explicit acknowledgement")


def _check(status: Msg) -> None:
    """What NATS said of a request: there is nothing, or why there never will be."""
    about = status.headers or {}
    if about.get("Status") not in _NOTHING:
        raise nats.errors.Error(about.get("Description") or f"status {about.get('Status')}")
