"""Every change of an archive by someone without the key is found and named. The store makes no difference."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from gatepost.archive import manifest, parquet, tables
from gatepost.archive.verify import verify
from gatepost.core.errors import BadSetting
from tests.contract.archived import KEY, Archived, three_days
from tests.contract.backends import FakeClock, Sqlite, closing_stores
from tests.contract.posting import Post, ids_by


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    directory, watch = tmp_path_factory.mktemp("tampering"), FakeClock()
    watch.at = watch.at.replace(hour=10)
    undo = ids_by(watch)
    with closing_stores(Sqlite(directory / "gatepost.db", watch)) as backend:
        store = backend.open()
        store.migrate()
        made = three_days(Post(store, watch), directory / "archive")
        undo()
        assert made.problems() == made.problems(None) == []
        yield made


@pytest.fixture
def archived(intact: Archived, tmp_path: Path) -> Archived:
    """A copy that a test may change."""
    shutil.copytree(intact.directory, tmp_path / "archive")
    return intact._replace(directory=tmp_path / "archive")


def edit(archived: Archived, table: parquet.Table, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Rewrite a file with other rows, and correct its hash in the manifest, as an intruder without the key would."""
    path = archived.directory / table.file
    old = pq.read_table(path)
    values = old.to_pylist()
    change(values)
    pq.write_table(pa.Table.from_pylist(values, old.schema), path)
    found = json.loads((archived.directory / manifest.FILE).read_text())
    described = manifest.describe(path, len(values))
    found["files"][table.file] = msgspec.to_builtins(described)
    (archived.directory / manifest.FILE).write_text(json.dumps(found))


ALTERED = "manifest.json was altered, or belongs to a service with another key"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("type", "invoice.unpaid"), ("actor", "somebody"), ("subject", "x"), ("data", "{}"), ("data", None),
        ("matched", 9), ("keep_days", 7), ("request", "req_9"), ("source", "192.0.2.9"),
    ],
)  # fmt: skip
def test_an_altered_entry(archived: Archived, column: str, value: Any) -> None:
    edit(archived, tables.ENTRIES, lambda values: values[1].update({column: value}))
    found = f"acme: entry {archived.entries[1].name} (seal 2) differs from what was sealed"
    assert archived.problems() == [ALTERED, found]
    assert archived.problems(None) == [found]


def test_a_malformed_entry(archived: Archived) -> None:
    edit(archived, tables.ENTRIES, lambda values: values[1].update(id="evt_x"))
    assert "acme: entry evt_x (seal 2) is malformed" in archived.problems(None)


@pytest.mark.parametrize("value", ["1", "[" * 200_000 + "]" * 200_000], ids=["a member", "a nested member"])
def test_an_unknown_member_of_a_file(archived: Archived, value: str) -> None:
    path = archived.directory / manifest.FILE
    path.write_text(path.read_text().replace('"sha256"', f'"unknown": {value}, "sha256"', 1))
    [problem] = archived.problems(None)
    assert "manifest.json is malformed" in problem


def test_a_removed_entry(archived: Archived) -> None:
    edit(archived, tables.ENTRIES, lambda values: values.pop(1))
    name = archived.entries[1].name
    assert archived.problems(None)[0] == f"acme: entry {name} (seal 2) is missing from the archive"
    assert archived.problems()[0] == ALTERED


def test_an_added_entry(archived: Archived) -> None:
    edit(archived, tables.ENTRIES, lambda values: values.insert(1, values[0]))
    name = archived.entries[0].name
    assert archived.problems(None)[0] == f"acme: entry {name} (seal 2) is not in the seal, or twice in the archive"


def test_an_entry_with_another_seal(archived: Archived) -> None:
    edit(archived, tables.ENTRIES, lambda values: values[0].update(seal=1))
    name = archived.entries[0].name
    assert archived.problems(None)[0] == f"acme: entry {name} names seal 1, which is not at this place"


@pytest.mark.parametrize("change", [
    lambda values: values[1].update(at=values[1]["at"] + timedelta(seconds=1)),
    lambda values: values[1].update(mac=bytes(32)),
])  # fmt: skip
def test_an_altered_seal_needs_the_key(archived: Archived, change: Any) -> None:
    edit(archived, tables.SEALS, change)
    assert archived.problems(None) == []
    assert archived.problems()[:2] == [ALTERED, "acme: seal 3 was altered, or the chain before it was"]


def test_altered_leaves_and_a_removed_seal(archived: Archived) -> None:
    edit(archived, tables.SEALS, lambda values: values[0].update(leaves=values[0]["leaves"][:-1] + b"x"))
    assert "differs from what was sealed" in archived.problems(None)[0]
    edit(archived, tables.SEALS, lambda values: values.pop(1))
    assert archived.problems(None)[1] == "acme: seal 4 follows seal 2: a seal is missing or out of order"


def test_removed_and_added_deliveries_and_attempts(archived: Archived) -> None:
    first, second = sorted(archived.deliveries)[:2]
    edit(archived, tables.DELIVERIES, lambda values: values.pop(0))
    problems = archived.problems(None)
    assert problems[0] == f"acme: attempt 1 of {first} has no delivery in the archive"
    assert "acme: the archive has 7 deliveries, but manifest.json says 8" in problems
    edit(archived, tables.ATTEMPTS, lambda values: values.pop(0))
    assert "acme: the archive has 8 attempts, but manifest.json says 9" in archived.problems(None)
    edit(archived, tables.DELIVERIES, lambda values: values.insert(1, values[0]))
    assert archived.problems(None)[0] == f"acme: delivery {second} is out of order, or twice in the archive"
    edit(archived, tables.DELIVERIES, lambda values: values[0].update(status="pending"))
    assert f"acme: delivery {second} has the status pending" in archived.problems(None)[0]


