"""`gatepost delivery`: show, explain, retry and cancel deliveries."""

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.live import Live

from gatepost.accounts import Account, account_rows, lookup
from gatepost.cli import show
from gatepost.cli.options import account_named, account_option, since_option, until_option, with_store
from gatepost.cli.show import printable
from gatepost.cli.simulate import format_duration
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, Refusal
from gatepost.run.app import Runtime
from gatepost.store.transaction import Tx
from gatepost.webhooks import define_endpoint, listing, operator_actions
from gatepost.webhooks.deliveries import BECAUSE, ENDS, TRANSITIONS
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.listing import Query
from gatepost.webhooks.listing_query import DeliveryFilter

Record = dict[str, Any]
REDRAW_EVERY = 1.0  # seconds
_COLUMNS = ("id", "status", "event", "endpoint", "attempts", "last outcome", "next attempt", "created")


@click.group()
def delivery() -> None:
    """Show, explain, retry and cancel deliveries."""


@delivery.command("list")
@account_option
@click.option("--endpoint", metavar="ID", help="Only deliveries to this endpoint.")
@click.option("--event", metavar="ID", help="Only deliveries of this event.")
@click.option("--type", "type_", metavar="TYPE", help="Only deliveries of this event type.")
@click.option("--status", type=click.Choice(list(TRANSITIONS)), help="Only deliveries with this status.")
@since_option
@until_option
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--watch", is_flag=True, help="Refresh the list every second, until Ctrl-C.")
@with_store
def list_deliveries(
    runtime: Runtime, name: str, endpoint: str | None, event: str | None, type_: str | None, status: str | None,
    since: datetime | None, until: datetime | None, limit: int, watch: bool, as_json: bool,
) -> None:  # fmt: skip
    """List deliveries, newest first."""
    account = account_named(runtime, name)
    filters = DeliveryFilter(
        endpoint=_raw_id("ep", "--endpoint", endpoint), event=_raw_id("evt", "--event", event), event_type=type_,
        status=status, created_after=clock.milliseconds(since) if since else None,
        created_before=clock.milliseconds(until) if until else None,
    )  # fmt: skip
    if watch:
        if as_json or not sys.stdout.isatty():
            raise BadSetting("--watch needs a terminal and cannot be combined with --json")
        _watch(runtime, account, filters, limit)
        return
    deliveries = list(_deliveries(runtime, account, filters, limit))
    if as_json:
        show.document(deliveries)
    else:
        show.table(_COLUMNS, map(_row, deliveries))


