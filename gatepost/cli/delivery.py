"""`gatepost delivery`: look at deliveries, have one explained in words, try one again or end it."""

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gatepost.accounts import Account, account_rows, administration
from gatepost.cli import show
from gatepost.cli.audit import since_option, until_option
from gatepost.cli.event import plain
from gatepost.cli.options import account_option, json_option, with_store
from gatepost.cli.simulate import span
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, Refusal
from gatepost.run.app import Opened
from gatepost.store.transaction import Tx, Unit
from gatepost.webhooks import claim_and_settle as units
from gatepost.webhooks import definitions, listing
from gatepost.webhooks.deliveries import BECAUSE, ENDS, TRANSITIONS
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.listing import Query
from gatepost.webhooks.listing_query import Wanted

Record = dict[str, Any]
REDRAW_EVERY = 1.0  # seconds
_COLUMNS = ("id", "status", "event", "endpoint", "attempts", "last", "next at", "created at")


@click.group()
def delivery() -> None:
    """See deliveries, have one explained, retry or cancel it."""


@delivery.command("list")
@account_option
@click.option("--endpoint", metavar="ID", help="Only to this endpoint.")
@click.option("--event", metavar="ID", help="Only of this event.")
@click.option("--type", "type_", metavar="TYPE", help="Only of events of this type.")
@click.option("--status", type=click.Choice(list(TRANSITIONS)), help="Only those that are so now.")
@since_option
@until_option
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--watch", is_flag=True, help="Draw the list again every second, until Ctrl-C.")
@with_store
@json_option
def list_deliveries(
    opened: Opened, name: str, endpoint: str | None, event: str | None, type_: str | None, status: str | None,
    since: datetime | None, until: datetime | None, limit: int, watch: bool, as_json: bool,
) -> None:  # fmt: skip
    """The newest deliveries first."""
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    wanted = Wanted(
        endpoint=_given("ep", "--endpoint", endpoint), event=_given("evt", "--event", event), event_type=type_,
        status=status, created_after=clock.milliseconds(since) if since else None,
        created_before=clock.milliseconds(until) if until else None,
    )  # fmt: skip
    if watch:
        if as_json or not sys.stdout.isatty():
            raise BadSetting("--watch draws on a terminal; leave it out, or leave out --json")
        _watch(opened, account, wanted, limit)
        return
    found = list(_deliveries(opened, account, wanted, limit))
    if as_json:
        show.document(found)
    else:
        show.table(_COLUMNS, [_row(each) for each in found])


