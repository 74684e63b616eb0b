"""The operations as commands use them: on the store, or through a service as one of its clients (`--remote`).

Both do the same with the same bodies and queries, so a command does not know which of them it uses.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol
from urllib.parse import urlencode

import click
from click.core import ParameterSource

from gatepost.accounts import Account, account_rows, lookup
from gatepost.cli import options, profiles
from gatepost.cli.kinds import SCOPE, Kind
from gatepost.cli.options import account_named, json_option, optional_account, remote_options, settings_options
from gatepost.cli.remote import RemoteOperations, error_of
from gatepost.core import ids
from gatepost.core.errors import BadSetting, GatepostError, NotFound, Refusal, Refused
from gatepost.ledger import entry_rows
from gatepost.ledger.operations import Call, operator
from gatepost.oauth import client_admin, client_rows, define_client
from gatepost.run.app import Runtime, open_for_use
from gatepost.settings import load
from gatepost.store.transaction import LOWEST, Tx
from gatepost.web import deliveries
from gatepost.webhooks import (
    define_endpoint,
    define_subscription,
    delivery_rows,
    endpoint_rows,
    listing,
    subscription_rows,
)

Record = dict[str, Any]


class Operations(Protocol):
    """The operations. A refusal is raised, with an exit code."""

    @property
    def url(self) -> str:
        """The URL of the service."""

    def define(self, kind: Kind, body: Record, *, if_missing: bool = False) -> Record:
        """Create, change or read a resource."""

    def deliveries(self, query: Mapping[str, str]) -> Record:
        """Return a page of deliveries, or of another view."""


def pages(operations: Operations, query: Mapping[str, str]) -> Iterator[Record]:
    """Yield the items of all pages."""
    cursor: dict[str, str] = {}
    while True:
        page = operations.deliveries({**query, **cursor})
        yield from page["data"]
        if not page.get("next_cursor"):
            return
        cursor = {"cursor": page["next_cursor"]}


def with_operations(function: options.Command) -> options.Command:
    """Add the options that choose the store or the service, and --json, and pass the `Operations`."""

    @optional_account
    @remote_options
    @settings_options
    @json_option
    @functools.wraps(function)
    def command(
        name: str, remote: str | None, profile: str | None, config: str, data: str | None, database: str | None,
        **rest: Any,
    ) -> None:  # fmt: skip
        url, file = options.remote_values(remote, profile)
        if url or file:
            by_hand = click.get_current_context().get_parameter_source("name") is ParameterSource.COMMANDLINE
            if data or database or config or by_hand:
                raise click.UsageError("With --remote or --profile, the account and the store are those of the client.")
            function(RemoteOperations(profiles.load(url, file)), **rest)
            return
        runtime = open_for_use(load({"data": data, "database": database}, config=config))
        with closing(runtime.store):
            function(StoreOperations(runtime, name), **rest)

    return command


# --- the store


class StoreOperations:
    """The operations on the store, as the operator. Without the name of an account, an id tells the account."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self.runtime = runtime
        self._name = name

    @property
    def url(self) -> str:
        return self.runtime.service.base_url

    def account(self, *identifiers: str | None) -> Account:
        """The account that was named, or else the account of an id, which later calls of the command also use."""
        account = account_of(self.runtime, self._name, *identifiers)
        self._name = account.id
        return account

    def define(self, kind: Kind, body: Record, *, if_missing: bool = False) -> Record:
        service = self.runtime.service
        account = self.account(None if kind is SCOPE else body.get(kind.id), body.get("endpoint_id"))

        def unit(tx: Tx) -> Record:
            locked = account_rows.lock(tx, account.id) or account
            existing = _existing(tx, locked, kind, body) if if_missing else None
            if existing is not None:
                return existing
            answer = kind.operation.define(tx, service, locked, Call(operator(account.id), body))
            if answer.refusal is not None:
                raise _error(account, kind, body, answer.refusal)
            if answer.status == 201 and "redefine" in body:
                raise _not_found(account, kind, body)
            return answer.body

        return self.runtime.store.run_now(unit)

    def deliveries(self, query: Mapping[str, str]) -> Record:
        parsed = deliveries.query(urlencode(query).encode())
        if isinstance(parsed, Refusal):
            raise BadSetting(parsed.detail)
        account = self.account(*(query.get(name) for name in ("id", "endpoint_id", "subscription_id", "event_id")))

        def unit(tx: Tx) -> Record:
            answer = listing.answer(tx, self.runtime.service, account_rows.load(tx, account.id) or account, parsed)
            if isinstance(answer, Refusal):
                raise BadSetting(answer.detail)
            return answer.body

        return self.runtime.store.read_now(unit)


