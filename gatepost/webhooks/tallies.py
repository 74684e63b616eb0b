"""Counts of deliveries and attempts, of accounts and of endpoints: by the minute, and after some hours by the hour.

An attempt adds to several counts of its account, but it has one row among those of its endpoint, whose name lists them.

One commit can add to the counts of many endpoints. It appends them to a log, as one row for each account, and a chore
adds them up. The log counts in all that is read here.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from gatepost.core import clock, ids
from gatepost.store.pending import Counts, Key, Statements
from gatepost.store.transaction import Tx

MINUTE = 60
HOUR = 3600
MINUTES_KEPT = timedelta(hours=3)  # before counts by the minute become counts by the hour
HOURS_KEPT = timedelta(days=400)
ENDPOINT_HOURS_KEPT = timedelta(days=90)
MADE = "made"

Count = tuple[int, str, int]  # start of the interval in seconds, what was counted, and how many

_encode = msgspec.json.Encoder().encode
_logged = msgspec.json.Decoder(dict[str, dict[str, int]])  # what → endpoint → count


def add(tx: Tx, endpoint: Key, *names: str, count: int = 1) -> None:
    """Add to counts of an endpoint and of its account, in the present minute."""
    if count:
        minute = tx.now // 60_000 * MINUTE
        tx.pending.count(_statements, (*endpoint, minute, tx.engine.slot, names), count)


def _statements(counts: Counts) -> Statements:
    """Return the statements that write the counts of a commit."""
    of_accounts: Counts = {}
    of_endpoints: dict[tuple[bytes, int], dict[str, dict[str, int]]] = {}
    for (account, endpoint, minute, slot, names), count in counts.items():
        for name in names:
            key = (account, minute, MINUTE, slot, name)
            of_accounts[key] = of_accounts.get(key, 0) + count
        of_endpoints.setdefault((account, minute), {}).setdefault(",".join(names), {})[endpoint.hex()] = count
    logged = [
        (account, ids.new_raw(), minute, _encode(each).decode()) for (account, minute), each in of_endpoints.items()
    ]
    return [
        ("tally", sorted((*key, count) for key, count in of_accounts.items())),  # so that commits do not deadlock
        ("log_endpoint_counts", logged),
    ]


# --- reading


def load(tx: Tx, account: str, since: int, until: int, interval: int = HOUR) -> list[Count]:
    """The counts of an account, summed by intervals of some seconds. Counts by the hour are not in shorter ones."""
    rows = tx.rows("tallied", account=ids.raw(account), since=since, until=until, interval=interval)
    return [(start, what, int(count)) for start, what, count in rows]


def load_of_endpoints(
    tx: Tx, account: str, endpoints: Iterable[bytes], since: int, until: int, interval: int = HOUR
) -> dict[bytes, list[Count]]:
    """The same counts of some endpoints. Some have the same start and name."""
    raw = ids.raw(account)
    counts: dict[bytes, list[Count]] = {endpoint: [] for endpoint in endpoints}
    given = [(raw, endpoint, since, until, interval) for endpoint in counts]
    for endpoint, start, what, count in tx.rows_given("endpoint_tallies_given", given):
        counts[endpoint] += [(start, name, int(count)) for name in what.split(",")]
    for minute, text in tx.rows("logged_endpoint_counts", account=raw, since=since, until=until):
        for endpoint, what, count in _parse(text):
            if endpoint in counts:
                counts[endpoint] += [(minute // interval * interval, name, count) for name in what.split(",")]
    return counts


def _parse(text: str) -> Iterator[tuple[bytes, str, int]]:
    """Yield each endpoint, the names and the count in a row of the log."""
    for what, counts in _logged.decode(text).items():
        for endpoint, count in counts.items():
            yield bytes.fromhex(endpoint), what, count


# --- upkeep


def add_logged(tx: Tx, limit: int) -> int:
    """Add some rows of the log to the counts of endpoints by the minute. Returns how many."""
    rows = tx.write("take_endpoint_counts", limit=limit)
    minutes: Counts = {}
    for account, minute, text in rows:
        for endpoint, what, count in _parse(text):
            key = (account, endpoint, minute, MINUTE, what)
            minutes[key] = minutes.get(key, 0) + count
    _add_to_endpoints(tx, minutes)
    return len(rows)


def oldest_minute(at: datetime) -> int:
    """The time in seconds from which on counts are kept by the minute."""
    return clock.seconds(at - MINUTES_KEPT) // HOUR * HOUR


def roll_up(tx: Tx, before: int, limit: int) -> int:
    """Add some of the counts by the minute before an instant to those by the hour. Returns how many it added."""
    rows = tx.write("old_minutes", before=before, limit=limit)
    hours: Counts = {}
    for account, since, what, count in rows:
        key = (account, since // HOUR * HOUR, HOUR, 0, what)
        hours[key] = hours.get(key, 0) + count
    tx.write_given("tally", sorted((*key, count) for key, count in hours.items()))
    return len(rows)


def roll_up_endpoints(tx: Tx, before: int, limit: int) -> int:
    """The same for the counts of endpoints."""
    rows = tx.write("old_endpoint_minutes", before=before, limit=limit)
    hours: Counts = {}
    for account, endpoint, since, what, count in rows:
        key = (account, endpoint, since // HOUR * HOUR, HOUR, what)
        hours[key] = hours.get(key, 0) + count
    _add_to_endpoints(tx, hours)
    return len(rows)


def _add_to_endpoints(tx: Tx, counts: Counts) -> None:
    tx.write_given("add_endpoint_tallies", sorted((*key, count) for key, count in counts.items()))


def delete_old(tx: Tx, limit: int) -> int:
    """Delete some of the old counts by the hour of accounts. Returns how many it deleted."""
    return len(tx.write("forget_tallies", before=clock.seconds(tx.at - HOURS_KEPT), limit=limit))


def delete_old_of_endpoints(tx: Tx, limit: int) -> int:
    """The same for the counts of endpoints, of which there are many more."""
    before = clock.seconds(tx.at - ENDPOINT_HOURS_KEPT)
    return len(tx.write("forget_endpoint_tallies", before=before, limit=limit))
