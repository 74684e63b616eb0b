"""When its disk, file or server fails, a store tells everybody, leaves nothing half done, and mends by itself."""

import asyncio
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from pwd import getpwnam
from typing import Any, Self

import msgspec
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.ledger import entry_rows, seal_rows
from gatepost.oauth import client_rows, scope_rows
from gatepost.store import postgres_connection, sql_loader, work
from gatepost.store.interface import Store
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import APPEND_ONLY, HIGHEST, LOWEST, Hints, Tx, Unit
from gatepost.webhooks.fanout import create_deliveries
from tests import postgres
from tests.contract import make, parallel
from tests.contract.backends import FakeClock, Postgres, Sqlite, closing_stores
from tests.waiting import LIMIT

pytestmark = pytest.mark.xdist_group("failures")

SOON = timedelta(milliseconds=200)


def writing(account: str, name: str, size: int = 0) -> Unit[str]:
    """Writes a scope and an entry: in two tables besides the list of what waits for a seal."""

    def unit(tx: Tx) -> str:
        make.scope(tx, account, name, description="x" * size)
        make.record(tx, account, name, data="x" * size)
        return name

    return unit


def whole(store: Store, account: str) -> set[str]:
    """The names of the units that are in the database; none of them in part."""

    def unit(tx: Tx) -> tuple[list[str], list[str], list[str]]:
        every = entry_rows.oldest(tx, account, LOWEST, HIGHEST, 1_000_000)
        waiting = [entry.subject for entry in every if seal_rows.is_unsealed(tx, account, entry.id)]
        return (
            [scope.name for scope in scope_rows.page(tx, account, "", 1_000_000)],
            [entry.subject for entry in every],
            waiting,
        )

    scopes, subjects, waiting = store.read_now(unit)
    assert len(subjects) == len(set(subjects))
    assert set(scopes) == set(subjects) == set(waiting)
    return set(subjects)


def new_account(store: Store) -> str:
    def unit(tx: Tx) -> str:
        made = accounts.new("acme", tx.at)
        account_rows.add(tx, made)
        return made.id

    return store.run_now(unit)


def all_unavailable(store: Store, account: str, size: int = 0) -> None:
    """Check that every caller gets an error on every path, and that nothing is written."""
    for records_only in (False, True):
        units = [writing(account, f"lost{number}", size) for number in range(20)]
        outcomes = parallel.run(store, units, hints=Hints(append_only=records_only))
        assert [type(outcome) for outcome in outcomes] == [Unavailable] * 20, outcomes
    with pytest.raises(Unavailable):
        store.run_now(writing(account, "lost", size))


