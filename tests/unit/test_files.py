"""Files that are replaced atomically."""

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest

from gatepost.core import files


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(("options", "mode"), [({}, 0o600), ({"mode": 0o666}, 0o644)])
def test_the_mode_of_the_file(tmp_path: Path, options: dict[str, int], mode: int) -> None:
    path = tmp_path / "file"
    for content in (b"first", b"second"):
        files.replace(path, content, **options)
        assert path.read_bytes() == content
        assert S_IMODE(path.stat().st_mode) == mode
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


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
