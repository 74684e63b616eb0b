"""A move from SQLite to PostgreSQL beside writers and readers, and one that is interrupted at its commit."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from gatepost.core.errors import Refused, Unavailable
from gatepost.run import app
from gatepost.settings import load
from gatepost.store import sqlite_to_postgres
from gatepost.store.sqlite_to_postgres import Moved
from tests import command
from tests.command import Alone
from tests.waiting import wait_until

Database = psycopg.Connection[Any]

CHANGES = "SELECT count(*) FROM changes"
COUNTERS = "SELECT count(*) FROM counters"
ENTRIES = "SELECT count(*) FROM entries"
AT_COMMIT = """
CREATE FUNCTION interrupt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER interrupt AFTER INSERT ON accounts DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION interrupt()
"""


@pytest.fixture
def sqlite(tmp_path: Path) -> Alone:
    store = command.alone(tmp_path / "data")
    store.cli("store", "migrate")
    return store


@pytest.fixture
def target(postgres_url: str) -> Iterator[Database]:
    """An empty PostgreSQL store: it has tables, but no account."""
    with closing(app.open_store(load({"database": postgres_url}, {}))) as store:
        store.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as database:
        yield database


def move(store: Alone, url: str, on_progress: Callable[[int], None] = lambda _count: None) -> Moved:
    with psycopg.connect(url, autocommit=True) as database:
        return sqlite_to_postgres.to_postgres(store.directory / "gatepost.db", database, on_progress)


def names(store: Alone) -> set[str]:
    return {file.name for file in store.directory.iterdir() if file.name.startswith("gatepost.")}


def count_alone(file: Path, statement: str) -> int:
    """Count rows in a copy of the file without the log that may be beside it."""
    copy = file.parent.parent / "copy.db"
    copy.write_bytes(file.read_bytes())
    with closing(apsw.Connection(str(copy))) as database:
        return int(str(database.execute(statement).fetchall()[0][0]))


def count(target: Database, statement: str) -> int:
    return int(target.execute(statement.encode()).fetchall()[0][0])


def is_locked(file: Path) -> bool:
    descriptor = os.open(file, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# --- beside other programs


def test_a_writer_that_waits_for_the_move_fails(
    sqlite: Alone, target: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opened the file before the move, and gets its turn when the file has another name."""
    errors: list[BaseException] = []
    with closing(app.open_for_use(load({}, sqlite.environment)).store) as store:
        store.run_now(lambda tx: tx.change("before"))

        def write() -> None:
            try:
                store.run_now(lambda tx: tx.change("during"))
            except Unavailable as error:
                errors.append(error)

        writer = threading.Thread(target=write)

        def start_writer(_count: int) -> None:
            if not writer.ident:
                writer.start()
                wait_until(lambda: is_locked(sqlite.directory / "gate.lock"), "a writer in the turnstile")

        rename = Path.rename

        def rename_late(old: Path, new: Path) -> Path:
            writer.join(0.2)  # a writer that does not have to wait would commit now
            return rename(old, new)

        monkeypatch.setattr(Path, "rename", rename_late)
        moved = move(sqlite, postgres_url, start_writer)
        writer.join()
        with pytest.raises(Unavailable):
            store.run_now(lambda tx: tx.change("after"))
    assert errors
    assert names(sqlite) == {"gatepost.moved.db"}
    assert count_alone(moved.aside, CHANGES) == count(target, CHANGES)
    assert target.execute("SELECT 1 FROM changes WHERE thing = 'before'").fetchall()


def test_the_kept_file_is_complete_while_other_programs_have_it_open(
    sqlite: Alone, target: Database, postgres_url: str
) -> None:
    """The program that closes the file last copies the log into it, and after a rename it does not."""
    with closing(apsw.Connection(str(sqlite.directory / "gatepost.db"))) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("INSERT INTO counters VALUES ('test', 1)")
        moved = move(sqlite, postgres_url)
        assert names(sqlite) == {"gatepost.moved.db"}
        assert count_alone(moved.aside, COUNTERS) == count(target, COUNTERS) == moved.rows["counters"] > 0


