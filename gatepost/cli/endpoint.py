"""`gatepost endpoint`: look at webhook receivers, disable and enable them."""

from collections.abc import Iterator
from typing import Any

import click

from gatepost.accounts import Account, administration
from gatepost.cli import show
from gatepost.cli.options import account_option, json_option, with_store
from gatepost.core import ids
from gatepost.run.app import Opened
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import definitions, endpoint_rows, subscription_rows
from gatepost.webhooks.endpoints import Endpoint

_PAGE = 200


@click.group()
def endpoint() -> None:
    """See endpoints, how they fare, and disable or enable them."""


@endpoint.command("list")
@account_option
@with_store
@json_option
def list_endpoints(opened: Opened, name: str, as_json: bool) -> None:
    """The endpoints of an account, oldest first, without those that were removed."""
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    found = list(_endpoints(opened, account))
    if as_json:
        show.document(found)
        return
    rows = [
        (
            each["id"], each["url"], each["status"], each["disabled_reason"], each["health"]["consecutive_failures"],
            each["health"]["failing_since"], each["health"]["will_be_disabled_at"], each["held"],
        )
        for each in found
    ]  # fmt: skip
    columns = ("id", "url", "status", "reason", "failures in a row", "failing since", "will be disabled at", "held")
    show.table(columns, rows)


def _endpoints(opened: Opened, account: Account) -> Iterator[dict[str, Any]]:
    """Page by page, each as POST /webhooks/endpoints shows it."""
    after = LOWEST

    def unit(tx: Tx) -> list[tuple[Endpoint, dict[str, Any]]]:
        page = endpoint_rows.page(tx, account.id, after, _PAGE)
        return [(each, definitions.shown_endpoint(tx, account, each)) for each in page]

    while page := opened.store.read_now(unit):
        yield from (shown for each, shown in page if each.status != "removed")
        after = ids.raw(page[-1][0].id)


@endpoint.command("show")
@click.argument("endpoint_id")
@account_option
@with_store
@json_option
def show_endpoint(opened: Opened, endpoint_id: str, name: str, as_json: bool) -> None:
    """One endpoint as it is defined, how it fares, and its subscriptions. Its secret is never shown."""

    def unit(tx: Tx) -> dict[str, Any]:
        account = administration.named(tx, name)
        found = definitions.named_endpoint(tx, account, endpoint_id)
        subscriptions = subscription_rows.of_endpoint(tx, account.id, found.id)
        told = [definitions.shown_subscription(tx, each) for each in subscriptions]
        return definitions.shown_endpoint(tx, account, found) | {"subscriptions": told}

    found = opened.store.read_now(unit)
    if as_json:
        show.document(found)
        return
    subscriptions = found.pop("subscriptions")
    show.record(found)
    print()
    columns = ("id", "events", "filter", "status", "description")
    show.table(["subscription", *columns[1:]], [[each[column] for column in columns] for each in subscriptions])


@endpoint.command()
@click.argument("endpoint_id")
@account_option
@with_store
@json_option
def disable(opened: Opened, endpoint_id: str, name: str, as_json: bool) -> None:
    """Stop sending to an endpoint: what is for it is held, and lost only past the account's hold_limit."""
    _redefine(opened, name, endpoint_id, "disabled", as_json)


@endpoint.command()
@click.argument("endpoint_id")
@account_option
@with_store
@json_option
def enable(opened: Opened, endpoint_id: str, name: str, as_json: bool) -> None:
    """Let a disabled endpoint go on: what was held is sent now."""
    _redefine(opened, name, endpoint_id, "active", as_json)


def _redefine(opened: Opened, name: str, endpoint_id: str, status: str, as_json: bool) -> None:
    def unit(tx: Tx) -> dict[str, Any]:
        account = administration.named(tx, name)
        return definitions.redefine_endpoint(tx, opened.service, account, endpoint_id, status)

    found = opened.store.run_now(unit)
    if as_json:
        show.document(found)
    else:
        show.record(found)
