"""Accounts of a store whose database node is down, as in a distributed store."""

from types import SimpleNamespace
from typing import Any

import pytest

from gatepost.accounts import lookup
from gatepost.core import ids
from gatepost.core.errors import Unavailable
from gatepost.ingest import message
from gatepost.ledger import record
from gatepost.ledger.entries import Entry
from gatepost.oauth import account_admin
from gatepost.run.app import Runtime
from gatepost.store.transaction import Tx
from gatepost.webhooks import publish


def add_account_on_node_that_is_down(opened: Runtime, monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    """Create the account `down`. When the set that is returned is cleared, its node is up."""
    opened.store.run_now(lambda tx: account_admin.create(tx, opened.service, "down", {}))
    return set_node_down(opened, monkeypatch, "down")


def set_node_down(opened: Runtime, monkeypatch: pytest.MonkeyPatch, account: str) -> set[bytes]:
    """Make an account unreachable until the set that is returned is cleared."""
    found = opened.store.read_now(lambda tx: lookup.named(tx, account))
    down = {ids.raw(found.id)}

    def append_entry(tx: Tx, entry: Entry) -> Any:
        if ids.raw(entry.account) in down:
            raise Unavailable("the database node cannot be reached")
        return record.append_entry(tx, entry)

    monkeypatch.setattr(Tx, "shards", SimpleNamespace(is_reachable=lambda raw: raw not in down))
    monkeypatch.setattr(publish, "append_entry", append_entry)
    monkeypatch.setattr(message, "append_entry", append_entry)
    return down
