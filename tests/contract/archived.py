"""Three days of two accounts, of which one is archived."""

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from gatepost.accounts import lookup
from gatepost.archive import export, parquet
from gatepost.archive.export import Source
from gatepost.archive.manifest import Manifest, Period
from gatepost.archive.verify import verify
from gatepost.core import clock
from gatepost.ledger import entry_rows, sealing
from gatepost.ledger.entries import Entry
from gatepost.store.interface import Store
from gatepost.store.transaction import HIGHEST, LOWEST, Tx
from tests.contract.posting import KEYS, Post

DAY = timedelta(days=1)
KEY = KEYS.seal


class Archived(NamedTuple):
    """Three days of an account, of which the second one is archived in `directory`."""

    post: Post
    period: Period
    directory: Path
    entries: list[Entry]  # of the second day, of both accounts
    deliveries: list[str]  # that ended
    manifest: Manifest

    def problems(self, key: bytes | None = KEY) -> list[str]:
        return verify(self.directory, key).problems

    def again(self, directory: Path, period: Period | None = None) -> Manifest:
        return write(self.post.store, directory, period or self.period)


def write(store: Store, directory: Path, period: Period) -> Manifest:
    source = Source(store, KEY, "https://gatepost.example")
    return export.export(source, list(lookup.every(store)), period, directory)


def seal_all(*posts: Post) -> None:
    for post in posts:
        while post.store.run_now(lambda tx, post=post: sealing.seal_batch(tx, KEY, post.id)):  # type: ignore[misc]
            pass


def three_days(post: Post, directory: Path) -> Archived:
    """Make the rows of three days, and archive the second one."""
    watch = post.watch
    other = Post(post.store, watch, "other")
    post.endpoint("*")
    post.deliver(3)
    post.attempt()
    seal_all(post, other)
    post.forward(days=1)
    second = watch.at.date()
    first = post.store.now()
    deliveries = []
    for number in range(3):  # three seals
        deliveries += post.deliver(2)
        post.forward(milliseconds=7)
        post.attempt(200, response=b"ok \xe2\x9c\x93", timings={"connect_ms": 0.4, "first_byte_ms": 2.0 + number})
        other.publish(data={"other": number})
        seal_all(post, other)
    [failed] = post.deliver()
    for _ in range(3):
        post.attempt(None, "timeout", detail="no response within 15 s")
        post.forward(hours=2)
    assert post.record(failed).ended_reason == "attempts_exhausted"
    [cancelled] = post.deliver()
    post.cancel(cancelled)
    post.deliver()  # which stays unfinished
    seal_all(post)
    post.forward(days=1)
    post.deliver(2)
    seal_all(post)
    entries = [
        entry
        for account in (post, other)
        for entry in post.store.read_now(lambda tx, account=account: _entries(tx, account.id))  # type: ignore[misc]
        if clock.milliseconds(first) <= entry.at < clock.milliseconds(first + timedelta(hours=12))
    ]
    period = Period(second, second + DAY)
    made = write(post.store, directory, period)
    return Archived(post, period, directory, entries, [*deliveries, failed, cancelled], made)


def _entries(tx: Tx, account: str) -> list[Entry]:
    return entry_rows.oldest(tx, account, LOWEST, HIGHEST, 1000)


def rows(directory: Path, table: parquet.Table) -> list[parquet.Row]:
    return list(parquet.read(directory / table.file, table))
