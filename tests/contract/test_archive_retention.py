"""Archives that are written while retention deletes rows, and deliveries end: they contain what their manifest says."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gatepost.accounts import lookup
from gatepost.archive import export, tables
from gatepost.archive.export import Source
from gatepost.archive.manifest import ArchivedAccount, Period
from gatepost.archive.verify import verify
from gatepost.ledger import retention
from gatepost.store.interface import Store
from tests.contract import make
from tests.contract.archived import DAY, KEY, rows, seal_all
from tests.contract.backends import FakeClock
from tests.contract.posting import Post, ids_by


@pytest.fixture
def post(store: Store, watch: FakeClock) -> Iterator[Post]:
    watch.at = watch.at.replace(hour=10, minute=0, second=0, microsecond=0) + DAY
    undo = ids_by(watch)
    yield Post(store, watch)
    undo()


def record(post: Post, days: int) -> None:
    """An entry in a seal of its own."""
    post.store.run_now(lambda tx: make.record(tx, post.id, "x", keep_days=days))
    seal_all(post)


def prune(post: Post) -> None:
    while post.store.run_now(lambda tx: retention.prune_batch(tx, KEY, post.id)).examined:
        pass


def archive(post: Post, directory: Path, meanwhile: Callable[[], None]) -> ArchivedAccount:
    """Write an archive of all days up to yesterday. `meanwhile` is called once, after its first rows were read."""
    calls = [meanwhile]
    source = Source(post.store, KEY, "https://gatepost.example")
    period = Period(None, post.watch.at.date())
    on_progress = lambda _rows: calls.pop()() if calls else None  # noqa: E731
    made = export.export(source, list(lookup.every(post.store)), period, directory, on_progress)
    assert not calls
    assert verify(directory, KEY).problems == []
    [account] = made.accounts
    return account


def test_retention_that_ends_during_the_export(post: Post, tmp_path: Path) -> None:
    for days in (90, 7, 90):
        record(post, days)
    post.watch.at += timedelta(days=7, minutes=-1)

    def meanwhile() -> None:
        post.forward(hours=1)
        prune(post)

    account = archive(post, tmp_path / "archive", meanwhile)
    assert (account.entries, account.pruned_entries, account.seals) == (2, 1, 3)


def test_seals_that_are_deleted_during_the_export(post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive starts again after them, because there would be a gap in its chain."""
    monkeypatch.setattr(export, "_SEALS", 1)
    for days in (7, 7, 7, 90):
        record(post, days)
    post.watch.at += timedelta(days=7, minutes=-1)

    def meanwhile() -> None:
        post.forward(hours=1)
        prune(post)

    account = archive(post, tmp_path / "archive", meanwhile)
    assert (account.entries, account.pruned_entries, account.seals) == (1, 0, 1)
    assert [row[1] for row in rows(tmp_path / "archive", tables.SEALS)] == [4]


def test_entries_that_are_sealed_during_the_export_are_counted_as_left_out(post: Post, tmp_path: Path) -> None:
    record(post, 90)
    post.store.run_now(lambda tx: make.record(tx, post.id, "x", keep_days=90))
    post.forward(days=1)
    account = archive(post, tmp_path / "archive", lambda: seal_all(post))
    assert (account.entries, account.unsealed_entries) == (1, 1)


def test_deliveries_that_end_during_the_export_are_counted_as_left_out(
    post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_DELIVERIES", 1)
    post.endpoint("*")
    unfinished, ended = post.deliver(2)
    post.cancel(ended)
    post.forward(days=1)
    account = archive(post, tmp_path / "archive", lambda: post.cancel(unfinished))
    assert (account.deliveries, account.unfinished_deliveries) == (1, 1)