def _given(prefix: str, option: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    raw = ids.parse(prefix, text)
    if raw is None:
        raise BadSetting(f"{option} {text}: not an id of that kind, which begins with {prefix}_")
    return raw


def _deliveries(opened: Opened, account: Account, wanted: Wanted, limit: int) -> Iterator[Record]:
    """Page by page, as GET /webhooks/deliveries shows them."""
    query: Query | None = Query(wanted)
    while query is not None and limit > 0:
        page = opened.store.read_now(_page(opened, account, query._replace(limit=min(limit, listing.MOST))))
        yield from page["data"]
        limit -= len(page["data"])
        query = query._replace(cursor=page["next_cursor"]) if page["next_cursor"] else None


def _page(opened: Opened, account: Account, query: Query) -> Unit[dict[str, Any]]:
    def unit(tx: Tx) -> dict[str, Any]:
        found = listing.page(tx, opened.service, account_rows.load(tx, account.id) or account, query)
        if isinstance(found, Refusal):
            raise BadSetting(found.detail)
        return found.body

    return unit


def _row(record: Record) -> tuple[Any, ...]:
    attempts, last = record["attempts"], None
    ended = [each for each in attempts if each["outcome"] is not None]
    if ended:
        last = ended[-1]["failure"] or ended[-1]["response_code"] or ended[-1]["outcome"]
    return (
        record["id"], record["status"], record["event"]["type"], record["endpoint"]["url"], len(attempts),
        str(last) if last else None, record["retries"]["next_at"], record["created_at"],
    )  # fmt: skip


def _watch(opened: Opened, account: Account, wanted: Wanted, limit: int) -> None:
    with Live(console=Console(), auto_refresh=False) as live:
        try:
            while True:
                drawn = Table(*_COLUMNS, box=None, pad_edge=False, header_style="bold")
                for each in _deliveries(opened, account, wanted, limit):
                    drawn.add_row(*(Text(plain(str(cell)) if cell is not None else "–") for cell in _row(each)))
                live.update(drawn, refresh=True)
                time.sleep(REDRAW_EVERY)
        except KeyboardInterrupt:
            return


@delivery.command("show")
@click.argument("delivery_id")
@account_option
@with_store
@json_option
def show_delivery(opened: Opened, delivery_id: str, name: str, as_json: bool) -> None:
    """One delivery with all its attempts, and when the next ones are planned."""
    _tell(opened.store.read_now(lambda tx: _told(tx, opened, name, delivery_id)).record, as_json)


@delivery.command()
@click.argument("delivery_id")
@account_option
@with_store
@json_option
def explain(opened: Opened, delivery_id: str, name: str, as_json: bool) -> None:
    """What happened to a delivery, in sentences: every attempt, what comes next and why, and what to do."""
    told = opened.store.read_now(lambda tx: _told(tx, opened, name, delivery_id))
    sentences = [plain(each) for each in story(told, clock.now())]
    if as_json:
        show.document({"id": delivery_id, "status": told.record["status"], "story": sentences})
    else:
        click.echo("\n".join(sentences))


@delivery.command()
@click.argument("delivery_id")
@account_option
@with_store
@json_option
def retry(opened: Opened, delivery_id: str, name: str, as_json: bool) -> None:
    """Make the next attempt now, or when the endpoint's own Retry-After is over. Of one that ended, make a new one."""
    tried = opened.store.run_now(lambda tx: units.retry(tx, administration.named(tx, name), delivery_id))
    _tell(opened.store.read_now(lambda tx: _told(tx, opened, name, tried)).record, as_json)


@delivery.command()
@click.argument("delivery_id")
@account_option
@with_store
@json_option
def cancel(opened: Opened, delivery_id: str, name: str, as_json: bool) -> None:
    """End a delivery that is not ended: no more attempts are made. `retry` makes a new one of it."""
    opened.store.run_now(lambda tx: units.cancel(tx, administration.named(tx, name), delivery_id))
    _tell(opened.store.read_now(lambda tx: _told(tx, opened, name, delivery_id)).record, as_json)


class Told(NamedTuple):
    """A delivery as it is shown, and whose and where it is for."""

    record: Record
    account: Account
    endpoint: Endpoint


def _told(tx: Tx, opened: Opened, name: str, delivery_id: str) -> Told:
    account = administration.named(tx, name)
    raw = ids.parse("dlv", delivery_id)
    found: list[Record] = []
    if raw is not None:
        found = _page(opened, account, Query(Wanted(id=raw)))(tx)["data"]
    if not found:
        there = f"`gatepost delivery list --account {account.name}` shows them"
        raise BadSetting(f"there is no delivery {delivery_id} in {account.name}; {there}")
    return Told(found[0], account, definitions.named_endpoint(tx, account, found[0]["endpoint"]["id"]))


def _tell(record: Record, as_json: bool) -> None:
    if as_json:
        show.document(record)
        return
    attempts, retries = record["attempts"], record["retries"]
    show.record({name: value for name, value in record.items() if name not in ("attempts", "retries")})
    if attempts:
        print()
        columns = ("number", "started_at", "outcome", "response_code", "failure", "duration_ms", "detail")
        show.table(
            [name.replace("_", " ") for name in columns], [[each[name] for name in columns] for each in attempts]
        )
    if retries["plan"]:
        print()
        rows = [(each["number"], each["at"], BECAUSE[each["because"]]) for each in retries["plan"]]
        show.table(("planned", "at", "because"), rows)


# --- the story


def story(told: Told, now: datetime) -> list[str]:
    """What happened, one sentence or two for each step, the oldest first."""
    record = told.record
    event, endpoint = record["event"], record["endpoint"]
    what = f"the event {event['type']} ({event['id']}) of {event['at']}"
    where = f"{endpoint['url']} ({endpoint['id']})"
    return [
        f"{record['id']} is for {what}, and goes to {where} by {record['subscription_id']}.",
        f"It was made at {record['created_at']} {_TRIGGERS[record['trigger']]}.",
        *(_attempt(each) for each in record["attempts"]),
        *(_end(told) if record["ended_reason"] else _next(told, now)),
    ]


_TRIGGERS = {
    "event": "in one commit with its event",
    "replay": "by a replay of the subscription",
    "retry": "by an operator, out of one that had ended",
}
_WAITED = {
    "rate_limit": "the endpoint's rate limit",
    "retry_after": "the time that the receiver had asked for",
    "window": "other attempts to the same endpoint to end",
    "turn": "its turn among other endpoints",
}


def _attempt(attempt: Record) -> str:
    said = f"Attempt {attempt['number']} was begun at {attempt['started_at']}"
    waited = attempt["waited"]
    if waited["for"] in _WAITED and waited["ms"]:
        said += f", after waiting {span(waited['ms'])} for {_WAITED[waited['for']]}"
    return f"{said}. {_outcome(attempt)}"


def _outcome(attempt: Record) -> str:
    code, failure, detail = attempt["response_code"], attempt["failure"], attempt["detail"]
    took = f"after {span(int(attempt['duration_ms'] + 0.5))}" if attempt["duration_ms"] is not None else ""
    asked = f" and asked to wait (Retry-After: {attempt['retry_after']})" if attempt.get("retry_after") else ""
    match attempt["outcome"]:
        case None:
            return "It is under way now."
        case "interrupted":
            return "Its worker was lost, so nobody knows what became of it: the receiver may have got it."
        case "not_sent":
            why = (detail or "").partition(" sent: ")[2] or "its worker was told to stop"
            return f"It was never sent, because {why}: the receiver got nothing."
    words = f"It failed {took} ({failure})" if failure else f"The receiver answered {code} {took}{asked}"
    return f"{' '.join(words.split())}{': ' + detail if detail else ''}."


def _next(told: Told, now: datetime) -> Iterator[str]:
    record, plan = told.record, told.record["retries"]["plan"]
    match record["status"]:
        case "held":
            yield from _held(told)
        case "in_flight":
            yield "If that fails, " + (
                _planned(plan, now) if plan else "it was the last, and the delivery ends failed."
            )
        case _:
            yield f"Next, {_planned(plan, now)}"


def _planned(plan: Sequence[Record], now: datetime) -> str:
    first, at = plan[0], clock.parse_rfc3339(plan[0]["at"]) or now
    when = f"in {span(clock.milliseconds(at) - clock.milliseconds(now))}" if at > now else "which is due"
    said = f"attempt {first['number']} is planned for {first['at']}, {when}: {BECAUSE[first['because']]}."
    if len(plan) > 1:
        more = "is one more" if len(plan) == 2 else f"are {len(plan) - 1} more, the last"
        said += f" If that fails at once there {more} at {plan[-1]['at']}."
    return said


def _held(told: Told) -> Iterator[str]:
    account, endpoint = told.account, told.endpoint
    if not account.active:
        yield f"It is held, because the account is suspended; `gatepost account resume {account.name}` lets it go on."
    if endpoint.status != "active":
        since = f" since {clock.rfc3339(endpoint.disabled_at)}" if endpoint.disabled_at else ""
        yield (
            f"It is held, because the endpoint is {endpoint.status} ({endpoint.disabled_reason or 'removed'}){since}; "
            f"`{_command('endpoint enable', endpoint.id, account)}` lets it go on."
        )
    yield f"Held for longer than {span(account.seconds('hold_limit') * 1000)} (hold_limit) it ends failed."


def _end(told: Told) -> Iterator[str]:
    record, account = told.record, told.account
    reason = record["ended_reason"]
    yield f"It ended at {record['ended_at']}: {record['status']} ({reason}). {ENDS[reason][1]}"
    again = f"`{_command('delivery retry', record['id'], account)}`"
    enable = f"`{_command('endpoint enable', told.endpoint.id, account)}`"
    if told.endpoint.status == "disabled" and reason in ("endpoint_gone", "held_too_long", "attempts_exhausted"):
        yield f"The endpoint is disabled. Put the receiver right, then {enable}, then {again} sends it anew."
    elif reason == "endpoint_removed" or (told.endpoint.status == "removed" and record["status"] != "succeeded"):
        yield "Nothing goes to that endpoint any more: subscribe another, and replay the event to it."
    elif record["status"] == "failed":
        yield f"Put the receiver right, then {again} sends it anew."
    elif record["status"] == "cancelled":
        yield f"{again} sends it after all."


def _command(words: str, identifier: str, account: Account) -> str:
    return f"gatepost {words} {identifier} --account {account.name}"
