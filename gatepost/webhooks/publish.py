"""Publishing: an event of the platform becomes an entry with its deliveries, once, however often it is sent."""

from collections.abc import Collection
from typing import NamedTuple

from gatepost.accounts import Account, lookup
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.strict_json import read_json
from gatepost.ledger import entry_rows, outbox_rows, publishable, published_ids
from gatepost.ledger.entries import MAX_DATA, Entry, Origin
from gatepost.ledger.outbox_rows import OutboxRow
from gatepost.ledger.publishable import Event
from gatepost.ledger.record import append_entry
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx
from gatepost.webhooks import delivery_rows

_OUTBOX = Origin("outbox")
_MAX_DELIVERIES = 1000  # in the response for an event that was published before
MAX_BODY = 3 * MAX_DATA  # of an event as it was sent: \u escapes take up to three times as much as the characters
MAX_BYTES = 256 * 1024  # of events in one commit, unless a single event has more
MAX_NEW_DELIVERIES = 500  # in one commit, unless a single event creates more
MAX_BATCH_DELIVERIES = 10_000  # of several events that are published together
MAX_TRIES = 5  # for a row of the outbox or a message that cannot be published because of an internal error
INTERNAL_ERROR = Refusal("server_error", f"internal error in each of {MAX_TRIES} tries; see the log")
SLICE = 100  # rows of the outbox in one commit
_TOO_LARGE_AS_SENT = Refusal("request_too_large", f"data: at most {MAX_BODY} bytes as it was written")
_NO_LONGER_IN_LEDGER = Refusal("conflict", "id: the event of this id is no longer in the ledger", "/id")
_TOO_MANY_DELIVERIES = Refusal(
    "request_too_large", f"the events up to this one create more than {MAX_BATCH_DELIVERIES} deliveries; send fewer"
)


class Published(NamedTuple):
    """An event that is in the ledger, and the ids of its deliveries."""

    entry: Entry
    delivery_ids: list[bytes]
    again: bool = False  # it was published before

    @property
    def deliveries(self) -> list[str]:
        return [ids.text("dlv", delivery) for delivery in self.delivery_ids]

    @property
    def created_count(self) -> int:
        return 0 if self.again else len(self.delivery_ids)

    @property
    def created(self) -> list[tuple[str, str]]:
        """The event with each delivery that was created now."""
        return [] if self.again else [(self.entry.name, delivery) for delivery in self.deliveries]


Earlier = dict[bytes, Published]  # what the same unit published before, by the id of the entry


def publish_event(
    tx: Tx, account: Account, event: Event, origin: Origin, earlier: Earlier | None = None
) -> Published | Refusal:
    """Record the event, or find the one that was published with its id. The insert decides between two requests."""
    raw = ids.new_raw()
    if event.name and not published_ids.add(tx, account.id, event.name, raw, event.body):
        return _published_before(tx, account, event, earlier or {})
    recorded = append_entry(tx, _entry(account, raw, tx.now, event, origin))
    published = Published(recorded.entry, recorded.deliveries)
    if earlier is not None:
        earlier[raw] = published
    return published


def _entry(account: Account, raw: bytes, at: int, event: Event, origin: Origin) -> Entry:
    keep_days = account.seconds("retention") // 86400
    return Entry(
        account.id, raw, event.type, at, origin.actor, event.subject, event.data, None, 0, keep_days, origin.request,
        origin.source,
    )  # fmt: skip


def _published_before(tx: Tx, account: Account, event: Event, earlier: Earlier) -> Published | Refusal:
    published = published_ids.load_durably(tx, account.id, event.name)
    if published is None:
        raise Again("the event with this id was pruned just now")
    raw, body = published
    if body != event.body:
        return Refusal("conflict", "id: published before with another type or other data", "/id")
    if raw in earlier:
        return earlier[raw]._replace(again=True)
    entry = entry_rows.load(tx, account.id, raw)
    if entry is None and not tx.retried:  # entries are written at the end of the commit, or before a unit is repeated
        raise Again("another unit of this commit publishes the event")
    if entry is None:
        return _NO_LONGER_IN_LEDGER
    return Published(entry, delivery_rows.of_event(tx, account.id, raw, _MAX_DELIVERIES), again=True)


