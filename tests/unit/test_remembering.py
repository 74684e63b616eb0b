"""Cached decisions: only valid ones, and none that unauthenticated callers could fill the cache with."""

from typing import Any

from gatepost.core import clock
from gatepost.store.cache import Cache
from gatepost.store.transaction import Engine, Tx

NO_CONNECTION: Any = None  # nothing here goes past the cache
ENGINE = Engine(lambda _tx, _entry: [], 0)


def test_a_decision_that_stands_is_remembered() -> None:
    tx = Tx(NO_CONNECTION, Cache(), clock.EPOCH, ENGINE)
    assert tx.derived("asked", lambda: "allowed") == "allowed"
    assert tx.derived("asked", lambda: "decided again") == "allowed"


def test_a_refusal_is_not_so_strangers_cannot_fill_the_memory() -> None:
    """A wrong secret with a scope of 60 KiB costs nothing to send, 20,000 times."""
    cache = Cache()
    tx = Tx(NO_CONNECTION, cache, clock.EPOCH, ENGINE)
    for number in range(3):
        assert tx.derived((number, "a" * 60_000), lambda: None) is None
    assert len(cache.derived) == 0
