"""Creating, changing and suspending accounts: the operator's commands.

This is in `oauth` and not in `accounts`, because an account gets a first client, and its clients limit its settings.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from gatepost import accounts
from gatepost.accounts import Account, account_rows, lookup
from gatepost.core import ids
from gatepost.core.errors import BadSetting, NotFound, Refused
from gatepost.core.secrets import Secret
from gatepost.ledger import chains, operations
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.ledger.operations import Call, operator
from gatepost.ledger.record import record
from gatepost.oauth import client_rows, client_rules, define_client
from gatepost.oauth.service import Service
from gatepost.store.transaction import LOWEST, Tx

_ORIGIN = Origin(OPERATOR)
_PAGE = 200


class CreatedAccount(NamedTuple):
    """A new account, and the credentials of its first client."""

    account: Account
    client: str
    secret: Secret | None


def create(
    tx: Tx, service: Service, name: str, changes: Mapping[str, str], jwks: dict[str, Any] | None = None
) -> CreatedAccount:
    """Create an account and its first client with every `gatepost:` scope. With `jwks` the client has no secret."""
    account = accounts.change(accounts.new(name, tx.at), changes, dev=service.dev)
    if account.strict and jwks is None:
        raise BadSetting("profile=fapi2: the first client needs a key instead of a secret; give it with --jwks @file")
    if account.strict:
        _check_profile(tx, account)
    if not account_rows.add(tx, account):
        raise Refused(f"there is already an account {name}; choose another name, or see `gatepost account show {name}`")
    chains.create(tx, service.keys.seal, account.id)
    record(tx, account, "account.created", _ORIGIN, account.id, {"name": name, "settings": account.settings})
    body: dict[str, Any] = {
        "client_name": "first client",
        "grant_types": ["client_credentials"],
        "scope": " ".join(operations.OPERATIONS),
    }
    if jwks is not None:
        body |= {"token_endpoint_auth_method": "private_key_jwt", "jwks": jwks}
    answer = define_client.define(tx, service, account, Call(operator(account.id), body))
    if answer.refusal:
        raise (Refused if jwks is None else BadSetting)(answer.refusal.detail)
    secret = answer.body.get("client_secret")
    return CreatedAccount(account, answer.body["client_id"], Secret(secret) if secret else None)


def create_operator(tx: Tx, service: Service) -> Account:
    """Create the reserved account whose ledger records events of the service itself, unless it exists."""
    existing = account_rows.load_named(tx, accounts.OPERATOR)
    if existing is not None:
        return existing
    account = accounts.new(accounts.OPERATOR, tx.at)
    account_rows.add(tx, account)
    chains.create(tx, service.keys.seal, account.id)
    record(tx, account, "account.created", _ORIGIN, account.id, {"name": account.name})
    return account


def change(tx: Tx, service: Service, name: str, changes: Mapping[str, str]) -> Account:
    """Change settings of an account."""
    account = _locked(tx, name)
    changed = accounts.change(account, changes, dev=service.dev)
    if changed == account:
        return account
    if changed.strict:
        _check_profile(tx, changed)
    account_rows.update(tx, changed)
    settings = {key: changed.settings.get(key) for key in changes}
    record(tx, changed, "account.changed", _ORIGIN, account.id, {"settings": settings})
    return changed


def _check_profile(tx: Tx, account: Account) -> None:
    """Refuse the profile fapi2 while the account or one of its clients does not comply with it."""
    if account["signing_alg"] == "RS256":
        raise Refused("profile=fapi2: access tokens must not be signed with RS256; set signing_alg=ES256 or EdDSA")
    after = LOWEST
    while page := client_rows.page(tx, account.id, after, _PAGE):
        for client in page:
            violation = client_rules.fapi2_violation(client) if client.active else None
            if violation:
                raise Refused(f"profile=fapi2: client {client.id} does not comply: {' '.join(violation)}")
        after = ids.raw(page[-1].id)


def suspend(tx: Tx, name: str, reason: str) -> Account:
    """Suspend an account: its clients get no tokens, and its tokens are no longer accepted."""
    account = _locked(tx, name)
    if account.name == accounts.OPERATOR:
        raise Refused("the account gatepost belongs to the service itself and cannot be suspended; name another")
    return _set_status(tx, account, "suspended", {"reason": reason} if reason else {})


def resume(tx: Tx, name: str) -> Account:
    """End the suspension of an account."""
    return _set_status(tx, _locked(tx, name), "active", {})


def _set_status(tx: Tx, account: Account, status: str, data: dict[str, Any]) -> Account:
    if account.status == status:
        return account
    at = {"suspended_at": tx.at} if status == "suspended" else {"suspended_at": None, "resumed_at": tx.at}
    changed = msgspec.structs.replace(account, status=status, **at)
    account_rows.update(tx, changed)
    event = "account.suspended" if status == "suspended" else "account.resumed"
    record(tx, changed, event, _ORIGIN, account.id, data)
    return changed


def _locked(tx: Tx, name: str) -> Account:
    account = account_rows.lock(tx, lookup.named(tx, name).id)
    if account is None:
        raise NotFound(f"there is no account {name}; `gatepost account list` lists the accounts")
    return account
