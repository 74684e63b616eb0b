"""`gatepost delivery`: show, explain, retry and cancel deliveries."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gatepost.accounts import Account
from gatepost.cli import show
from gatepost.cli.kinds import SUBSCRIPTION
from gatepost.cli.operations import Operations, Record, StoreOperations, pages, with_operations
from gatepost.cli.options import (
    filter_option,
    limit_option,
    optional_account,
    quiet_option,
    since_option,
    until_option,
    with_store,
)
from gatepost.cli.show import printable
from gatepost.cli.simulate import format_duration
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, NotFound, Refused
from gatepost.run.app import Runtime
from gatepost.webhooks import define_endpoint, listing, operator_actions
from gatepost.webhooks.deliveries import BECAUSE, ENDS, TRANSITIONS
from gatepost.webhooks.endpoints import Endpoint

REDRAW_EVERY = 1.0  # seconds
_COLUMNS = ("id", "status", "event", "endpoint", "attempts", "last outcome", "next attempt", "created")


@click.group()
def delivery() -> None:
    """Show, explain, retry and cancel deliveries."""


@delivery.command("list")
@filter_option("--endpoint", metavar="ID", help="Only deliveries to this endpoint.")
@filter_option("--event", metavar="ID", help="Only deliveries of this event.")
@filter_option("--type", "type_", metavar="TYPE", help="Only deliveries of this event type.")
@click.option("--status", type=click.Choice(list(TRANSITIONS)), help="Only deliveries with this status.")
@since_option
@until_option
@limit_option(50, "deliveries")
@click.option("--watch", is_flag=True, help="Refresh the list every second, until Ctrl-C.")
@quiet_option
@with_operations
def list_deliveries(
    operations: Operations, endpoint: str | None, event: str | None, type_: str | None, status: str | None,
    since: datetime | None, until: datetime | None, limit: int, watch: bool, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """List deliveries, newest first."""
    filters = {
        "endpoint_id": endpoint, "event_id": event, "event_type": type_, "status": status,
        "created_after": clock.rfc3339(since) if since else None,
        "created_before": clock.rfc3339(until) if until else None, "limit": str(min(limit, listing.MAX_LIMIT)),
    }  # fmt: skip
    query = {name: value for name, value in filters.items() if value}

    def found() -> Iterator[Record]:
        return islice(pages(operations, query), limit)

    if watch:
        if as_json or quiet or not sys.stdout.isatty():
            raise BadSetting("--watch needs a terminal and cannot be combined with --json or --quiet")
        _watch(found)
    elif quiet:
        for record in found():
            print(record["id"])
    elif as_json:
        show.document(list(found()))
    else:
        show.table(_COLUMNS, map(_row, found()))


def _row(record: Record) -> tuple[Any, ...]:
    attempts, last = record["attempts"], None
    ended = [attempt for attempt in attempts if attempt["outcome"] is not None]
    if ended:
        last = ended[-1]["failure"] or ended[-1]["response_code"] or ended[-1]["outcome"]
    return (
        record["id"], record["status"], record["event"]["type"], record["endpoint"]["url"], len(attempts),
        str(last) if last else None, record["retries"]["next_at"], record["created_at"],
    )  # fmt: skip


def _watch(found: Callable[[], Iterator[Record]]) -> None:
    with Live(console=Console(), auto_refresh=False) as live:
        try:
            while True:
                live.update(Text.from_ansi(show.format_table(_COLUMNS, map(_row, found()))), refresh=True)
                time.sleep(REDRAW_EVERY)
        except KeyboardInterrupt:
            return


@delivery.command("show")
@click.argument("delivery_id")
@with_operations
def show_delivery(operations: Operations, delivery_id: str, as_json: bool) -> None:
    """Show a delivery with all its attempts and the planned ones."""
    _show(_load(operations, delivery_id), as_json)


@delivery.command()
@click.argument("delivery_id")
@optional_account
@with_store
def explain(runtime: Runtime, delivery_id: str, name: str, as_json: bool) -> None:
    """Explain a delivery in sentences: every attempt, what comes next and why, and what to do."""
    details = _details(runtime, name, delivery_id)
    sentences = [printable(sentence) for sentence in explanation(details, clock.now())]
    value = {"id": delivery_id, "status": details.record["status"], "story": sentences}
    show.message(value, "\n".join(sentences), as_json=as_json)


@delivery.command()
@click.argument("delivery_id")
@with_operations
def retry(operations: Operations, delivery_id: str, as_json: bool) -> None:
    """Make the next attempt now, or when the endpoint's Retry-After is over. A finished delivery is sent again.

    With --remote, only a finished delivery can be sent again: by a replay of its event, which is shown.
    """
    if isinstance(operations, StoreOperations):
        account = operations.account(delivery_id)
        retried = operations.runtime.store.run_now(lambda tx: operator_actions.retry(tx, account, delivery_id))
        _show(_load(operations, retried), as_json)
        return
    record = _load(operations, delivery_id)
    if record["ended_at"] is None:
        raise Refused(f"{delivery_id} is not finished, and only an operator can retry it earlier; {_next(record)}")
    body = {"id": record["subscription_id"], "replay": {"event_ids": [record["event"]["id"]]}}
    show.record(operations.define(SUBSCRIPTION, body), as_json=as_json)


def _next(record: Record) -> str:
    match record["status"]:
        case "in_flight":
            return "an attempt is in flight"
        case "held":
            return "it is held, because its endpoint is disabled or removed"
        case _:
            return f"next attempt: {record['retries']['next_at']}"


@delivery.command()
@click.argument("delivery_id")
@optional_account
@with_store
def cancel(runtime: Runtime, delivery_id: str, name: str, as_json: bool) -> None:
    """Cancel an unfinished delivery: no more attempts are made. `retry` sends it as a new one."""
    operations = StoreOperations(runtime, name)
    account = operations.account(delivery_id)
    _load(operations, delivery_id)  # which must exist
    runtime.store.run_now(lambda tx: operator_actions.cancel(tx, account, delivery_id))
    _show(_load(operations, delivery_id), as_json)


def _load(operations: Operations, delivery_id: str) -> Record:
    found: list[Record] = operations.deliveries({"id": delivery_id})["data"] if ids.parse("dlv", delivery_id) else []
    if not found:
        raise NotFound(f"there is no delivery {delivery_id}; see `gatepost delivery list`")
    return found[0]


class Details(NamedTuple):
    """A delivery in the form that the API returns, with its account and endpoint."""

    record: Record
    account: Account
    endpoint: Endpoint


def _details(runtime: Runtime, name: str, delivery_id: str) -> Details:
    operations = StoreOperations(runtime, name)
    record, account = _load(operations, delivery_id), operations.account()
    endpoint = runtime.store.read_now(lambda tx: define_endpoint.load_named(tx, account, record["endpoint"]["id"]))
    return Details(record, account, endpoint)


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
        rows = [(planned["number"], planned["at"], _because(planned)) for planned in retries["plan"]]
        show.table(("planned attempt", "at", "because"), rows)


def _because(planned: Record) -> str:
    reason: str = planned["because"]
    return BECAUSE.get(reason, reason)  # with --remote, a later release may have more reasons


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
            reason = (detail or "").partition(": ")[2] or "its worker was lost"
            return f"Its outcome is unknown, because {reason}: the receiver may have got the request."
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
        case "in_flight" if details.endpoint.status == "removed":
            yield "If it fails, the delivery is cancelled: the endpoint was removed."
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
    if endpoint.status == "removed":
        yield f"The endpoint was removed, so the delivery is cancelled soon. {_REPLACE}"
        return
    if not account.active:
        yield f"It is held, because the account is suspended. To continue: `gatepost account resume {account.name}`."
    if endpoint.status == "disabled":
        since = f" since {clock.rfc3339(endpoint.disabled_at)}" if endpoint.disabled_at else ""
        yield (
            f"It is held, because the endpoint is disabled ({endpoint.disabled_reason}){since}. "
            f"To continue: `gatepost endpoint enable {endpoint.id}`."
        )
    limit = format_duration(account.seconds("hold_limit") * 1000)
    yield f"It fails when it has been held for longer than {limit} (hold_limit)."


_REPLACE = "Subscribe another endpoint, and replay the event to it."


def _explain_end(details: Details) -> Iterator[str]:
    record, endpoint = details.record, details.endpoint
    reason = record["ended_reason"]
    yield f"It ended at {record['ended_at']}: {record['status']} ({reason}). {ENDS[reason][1]}"
    retry = f"`gatepost delivery retry {record['id']}`"
    enable = f"`gatepost endpoint enable {endpoint.id}`"
    if endpoint.status == "disabled" and reason in ("endpoint_gone", "held_too_long", "attempts_exhausted"):
        yield f"The endpoint is disabled. Fix the receiver, run {enable}, and then send the event again with {retry}."
    elif reason == "endpoint_removed" or (endpoint.status == "removed" and record["status"] != "succeeded"):
        yield f"The endpoint was removed. {_REPLACE}"
    elif record["status"] == "failed":
        yield f"Fix the receiver, and then send the event again with {retry}."
    elif record["status"] == "cancelled":
        yield f"To send the event anyway, run {retry}."
