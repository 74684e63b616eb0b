"""`gatepost endpoint`: show, disable and enable webhook endpoints."""

from collections.abc import Iterator
from typing import Any

import click

from gatepost.accounts import Account, lookup
from gatepost.cli import show
from gatepost.cli.options import account_named, account_option, with_store
from gatepost.core import ids
from gatepost.run.app import Runtime
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import define_endpoint, define_subscription, endpoint_rows, subscription_rows
from gatepost.webhooks.endpoints import Endpoint

_PAGE = 200


@click.group()
def endpoint() -> None:
    """Show endpoints and their health, and disable or enable them."""


@endpoint.command("list")
@account_option
@with_store
def list_endpoints(runtime: Runtime, name: str, as_json: bool) -> None:
    """List the endpoints of an account, oldest first. Removed endpoints are left out."""
    endpoints = list(_endpoints(runtime, account_named(runtime, name)))
    if as_json:
        show.document(endpoints)
        return
    columns = {
        "id": "id", "url": "url", "status": "status", "reason": "disabled_reason",
        "consecutive failures": "consecutive_failures", "failing since": "failing_since",
        "will be disabled at": "will_be_disabled_at", "held": "held",
    }  # fmt: skip
    show.listing([endpoint | endpoint["health"] for endpoint in endpoints], columns)


def _endpoints(runtime: Runtime, account: Account) -> Iterator[dict[str, Any]]:
    """Yield the endpoints page by page, in the form that POST /webhooks/endpoints returns."""
    after = LOWEST

    def unit(tx: Tx) -> list[tuple[Endpoint, dict[str, Any]]]:
        page = endpoint_rows.page(tx, account.id, after, _PAGE)
        return [(endpoint, define_endpoint.render(tx, account, endpoint)) for endpoint in page]

    while page := runtime.store.read_now(unit):
        yield from (rendered for endpoint, rendered in page if endpoint.status != "removed")
        after = ids.raw(page[-1][0].id)


@endpoint.command("show")
@click.argument("endpoint_id")
@account_option
@with_store
def show_endpoint(runtime: Runtime, endpoint_id: str, name: str, as_json: bool) -> None:
    """Show the definition of an endpoint, its health and its subscriptions. Its secret is never shown."""

    def unit(tx: Tx) -> dict[str, Any]:
        account = lookup.named(tx, name)
        endpoint = define_endpoint.load_named(tx, account, endpoint_id)
        subscriptions = [
            define_subscription.render(tx, subscription)
            for subscription in subscription_rows.of_endpoint(tx, account.id, endpoint.id)
        ]
        return define_endpoint.render(tx, account, endpoint) | {"subscriptions": subscriptions}

    endpoint = runtime.store.read_now(unit)
    if as_json:
        show.document(endpoint)
        return
    subscriptions = endpoint.pop("subscriptions")
    show.record(endpoint)
    print()
    columns = {"subscription": "id"} | show.headings("events", "filter", "status", "description")
    show.listing(subscriptions, columns)


@endpoint.command()
@click.argument("endpoint_id")
@account_option
@with_store
def disable(runtime: Runtime, endpoint_id: str, name: str, as_json: bool) -> None:
    """Stop sending to an endpoint. Its deliveries are held, and fail after the account's hold_limit."""
    _redefine(runtime, name, endpoint_id, "disabled", as_json)


@endpoint.command()
@click.argument("endpoint_id")
@account_option
@with_store
def enable(runtime: Runtime, endpoint_id: str, name: str, as_json: bool) -> None:
    """Enable a disabled endpoint. Held deliveries are sent now."""
    _redefine(runtime, name, endpoint_id, "active", as_json)


def _redefine(runtime: Runtime, name: str, endpoint_id: str, status: str, as_json: bool) -> None:
    def unit(tx: Tx) -> dict[str, Any]:
        account = lookup.named(tx, name)
        return define_endpoint.set_status(tx, runtime.service, account, endpoint_id, status)

    show.record(runtime.store.run_now(unit), as_json=as_json)
