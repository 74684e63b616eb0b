"""`gatepost store archive` and `gatepost audit verify --archive`: output, exit codes, and what they refuse."""

import json
import os
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

import gatepost.archive
from gatepost.accounts import lookup
from gatepost.core import clock, ids
from gatepost.ledger import sealing
from gatepost.run import app
from gatepost.settings import Settings
from tests import command
from tests.command import Alone
from tests.contract import make

PAST = clock.now() - timedelta(days=2)
AFTER, BEFORE = str(PAST.date()), str(PAST.date() + timedelta(days=1))


@pytest.fixture
def alone(tmp_path: Path) -> Alone:
    """A store with entries of a past day in three accounts."""
    found = command.alone(tmp_path / "data")
    found.cli("store", "migrate")
    found.cli("account", "create", "other")
    runtime = app.open_for_use(Settings(data=str(tmp_path / "data")))
    with closing(runtime.store) as store:
        for account in lookup.every(store):
            for _ in range(2):
                raw_id = clock.milliseconds(PAST).to_bytes(6, "big") + ids.new_raw()[6:]
                store.run_now(lambda tx: make.record(tx, account.id, raw_id=raw_id))  # noqa: B023 (runs now)
            store.run_now(lambda tx: sealing.seal_batch(tx, runtime.service.keys.seal, account.id))  # noqa: B023
    return found


def refusal(where: Alone, *arguments: str) -> str:
    done = where.cli(*arguments, check=False)
    assert done.returncode in {2, 3, 5}, done.stdout + done.stderr
    return done.stderr


def test_archive_and_verify(alone: Alone, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    printed = alone.cli("store", "archive", str(target), "--after", AFTER, "--before", BEFORE).stdout
    assert printed.splitlines()[0].split()[:2] == ["account", "entries"]
    assert [line.split()[:5] for line in printed.splitlines()[1:4]] == [
        [name, "2", "1", "0", "0"] for name in ("default", "gatepost", "other")
    ]
    assert f"Archived from {AFTER} to the end of the day before {BEFORE} in {target}: " in printed
    assert printed.endswith("The archive was verified. Nothing was deleted.\n")
    verified = alone.cli("audit", "verify", "--archive", str(target)).stdout
    assert verified == f"{target}: intact: entries 6, seals 3, deliveries 0, attempts 0\n"
    again = alone.cli("store", "archive", str(target), check=False)
    assert (again.returncode, "exists already" in again.stderr) == (4, True)


def test_one_account_as_json(alone: Alone, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    made = alone.cli_json("store", "archive", str(target), "--account", "other", "--before", BEFORE)
    assert [account["name"] for account in made["manifest"]["accounts"]] == ["other"]
    assert made["manifest"] == json.loads((target / "manifest.json").read_text())
    assert made["bytes"] == sum(path.stat().st_size for path in target.glob("*.parquet"))
    verdict = alone.cli_json("audit", "verify", "--archive", str(target))
    assert (verdict["with_key"], verdict["entries"], verdict["problems"]) == (True, 2, [])


def test_a_directory_whose_name_is_not_utf8(alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / os.fsdecode(b"caf\xe9")
    directory.mkdir()
    monkeypatch.chdir(directory)
    made = alone.cli_json("store", "archive", "archive", "--before", BEFORE)
    assert made["directory"] == f"{tmp_path}/caf\ufffd/archive"
    assert alone.cli("audit", "verify", "--archive", "archive").stdout.startswith("archive: intact: entries ")
    assert "/caf\ufffd/again" in alone.cli("store", "archive", "again").stdout


def test_a_problem_makes_the_command_fail(alone: Alone, tmp_path: Path) -> None:
    alone.cli("store", "archive", str(tmp_path / "archive"))
    (tmp_path / "archive" / "seals.parquet").unlink()
    done = alone.cli("audit", "verify", "--archive", str(tmp_path / "archive"), check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "seals.parquet cannot be read: No such file or directory",
        "the entries were not verified: entries.parquet or seals.parquet is missing",
    ]


def test_without_the_key_no_store_is_needed(alone: Alone, tmp_path: Path) -> None:
    target = str(tmp_path / "archive")
    alone.cli("store", "archive", target)
    elsewhere = command.alone(tmp_path / "elsewhere")
    assert "there is no store in" in refusal(elsewhere, "audit", "verify", "--archive", target)
    printed = elsewhere.cli("audit", "verify", "--archive", target, "--without-key").stdout
    assert printed.startswith(f"{target}: intact: entries 6")
    assert "were not authenticated" in printed


def test_options_that_do_not_fit(alone: Alone, tmp_path: Path) -> None:
    target = str(tmp_path / "archive")
    assert "--after 1 May: not a day" in refusal(alone, "store", "archive", target, "--after", "1 May")
    assert "has not ended" in refusal(alone, "store", "archive", target, "--before", "2999-01-01")
    assert "there is no account nobody" in refusal(alone, "store", "archive", target, "--account", "nobody")
    assert "--without-key needs --archive" in refusal(alone, "audit", "verify", "--without-key")
    assert "cannot be combined" in refusal(alone, "audit", "verify", "--archive", target, "--account", "other")
    assert "is not an archive" in refusal(alone, "audit", "verify", "--archive", str(tmp_path))
    assert not Path(target).exists()


def test_the_missing_extra_is_named(alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(gatepost.archive, "parquet", raising=False)
    monkeypatch.setitem(sys.modules, "gatepost.archive.parquet", None)
    for arguments in (("store", "archive", str(tmp_path / "a")), ("audit", "verify", "--archive", str(tmp_path / "a"))):
        assert "archives need an extra; run: pip install 'gatepost[archive]'" in refusal(alone, *arguments)
