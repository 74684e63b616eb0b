"""`gatepost event`: publish events, and follow the ledger."""

import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import click
import msgspec

from gatepost.accounts import Account
from gatepost.cli import show
from gatepost.cli.options import account_named, account_option, contents, json_option, load_settings, with_store
from gatepost.cli.show import printable
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, GatepostError, Refusal, Refused, Unavailable
from gatepost.core.strict_json import read_json
from gatepost.ledger import entries, entry_rows
from gatepost.ledger import publishable as rules
from gatepost.ledger.entries import OPERATOR, Entry, Origin
from gatepost.ledger.publishable import Event
from gatepost.ledger.search import EntryFilter
from gatepost.run.app import Runtime, open_for_use
from gatepost.store.transaction import Tx
from gatepost.webhooks import publish
from gatepost.webhooks.publish import Earlier, Published

CHUNK = 100  # lines in one commit, unless these are too large or create too many deliveries
POLL_EVERY = 0.5  # seconds
MAX_COMMIT_DELAY = timedelta(seconds=15)  # between the creation of an id and the commit of its entry
_PAGE = 1000
_READ = 64 * 1024  # bytes of the input at a time
_MEMBERS = ("type", "data", "id")
_ORIGIN = Origin(OPERATOR)


@click.group()
def event() -> None:
    """Publish events, and follow the ledger."""


