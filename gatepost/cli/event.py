"""`gatepost event`: publish events of the platform, and follow the ledger as it grows."""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from gatepost.accounts import Account, administration
from gatepost.cli import show
from gatepost.cli.options import account_option, chosen, contents, json_option, with_store
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, GatepostError, Refusal, Unavailable
from gatepost.core.strict_json import read_json
from gatepost.ledger import entries, entry_rows
from gatepost.ledger import publishable as rules
from gatepost.ledger.entries import OPERATOR, Entry, Origin
from gatepost.ledger.publishable import Event
from gatepost.ledger.search import EntryFilter
from gatepost.run.app import Opened, open_for_use
from gatepost.store.transaction import HIGHEST, Tx
from gatepost.webhooks import publish
from gatepost.webhooks.publish import Earlier, Published

CHUNK = 100  # lines in one commit
LOOK_EVERY = 0.5  # seconds
LATE = timedelta(seconds=15)  # an entry may be committed so long after its id was made
_PAGE = 1000
_MEMBERS = ("type", "data", "id")
_ORIGIN = Origin(OPERATOR)


@click.group()
def event() -> None:
    """Publish events, and follow what is recorded."""


@event.command("publish")
@account_option
@click.option("--type", "type_", metavar="TYPE", help="As invoice.paid. Without it, JSON lines are read.")
@click.option("--data", "text", metavar="JSON", help="What happened; @FILE for what is in a file.")
@click.option("--id", "given_id", metavar="ID", help="Your own id: the same event again is then published once.")
@click.option("--database", metavar="URL", help="PostgreSQL in place of SQLite.")
@click.option("--config", metavar="FILE", default="", help="TOML file of settings.")
@json_option
def publish_events(
    name: str, type_: str | None, text: str | None, given_id: str | None, database: str | None, config: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Publish one event, and print it with the ids of its deliveries.

    Without --type: one event for each line of standard input, {"type": …, "data": …, "id": …}, the id as you like. The
    first line that is wrong ends it, and those before it are published; with ids the whole may be given again.

    --data is the event's here: the store's directory is that of GATEPOST_DATA or --config.
    """
    if type_ is None and (text is not None or given_id is not None):
        raise BadSetting("--data and --id are for one event, with --type; leave them out to read JSON lines")
    opened = open_for_use(chosen(config, None, database))
    with closing(opened.store):
        account = opened.store.read_now(lambda tx: administration.named(tx, name))
        if type_ is None:
            _publish_lines(opened, account, sys.stdin.buffer, as_json)
        else:
            _publish_one(opened, account, type_, text, given_id, as_json)


def _publish_one(
    opened: Opened, account: Account, type_: str, text: str | None, given_id: str | None, as_json: bool
) -> None:
    if text is None:
        raise BadSetting("--data: needed with --type, as --data '{\"amount\": 1}'")
    checked = _checked({"type": type_, "data": _parsed(text), "id": given_id})
    outcome = checked if isinstance(checked, Refusal) else _publish(opened, account, [checked])[0]
    if isinstance(outcome, Refusal):
        raise BadSetting(f"--{outcome.detail}")
    if as_json:
        show.document(shown(outcome))
    else:
        show.record(shown(outcome))


def _parsed(data: str) -> Any:
    parsed = read_json(contents(data))
    if isinstance(parsed, Refusal):
        raise BadSetting(f"--data: {parsed.detail.replace('the body', 'it', 1)}")
    return parsed.value


def _checked(sent: Any) -> Event | Refusal:
    """An event as somebody wrote it."""
    if not isinstance(sent, dict):
        return Refusal("invalid_request", 'must be an object, as {"type": "invoice.paid", "data": {"amount": 1}}')
    for member in (*sent, "type", "data"):
        if member not in _MEMBERS or member not in sent:
            what = "is missing" if member in _MEMBERS else "is not a member of an event"
            return Refusal("invalid_request", f"{plain(member)[:64]} {what}; write type, data, and id as you like")
    return rules.event(sent["type"], sent["data"], sent.get("id"))


def _publish(opened: Opened, account: Account, events: list[Event]) -> list[Published | Refusal]:
    """In one commit, up to the first that is refused; those before it are published."""

    def unit(tx: Tx) -> list[Published | Refusal]:
        outcomes: list[Published | Refusal] = []
        earlier: Earlier = {}
        for event in events:
            outcomes.append(publish.one(tx, account, event, _ORIGIN, earlier))
            if isinstance(outcomes[-1], Refusal):
                break
        return outcomes

    return opened.store.run_now(unit)


def shown(published: Published) -> dict[str, Any]:
    return entries.render(published.entry) | {"deliveries": published.deliveries, "again": published.again}


# --- JSON lines


class Line(NamedTuple):
    number: int
    size: int
    event: Event | Refusal


def _lines(stream: Iterable[bytes]) -> Iterator[Line]:
    """Up to the first that is wrong."""
    for number, text in enumerate(stream, 1):
        if not text.strip():
            continue
        parsed = read_json(text)
        found = parsed if isinstance(parsed, Refusal) else _checked(parsed.value)
        yield Line(number, len(text), found)
        if isinstance(found, Refusal):
            return


def _chunks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    while chunk := list(islice(lines, CHUNK)):
        yield chunk


def _publish_lines(opened: Opened, account: Account, stream: BinaryIO, as_json: bool) -> None:
    published = again = deliveries = 0
    wrong = ""
    try:
        with _progress(stream) as passed:
            for chunk in _chunks(_lines(stream)):
                outcomes = _publish(opened, account, [each.event for each in chunk if isinstance(each.event, Event)])
                if isinstance(chunk[-1].event, Refusal) and len(outcomes) == len(chunk) - 1:
                    outcomes.append(chunk[-1].event)
                for line, outcome in zip(chunk, outcomes, strict=False):
                    if isinstance(outcome, Refusal):
                        wrong = f"line {line.number}: {outcome.detail.replace('the body', 'it', 1)}"
                        break
                    published += 1
                    again += outcome.again
                    deliveries += 0 if outcome.again else len(outcome.deliveries)
                    if as_json:
                        click.echo(msgspec.json.encode(shown(outcome)))
                passed(chunk)
                if wrong:
                    break
    except GatepostError as error:
        wrong = str(error)
    except KeyboardInterrupt:
        wrong = "interrupted"
    told = f"{published} events published ({again} of them had been before), {deliveries} deliveries made"
    if wrong:
        click.echo(f"gatepost: {wrong}; before that, {told}; put it right and give all of it again: "
                   "what has an id is published once", err=True)  # fmt: skip
        sys.exit(1)
    if not as_json:
        click.echo(told)


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Callable[[list[Line]], None]]:
    """By the bytes of a file; of what comes through a pipe nobody knows the end."""
    about = os.fstat(stream.fileno())
    by_size = stat.S_ISREG(about.st_mode)
    total: Any = about.st_size if by_size else None
    with show.progress("bytes" if by_size else "events", total) as moved:
        yield lambda chunk: moved(sum(line.size for line in chunk) if by_size else len(chunk))


# --- following


@event.command()
@account_option
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only this type; invoice.* for all below it.")
@with_store
@json_option
def tail(opened: Opened, name: str, types: tuple[str, ...], as_json: bool) -> None:
    """Print what is recorded from now on, a line each, until Ctrl-C. With --json, a line of JSON each."""
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    wanted = EntryFilter(types)
    try:
        for entry in _follow(opened, account):
            if wanted.matches(entry):
                click.echo(msgspec.json.encode(entries.render(entry)) if as_json else line_of(entry))
    except KeyboardInterrupt:
        return


def _follow(opened: Opened, account: Account) -> Iterator[Entry]:
    """New entries for ever. One is new by not having been seen: ids are made before the commit, so a late one may have
    a lower id than those already here. Each look goes back before the last by as long as a commit can take.
    """
    looked = clock.now()
    seen = {entry.id for entry in opened.store.read_now(lambda tx: unseen(tx, account.id, looked, set()))}
    click.echo(f"following {account.name}; Ctrl-C ends it", err=True)
    while True:
        time.sleep(LOOK_EVERY)
        at = clock.now()
        try:
            found = opened.store.read_now(_unseen(account.id, looked, seen))
        except Unavailable as error:
            click.echo(f"gatepost: {error}; still trying", err=True)
            continue
        yield from found
        looked = at
        seen = {each for each in (*seen, *(entry.id for entry in found)) if each >= _back(looked)}


def _unseen(account: str, looked: datetime, seen: set[bytes]) -> Callable[[Tx], list[Entry]]:
    return lambda tx: unseen(tx, account, looked, seen)


def unseen(tx: Tx, account: str, looked: datetime, seen: set[bytes]) -> list[Entry]:
    """Entries that were not there at the last look, oldest first."""
    after, fresh = _back(looked), list[bytes]()
    while page := entry_rows.retention_page(tx, account, after, HIGHEST, _PAGE):
        fresh += [raw_id for raw_id, _ in page if raw_id not in seen]
        after = page[-1][0]
    found = entry_rows.load_many(tx, ((ids.raw(account), raw_id) for raw_id in fresh))
    return sorted(found.values(), key=lambda entry: entry.id)


def _back(at: datetime) -> bytes:
    return ids.lowest_at(clock.milliseconds(at - LATE))


def line_of(entry: Entry) -> str:
    at = clock.rfc3339(clock.from_milliseconds(entry.at))
    return plain("  ".join((at, entry.type, entry.name, entry.actor, entry.subject or "–", entry.data or "–")))


def plain(text: str) -> str:
    """Nothing that somebody else wrote reaches the terminal as a control character."""
    return "".join(each if each.isprintable() else "�" for each in text)