def test_an_altered_delivery_is_found_by_its_file(archived: Archived) -> None:
    """Deliveries have no seals. The manifest, which has the hash of their file, is authenticated with the key."""
    kept = (archived.directory / manifest.FILE).read_bytes()
    edit(archived, tables.DELIVERIES, lambda values: values[0].update(last_code=500))
    assert archived.problems(None) == []
    assert archived.problems() == [ALTERED]
    (archived.directory / manifest.FILE).write_bytes(kept)
    found = "deliveries.parquet was altered: its SHA-256 or size differs from manifest.json"
    assert archived.problems() == archived.problems(None) == [found]


def test_removed_and_damaged_files(archived: Archived) -> None:
    (archived.directory / "attempts.parquet").unlink()
    entries = archived.directory / "entries.parquet"
    entries.write_bytes(entries.read_bytes()[:-100])
    problems = archived.problems()
    assert problems[0] == "entries.parquet was altered: its SHA-256 or size differs from manifest.json"
    assert problems[1] == "attempts.parquet cannot be read: No such file or directory"
    assert problems[2].startswith("entries.parquet cannot be read: ")
    assert problems[3] == "the deliveries were not verified: deliveries.parquet or attempts.parquet is missing"


@pytest.mark.parametrize("other", ["a FIFO", "a device", "a directory"])
def test_files_that_are_not_regular(archived: Archived, other: str) -> None:
    """To read a FIFO or a device could take forever."""
    kinds: dict[str, Callable[[Path], None]] = {
        "a FIFO": os.mkfifo,
        "a device": lambda path: path.symlink_to("/dev/null"),
        "a directory": Path.mkdir,
    }
    for name in ("entries.parquet", manifest.FILE):
        (archived.directory / name).unlink()
        kinds[other](archived.directory / name)
        if name != manifest.FILE:
            assert archived.problems() == [
                f"{name} cannot be read: not a regular file",
                "the entries were not verified: entries.parquet or seals.parquet is missing",
            ]
    with pytest.raises(BadSetting, match=r"cannot read .*manifest\.json: not a regular file"):
        archived.problems()


def test_values_out_of_range(archived: Archived) -> None:
    """The retention of an entry of the year 9999 ends after the last day of the calendar."""
    edit(archived, tables.SEALS, lambda values: values[0].update(leaves=b"\xe6\x77" + b"\0" * 14 + b"\xff" * 34))
    path = archived.directory / manifest.FILE
    path.write_text(path.read_text().replace(str(archived.period.before), "9999-12-31"))
    assert "a value is out of range, so the verification could not be completed" in archived.problems(None)


def test_other_columns(archived: Archived) -> None:
    path = archived.directory / "deliveries.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["last_code"]), path)
    assert archived.problems()[1] == (
        "deliveries.parquet cannot be read: it has other columns than this release writes"
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda found: found.update(created_at="2020-01-01T00:00:00.000Z"), ALTERED),
        (lambda found: found["accounts"][0].update(name="acne"), ALTERED),
        (lambda found: found["accounts"][0].update(unfinished_deliveries=0), ALTERED),
        (lambda found: found["accounts"].pop(), "entries.parquet has rows of "),
        (lambda found: found["accounts"].reverse(), "entries.parquet has rows of "),
        (lambda found: found["files"].pop("seals.parquet"), "manifest.json does not list seals.parquet"),
        (lambda found: found.update(more=1), "manifest.json is malformed: "),
        (lambda found: found.update(format="gatepost-archive/9"), "manifest.json has the format gatepost-archive/9"),
        (lambda found: found["accounts"][0].update(last="9:" + "0" * 64), "acme: the last seal is "),
        (lambda found: found["accounts"][0].update(previous=None), "acme: seal 2 is in the archive, but "),
    ],
)  # fmt: skip
def test_an_altered_manifest(archived: Archived, change: Any, problem: str) -> None:
    path = archived.directory / manifest.FILE
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    assert any(each.startswith(problem) for each in archived.problems())


def test_a_manifest_that_is_not_text(archived: Archived) -> None:
    path = archived.directory / manifest.FILE
    path.write_bytes(path.read_bytes().replace(b"acme", b"acm\xff"))
    assert archived.problems()[0].startswith("manifest.json is malformed: ")
    assert archived.problems(None)[0].startswith("manifest.json is malformed: ")


def test_another_key(archived: Archived) -> None:
    assert archived.problems(b"x" * 32)[0] == ALTERED


def test_many_problems_are_cut_short(archived: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatepost.archive.verify._MAX_PROBLEMS", 3)
    edit(archived, tables.ENTRIES, lambda values: [value.update(subject="x") for value in values])
    problems = archived.problems(None)
    assert len(problems) == 4
    assert problems[-1] == "there may be more problems: the verification was ended"


def test_a_directory_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"is not an archive: it has no manifest\.json"):
        verify(tmp_path, KEY)
