"""Making and changing accounts: what the operator's commands do."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.core.errors import BadSetting, Refusal
from gatepost.core.secrets import Secret
from gatepost.ledger import chains, operations
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.ledger.operations import Call, operator
from gatepost.ledger.record import record
from gatepost.oauth import client_rows, client_rules, clients, definitions, scope_rows
from gatepost.oauth.clients import Client
from gatepost.oauth.scopes import Scope
from gatepost.oauth.service import Service
from gatepost.store.interface import Reader
from gatepost.store.transaction import LOWEST, Tx

_ORIGIN = Origin(OPERATOR)
_PAGE = 200


class Created(NamedTuple):
    account: Account
    client: str
    secret: Secret | None


def create(
    tx: Tx, service: Service, name: str, changes: Mapping[str, str], jwks: dict[str, Any] | None = None
) -> Created:
    """An account and its first client, which holds every `gatepost:` scope; with `jwks`, a key and no secret."""
    account = accounts.change(accounts.new(name, tx.at), changes, dev=service.dev)
    if account.strict and jwks is None:
        raise BadSetting("profile=fapi2: the first client needs a key instead of a secret; give it with --jwks @file")
    if account.strict:
        _check_profile(tx, account)
    if not account_rows.add(tx, account):
        raise BadSetting(f"there is an account {name} already: choose another name, or `gatepost account show {name}`")
    chains.begin(tx, service.keys.seal, account.id)
    record(tx, account, "account.created", _ORIGIN, account.id, {"name": name, "settings": account.settings})
    body: dict[str, Any] = {
        "client_name": "first client",
        "grant_types": ["client_credentials"],
        "scope": " ".join(operations.OPERATIONS),
    }
    if jwks is not None:
        body |= {"token_endpoint_auth_method": "private_key_jwt", "jwks": jwks}
    answer = definitions.client(tx, service, account, Call(operator(account.id), body))
    if answer.refusal:
        raise BadSetting(answer.refusal.detail)
    secret = answer.body.get("client_secret")
    return Created(account, answer.body["client_id"], Secret(secret) if secret else None)


def create_operator(tx: Tx, service: Service) -> Account:
    """The reserved account whose ledger holds the facts about the service itself."""
    known = account_rows.load_named(tx, accounts.OPERATOR)
    if known is not None:
        return known
    account = accounts.new(accounts.OPERATOR, tx.at)
    account_rows.add(tx, account)
    chains.begin(tx, service.keys.seal, account.id)
    record(tx, account, "account.created", _ORIGIN, account.id, {"name": account.name})
    return account


def change(tx: Tx, service: Service, name: str, changes: Mapping[str, str]) -> Account:
    account = _locked(tx, name)
    changed = accounts.change(account, changes, dev=service.dev)
    if changed == account:
        return account
    if changed.strict:
        _check_profile(tx, changed)
    account_rows.update(tx, changed)
    told = {key: changed.settings.get(key) for key in changes}
    record(tx, changed, "account.changed", _ORIGIN, account.id, {"settings": told})
    return changed


def _check_profile(tx: Tx, account: Account) -> None:
    """fapi2 is refused while something of the account does not comply: the operator is told what."""
    if account["signing_alg"] == "RS256":
        raise BadSetting("profile=fapi2: access tokens must not be signed with RS256; set signing_alg=ES256 or EdDSA")
    after = LOWEST
    while page := client_rows.page(tx, account.id, after, _PAGE):
        for client in page:
            wrong = client_rules.fapi2_violation(client) if client.active else None
            if wrong:
                raise BadSetting(f"profile=fapi2: client {client.id} does not comply: {wrong[0]} {wrong[1]}")
        after = ids.raw(page[-1].id)


def suspend(tx: Tx, name: str, reason: str) -> Account:
    account = _locked(tx, name)
    if account.name == accounts.OPERATOR:
        raise BadSetting("the account gatepost is the service's own and cannot be suspended; name another")
    return _set_status(tx, account, "suspended", {"reason": reason} if reason else {})


def resume(tx: Tx, name: str) -> Account:
    return _set_status(tx, _locked(tx, name), "active", {})


def _set_status(tx: Tx, account: Account, status: str, data: dict[str, Any]) -> Account:
    if account.status == status:
        return account
    since = tx.at if status == "suspended" else None
    changed = msgspec.structs.replace(account, status=status, suspended_at=since)
    account_rows.update(tx, changed)
    event = "account.suspended" if status == "suspended" else "account.resumed"
    record(tx, changed, event, _ORIGIN, account.id, data)
    return changed


def named(tx: Tx, name: str) -> Account:
    """The account with this name or id, or words that help."""
    found = find(tx, name)
    if found is None:
        raise BadSetting(f"there is no account {name}; `gatepost account list` shows those there are")
    return found


def find(tx: Tx, name: str) -> Account | None:
    found = account_rows.load(tx, name) if ids.parse("acc", name) else None
    if found is None and accounts.NAME.fullmatch(name):
        found = account_rows.load_named(tx, name)
    return found


def every(store: Reader) -> Iterator[Account]:
    """All accounts by name, page by page."""
    after = ""
    while page := store.read_now(lambda tx, after=after: account_rows.page(tx, after, _PAGE)):  # type: ignore[misc]
        yield from page
        after = page[-1].name


def clients_of(store: Reader, account: str) -> Iterator[Client]:
    """All clients of the account, oldest first."""
    after = LOWEST
    while page := store.read_now(lambda tx, after=after: client_rows.page(tx, account, after, _PAGE)):  # type: ignore[misc]
        yield from page
        after = ids.raw(page[-1].id)


def scopes_of(store: Reader, account: str) -> Iterator[Scope]:
    """All scopes that the account defined, by name."""
    after = ""
    while page := store.read_now(lambda tx, after=after: scope_rows.page(tx, account, after, _PAGE)):  # type: ignore[misc]
        yield from page
        after = page[-1].name


def _locked(tx: Tx, name: str) -> Account:
    found = account_rows.lock(tx, named(tx, name).id)
    if found is None:
        raise BadSetting(f"there is no account {name}")
    return found


def client_of(tx: Tx, client: str) -> Client:
    found = client_rows.load(tx, client)
    if found is None:
        raise BadSetting(f"there is no client {client}; `gatepost client list --account NAME` shows those there are")
    return found


def redefine_client(tx: Tx, service: Service, client: str, changes: dict[str, Any]) -> dict[str, Any]:
    """What the commands `client disable` and `client rotate-secret` do: the operation itself, as the operator."""
    found = client_of(tx, client)
    account = account_rows.lock(tx, found.account)
    if account is None:
        raise LookupError(found.account)
    answer = definitions.client(tx, service, account, Call(operator(account.id), {"client_id": client} | changes))
    if isinstance(answer.refusal, Refusal):
        raise BadSetting(f"{answer.refusal.detail}; `gatepost client show {client}` shows how it is defined")
    return answer.body


def shown_client(tx: Tx, client: Client) -> dict[str, Any]:
    return clients.render(client, client_rows.secrets_used(tx, client))