def mends(store: Store, account: str, name: str) -> None:
    """Without any hand: the next units work, at the latest after a few seconds."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            assert store.run_now(writing(account, name)) == name
            break
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    names = [f"{name}{number}" for number in range(20)]
    for records_only in (False, True):
        found = parallel.run(
            store, [writing(account, f"{each}{records_only}") for each in names], hints=Hints(append_only=records_only)
        )
        assert found == [f"{each}{records_only}" for each in names]


# --- SQLite


@pytest.fixture
def file(tmp_path: Path, watch: FakeClock) -> Iterator[Sqlite]:
    with closing_stores(Sqlite(tmp_path / "data" / "gatepost.db", watch)) as backend:
        assert isinstance(backend, Sqlite)
        yield backend


@pytest.fixture
def sqlite(file: Sqlite) -> Store:
    opened = file.open(busy=SOON)
    opened.migrate()
    return opened


def test_a_file_that_another_process_keeps_locked(file: Sqlite, sqlite: Store) -> None:
    account = new_account(sqlite)
    sqlite.run_now(writing(account, "before"))
    somebody = file.connect()
    somebody.execute("BEGIN EXCLUSIVE")
    all_unavailable(sqlite, account)
    assert whole(sqlite, account) == {"before"}  # reading goes on
    somebody.execute("ROLLBACK")
    somebody.close()
    mends(sqlite, account, "after")
    assert not any(name.startswith("lost") for name in whole(sqlite, account))


def test_who_gave_up_waiting_for_a_locked_file_is_not_served_after_all(
    file: Sqlite, sqlite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = new_account(sqlite)
    patient = file.open()
    monkeypatch.setattr(work, "PATIENCE", 0.3)
    somebody = file.connect()
    somebody.execute("BEGIN EXCLUSIVE")
    units = [writing(account, f"lost{number}") for number in range(5)]
    assert [type(outcome) for outcome in parallel.run(patient, units)] == [Unavailable] * 5
    somebody.execute("ROLLBACK")
    somebody.close()
    monkeypatch.undo()
    patient.run_now(writing(account, "after"))
    assert whole(sqlite, account) == {"after"}


def test_a_file_that_is_gone_and_comes_back(file: Sqlite, sqlite: Store) -> None:
    account = new_account(sqlite)
    for name in ("one", "two"):
        sqlite.run_now(writing(account, name))
        away = file.path.with_name("away.db")
        file.path.rename(away)
        all_unavailable(sqlite, account)
        with pytest.raises(Unavailable):
            sqlite.read_now(lambda tx: account_rows.page(tx, "", 1))
        with pytest.raises(Unavailable):
            sqlite.checkpoint()
        assert not file.path.exists()
        away.rename(file.path)
        mends(sqlite, account, f"after-{name}")
        sqlite.checkpoint()
    assert {"one", "two"} <= whole(sqlite, account)


def test_a_directory_that_is_gone_and_comes_back(file: Sqlite, sqlite: Store) -> None:
    account = new_account(sqlite)
    sqlite.run_now(writing(account, "before"))
    away = file.path.parent.with_name("away")
    file.path.parent.rename(away)
    all_unavailable(sqlite, account)
    away.rename(file.path.parent)
    mends(sqlite, account, "after")
    assert "before" in whole(sqlite, account)


def test_a_file_that_was_replaced(file: Sqlite, sqlite: Store) -> None:
    """A backup is put in place of the file. What this process remembered of the old one is worth nothing."""
    account = new_account(sqlite)
    one, two = (sqlite.run_now(lambda tx: make.client(tx, account)) for _ in range(2))
    sqlite.run_now(writing(account, "before"))
    backup = file.path.with_name("backup.db")
    file.execute(f"VACUUM INTO '{backup}'")

    def disable(tx: Tx) -> None:
        client_rows.update(tx, msgspec.structs.replace(one, status="disabled"))

    def statuses(tx: Tx) -> list[str]:
        return [found.status for each in (one, two) if (found := client_rows.load(tx, each.id))]

    sqlite.run_now(disable)
    sqlite.run_now(writing(account, "lost with the old file"))
    for read in (sqlite.run_now, sqlite.read_now):
        assert read(statuses) == ["disabled", "active"]
    for each in ("", "-wal", "-shm"):
        Path(f"{file.path}{each}").rename(file.path.with_name(f"old.db{each}"))
    backup.rename(file.path)
    # The new file comes to the same version as the old one had, by another change.
    changed = msgspec.structs.replace(two, status="disabled")
    restored = file.open()
    restored.run_now(lambda tx: client_rows.update(tx, changed))
    restored.run_now(lambda tx: make.scope(tx, account, "x"))
    restored.run_now(lambda tx: make.record(tx, account, "x"))
    for read in (sqlite.run_now, sqlite.read_now):
        assert read(statuses) == ["active", "disabled"]
    mends(sqlite, account, "after")
    names = whole(file.open(), account)
    assert {"before", "after"} <= names
    assert "lost with the old file" not in names


def test_readers_in_trouble_keep_no_files_open(file: Sqlite, sqlite: Store) -> None:
    """Each that fails is opened anew, and none is left behind; nor is any when the store is closed."""

    def open_files() -> int:
        found = 0
        for each in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                found += str(each.readlink()).startswith(str(file.path))
        return found

    def fails(tx: Tx) -> None:
        tx.select("SELECT nothing FROM nowhere", {})

    sqlite.read_now(lambda tx: account_rows.page(tx, "", 1))
    before = open_files()
    assert before > 0
    for _ in range(20):
        with pytest.raises(Unavailable):
            sqlite.read_now(fails)
    assert open_files() <= before
    sqlite.close()
    assert open_files() == 0


def test_locks_that_cannot_be_made(file: Sqlite, sqlite: Store) -> None:
    """The second of the two lock files cannot be opened, for a while."""
    account = new_account(sqlite)
    fresh = file.open(busy=SOON)
    lock = file.path.with_name("write.lock")
    lock.unlink()
    lock.mkdir()
    all_unavailable(fresh, account)
    lock.rmdir()
    mends(fresh, account, "after")


@contextmanager
def as_unprivileged_user() -> Iterator[None]:
    """Permissions mean nothing to root, so root becomes nobody for a moment: the whole process, its threads too."""
    if os.geteuid() != 0:
        yield
        return
    nobody = getpwnam("nobody")
    os.setegid(nobody.pw_gid)
    os.seteuid(nobody.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_a_file_that_may_only_be_read(watch: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("statements", "migrations"):  # read before: another user may not be allowed into this checkout
        monkeypatch.setattr(sql_loader, name, cache(getattr(sql_loader, name)))
        getattr(sql_loader, name)("sqlite")
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        if os.geteuid() == 0:
            os.chown(directory, getpwnam("nobody").pw_uid, -1)
        path = Path(directory) / "gatepost.db"
        with as_unprivileged_user(), closing_stores(Sqlite(path, watch)) as backend:
            first = backend.open()
            first.migrate()
            account = new_account(first)
            files = [*path.parent.iterdir()]
            for each in files:
                each.chmod(0o444)
            path.parent.chmod(0o555)
            late = backend.open()
            all_unavailable(late, account)
            path.parent.chmod(0o755)
            for each in files:
                each.chmod(0o644)
            mends(late, account, "after")
            mends(first, account, "also")


def in_another_process(function: Callable[..., None], *arguments: Any) -> None:
    """For what would disturb everybody else in this one."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(function, *arguments).result(timeout=LIMIT)