def change(operations: Operations, kind: Kind, body: Record) -> Record:
    """Redefine a resource by members that the command chose. If they are not valid for it, its state forbids that."""
    try:
        return operations.define(kind, body)
    except BadSetting as error:
        raise Refused(str(error)) if type(error) is BadSetting else error from None


def _error(account: Account, kind: Kind, body: Record, refusal: Refusal) -> GatepostError:
    if kind.id in body and refusal.code == "not_found":
        return _not_found(account, kind, body)
    exists = kind.id in body and kind is not SCOPE
    hint = f"; `gatepost {kind.noun} show {body[kind.id]}` shows its definition" if exists else ""
    return error_of(refusal.status, refusal.code, f"{refusal.detail}{hint}")


def _not_found(account: Account, kind: Kind, body: Record) -> NotFound:
    listed = f"`gatepost {kind.noun} list --account {account.name}` lists them"
    return NotFound(f"{account.name} has no {kind.noun} {body[kind.id]}; {listed}")


def _existing(tx: Tx, account: Account, kind: Kind, body: Record) -> Record | None:
    """Return the oldest resource of the account that has the same name: the values of `kind.names`."""
    if any(name not in body for name in kind.names):
        raise BadSetting(f"--if-missing: name the {kind.noun} with {' and '.join(kind.names)}")
    after = LOWEST
    page_of, render = _RESOURCES[kind.noun]
    while page := page_of(tx, account.id, after, listing.MAX_LIMIT):
        for resource in page:
            rendered = render(tx, account, resource) if resource.status != "removed" else {}
            if rendered and all(rendered.get(name) == body[name] for name in kind.names):
                return rendered
        after = ids.raw(page[-1].id)
    return None


_RESOURCES: dict[str, tuple[Callable[..., Any], Callable[[Tx, Account, Any], Record]]] = {
    "client": (client_rows.page, lambda tx, _, client: define_client.render(tx, client)),
    "endpoint": (endpoint_rows.page, define_endpoint.render),
    "subscription": (subscription_rows.page, lambda tx, _, subscription: define_subscription.render(tx, subscription)),
}


# --- the account of an id

_LISTED = {"entry": "audit"}

_OWNED: dict[str, tuple[str, Callable[[Tx, str, str], object]]] = {
    "ep": ("endpoint", endpoint_rows.load_uncached),
    "sub": ("subscription", subscription_rows.load),
    "dlv": ("delivery", delivery_rows.load),
    "evt": ("entry", lambda tx, account, name: entry_rows.load(tx, account, ids.raw(name))),
}


def account_of(runtime: Runtime, name: str, *identifiers: str | None) -> Account:
    """Return the account with this name, or without a name, the account of the first id that was given."""
    given = next((identifier for identifier in identifiers if identifier), "")
    if name:
        return account_named(runtime, name)
    if not given:
        raise click.UsageError("Missing option '--account'. Name the account, or set GATEPOST_ACCOUNT.")
    prefix = given.partition("_")[0]
    if prefix == "cli":
        return account_named(runtime, runtime.store.read_now(lambda tx: client_admin.named(tx, given)).account)
    if prefix not in _OWNED or ids.parse(prefix, given) is None:
        raise NotFound(f"{given!r} is not an id, from which the account would follow; name the account with --account")
    noun, load_owned = _OWNED[prefix]
    owner = lookup.owner(runtime.store, lambda tx, account: load_owned(tx, account, given) is not None)
    if owner is None:
        raise NotFound(f"there is no {noun} {given}; `gatepost {_LISTED.get(noun, noun)} list` lists them")
    return owner
