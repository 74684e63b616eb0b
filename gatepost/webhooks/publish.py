"""Publishing: an event of the platform becomes an entry with its deliveries, once, however often it is sent."""

from typing import NamedTuple

from gatepost.accounts import Account, administration
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.strict_json import read_json
from gatepost.ledger import publishable
from gatepost.ledger.entries import Entry, Origin
from gatepost.ledger.publishable import Event
from gatepost.store.effects import Again
from gatepost.store.tx import Tx

_OUTBOX = Origin("outbox")
_MOST_SHOWN = 1000
SLICE = 100


class Published(NamedTuple):
    entry: Entry
    deliveries: list[str]
    again: bool = False  # it had been published before

    @property
    def born(self) -> list[tuple[str, str]]:
        """The event with each of the deliveries that it made now."""
        return [] if self.again else [(self.entry.name, each) for each in self.deliveries]


def one(tx: Tx, account: Account, event: Event, origin: Origin) -> Published | Refusal:
    """Record the event, or find the one that was published under its id. The insert decides between two."""
    raw = ids.fresh()
    if event.name and not tx.webhooks.add_published(account.id, event.name, raw, event.body):
        return _again(tx, account, event)
    before = len(tx.effects.births)
    entry = tx.record(_entry(account, raw, clock.milliseconds(tx.at), event, origin))
    return Published(entry, [ids.text("dlv", birth.delivery.id) for birth in tx.effects.births[before:]])


def _entry(account: Account, raw: bytes, at: int, event: Event, origin: Origin) -> Entry:
    keep_days = account.seconds("retention") // 86400
    return Entry(
        account.id, raw, event.type, at, origin.actor, event.subject, event.data, None, 0, keep_days, origin.request,
        origin.source,
    )  # fmt: skip


def _again(tx: Tx, account: Account, event: Event) -> Published | Refusal:
    known = tx.webhooks.published(account.id, event.name)
    if known is None:
        raise Again("the event that had this id was pruned just now")
    if known[1] != event.body:
        return Refusal("conflict", "id: published before with another type or other data", "/id")
    entry = tx.entry(account.id, known[0])
    if entry is None:  # recorded in this very commit, whose entries are written last
        return _waiting(tx, known[0])
    found = tx.webhooks.deliveries_of_event(account.id, known[0], _MOST_SHOWN)
    return Published(entry, [ids.text("dlv", each) for each in found], again=True)


def _waiting(tx: Tx, raw: bytes) -> Published:
    """Of this unit; another's the store writes first, and runs this one again."""
    for entry in tx.effects.entries:
        if entry.id == raw:
            made = [birth.delivery.id for birth in tx.effects.births if birth.delivery.event == raw]
            return Published(entry, [ids.text("dlv", each) for each in made], again=True)
    raise Again("another unit of this commit publishes the event")


def several(tx: Tx, account: Account, events: list[Event], origin: Origin) -> list[Published] | tuple[int, Refusal]:
    """Stops at the first that is refused, by its place. Who wants all or none raises then, which undoes the unit."""
    found: list[Published] = []
    for place, event in enumerate(events):
        each = one(tx, account, event, origin)
        if isinstance(each, Refusal):
            return place, each
        found.append(each)
    return found


class Moved(NamedTuple):
    published: int
    refused: list[tuple[int, str]]


def from_outbox(tx: Tx) -> Moved:
    """Move some rows of the outbox into the ledger: entry, deliveries and the row's end in one commit."""
    rows = tx.webhooks.outbox(SLICE)
    done: list[int] = []
    refused: list[tuple[int, str]] = []
    for number, account_name, type_, data, given_id in rows:
        problem = _publish_row(tx, account_name, type_, data, given_id)
        if problem:
            refused.append((number, problem))
        else:
            done.append(number)
    if rows:
        tx.webhooks.leave_outbox(done, refused)
    return Moved(len(done), refused)


def _publish_row(tx: Tx, account_name: str, type_: str, data: str, given_id: str | None) -> str:
    """What is wrong with the row, in words; empty when it was published."""
    account = administration.find(tx, account_name)
    if account is None:
        return f"there is no account {account_name}"
    parsed = read_json(data)
    if isinstance(parsed, Refusal):
        return f"data: {parsed.detail}"
    event = publishable.event(type_, parsed.value, given_id)
    outcome = event if isinstance(event, Refusal) else one(tx, account, event, _OUTBOX)
    return outcome.detail if isinstance(outcome, Refusal) else ""
