"""`gatepost subscription`: define, show and remove subscriptions, and replay events to their endpoints."""

from datetime import datetime

import click

from gatepost.cli import define, show
from gatepost.cli.kinds import ENDPOINT, SUBSCRIPTION
from gatepost.cli.operations import Operations, change, pages, with_operations
from gatepost.cli.options import since_option, until_option
from gatepost.core import clock


@click.group()
def subscription() -> None:
    """Define, show and remove subscriptions, and replay events."""


define.add_commands(subscription, SUBSCRIPTION)


@subscription.command("list")
@click.option("--endpoint", metavar="ID", help="Only subscriptions of this endpoint.")
@with_operations
def list_subscriptions(operations: Operations, endpoint: str | None, as_json: bool) -> None:
    """List the subscriptions of an account by endpoint. Removed subscriptions are left out."""
    if endpoint is not None:
        operations.define(ENDPOINT, {"id": endpoint})  # which must exist
    subscriptions = [
        subscription
        for listed in pages(operations, {"view": "endpoints"})
        if endpoint in (None, listed["id"])
        for subscription in listed["subscriptions"]
    ]
    columns = show.headings("id", "endpoint_id", "events", "filter", "status", "description")
    show.listing(subscriptions, columns, as_json=as_json)


@subscription.command("show")
@click.argument("subscription_id")
@with_operations
def show_subscription(operations: Operations, subscription_id: str, as_json: bool) -> None:
    """Show a subscription, and the progress of its latest replay."""
    show.record(operations.define(SUBSCRIPTION, {"id": subscription_id}), as_json=as_json)


@subscription.command()
@click.argument("subscription_id")
@since_option
@until_option
@click.option("--failed", is_flag=True, help="Only events with a failed delivery.")
@click.option(
    "--event", "events", multiple=True, metavar="EVT",
    help="Only this event; repeatable. Cannot be combined with the other options.",
)  # fmt: skip
@with_operations
def replay(
    operations: Operations, subscription_id: str, since: datetime | None, until: datetime | None, failed: bool,
    events: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Send retained events again, as new deliveries. `subscription show` shows the progress."""
    replay = {
        "from": clock.rfc3339(since) if since else None,
        "until": clock.rfc3339(until) if until else None,
        "only": "failed" if failed else None,
        "event_ids": list(events) or None,
    }
    if not any(replay.values()):
        raise click.UsageError("Name the events to replay with --since, --until, --failed or --event.")
    given = {name: value for name, value in replay.items() if value}
    show.record(operations.define(SUBSCRIPTION, {"id": subscription_id, "replay": given}), as_json=as_json)


@subscription.command()
@click.argument("subscription_id")
@with_operations
def remove(operations: Operations, subscription_id: str, as_json: bool) -> None:
    """Remove a subscription, which is final. Its unfinished deliveries go on."""
    show.record(change(operations, SUBSCRIPTION, {"id": subscription_id, "status": "removed"}), as_json=as_json)