def publish_events(
    tx: Tx, account: Account, events: list[Event], origin: Origin
) -> list[Published] | tuple[int, Refusal]:
    """Publish events until one is refused. A caller that wants all or none raises then, which undoes the unit.

    They are one commit, which others wait for, so that they may create as many deliveries as a single event at most.
    """
    published: list[Published] = []
    earlier: Earlier = {}
    created = 0
    for index, event in enumerate(events):
        outcome = publish_event(tx, account, event, origin, earlier)
        if isinstance(outcome, Refusal):
            return index, outcome
        created += outcome.created_count
        if index and created > MAX_BATCH_DELIVERIES:
            return index, _TOO_MANY_DELIVERIES
        published.append(outcome)
    return published


class OutboxSlice(NamedTuple):
    """The number of rows of the outbox that were published, and the refused ones with their problems."""

    published: int
    refused: list[tuple[int, str]]


def from_outbox(tx: Tx, without: Collection[int] = ()) -> OutboxSlice:
    """Publish some rows of the outbox. The entry, its deliveries and the end of the row are one commit.

    Stops early when there is enough for one commit. The rows with the numbers in `without` are left out.
    """
    page = outbox_rows.lock_page(
        tx, SLICE, MAX_BODY, MAX_BYTES, without=without, without_accounts=_unreachable_accounts(tx)
    )
    return _publish_rows(tx, page)


def row_from_outbox(tx: Tx, number: int) -> OutboxSlice:
    """Publish the row with this number, unless another process has it."""
    return _publish_rows(tx, _lock_row(tx, number))


def refuse_row(tx: Tx, number: int) -> OutboxSlice:
    """Refuse the row with this number after MAX_TRIES internal errors, unless another process has it."""
    refused = [(row.number, INTERNAL_ERROR.detail) for row in _lock_row(tx, number)]
    outbox_rows.finish(tx, [], refused)
    return OutboxSlice(0, refused)


def _lock_row(tx: Tx, number: int) -> list[OutboxRow]:
    unreachable = _unreachable_accounts(tx)
    return outbox_rows.lock_page(
        tx, 1, MAX_BODY, MAX_BYTES, numbers=(number, number), without_accounts=unreachable
    )  # fmt: skip


def _unreachable_accounts(tx: Tx) -> list[str]:
    """The names and ids of the accounts whose rows wait, because their database node is down."""
    return [name for account in lookup.unreachable(tx) for name in (account.name, account.id)]


def _publish_rows(tx: Tx, rows: list[OutboxRow]) -> OutboxSlice:
    done: list[int] = []
    refused: list[tuple[int, str]] = []
    earlier: Earlier = {}
    deliveries = 0
    for row in rows:
        outcome = _publish_row(tx, row, earlier)
        if isinstance(outcome, Refusal):
            refused.append((row.number, outcome.detail))
        else:
            done.append(row.number)
            deliveries += outcome.created_count
        if deliveries >= MAX_NEW_DELIVERIES:
            break
    if done or refused:
        outbox_rows.finish(tx, done, refused)
    return OutboxSlice(len(done), refused)


def _publish_row(tx: Tx, row: OutboxRow, earlier: Earlier) -> Published | Refusal:
    account = lookup.find(tx, row.account)
    if account is None:
        return Refusal("not_found", f"there is no account {row.account[:64]}")
    if row.data is None:
        return _TOO_LARGE_AS_SENT
    parsed = read_json(row.data)
    if isinstance(parsed, Refusal):
        return Refusal(parsed.code, f"data: {parsed.detail}")
    event = publishable.event(row.type, parsed.value, row.id)
    return event if isinstance(event, Refusal) else publish_event(tx, account, event, _OUTBOX, earlier)