def _limited(path: Path) -> None:
    store = SqliteStore(path, FakeClock(), create_deliveries)
    store.migrate()
    account = new_account(store)
    store.run_now(writing(account, "before"))
    size = Path(f"{path}-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, hard))
    all_unavailable(store, account, size=100_000)
    assert whole(store, account) == {"before"}
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    mends(store, account, "after")
    assert not any(name.startswith("lost") for name in whole(store, account))
    store.close()


def test_a_write_that_the_system_refuses(tmp_path: Path) -> None:
    """SQLITE_IOERR: the file may not grow any more."""
    in_another_process(_limited, tmp_path / "gatepost.db")


def _filled(path: Path) -> None:
    store = SqliteStore(path, FakeClock(), create_deliveries)
    store.migrate()
    account = new_account(store)
    store.run_now(writing(account, "before"))
    filler = path.with_name("filler")
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    all_unavailable(store, account, size=100_000)
    assert whole(store, account) == {"before"}
    filler.unlink()
    mends(store, account, "after")
    assert not any(name.startswith("lost") for name in whole(store, account))
    store.close()


def test_a_full_disk(tmp_path: Path) -> None:
    """SQLITE_FULL: a disk of a few megabytes, where we may make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "gatepost-test", str(disk)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("mounting a small file system is not permitted on this machine")
    try:
        in_another_process(_filled, disk / "gatepost.db")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --- PostgreSQL


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """One of our own, since it will not have an easy life."""
    with postgres.running() as found:
        yield found


@pytest.fixture
def remote(server: postgres.Server, watch: FakeClock, request: pytest.FixtureRequest) -> Iterator[Postgres]:
    name = f"failures_{abs(hash(request.node.name)):x}"
    with closing_stores(Postgres(server.create_database(name), watch)) as backend:
        assert isinstance(backend, Postgres)
        yield backend


@pytest.fixture
def served(remote: Postgres) -> Store:
    opened = remote.open()
    opened.migrate()
    return opened


def cut_connections(remote: Postgres) -> int:
    return len(
        remote.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'gatepost'"
        )
    )


def test_a_server_that_is_down(server: postgres.Server, remote: Postgres, served: Store) -> None:
    account = new_account(served)
    served.run_now(writing(account, "before"))
    assert whole(served, account) == {"before"}
    server.stop("fast")
    try:
        all_unavailable(served, account)
        with pytest.raises(Unavailable):
            served.read_now(lambda tx: account_rows.page(tx, "", 1))
        with pytest.raises(Unavailable):
            served.migrate()
    finally:
        server.start()
    mends(served, account, "after")
    assert "before" in whole(served, account)


def test_connections_cut_while_idle(remote: Postgres, served: Store) -> None:
    """A unit does not fail because the server or the network has closed an idle connection."""
    account = new_account(served)
    for number in range(3):
        mends(served, account, f"a{number}")
        served.read_now(lambda tx: account_rows.page(tx, "", 1))
        assert cut_connections(remote) >= 3
        for records_only in (False, True):
            names = [f"b{number}{each}{records_only}" for each in range(20)]
            assert (
                parallel.run(served, [writing(account, name) for name in names], hints=Hints(append_only=records_only))
                == names
            )
        assert len(served.read_now(lambda tx: account_rows.page(tx, "", 1))) == 1
        assert cut_connections(remote) >= 3


def test_a_server_restarted_while_idle(server: postgres.Server, served: Store) -> None:
    account = new_account(served)
    served.run_now(writing(account, "before"))
    server.restart("immediate")
    assert served.run_now(writing(account, "after")) == "after"


class Load:
    """Tasks that give a store unit after unit, and know which were answered and which were not."""

    def __init__(self, store: Store, account: str) -> None:
        self._store, self._account = store, account
        self._stop = threading.Event()
        self.returned: set[str] = set()
        self.raised: set[str] = set()
        self.others: list[Exception] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(parallel.LONG)

    def wait_for(self, more: int) -> None:
        """Until so many more units were answered."""
        wanted, deadline = len(self.returned) + more, time.monotonic() + parallel.LONG
        while len(self.returned) < wanted:
            assert time.monotonic() < deadline, "no unit was answered for a long time"
            time.sleep(0.005)

    async def _run(self) -> None:
        await asyncio.gather(*[self._ask(f"{number}-", records_only=number % 2 == 0) for number in range(12)])

    async def _ask(self, prefix: str, *, records_only: bool) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            name = f"{prefix}{count}"
            try:
                self.returned.add(await self._store.run(self._unit(name), hints=Hints(append_only=records_only)))
            except Unavailable:
                self.raised.add(name)
                await asyncio.sleep(0.002)
            except Exception as error:  # noqa: BLE001 (reported by the test)
                self.others.append(error)

    def _unit(self, name: str) -> Unit[str]:
        def unit(tx: Tx) -> str:
            make.record(tx, self._account, name)
            return name

        return unit if name.startswith(("0-", "2-", "4-")) else writing(self._account, name)


def check(load: Load, store: Store, account: str) -> None:
    """What was answered is there; what was not is there wholly or not at all."""

    def unit(tx: Tx) -> tuple[list[str], list[str], int]:
        every = entry_rows.oldest(tx, account, LOWEST, HIGHEST, 1_000_000)
        return (
            [scope.name for scope in scope_rows.page(tx, account, "", 1_000_000)],
            [e.subject for e in every],
            len(every),
        )

    scopes, subjects, count = store.read_now(unit)
    assert load.others == []
    assert load.returned
    assert len(set(subjects)) == len(subjects)
    assert load.returned <= set(subjects) <= load.returned | load.raised
    assert set(scopes) == {name for name in subjects if not name.startswith(("0-", "2-", "4-"))}
    assert store.read_now(lambda tx: seal_rows.count_unsealed(tx, account)) == count
    assert store.read_now(lambda tx: entry_rows.invalid_rows(tx, account)) == (None, None)


def test_a_server_that_crashes_under_load(server: postgres.Server, remote: Postgres, served: Store) -> None:
    account = new_account(served)
    with Load(served, account) as load:
        for _ in range(3):
            load.wait_for(100)
            server.restart("immediate")
        load.wait_for(100)
    assert load.raised
    check(load, remote.open(), account)


def test_connections_cut_under_load(remote: Postgres, served: Store) -> None:
    account = new_account(served)
    with Load(served, account) as load:
        for _ in range(10):
            load.wait_for(50)
            assert cut_connections(remote)
        load.wait_for(50)
    check(load, remote.open(), account)


def test_a_lock_that_is_never_released(remote: Postgres, served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other units continue, and units that need the lock fail after a timeout."""
    import psycopg

    account = new_account(served)
    monkeypatch.setattr(postgres_connection, "_SETTINGS", postgres_connection._SETTINGS.replace("'5s'", "'200ms'"))
    fresh = remote.open()
    with psycopg.connect(remote.url) as somebody:
        somebody.execute("SELECT 1 FROM accounts FOR UPDATE")
        outcomes = parallel.run(fresh, [lambda tx: account_rows.lock(tx, account)] * 8)
        assert all(isinstance(outcome, Unavailable) and "LockNotAvailable" in str(outcome) for outcome in outcomes)
        assert parallel.run(fresh, [lambda tx: make.record(tx, account, "meanwhile").subject], hints=APPEND_ONLY) == [
            "meanwhile"
        ]
    assert fresh.run_now(lambda tx: account_rows.lock(tx, account)) is not None


def test_an_address_that_is_none(watch: FakeClock) -> None:
    """Said to the operator, and without the password."""
    with closing_stores(Postgres("postgresql://gatepost:hunter%2@localhost/gatepost", watch)) as backend:
        for attempt in (
            backend.open().migrate,
            lambda: backend.open().run_now(lambda tx: account_rows.page(tx, "", 1)),
        ):
            with pytest.raises(BadSetting, match="database: ") as raised:
                attempt()
            assert "hunter" not in str(raised.value)


def test_a_server_that_stands_still(remote: Postgres, served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not respond. Callers time out, and the work continues when the server resumes."""
    account = new_account(served)
    mends(served, account, "before")
    monkeypatch.setattr(work, "PATIENCE", 0.5)
    pids = remote.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'gatepost'"
    )
    for (pid,) in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        all_unavailable(served, account)
    finally:
        for (pid,) in pids:
            os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    mends(served, account, "after")
    whole(served, account)
