"""Files that are replaced atomically."""

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE
from typing import Any

import pytest

from gatepost.core import files
from gatepost.run import chores


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(("options", "mode"), [({}, 0o600), ({"mode": 0o666}, 0o644)])
def test_the_mode_of_the_file(tmp_path: Path, options: dict[str, Any], mode: int) -> None:
    path = tmp_path / "file"
    for content in (b"first", b"second"):
        files.replace(path, content, **options)
        assert path.read_bytes() == content
        assert S_IMODE(path.stat().st_mode) == mode
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files for another user")
def test_the_owner_of_what_root_writes(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)
    path = tmp_path / "file"
    files.replace(path, b"first", keep_owner=True)
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346), "the owner of the directory"
    os.chown(path, 23456, 23457)
    files.replace(path, b"second", keep_owner=True)
    assert (path.stat().st_uid, path.stat().st_gid) == (23456, 23457), "the owner of the replaced file"
    files.replace(path, b"third")
    assert path.stat().st_uid == 0, "a secret that is saved anywhere is not given to others"
    for _ in range(2):
        os.close(files.open_lock(tmp_path / "lock"))
    assert (tmp_path / "lock").stat().st_uid == 12345


def test_an_interrupted_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.replace(path, b"first")

    def fail(_descriptor: int) -> None:
        raise OSError("Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            files.replace(path, b"second")
    assert path.read_bytes() == b"first"
    files.replace(path, b"third")
    assert path.read_bytes() == b"third"


def test_checkpoints_are_written_to_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    """With PostgreSQL, nothing else creates the data directory."""
    file = tmp_path / "data" / "checkpoints.jsonl"
    chores._replace(file, b"{}\n")
    assert file.read_bytes() == b"{}\n"
