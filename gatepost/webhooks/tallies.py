"""Counts of an account's deliveries and attempts, by the minute, and after some days by the hour."""

from gatepost.core import ids
from gatepost.store.transaction import Tx

MINUTE = 60
HOUR = 3600


def add(tx: Tx, account: str, what: str, count: int = 1) -> None:
    """Add to a count of the present minute."""
    if count:
        minute = tx.now // 60_000 * MINUTE
        tx.pending.count("tally", (ids.raw(account), minute, MINUTE, tx.engine.slot, what), count)


def load(tx: Tx, account: str, since: int, until: int, interval: int = 1) -> list[tuple[int, str, int]]:
    """The counts, summed by intervals of some seconds: start of the interval, what was counted, and the sum."""
    rows = tx.rows("tallied", account=ids.raw(account), since=since, until=until, interval=interval)
    return [(start, what, int(count)) for start, what, count in rows]


def roll_up(tx: Tx, before: int, limit: int) -> int:
    """Add some of the counts by the minute before an instant to those by the hour. Returns how many it added."""
    rows = tx.write("old_minutes", before=before, limit=limit)
    hours: dict[tuple[bytes, int, int, int, str], int] = {}
    for account, since, what, count in rows:
        key = (account, since // HOUR * HOUR, HOUR, 0, what)
        hours[key] = hours.get(key, 0) + count
    tx.write_given("tally", sorted((*key, count) for key, count in hours.items()))
    return len(rows)


def delete_before(tx: Tx, before: int, limit: int) -> int:
    """Delete some of the counts by the hour before an instant. Returns how many it deleted."""
    return len(tx.write("forget_tallies", before=before, limit=limit))
