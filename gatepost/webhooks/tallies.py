"""Counts of what happened to the deliveries of an account in each minute, and later in each hour."""

from gatepost.core import ids
from gatepost.store.transaction import Tx

MINUTE = 60
HOUR = 3600


def add(tx: Tx, account: str, what: str, count: int = 1) -> None:
    """Count something that happened in this minute."""
    if count:
        minute = tx.now // 60_000 * MINUTE
        tx.pending.count("tally", (ids.raw(account), minute, MINUTE, tx.engine.slot, what), count)


def load(tx: Tx, account: str, since: int, until: int) -> list[tuple[int, str, int]]:
    """Start of the minute or hour in seconds, what happened, and how often."""
    rows = tx.rows("tallied", account=ids.raw(account), since=since, until=until)
    return [(start, what, int(count)) for start, what, count in rows]


def roll_up(tx: Tx, before: int, limit: int) -> int:
    """Add some minutes before an instant to their hours."""
    rows = tx.write("old_minutes", before=before, limit=limit)
    hours: dict[tuple[bytes, int, int, int, str], int] = {}
    for account, since, what, count in rows:
        key = (account, since // HOUR * HOUR, HOUR, 0, what)
        hours[key] = hours.get(key, 0) + count
    tx.write_given("tally", sorted((*key, count) for key, count in hours.items()))
    return len(rows)


def delete_before(tx: Tx, before: int, limit: int) -> int:
    return len(tx.write("forget_tallies", before=before, limit=limit))