@event.command("publish")
@account_option
@click.option(
    "--type", "type_", metavar="TYPE", help="Event type, such as invoice.paid. Without it, JSON lines are read."
)
@click.option("--data", "text", metavar="JSON", help="Data of the event; @FILE for the content of a file.")
@click.option("--id", "given_id", metavar="ID", help="Your own id, with which an event is published only once.")
@click.option("--database", metavar="URL", help="PostgreSQL database to use instead of SQLite.")
@click.option("--config", metavar="FILE", default="", help="TOML file with settings.")
@json_option
def publish_events(
    name: str, type_: str | None, text: str | None, given_id: str | None, database: str | None, config: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Publish an event, and print it with the ids of its deliveries.

    Without --type, every line of standard input is an event: {"type": …, "data": …, "id": …}. The id is optional. The
    first invalid line ends the command, and the lines before it are published. With ids, all lines can be sent again.

    In this command, --data is the event's data. Set the store's directory with GATEPOST_DATA or --config.
    """
    if type_ is None and (text is not None or given_id is not None):
        raise BadSetting("--data and --id need --type; omit them to read JSON lines")
    runtime = open_for_use(load_settings(config, None, database))
    with closing(runtime.store):
        account = account_named(runtime, name)
        if type_ is None:
            _publish_lines(runtime, account, _standard_input(), as_json)
        else:
            _publish_one(runtime, account, type_, text, given_id, as_json)


def _publish_one(
    runtime: Runtime, account: Account, type_: str, text: str | None, given_id: str | None, as_json: bool
) -> None:
    if text is None:
        raise BadSetting("--type needs --data, for example --data '{\"amount\": 1}'")
    event = _check({"type": type_, "data": _parse_data(text), "id": given_id})
    if isinstance(event, Refusal):
        raise BadSetting(f"--{event.detail}")
    outcome = _publish(runtime, account, [event])[0]
    if isinstance(outcome, Refusal):
        raise Refused(f"--{outcome.detail}")
    show.record(render(outcome), as_json=as_json)


def _parse_data(data: str) -> Any:
    parsed = read_json(contents(data))
    if isinstance(parsed, Refusal):
        raise BadSetting(f"--data: {parsed.detail.replace('the body', 'it', 1)}")
    return parsed.value


def _check(sent: Any) -> Event | Refusal:
    """Check an event that a caller wrote."""
    if not isinstance(sent, dict):
        return Refusal("invalid_request", 'must be an object, such as {"type": "invoice.paid", "data": {"amount": 1}}')
    for member in (*sent, "type", "data"):
        if member not in _MEMBERS or member not in sent:
            problem = "is missing" if member in _MEMBERS else "is not a member of an event"
            return Refusal(
                "invalid_request", f"{printable(member)[:64]} {problem}; write type, data, and optionally id"
            )
    return rules.event(sent["type"], sent["data"], sent.get("id"))


def _publish(runtime: Runtime, account: Account, events: list[Event]) -> list[Published | Refusal]:
    """Publish events in one commit, up to the first that is refused, or until there is enough for one commit."""

    def unit(tx: Tx) -> list[Published | Refusal]:
        outcomes: list[Published | Refusal] = []
        earlier: Earlier = {}
        deliveries = 0
        for event in events:
            outcome = publish.publish_event(tx, account, event, _ORIGIN, earlier)
            outcomes.append(outcome)
            if isinstance(outcome, Refusal):
                break
            deliveries += outcome.created_count
            if deliveries >= publish.MAX_NEW_DELIVERIES:
                break
        return outcomes

    return runtime.store.run_now(unit)


def render(published: Published) -> dict[str, Any]:
    """Return a published event as JSON, with the ids of its deliveries."""
    return entries.render(published.entry) | {"deliveries": published.deliveries, "again": published.again}


# --- JSON lines


class Line(NamedTuple):
    """A line of the input: its number, its size in bytes, and its event."""

    number: int
    size: int
    event: Event | Refusal


Outcome = tuple[Line, Published | Refusal]


def _standard_input() -> int:
    """Return the file descriptor of standard input."""
    if sys.stdin is None:
        raise BadSetting("standard input is closed; write the events there, one per line, or use --type and --data")
    return sys.stdin.fileno()


def _read_lines(file: int) -> Iterator[bytes | None]:
    """Yield the lines of a file, and None whenever there is nothing more to read for now."""
    begun: list[bytes] = []
    while True:
        if not select.select([file], [], [], 0)[0]:
            yield None
            select.select([file], [], [])
        data = os.read(file, _READ)
        if not data:
            break
        *ends, rest = data.split(b"\n")
        for end in ends:
            yield b"".join((*begun, end, b"\n"))
            begun = []
        begun.append(rest)
    if last := b"".join(begun):
        yield last


def _lines(texts: Iterator[bytes | None]) -> Iterator[Line | None]:
    """Parse lines up to the first invalid one."""
    number = 0
    for text in texts:
        if text is None:
            yield None
            continue
        number += 1
        if not text.strip():
            continue
        parsed = read_json(text)
        event = parsed if isinstance(parsed, Refusal) else _check(parsed.value)
        yield Line(number, len(text), event)
        if isinstance(event, Refusal):
            return


def _chunks(lines: Iterator[Line | None]) -> Iterator[list[Line]]:
    """Yield lines that may share a commit. No line waits for one that cannot be read yet."""
    chunk: list[Line] = []
    size = 0
    for line in lines:
        if chunk and (line is None or len(chunk) == CHUNK or size + line.size > publish.MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        if line is not None:
            chunk.append(line)
            size += line.size
    if chunk:
        yield chunk


def _commits(runtime: Runtime, account: Account, chunks: Iterator[list[Line]]) -> Iterator[list[Outcome]]:
    """Publish lines, and yield what each commit did with its lines. It can be less than a chunk."""
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            rest = chunk[start:]
            outcomes = _publish(runtime, account, [line.event for line in rest if isinstance(line.event, Event)])
            if isinstance(rest[-1].event, Refusal) and len(outcomes) == len(rest) - 1:
                outcomes.append(rest[-1].event)
            yield list(zip(rest, outcomes, strict=False))
            start += len(outcomes)


def _publish_lines(runtime: Runtime, account: Account, file: int, as_json: bool) -> None:
    published = again = deliveries = 0
    problem, advice, code = "", "Send all lines again", 0
    try:
        with _progress(file) as advance:
            for commit in _commits(runtime, account, _chunks(_lines(_read_lines(file)))):
                for line, outcome in commit:
                    if isinstance(outcome, Refusal):
                        code = BadSetting.exit_code if outcome is line.event else Refused.exit_code
                        problem = f"line {line.number}: {outcome.detail.replace('the body', 'it', 1)}"
                        advice = "Correct it and send all lines again"
                        break
                    published += 1
                    again += outcome.again
                    deliveries += outcome.created_count
                    if as_json:
                        click.echo(msgspec.json.encode(render(outcome)))
                advance([line for line, _ in commit])
                if problem:
                    break
    except GatepostError as error:
        problem, code = str(error), error.exit_code
    except KeyboardInterrupt:
        problem, code = "interrupted", GatepostError.exit_code
    before = f"{again} {'was' if again == 1 else 'were'} already published"
    created = f"{_count(deliveries, 'delivery', 'deliveries')} created"
    summary = f"{_count(published, 'event', 'events')} published ({before}), {created}"
    if problem:
        click.echo(f"gatepost: {problem}; before that, {summary}. {advice}: "
                   "an event with an id is published only once", err=True)  # fmt: skip
        sys.exit(code)
    if not as_json:
        click.echo(summary)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


@contextmanager
def _progress(file: int) -> Iterator[Callable[[list[Line]], None]]:
    """Show progress by the bytes of a file, or by events if the input is a pipe of unknown length."""
    about = os.fstat(file)
    by_size = stat.S_ISREG(about.st_mode)
    with show.progress("bytes" if by_size else "events", about.st_size if by_size else None) as advance:
        yield lambda chunk: advance(sum(line.size for line in chunk) if by_size else len(chunk))


# --- following


@event.command()
@account_option
@click.option(
    "--type", "types", multiple=True, metavar="TYPE",
    help="Only this type; invoice.* selects all types with this prefix.",
)  # fmt: skip
@with_store
def tail(runtime: Runtime, name: str, types: tuple[str, ...], as_json: bool) -> None:
    """Print new entries of the ledger, one per line, until Ctrl-C. With --json, each line is JSON."""
    account = account_named(runtime, name)
    wanted = EntryFilter(types)
    try:
        for entry in _follow(runtime, account):
            if wanted.matches(entry):
                click.echo(msgspec.json.encode(entries.render(entry)) if as_json else format_line(entry))
    except KeyboardInterrupt:
        return


def _follow(runtime: Runtime, account: Account) -> Iterator[Entry]:
    """Yield new entries, without end. Ids are created before the commit, so a new one may be lower than known ones.
    So each poll goes back by as long as a commit can take, and skips the entries that were seen before.
    """
    polled = clock.now()
    seen = {entry.id for entry in runtime.store.read_now(lambda tx: unseen(tx, account.id, polled, set()))}
    click.echo(f"following {account.name}; press Ctrl-C to stop", err=True)
    while True:
        time.sleep(POLL_EVERY)
        at = clock.now()
        try:
            new = runtime.store.read_now(partial(unseen, account=account.id, polled=polled, seen=seen))
        except Unavailable as error:
            click.echo(f"gatepost: {error}; retrying", err=True)
            continue
        yield from new
        polled = at
        seen = {raw_id for raw_id in (*seen, *(entry.id for entry in new)) if raw_id >= _poll_start(polled)}


def unseen(tx: Tx, account: str, polled: datetime, seen: set[bytes]) -> list[Entry]:
    """Return the entries that were not there at the last poll, oldest first."""
    after, new = _poll_start(polled), list[bytes]()
    while page := entry_rows.matched_page(tx, account, after, _PAGE):
        new += [raw_id for raw_id, *_ in page if raw_id not in seen]
        after = page[-1][0]
    loaded = entry_rows.load_many(tx, ((ids.raw(account), raw_id) for raw_id in new))
    return sorted(loaded.values(), key=lambda entry: entry.id)


def _poll_start(at: datetime) -> bytes:
    return ids.lowest_at(clock.milliseconds(at - MAX_COMMIT_DELAY))


def format_line(entry: Entry) -> str:
    """Format an entry for people."""
    at = clock.rfc3339(clock.from_milliseconds(entry.at))
    return printable("  ".join((at, entry.type, entry.name, entry.actor, entry.subject or "–", entry.data or "–")))
