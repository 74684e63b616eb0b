"""The counts of endpoints, as they are in the tables and in the log."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any


def read(select: Callable[[str], Iterable[tuple[Any, ...]]]) -> Counter[tuple[bytes, bytes, str]]:
    """Return what was counted, by account, endpoint and name."""
    counted: Counter[tuple[bytes, bytes, str]] = Counter()
    for account, endpoint, what, count in select("SELECT account, endpoint, what, count FROM endpoint_tallies"):
        counted.update({(account, endpoint, name): count for name in what.split(",")})
    for account, text in select("SELECT account, counts FROM endpoint_tally_log"):
        for what, endpoints in json.loads(text).items():
            for endpoint, count in endpoints.items():
                counted.update({(account, bytes.fromhex(endpoint), name): count for name in what.split(",")})
    return counted
