"""The deliveries of an account in the last hour, and the unfinished ones: what a list of many accounts shows.

Durations are not read, which makes this several times as fast as a summary.
"""

from typing import Any

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.store.transaction import Tx
from gatepost.webhooks import listing_query, summary, tallies


def render(tx: Tx, account: Account) -> dict[str, Any]:
    """How many deliveries were made and ended, the share that succeeded, and how many are unfinished."""
    since = clock.seconds(tx.at) - tallies.HOUR
    rows = tx.rows("deliveries_since", account=ids.raw(account.id), since=since)
    counted = summary.total((since, what, int(count)) for what, count in rows)
    unfinished = listing_query.count_unfinished(tx, account.id, suspended=not account.active)
    oldest = clock.rfc3339(ids.made_at(unfinished.oldest)) if unfinished.oldest else None
    return {
        **counted["deliveries"],
        "success_ratio": counted["success_ratio"],
        "unfinished": unfinished._asdict() | {"oldest": oldest, "counted_to": listing_query.MAX_COUNTED},
    }
