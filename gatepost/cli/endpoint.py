"""`gatepost endpoint`: define, show, disable and enable webhook endpoints."""

import click

from gatepost.cli import define, show
from gatepost.cli.kinds import ENDPOINT
from gatepost.cli.operations import Operations, Record, change, pages, with_operations


@click.group()
def endpoint() -> None:
    """Define endpoints, show them and their health, and disable or enable them."""


define.add_commands(endpoint, ENDPOINT)


@endpoint.command("list")
@with_operations
def list_endpoints(operations: Operations, as_json: bool) -> None:
    """List the endpoints of an account, oldest first. Removed endpoints are left out."""
    endpoints = list(pages(operations, {"view": "endpoints"}))
    if as_json:
        show.document(endpoints)
        return
    columns = {
        "id": "id", "url": "url", "status": "status", "reason": "disabled_reason",
        "consecutive failures": "consecutive_failures", "failing since": "failing_since",
        "will be disabled at": "will_be_disabled_at", "held": "held",
    }  # fmt: skip
    show.listing([endpoint | endpoint["health"] for endpoint in endpoints], columns)


@endpoint.command("show")
@click.argument("endpoint_id")
@with_operations
def show_endpoint(operations: Operations, endpoint_id: str, as_json: bool) -> None:
    """Show the definition of an endpoint, its health and its subscriptions. Its secret is never shown."""
    endpoint = operations.define(ENDPOINT, {"id": endpoint_id})
    listed = pages(operations, {"view": "endpoints"})
    found: Record = next((each for each in listed if each["id"] == endpoint_id), {"subscriptions": []})
    if as_json:
        show.document(endpoint | found)
        return
    subscriptions = found.pop("subscriptions")
    show.record(endpoint | found)
    print()
    columns = {"subscription": "id"} | show.headings("events", "filter", "status", "description")
    show.listing(subscriptions, columns)


@endpoint.command()
@click.argument("endpoint_id")
@with_operations
def disable(operations: Operations, endpoint_id: str, as_json: bool) -> None:
    """Stop sending to an endpoint. Its deliveries are held, and fail after the account's hold_limit."""
    show.record(change(operations, ENDPOINT, {"id": endpoint_id, "status": "disabled"}), as_json=as_json)


@endpoint.command()
@click.argument("endpoint_id")
@with_operations
def enable(operations: Operations, endpoint_id: str, as_json: bool) -> None:
    """Enable a disabled endpoint. Held deliveries are sent now."""
    show.record(change(operations, ENDPOINT, {"id": endpoint_id, "status": "active"}), as_json=as_json)
