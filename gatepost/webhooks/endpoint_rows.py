"""The rows of endpoints."""

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks.endpoints import Endpoint

_endpoint = msgspec.json.Decoder(Endpoint)
_encode = msgspec.json.Encoder().encode


def load(tx: Tx, account: str, endpoint: str) -> Endpoint | None:
    """Load an endpoint by its id, from the cache if possible."""
    return tx.cached(f"endpoint {account} {endpoint}", lambda: load_uncached(tx, account, endpoint))


def load_with_account(tx: Tx, key: Key) -> tuple[Account | None, Endpoint | None]:
    """Load an endpoint and its account, from the cache if possible."""
    account = ids.text("acc", key[0])
    return account_rows.load(tx, account), load(tx, account, ids.text("ep", key[1]))


def load_uncached(tx: Tx, account: str, endpoint: str) -> Endpoint | None:
    """Load an endpoint by its id as it is stored now."""
    raw = ids.parse("ep", endpoint)
    row = tx.one("endpoint_by_id", account=ids.raw(account), id=raw) if raw else None
    return _endpoint.decode(row[0]) if row else None


def page(tx: Tx, account: str, after: bytes, limit: int) -> list[Endpoint]:
    """A page of an account's endpoints, removed ones included, in the order of their creation."""
    rows = tx.rows("list_endpoints", account=ids.raw(account), after=after, limit=limit)
    return [_endpoint.decode(row[0]) for row in rows]


def count(tx: Tx, account: str) -> int:
    """The number of an account's endpoints that are not removed."""
    return int(tx.rows("count_endpoints", account=ids.raw(account))[0][0])


def inactive_with_deliveries(tx: Tx, after: Key, limit: int) -> list[Key]:
    """Endpoints of all accounts that are disabled or removed and have unfinished deliveries."""
    rows = tx.rows("endpoints_not_active", account=after[0], after=after[1], limit=limit)
    return [(account, endpoint) for account, endpoint in rows]


def add(tx: Tx, endpoint: Endpoint) -> None:
    """Insert an endpoint."""
    _write(tx, "insert_endpoint", endpoint)


def update(tx: Tx, endpoint: Endpoint) -> None:
    """Update an endpoint, and invalidate its cached copies in all processes."""
    _write(tx, "update_endpoint", endpoint)
    tx.change(f"endpoint {endpoint.account} {endpoint.id}")
    if endpoint.status == "removed":
        tx.change(f"subscriptions {endpoint.account}")


def _write(tx: Tx, statement: str, endpoint: Endpoint) -> None:
    tx.write(
        statement, account=ids.raw(endpoint.account), id=ids.raw(endpoint.id), status=endpoint.status,
        document=_encode(endpoint).decode(),
    )  # fmt: skip
