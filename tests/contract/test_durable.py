"""SQLite: a caller gets its result after the sync of its commit, and other callers do not wait for that."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock
from gatepost.store import sqlite_log
from gatepost.store.lost import LOST_CODE
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import Tx
from gatepost.webhooks.fanout import create_deliveries
from tests.contract import make
from tests.waiting import LIMIT

PATIENCE = LIMIT


class Two(NamedTuple):
    """Two stores on one file, as of two processes."""

    one: SqliteStore
    other: SqliteStore
    account: str

    def subjects(self) -> list[str]:
        return self.other.read_now(lambda tx: make.subjects(tx, self.account))


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    path = tmp_path / "gatepost.db"
    with (
        closing(SqliteStore(path, clock.now, create_deliveries)) as one,
        closing(SqliteStore(path, clock.now, create_deliveries)) as other,
    ):
        one.migrate()
        made = accounts.new("acme", clock.now())
        one.run_now(lambda tx: account_rows.add(tx, made))
        yield Two(one, other, made.id)


@contextmanager
def slow_disk(monkeypatch: pytest.MonkeyPatch, begun: threading.Event) -> Iterator[threading.Event]:
    """Block the first sync until the event is set. Later syncs are not blocked."""
    let_go, real, first = threading.Event(), sqlite_log._sync, threading.Lock()

    def sync(file: int) -> None:
        if first.acquire(blocking=False):
            begun.set()
            assert let_go.wait(PATIENCE)
        real(file)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_log, "_sync", sync)
        try:
            yield let_go
        finally:
            let_go.set()


def test_a_caller_waits_for_the_sync_and_delays_no_others(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    with slow_disk(monkeypatch, begun) as let_go:
        waiting = threading.Thread(
            target=two.one.run_now, args=(lambda tx: make.record(tx, two.account, "slow"),), daemon=True
        )
        waiting.start()
        assert begun.wait(PATIENCE)
        two.other.run_now(lambda tx: make.record(tx, two.account, "quick"))
        assert waiting.is_alive(), "it was answered before its commit was on the disk"
        assert two.subjects() == ["slow", "quick"], "in the order of their commits"
        let_go.set()
        waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_what_is_synced_is_the_log_that_was_written(two: Two, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    synced: list[tuple[int, int]] = []
    real = sqlite_log._sync

    def sync(file: int) -> None:
        synced.append((os.fstat(file).st_ino, os.fstat(file).st_size))
        real(file)

    monkeypatch.setattr(sqlite_log, "_sync", sync)
    for number in range(3):
        two.one.run_now(lambda tx, number=number: make.record(tx, two.account, str(number)))  # type: ignore[misc]
    log = (tmp_path / "gatepost.db-wal").stat()
    assert [inode for inode, _ in synced] == [log.st_ino] * 3
    assert synced[-1][1] == log.st_size > 0


# --- a sync that fails


def _fail_to_sync(path: Path, account: str, answered: Path, statement: str) -> None:
    """Run in a separate process: the sync of a commit fails while a caller waits."""

    def unit(tx: Tx) -> None:
        make.record(tx, account, "unsure")
        tx.select(statement, {})

    def fails(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = SqliteStore(path, clock.now, create_deliveries)
    store.run_now(lambda tx: account_rows.page(tx, "", 1))
    sqlite_log._sync = fails
    try:
        store.run_now(unit)
    finally:
        answered.touch()  # never reached, because the process ends first


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "SELECT nothing FROM nowhere",  # an error of another kind: the log is closed, and with it what it might report
    ],
)
def test_a_failed_sync_ends_the_process_before_any_response(two: Two, tmp_path: Path, statement: str) -> None:
    answered = tmp_path / "answered"
    process = get_context("spawn").Process(
        target=_fail_to_sync, args=(tmp_path / "gatepost.db", two.account, answered, statement)
    )  # fmt: skip
    process.start()
    process.join(LIMIT)
    assert process.exitcode == LOST_CODE
    assert not answered.exists()
    two.one.run_now(lambda tx: make.record(tx, two.account, "sure"))  # other processes go on
    assert "sure" in two.subjects()


# --- the size of the log


def test_the_log_shrinks_after_a_long_reader_has_left(tmp_path: Path) -> None:
    limit = 256 * 1024
    path = tmp_path / "gatepost.db"
    log = tmp_path / "gatepost.db-wal"
    with closing(SqliteStore(path, clock.now, create_deliveries, wal_limit=limit)) as store:
        store.migrate()
        made = accounts.new("acme", clock.now())
        store.run_now(lambda tx: account_rows.add(tx, made))
        with closing(apsw.Connection(str(path))) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM entries").fetchall()
            for number in range(40):
                store.run_now(lambda tx, number=number: make.record(tx, made.id, str(number), data="x" * 50_000))  # type: ignore[misc]
                store.checkpoint()
            assert log.stat().st_size > 4 * limit  # it has to hold everything since the reader began
            reader.execute("ROLLBACK")
        store.checkpoint()
        assert log.stat().st_size <= limit
        store.run_now(lambda tx: make.record(tx, made.id, "after"))
        assert len(store.read_now(lambda tx: make.subjects(tx, made.id))) == 41
