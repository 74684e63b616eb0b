"""Archives on every store: complete, consistent, and never overwritten."""

import errno
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from gatepost.archive import export, manifest, parquet, tables
from gatepost.archive.manifest import Period
from gatepost.archive.verify import verify
from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.ledger import retention, seal, seal_rows
from gatepost.ledger.entries import data_hash
from gatepost.store.interface import Store
from tests.contract import make
from tests.contract.archived import DAY, KEY, Archived, rows, seal_all, three_days, write
from tests.contract.backends import Backend, FakeClock
from tests.contract.posting import Post, ids_by


@pytest.fixture
def post(store: Store, watch: FakeClock) -> Iterator[Post]:
    watch.at = watch.at.replace(hour=10, minute=0, second=0, microsecond=0) + DAY
    undo = ids_by(watch)
    yield Post(store, watch)
    undo()


@pytest.fixture
def archived(post: Post, tmp_path: Path) -> Archived:
    return three_days(post, tmp_path / "archive")


# --- what an archive contains


def test_an_archive_has_every_row_of_its_days_that_has_ended(archived: Archived) -> None:
    post, directory = archived.post, archived.directory
    entries = [tables.entry_of(row) for row in rows(directory, tables.ENTRIES)]
    assert sorted(entries, key=lambda entry: entry.id) == sorted(archived.entries, key=lambda entry: entry.id)
    assert [row[1] for row in rows(directory, tables.DELIVERIES)] == sorted(archived.deliveries)
    stored = [attempt for delivery in sorted(archived.deliveries) for attempt in post.attempts(delivery)]
    attempts = rows(directory, tables.ATTEMPTS)
    assert [(row[1], row[2], row[3], tables.document_of(row)) for row in attempts] == [
        (ids.text("dlv", attempt.delivery), attempt.number, attempt.outcome, attempt.document) for attempt in stored
    ]
    assert {row[-1] for row in attempts} == {None}
    for row in rows(directory, tables.DELIVERIES):
        record = post.record(row[1])
        assert row[5:] == record[5:]
        assert row[2:5] == tuple(map(ids.text, ("ep", "sub", "evt"), record[2:5]))


def test_the_manifest_says_what_is_in_the_archive_and_what_is_left_out(archived: Archived) -> None:
    post = archived.post
    assert manifest.read(archived.directory) == archived.manifest
    acme, other = archived.manifest.accounts
    assert (acme.account, acme.name, other.name) == (post.id, "acme", "other")
    assert (acme.entries, acme.deliveries, acme.attempts) == (len(archived.entries) - 3, 8, 9)
    assert (acme.unsealed_entries, acme.unfinished_deliveries, acme.pruned_entries) == (0, 1, 0)
    assert acme.previous is not None
    assert seal.parse_head(acme.previous)
    assert acme.head == str(post.store.read_now(lambda tx: seal_rows.last(tx, post.id)))
    assert {name: file.rows for name, file in archived.manifest.files.items()} == {
        "entries.parquet": len(archived.entries), "seals.parquet": acme.seals + other.seals,
        "deliveries.parquet": 8, "attempts.parquet": 9,
    }  # fmt: skip


def test_an_archive_is_readable_by_its_owner_only(archived: Archived) -> None:
    paths = [archived.directory, *archived.directory.iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in paths} == {0}
    assert {path.name for path in archived.directory.parent.iterdir() if path.name.startswith(".")} == set()


def test_periods_that_follow_each_other_contain_everything_once(archived: Archived, tmp_path: Path) -> None:
    day = archived.period.before
    before = archived.again(tmp_path / "before", Period(None, day - DAY))
    after = archived.again(tmp_path / "after", Period(day, day + DAY))
    whole = archived.again(tmp_path / "whole", Period(None, day + DAY))
    for table in tables.TABLES[:1] + tables.TABLES[2:]:
        parts = [made.files[table.file].rows for made in (before, archived.manifest, after)]
        assert sum(parts) == whole.files[table.file].rows
    keys = {
        (row[0], row[2])
        for name in ("before", "archive", "after")
        for row in rows(tmp_path / name, tables.ENTRIES)
    }  # fmt: skip
    assert keys == {(row[0], row[2]) for row in rows(tmp_path / "whole", tables.ENTRIES)}


def test_entries_without_a_seal_are_left_out(post: Post, tmp_path: Path) -> None:
    post.publish()
    seal_all(post)
    post.publish()
    post.forward(days=1)
    made = write(post.store, tmp_path / "archive", Period(None, post.watch.at.date()))
    [account] = made.accounts
    assert (account.entries, account.unsealed_entries) == (1, 1)


def test_a_late_seal_between_others_keeps_the_chain_whole(post: Post, tmp_path: Path) -> None:
    """The seals between two days with entries of the period are archived without their entries."""
    post.publish()
    seal_all(post)
    day = post.watch.at.date()
    post.watch.at = post.watch.at.replace(hour=23, minute=59)
    post.publish()
    late = ids.new_raw()  # its commit waits past midnight
    seal_all(post)
    post.forward(minutes=3)
    post.publish()
    seal_all(post)
    post.store.run_now(lambda tx: make.record(tx, post.id, "late", raw_id=late))
    seal_all(post)
    post.forward(days=1)
    made = write(post.store, tmp_path / "archive", Period(None, day + DAY))
    [account] = made.accounts
    assert (account.entries, account.seals) == (3, 4)
    assert [row[1] for row in rows(tmp_path / "archive", tables.ENTRIES)] == [1, 2, 4]
    assert verify(tmp_path / "archive", KEY).problems == []