def _raw_id(prefix: str, option: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    raw = ids.parse(prefix, text)
    if raw is None:
        raise BadSetting(f"{option} {text}: not a valid id, which begins with {prefix}_")
    return raw


def _deliveries(runtime: Runtime, account: Account, filters: DeliveryFilter, limit: int) -> Iterator[Record]:
    """Yield the deliveries page by page, in the form that GET /webhooks/deliveries returns."""
    query: Query | None = Query(filters)
    while query is not None and limit > 0:
        limited = query._replace(limit=min(limit, listing.MAX_LIMIT))
        page = runtime.store.read_now(partial(_page, runtime=runtime, account=account, query=limited))
        yield from page["data"]
        limit -= len(page["data"])
        query = query._replace(cursor=page["next_cursor"]) if page["next_cursor"] else None


def _page(tx: Tx, runtime: Runtime, account: Account, query: Query) -> dict[str, Any]:
    page = listing.page(tx, runtime.service, account_rows.load(tx, account.id) or account, query)
    if isinstance(page, Refusal):
        raise BadSetting(page.detail)
    return page.body


def _row(record: Record) -> tuple[Any, ...]:
    attempts, last = record["attempts"], None
    ended = [attempt for attempt in attempts if attempt["outcome"] is not None]
    if ended:
        last = ended[-1]["failure"] or ended[-1]["response_code"] or ended[-1]["outcome"]
    return (
        record["id"], record["status"], record["event"]["type"], record["endpoint"]["url"], len(attempts),
        str(last) if last else None, record["retries"]["next_at"], record["created_at"],
    )  # fmt: skip


def _watch(runtime: Runtime, account: Account, filters: DeliveryFilter, limit: int) -> None:
    with Live(console=Console(), auto_refresh=False) as live:
        try:
            while True:
                rows = map(_row, _deliveries(runtime, account, filters, limit))
                live.update(show.build_table(_COLUMNS, rows), refresh=True)
                time.sleep(REDRAW_EVERY)
        except KeyboardInterrupt:
            return


@delivery.command("show")
@click.argument("delivery_id")
@account_option
@with_store
def show_delivery(runtime: Runtime, delivery_id: str, name: str, as_json: bool) -> None:
    """Show a delivery with all its attempts and the planned ones."""
    _show(runtime.store.read_now(lambda tx: _details(tx, runtime, name, delivery_id)).record, as_json)


@delivery.command()
@click.argument("delivery_id")
@account_option
@with_store
def explain(runtime: Runtime, delivery_id: str, name: str, as_json: bool) -> None:
    """Explain a delivery in sentences: every attempt, what comes next and why, and what to do."""
    details = runtime.store.read_now(lambda tx: _details(tx, runtime, name, delivery_id))
    sentences = [printable(sentence) for sentence in explanation(details, clock.now())]
    value = {"id": delivery_id, "status": details.record["status"], "story": sentences}
    show.message(value, "\n".join(sentences), as_json=as_json)


@delivery.command()
@click.argument("delivery_id")
@account_option
@with_store
def retry(runtime: Runtime, delivery_id: str, name: str, as_json: bool) -> None:
    """Make the next attempt now, or when the endpoint's Retry-After is over. A finished delivery is sent again."""
    retried = runtime.store.run_now(lambda tx: operator_actions.retry(tx, lookup.named(tx, name), delivery_id))
    _show(runtime.store.read_now(lambda tx: _details(tx, runtime, name, retried)).record, as_json)


@delivery.command()
@click.argument("delivery_id")
@account_option
@with_store
def cancel(runtime: Runtime, delivery_id: str, name: str, as_json: bool) -> None:
    """Cancel an unfinished delivery: no more attempts are made. `retry` sends it as a new one."""
    runtime.store.run_now(lambda tx: operator_actions.cancel(tx, lookup.named(tx, name), delivery_id))
    _show(runtime.store.read_now(lambda tx: _details(tx, runtime, name, delivery_id)).record, as_json)


class Details(NamedTuple):
    """A delivery in the form that the API returns, with its account and endpoint."""

    record: Record
    account: Account
    endpoint: Endpoint


def _details(tx: Tx, runtime: Runtime, name: str, delivery_id: str) -> Details:
    account = lookup.named(tx, name)
    raw = ids.parse("dlv", delivery_id)
    records: list[Record] = []
    if raw is not None:
        records = _page(tx, runtime, account, Query(DeliveryFilter(id=raw)))["data"]
    if not records:
        command = f"`gatepost delivery list --account {account.name}`"
        raise BadSetting(f"{account.name} has no delivery {delivery_id}; see {command}")
    return Details(records[0], account, define_endpoint.load_named(tx, account, records[0]["endpoint"]["id"]))


def _show(record: Record, as_json: bool) -> None:
    if as_json:
        show.document(record)
        return
    attempts, retries = record["attempts"], record["retries"]
    show.record({name: value for name, value in record.items() if name not in ("attempts", "retries")})
    if attempts:
        print()
        columns = ("number", "started_at", "outcome", "response_code", "failure", "duration_ms", "detail")
        show.listing(attempts, show.headings(*columns))
    if retries["plan"]:
        print()
        rows = [(planned["number"], planned["at"], BECAUSE[planned["because"]]) for planned in retries["plan"]]
        show.table(("planned attempt", "at", "because"), rows)


# --- the explanation


def explanation(details: Details, now: datetime) -> list[str]:
    """Return what happened, with one or two sentences for each step, the oldest first."""
    record = details.record
    event, endpoint = record["event"], record["endpoint"]
    what = f"the event {event['type']} ({event['id']}) of {event['at']}"
    where = f"{endpoint['url']} ({endpoint['id']})"
    return [
        f"{record['id']} delivers {what} to {where}, for {record['subscription_id']}.",
        f"It was created at {record['created_at']} {_TRIGGERS[record['trigger']]}.",
        *(_explain_attempt(attempt) for attempt in record["attempts"]),
        *(_explain_end(details) if record["ended_reason"] else _explain_next(details, now)),
    ]


_TRIGGERS = {
    "event": "in the same commit as its event",
    "replay": "by a replay of the subscription",
    "retry": "by an operator, from a delivery that had ended",
}
_WAITED = {
    "rate_limit": "the endpoint's rate limit",
    "retry_after": "the time that the receiver had requested",
    "window": "other attempts to the same endpoint to finish",
    "turn": "its turn among other endpoints",
}


def _explain_attempt(attempt: Record) -> str:
    sentence = f"Attempt {attempt['number']} started at {attempt['started_at']}"
    waited = attempt["waited"]
    if waited["for"] in _WAITED and waited["ms"]:
        sentence += f", after waiting {format_duration(waited['ms'])} for {_WAITED[waited['for']]}"
    return f"{sentence}. {_explain_outcome(attempt)}"


def _explain_outcome(attempt: Record) -> str:
    code, failure, detail = attempt["response_code"], attempt["failure"], attempt["detail"]
    duration = (
        f"after {format_duration(int(attempt['duration_ms'] + 0.5))}" if attempt["duration_ms"] is not None else ""
    )
    wait = f" with Retry-After: {attempt['retry_after']}" if attempt.get("retry_after") else ""
    match attempt["outcome"]:
        case None:
            return "It is in progress."
        case "interrupted":
            return "Its worker was lost, so the outcome is unknown: the receiver may have got the request."
        case "not_sent":
            reason = (detail or "").partition(" sent: ")[2] or "its worker was stopped"
            return f"It was never sent, because {reason}. The receiver got nothing."
    sentence = f"It failed {duration} ({failure})" if failure else f"The receiver responded {code} {duration}{wait}"
    return f"{' '.join(sentence.split())}{': ' + detail if detail else ''}."


def _explain_next(details: Details, now: datetime) -> Iterator[str]:
    record, plan = details.record, details.record["retries"]["plan"]
    match record["status"]:
        case "held":
            yield from _explain_hold(details)
        case "in_flight":
            yield "If it fails, " + (
                _explain_plan(plan, now) if plan else "the delivery fails: it is the last attempt."
            )
        case _:
            yield f"Next, {_explain_plan(plan, now)}"


def _explain_plan(plan: Sequence[Record], now: datetime) -> str:
    first, at = plan[0], clock.parse_rfc3339(plan[0]["at"]) or now
    when = f"in {format_duration(clock.milliseconds(at) - clock.milliseconds(now))}" if at > now else "which is due now"
    sentence = f"attempt {first['number']} is planned for {first['at']}, {when}: {BECAUSE[first['because']]}."
    if len(plan) > 1:
        more = "is one more" if len(plan) == 2 else f"are {len(plan) - 1} more, the last"
        sentence += f" If it fails at once, there {more} at {plan[-1]['at']}."
    return sentence


def _explain_hold(details: Details) -> Iterator[str]:
    account, endpoint = details.account, details.endpoint
    if not account.active:
        yield f"It is held, because the account is suspended. To continue: `gatepost account resume {account.name}`."
    if endpoint.status != "active":
        since = f" since {clock.rfc3339(endpoint.disabled_at)}" if endpoint.disabled_at else ""
        yield (
            f"It is held, because the endpoint is {endpoint.status} ({endpoint.disabled_reason or 'removed'}){since}. "
            f"To continue: `{_command('endpoint enable', endpoint.id, account)}`."
        )
    limit = format_duration(account.seconds("hold_limit") * 1000)
    yield f"It fails when it has been held for longer than {limit} (hold_limit)."


def _explain_end(details: Details) -> Iterator[str]:
    record, account, endpoint = details.record, details.account, details.endpoint
    reason = record["ended_reason"]
    yield f"It ended at {record['ended_at']}: {record['status']} ({reason}). {ENDS[reason][1]}"
    retry = f"`{_command('delivery retry', record['id'], account)}`"
    enable = f"`{_command('endpoint enable', endpoint.id, account)}`"
    if endpoint.status == "disabled" and reason in ("endpoint_gone", "held_too_long", "attempts_exhausted"):
        yield f"The endpoint is disabled. Fix the receiver, run {enable}, and then send the event again with {retry}."
    elif reason == "endpoint_removed" or (endpoint.status == "removed" and record["status"] != "succeeded"):
        yield "The endpoint was removed. Subscribe another endpoint, and replay the event to it."
    elif record["status"] == "failed":
        yield f"Fix the receiver, and then send the event again with {retry}."
    elif record["status"] == "cancelled":
        yield f"To send the event anyway, run {retry}."


def _command(command: str, identifier: str, account: Account) -> str:
    return f"gatepost {command} {identifier} --account {account.name}"
