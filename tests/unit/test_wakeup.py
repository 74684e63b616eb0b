"""Wake-ups: every running worker receives them, and they need no receiver."""

import os
import queue
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gatepost.core import ids
from gatepost.store.pending import Key
from gatepost.store.wakeup import MOST, WakeupListener, WakeupSender, packed, unpacked

Calls = queue.SimpleQueue[list[Key]]
WAIT = 10.0  # seconds: only a test that fails waits so long


def some(count: int) -> list[Key]:
    return [(ids.new_raw(), ids.new_raw()) for _ in range(count)]


def bells(directory: Path) -> list[Path]:
    return sorted((directory / "bells").iterdir())


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[WakeupSender]:
    with closing(WakeupSender(tmp_path)) as found:
        yield found


@pytest.mark.parametrize("count", [0, 1, 2, MOST])
def test_what_is_packed_is_unpacked(count: int) -> None:
    awaited = some(count)
    assert unpacked(packed(awaited)) == awaited


def test_what_is_packed_may_come_once_and_in_any_collection() -> None:
    awaited = some(3)
    assert unpacked(packed(iter(awaited))) == awaited
    assert sorted(unpacked(packed(set(awaited)))) == sorted(awaited)


def test_more_than_can_be_named_is_everywhere() -> None:
    assert packed(some(MOST + 1)) == b""
    assert unpacked(b"") == []


@pytest.mark.parametrize("length", [1, 16, 31, 33, 48])
def test_what_cannot_be_read_is_everywhere(length: int) -> None:
    assert unpacked(b"a" * length) == []


def test_a_full_ring_fits_into_one_datagram() -> None:
    assert len(packed(some(MOST))) <= 65_507  # UDP over IPv4


def test_the_bell_hears_what_is_rung(tmp_path: Path, sender: WakeupSender) -> None:
    heard: Calls = queue.SimpleQueue()
    with closing(WakeupListener(tmp_path, heard.put)):
        for awaited in (some(1), some(MOST), []):
            sender.send(awaited)
            assert heard.get(timeout=WAIT) == awaited
        sender.send(some(MOST + 1))
        assert heard.get(timeout=WAIT) == []


def test_every_bell_hears(tmp_path: Path, sender: WakeupSender) -> None:
    one: Calls = queue.SimpleQueue()
    other: Calls = queue.SimpleQueue()
    awaited = some(2)
    with closing(WakeupListener(tmp_path, one.put)), closing(WakeupListener(tmp_path, other.put)):
        sender.send(iter(awaited))
        assert one.get(timeout=WAIT) == awaited
        assert other.get(timeout=WAIT) == awaited


def test_a_ringer_may_be_there_before_the_bell(tmp_path: Path, sender: WakeupSender) -> None:
    sender.send(some(1))
    heard: Calls = queue.SimpleQueue()
    awaited = some(1)
    with closing(WakeupListener(tmp_path, heard.put)):
        sender.send(awaited)
        assert heard.get(timeout=WAIT) == awaited


def test_a_ring_without_any_bell_does_nothing(tmp_path: Path, sender: WakeupSender) -> None:
    sender.send(some(1))
    assert not list(tmp_path.iterdir())
    (tmp_path / "bells").mkdir()
    sender.send(some(1))
    assert not bells(tmp_path)


def test_a_wakeup_socket_without_an_owner_is_ignored(tmp_path: Path, sender: WakeupSender) -> None:
    """The next datagram reports that the socket has no owner. Running workers still receive theirs."""
    with closing(WakeupListener(tmp_path, lambda _: None)):
        [gone] = bells(tmp_path)
    gone.touch()
    heard: Calls = queue.SimpleQueue()
    awaited = some(1)
    with closing(WakeupListener(tmp_path, heard.put)):
        for _ in range(3):
            sender.send(awaited)
            assert heard.get(timeout=WAIT) == awaited


def test_a_closed_bell_leaves_nothing_and_hears_nothing(tmp_path: Path, sender: WakeupSender) -> None:
    heard: Calls = queue.SimpleQueue()
    listener = WakeupListener(tmp_path, heard.put)
    [file] = bells(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    listener.close()
    assert not bells(tmp_path)
    sender.send(some(1))
    assert heard.empty()


def old(file: Path, seconds: float) -> None:
    long_ago = time.time() - seconds
    os.utime(file, (long_ago, long_ago))


def test_files_of_workers_that_were_killed_are_swept(tmp_path: Path) -> None:
    folder = tmp_path / "bells"
    folder.mkdir()
    stale, recent = folder / "1", folder / "2"
    for file, age in ((stale, 120.0), (recent, 5.0)):
        file.touch()
        old(file, age)
    with closing(WakeupListener(tmp_path, lambda _: None)):
        assert not stale.exists()
        assert recent.exists()


def test_a_renewed_file_is_not_swept(tmp_path: Path) -> None:
    with closing(WakeupListener(tmp_path, lambda _: None)) as listener:
        [file] = bells(tmp_path)
        old(file, 120.0)
        listener.renew()
        with closing(WakeupListener(tmp_path, lambda _: None)):
            assert file.exists()


def test_a_file_that_was_swept_comes_back_with_the_next_renewal(tmp_path: Path, sender: WakeupSender) -> None:
    heard: Calls = queue.SimpleQueue()
    with closing(WakeupListener(tmp_path, heard.put)) as listener:
        [file] = bells(tmp_path)
        file.unlink()
        listener.renew()
        awaited = some(1)
        sender.send(awaited)
        assert heard.get(timeout=WAIT) == awaited
