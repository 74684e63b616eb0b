"""Counts of deliveries and attempts, of accounts and of endpoints: by the minute, and after some hours by the hour.

An attempt adds to several counts of its account, but it has one row among those of its endpoint, whose name lists them.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from gatepost.core import clock, ids
from gatepost.store.pending import Key
from gatepost.store.transaction import Tx

MINUTE = 60
HOUR = 3600
MINUTES_KEPT = timedelta(hours=3)  # before counts by the minute become counts by the hour
HOURS_KEPT = timedelta(days=400)
ENDPOINT_HOURS_KEPT = timedelta(days=90)
MADE = "made"

Count = tuple[int, str, int]  # start of the interval in seconds, what was counted, and how many


def add(tx: Tx, endpoint: Key, *names: str, count: int = 1) -> None:
    """Add to counts of an endpoint and of its account, in the present minute."""
    if count:
        account, raw = endpoint
        minute, slot, settled = tx.now // 60_000 * MINUTE, tx.engine.slot, int(names != (MADE,))
        tx.pending.count("tally_endpoint", (account, raw, minute, settled, slot, ",".join(names)), count)
        for name in names:
            tx.pending.count("tally", (account, minute, MINUTE, slot, name), count)


# --- reading


def load(tx: Tx, account: str, since: int, until: int, interval: int = HOUR) -> list[Count]:
    """The counts of an account, summed by intervals of some seconds. Counts by the hour are not in shorter ones."""
    rows = tx.rows("tallied", account=ids.raw(account), since=since, until=until, interval=interval)
    return [(start, what, int(count)) for start, what, count in rows]


def load_of_endpoint(tx: Tx, endpoint: Key, since: int, until: int, interval: int = HOUR) -> list[Count]:
    """The same counts of an endpoint. Some have the same start and name."""
    account, raw = endpoint
    first = max(since, oldest_minute(tx.at) - HOUR)  # an hour more, since a chore may be late
    minutes = range(first // MINUTE * MINUTE, min(until, clock.seconds(tx.at) + MINUTE), MINUTE)
    given = [(account, raw, minute, minute // interval * interval) for minute in minutes]
    rows = [row[1:] for row in tx.rows_given("endpoint_minutes_given", given)]
    if interval >= HOUR:
        rows += tx.rows("endpoint_hours", account=account, endpoint=raw, since=since, until=until, interval=interval)
    return [(start, name, int(count)) for start, what, count in rows for name in what.split(",")]


def load_recent(tx: Tx, account: str, endpoints: Iterable[str], since: int) -> dict[str, list[Count]]:
    """The counts of some endpoints since a minute, in seconds. Some have the same name."""
    by_id = {ids.raw(endpoint): endpoint for endpoint in endpoints}
    minutes = range(since, clock.seconds(tx.at) + 1, MINUTE)
    given = [(ids.raw(account), raw, minute, since) for raw in by_id for minute in minutes]
    counts: dict[str, list[Count]] = {endpoint: [] for endpoint in by_id.values()}
    for raw, start, what, count in tx.rows_given("endpoint_minutes_given", given):
        counts[by_id[raw]] += [(start, name, int(count)) for name in what.split(",")]
    return counts


# --- upkeep


def oldest_minute(at: datetime) -> int:
    """The time in seconds from which on counts are kept by the minute."""
    return clock.seconds(at - MINUTES_KEPT) // HOUR * HOUR


def roll_up(tx: Tx, before: int, limit: int) -> int:
    """Add some of the counts by the minute before an instant to those by the hour. Returns how many it added."""
    rows = tx.write("old_minutes", before=before, limit=limit)
    hours: dict[tuple[bytes, int, int, int, str], int] = {}
    for account, since, what, count in rows:
        key = (account, since // HOUR * HOUR, HOUR, 0, what)
        hours[key] = hours.get(key, 0) + count
    tx.write_given("tally", sorted((*key, count) for key, count in hours.items()))
    return len(rows)


def roll_up_endpoints(tx: Tx, before: int, limit: int) -> int:
    """The same for the counts of endpoints."""
    rows = tx.write("old_endpoint_minutes", before=before, limit=limit)
    hours: dict[tuple[bytes, bytes, int, str], int] = {}
    for account, endpoint, since, what, count in rows:
        key = (account, endpoint, since // HOUR * HOUR, what)
        hours[key] = hours.get(key, 0) + count
    tx.write_given("add_endpoint_hours", sorted((*key, count) for key, count in hours.items()))
    return len(rows)


def delete_old(tx: Tx, limit: int) -> int:
    """Delete some of the old counts by the hour of accounts. Returns how many it deleted."""
    return len(tx.write("forget_tallies", before=clock.seconds(tx.at - HOURS_KEPT), limit=limit))


def delete_old_of_endpoints(tx: Tx, limit: int) -> int:
    """The same for the counts of endpoints, of which there are many more."""
    before = clock.seconds(tx.at - ENDPOINT_HOURS_KEPT)
    return len(tx.write("forget_endpoint_hours", before=before, limit=limit))
