"""The rows of scopes, and of the accounts that own resources."""

from collections.abc import Iterator

import msgspec

from gatepost.core import ids
from gatepost.oauth import scopes
from gatepost.oauth.scopes import Scope
from gatepost.store.interface import Reader
from gatepost.store.transaction import Tx

_PAGE = 200

_scope = msgspec.json.Decoder(Scope)
_encode = msgspec.json.Encoder().encode


def load(tx: Tx, account: str, name: str) -> Scope | None:
    """The account's own scope, or the standard scope of OpenID Connect with this name."""
    return tx.cached(
        f"scope {account} {name}", lambda: load_uncached(tx, account, name) or scopes.standard(account, name)
    )


def load_uncached(tx: Tx, account: str, name: str) -> Scope | None:
    """The account's own scope, for a unit that is about to change it."""
    row = tx.one("scope_by_name", account=ids.raw(account), name=name)
    return _scope.decode(row[0]) if row else None


def page(tx: Tx, account: str, after: str, limit: int) -> list[Scope]:
    """Some of the account's own scopes, by name."""
    rows = tx.rows("list_scopes", account=ids.raw(account), after=after, limit=limit)
    return [_scope.decode(row[0]) for row in rows]


def count(tx: Tx, account: str) -> int:
    """How many scopes the account has defined."""
    return int(tx.rows("count_scopes", account=ids.raw(account))[0][0])


def add(tx: Tx, scope: Scope) -> None:
    """Store a new scope. Decisions may have been cached while it did not exist, so the cache is invalidated."""
    _write(tx, "insert_scope", scope)


def update(tx: Tx, scope: Scope) -> None:
    """Store a changed scope."""
    _write(tx, "update_scope", scope)


def _write(tx: Tx, statement: str, scope: Scope) -> None:
    tx.write(statement, account=ids.raw(scope.account), name=scope.name, document=_encode(scope).decode())
    tx.change(f"scope {scope.account} {scope.name}")


def claim_resource(tx: Tx, resource: str, account: str) -> bool:
    """Whether the account owns the resource. It becomes the owner if there is none."""
    tx.write("claim_resource", resource=resource, account=ids.raw(account))
    return resource_owner(tx, resource) == account


def resource_owner(tx: Tx, resource: str) -> str | None:
    """The account that owns the resource."""
    row = tx.one("resource_owner", resource=resource)
    return ids.text("acc", row[0]) if row else None


def resources(tx: Tx, account: str) -> set[str]:
    """The resources that the account's own scopes name."""
    return {resource for (resource,) in tx.rows("scope_resources", account=ids.raw(account))}


def every(store: Reader, account: str) -> Iterator[Scope]:
    """All scopes of an account, by name."""
    after = ""
    while scopes := store.read_now(lambda tx, after=after: page(tx, account, after, _PAGE)):  # type: ignore[misc]
        yield from scopes
        after = scopes[-1].name