def test_pruned_entries(post: Post, tmp_path: Path) -> None:
    for days in (7, 90, 90):
        post.store.run_now(lambda tx, days=days: make.record(tx, post.id, "x", keep_days=days))  # type: ignore[misc]
    seal_all(post)
    post.forward(days=8)
    while post.store.run_now(lambda tx: retention.prune_batch(tx, KEY, post.id)).examined:
        pass
    made = write(post.store, tmp_path / "archive", Period(None, post.watch.at.date()))
    [account] = made.accounts
    assert (account.entries, account.pruned_entries) == (2, 1)
    assert verify(tmp_path / "archive", None).problems == []


def test_the_anchor_is_the_start_of_a_pruned_chain(post: Post, tmp_path: Path) -> None:
    for days in (7, 90):
        post.store.run_now(lambda tx, days=days: make.record(tx, post.id, "x", keep_days=days))  # type: ignore[misc]
        seal_all(post)
    post.forward(days=8)
    while post.store.run_now(lambda tx: retention.prune_batch(tx, KEY, post.id)).examined:
        pass
    [account] = write(post.store, tmp_path / "archive", Period(None, post.watch.at.date())).accounts
    assert account.anchor is not None
    assert account.anchor.number == 1
    assert account.previous == f"1:{account.anchor.mac}"


def test_a_document_of_another_release_is_kept_as_it_is(archived: Archived, backend: Backend, tmp_path: Path) -> None:
    written = ['{"more": 1}', '{"planned_at":1']
    for delivery, document in zip(archived.deliveries, written, strict=False):
        backend.execute("UPDATE attempts SET document = ? WHERE delivery = ?", document, ids.raw(delivery))
    archived.again(tmp_path / "again")
    found = {row[1]: row for row in rows(tmp_path / "again", tables.ATTEMPTS)}
    assert [tables.document_of(found[delivery]) for delivery in archived.deliveries[:2]] == written


def test_pages_and_row_groups(archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_SEALS", 1)
    monkeypatch.setattr(export, "_DELIVERIES", 2)
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 3)
    monkeypatch.setattr(parquet, "_BATCH", 2)
    archived.again(tmp_path / "again")
    for table in tables.TABLES:
        assert rows(tmp_path / "again", table) == rows(archived.directory, table)
    assert pq.ParquetFile(tmp_path / "again" / "deliveries.parquet").num_row_groups == 3


# --- what is not written


def test_an_archive_is_never_overwritten(archived: Archived) -> None:
    with pytest.raises(BadSetting, match="exists already"):
        archived.again(archived.directory)
    with pytest.raises(BadSetting, match="is not a directory"):
        archived.again(archived.directory / "no" / "archive")


def test_the_first_of_two_archives_with_one_name_stays(
    archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost_race(directory: Path, key: bytes) -> Any:
        shutil.copytree(archived.directory, tmp_path / "again")
        return verify(directory, key)

    monkeypatch.setattr(export, "verify", lost_race)
    with pytest.raises(BadSetting, match=r"cannot write .*again: "):
        archived.again(tmp_path / "again")
    assert verify(tmp_path / "again", KEY).problems == []
    assert not list(tmp_path.glob(".again*"))


def test_a_full_disk_leaves_nothing_behind(archived: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_writer: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parquet.Writer, "_write_group", full)
    with pytest.raises(BadSetting, match=r"cannot write .*again: No space left on device"):
        archived.again(tmp_path / "again")
    assert not list(tmp_path.glob("*again*"))


def test_an_altered_ledger_is_not_archived(archived: Archived, backend: Backend, tmp_path: Path) -> None:
    victim = archived.entries[2]
    backend.execute("UPDATE entries SET subject = 'x' WHERE id = ?", victim.id)
    with pytest.raises(BadSetting, match=f"nothing was archived: acme: entry {victim.name}"):
        archived.again(tmp_path / "again")
    backend.execute("UPDATE entries SET subject = ? WHERE id = ?", victim.subject, victim.id)
    make.erase_data(backend, victim, data_hash(victim))
    with pytest.raises(BadSetting, match=rf"{victim.name} \(seal 3\) has no data: it was erased"):
        archived.again(tmp_path / "again")
    backend.execute("DELETE FROM entries WHERE id = ?", victim.id)
    with pytest.raises(BadSetting, match=rf"{victim.name} \(seal 3\) is missing from the archive"):
        archived.again(tmp_path / "again")
    assert not list(tmp_path.glob("*again*"))


def test_a_chain_with_a_missing_seal_is_not_archived(archived: Archived, backend: Backend, tmp_path: Path) -> None:
    for number, problem in ((3, "follows seal 2: a seal is missing"), (1, "seal 1 of acme is missing")):
        backend.execute("DELETE FROM seals WHERE account = ? AND number = ?", ids.raw(archived.post.id), number)
        with pytest.raises(BadSetting, match=problem):
            archived.again(tmp_path / "again")
