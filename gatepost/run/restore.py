"""After a restore to an earlier state: end everything that may have been revoked, replaced or used since.

The restored store does not know which tokens were revoked, replaced or issued after the backup. So everything ends:
replacing the signing keys ends every access token, also for verifiers that only check signatures, and ending the
consents ends every refresh token.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from gatepost import accounts
from gatepost.accounts import Account, account_rows, lookup
from gatepost.core import clock, ids
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.ledger.record import record
from gatepost.oauth import consent_rows, key_rotation, revocation
from gatepost.oauth.authorize import interactions
from gatepost.oauth.service import Service
from gatepost.store.transaction import LOWEST, Tx, Unit
from gatepost.webhooks import queue_rows

T = TypeVar("T")
REASON = "store_restored"
_ORIGIN = Origin(OPERATOR)
_SLICE = 200  # consents in one commit
_EVERY = 1_000_000_000


class Store(Protocol):
    def read_now(self, unit: Unit[T]) -> T: ...
    def run_now(self, unit: Unit[T]) -> T: ...


class Restored(NamedTuple):
    backup_at: datetime | None
    ended: bool  # whether tokens were ended
    consents: int
    unfinished: int  # deliveries that are sent again


def finish(
    store: Store, service: Service, *, backup_at: datetime | None, keep_tokens: bool, lost: dict[str, int],
    passed: Callable[[int], None],
) -> Restored:  # fmt: skip
    """Record the restore, and end all tokens unless they are kept. Safe to run again after an interruption."""
    at, waiting = store.read_now(lambda tx: (tx.at, unfinished(tx)))
    data: dict[str, Any] = {
        "backup_at": clock.rfc3339(backup_at) if backup_at else None,
        "tokens": "kept" if keep_tokens else "ended",
        "unfinished_deliveries": waiting,
        "lost_entries": lost,
    }
    store.run_now(lambda tx: _begin(tx, service, data, keep_tokens=keep_tokens))
    consents = 0
    if not keep_tokens:
        for account in list(lookup.every(store)):
            consents += _end_consents(store, account, at, passed)
    return Restored(backup_at, not keep_tokens, consents, waiting)


def unfinished(tx: Tx) -> int:
    """The number of unfinished deliveries."""
    return sum(int(number) for number, _ in queue_rows.count_by_endpoint(tx, _EVERY).values())


def _begin(tx: Tx, service: Service, data: dict[str, Any], *, keep_tokens: bool) -> None:
    """In one commit: record the restore, replace the signing keys, and end the authorizations in progress."""
    account = account_rows.load_named(tx, accounts.OPERATOR)
    if account is None:
        raise LookupError(accounts.OPERATOR)
    record(tx, account, "account.store.restored", _ORIGIN, account.id, data)
    if not keep_tokens:
        key_rotation.revoke_all(tx, service, REASON, _ORIGIN)
        interactions.delete_all(tx)


def _end_consents(store: Store, account: Account, before: datetime, passed: Callable[[int], None]) -> int:
    count, after = 0, LOWEST
    while page := store.run_now(_end_page(account, after, before)):
        count += len(page)
        after = page[-1]
        passed(len(page))
    return count


def _end_page(account: Account, after: bytes, before: datetime) -> Callable[[Tx], list[bytes]]:
    def unit(tx: Tx) -> list[bytes]:
        page = consent_rows.active_given_before(tx, account.id, after, before, _SLICE)
        for raw_id in page:
            revocation.end_consent(tx, account, ids.text("con", raw_id), REASON, _ORIGIN)
        return page

    return unit
