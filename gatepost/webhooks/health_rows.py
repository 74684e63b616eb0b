"""The rows of the health of endpoints: failures in a row, and the last `Retry-After`."""

from collections.abc import Iterable

from gatepost.core import clock, ids
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx
from gatepost.webhooks.endpoints import Health

_SETTLE_WITHIN = 60_000  # milliseconds: the result of an attempt that waited for a Retry-After may not be written yet


def load(tx: Tx, account: str, endpoint: str) -> Health | None:
    """Load the health of an endpoint; None if nothing is on record."""
    row = tx.one("health", account=ids.raw(account), endpoint=ids.raw(endpoint))
    return _health(*row) if row else None


def mark_healthy(tx: Tx, endpoints: Iterable[Key]) -> None:
    """Clear the failures of endpoints where an attempt succeeded.

    A Retry-After stays in force, because the attempt may have begun before it.
    """
    tx.write_given("recover", sorted(endpoints))


def add_failures(tx: Tx, key: Key, failures: int, since: int | None, not_before: int) -> Health:
    """Add consecutive failures, the first of them at `since`, and the time before which the receiver asked for none."""
    [row] = tx.write(
        "worsen", account=key[0], endpoint=key[1], failures=failures, failing_since=since, not_before=not_before
    )
    return _health(*row)


def reset(tx: Tx, key: Key) -> None:
    """Forget the failures and the Retry-After of an endpoint that is resumed."""
    tx.write("delete_health", account=key[0], endpoint=key[1])
    tx.write("plan_without_retry_after", account=key[0], endpoint=key[1])


def lift_retry_after(tx: Tx, key: Key) -> bool:
    """End the wait that an endpoint asked for. Returns whether it asked for one."""
    lifted = tx.write("lift_retry_after", account=key[0], endpoint=key[1], now=tx.now)
    if lifted:
        tx.write("plan_without_retry_after", account=key[0], endpoint=key[1])
    return bool(lifted)


def retry_afters(tx: Tx) -> dict[Key, int]:
    """The endpoints that asked for no attempts for now, each with the time until which it asked for none."""
    rows = tx.rows("retry_afters", now=tx.now)
    return {(account, endpoint): not_before for account, endpoint, not_before in rows}


def has_recovered(tx: Tx) -> bool:
    """Whether there are rows for `delete_recovered`."""
    return tx.one("recovered_health", before=tx.now - _SETTLE_WITHIN) is not None


def delete_recovered(tx: Tx) -> None:
    """Delete the rows of healthy endpoints whose Retry-After has passed."""
    tx.write("delete_recovered_health", before=tx.now - _SETTLE_WITHIN)


def _health(failures: int, failing_since: int | None, not_before: int) -> Health:
    return Health(
        failures,
        clock.from_milliseconds(failing_since) if failing_since is not None else None,
        clock.from_milliseconds(not_before) if not_before else None,
    )