def test_a_reader_of_the_log_refuses_the_move(
    sqlite: Alone, target: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it reads, the log cannot be emptied into the file, so the kept file could not be complete."""
    monkeypatch.setattr(sqlite_to_postgres, "_BUSY", 0)
    with closing(apsw.Connection(str(sqlite.directory / "gatepost.db"))) as reader:
        reader.execute("BEGIN")
        reader.execute(ENTRIES).fetchall()
        with closing(apsw.Connection(str(sqlite.directory / "gatepost.db"))) as writer:
            writer.execute("INSERT INTO counters VALUES ('test', 1)")
        with pytest.raises(Refused, match="another program uses"):
            move(sqlite, postgres_url)
    assert "gatepost.db" in names(sqlite)
    assert not count(target, ENTRIES)
    assert move(sqlite, postgres_url).rows["entries"] == count(target, ENTRIES)


def test_an_earlier_kept_file_is_not_overwritten(sqlite: Alone, target: Database, postgres_url: str) -> None:
    for name in ("gatepost.moved.db", "gatepost.moving.db"):
        (sqlite.directory / name).write_text("kept")
        with pytest.raises(Refused, match=f"{name} exists already"):
            move(sqlite, postgres_url)
        (sqlite.directory / name).unlink()
    assert not count(target, ENTRIES)


# --- interrupted at the commit


def test_a_refused_commit_leaves_the_store_in_use(sqlite: Alone, target: Database, postgres_url: str) -> None:
    target.execute(AT_COMMIT.format("RAISE 'no space';").encode())
    with pytest.raises(Unavailable, match="no space"):
        move(sqlite, postgres_url)
    assert "gatepost.db" in names(sqlite)
    assert not {"gatepost.moving.db", "gatepost.moved.db"} & names(sqlite)
    assert sqlite.cli_json("account", "list")
    assert not count(target, ENTRIES)


def test_an_unconfirmed_commit_leaves_neither_store_in_use(sqlite: Alone, target: Database, postgres_url: str) -> None:
    """The connection is lost at the commit, which did not succeed. The next run copies the store."""
    target.execute(AT_COMMIT.format("PERFORM pg_terminate_backend(pg_backend_pid());").encode())
    with pytest.raises(Unavailable, match="run the same command again"):
        move(sqlite, postgres_url)
    assert "gatepost.moving.db" in names(sqlite)
    assert not {"gatepost.db", "gatepost.moved.db"} & names(sqlite)
    for words in (("serve",), ("account", "list")):
        assert "was interrupted; run it again" in sqlite.cli(*words, check=False).stderr
    target.execute("DROP FUNCTION interrupt CASCADE")
    target.execute("INSERT INTO accounts VALUES ('\\x01', 'other', '{}')")
    with pytest.raises(Refused, match="already has accounts"):
        move(sqlite, postgres_url)
    assert "gatepost.db" not in names(sqlite)
    target.execute("DELETE FROM accounts")
    sqlite.cli("store", "move", "--to", postgres_url)
    assert names(sqlite) == {"gatepost.moved.db"}
    assert count(target, ENTRIES) == count_alone(sqlite.directory / "gatepost.moved.db", ENTRIES) > 0
    for words in (("serve",), ("account", "list")):
        assert "was moved to PostgreSQL" in sqlite.cli(*words, check=False).stderr


def test_a_move_that_ended_after_its_commit_is_completed(sqlite: Alone, target: Database, postgres_url: str) -> None:
    first = move(sqlite, postgres_url)
    first.aside.rename(sqlite.directory / "gatepost.moving.db")
    again = move(sqlite, postgres_url)
    assert again == first
    assert names(sqlite) == {"gatepost.moved.db"}
    assert count(target, ENTRIES) == first.rows["entries"]
