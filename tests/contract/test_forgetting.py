"""The chore that deletes expired rows of all kinds."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from gatepost.core import ids
from gatepost.core.secrets import Box
from gatepost.oauth.authorize import interactions, pushed_requests
from gatepost.oauth.authorize.interactions import Interaction
from gatepost.run import chores
from gatepost.run.app import Runtime
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from tests.contract import make
from tests.contract.backends import Backend, FakeClock

BOX = Box([b"k" * 32])


def test_expired_interactions_and_pushed_requests_are_deleted_in_slices(
    store: Store, backend: Backend, account: str, watch: FakeClock
) -> None:
    client = store.run_now(lambda tx: make.client(tx, account)).id
    soon, later = watch() + timedelta(minutes=5), watch() + timedelta(minutes=10)

    def add(tx: Tx) -> None:
        for number in range(450):
            made = Interaction(account, ids.new("int"), client, b"b" * 32, None, b"{}", soon)
            interactions.add(tx, made, "192.0.2.1", BOX)
            pushed_requests.add(tx, account, number.to_bytes(32, "big"), client, "192.0.2.1", b"{}", BOX, soon)
        interactions.add(
            tx, Interaction(account, ids.new("int"), client, b"b" * 32, None, b"{}", later), "192.0.2.1", BOX
        )
        pushed_requests.add(tx, account, b"l" * 32, client, "192.0.2.1", b"{}", BOX, later)

    store.run_now(add)
    opened = cast(Runtime, SimpleNamespace(store=store))
    count: Any = "SELECT (SELECT count(*) FROM interactions), (SELECT count(*) FROM pushed)"
    asyncio.run(chores.forget(opened))
    assert backend.execute(count) == [(451, 451)]
    watch.at = soon + timedelta(milliseconds=1)
    asyncio.run(chores.forget(opened))
    assert backend.execute(count) == [(1, 1)]
