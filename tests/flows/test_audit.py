"""The audit trail: read, exported, verified, and tampered with behind the service's back, on both stores."""

import hashlib
import itertools
import json
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gatepost import settings
from gatepost.core import clock, ids
from gatepost.ledger import retention, seal, seal_rows, sealing, verification
from gatepost.run import app
from gatepost.store.postgres import PostgresStore
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import Tx
from gatepost.webhooks.fanout import create_deliveries
from tests import command, postgres
from tests.command import Alone
from tests.service import Service

ADMIN = "gatepost:clients gatepost:scopes"
_numbers = itertools.count()


# --- reading


def test_list_filters(gatepost: Service, account_name: str) -> None:
    account, client = gatepost.account(account_name)
    token = gatepost.token(client, ADMIN)
    gatepost.token_answer(client, "unknown")
    other = gatepost.define_client(token, scope="gatepost:scopes")
    gatepost.token(other, "gatepost:scopes")

    def listed(*options: str) -> list[str]:
        return [each["type"] for each in gatepost.cli_json("audit", "list", "--account", account_name, *options)]

    everything = [
        "oauth.token.issued", "oauth.client.created", "oauth.token.refused", "oauth.token.issued",
        "oauth.client.created", "account.created",
    ]  # fmt: skip
    assert listed() == everything
    assert listed("--type", "oauth.token.*") == ["oauth.token.issued", "oauth.token.refused", "oauth.token.issued"]
    assert listed("--type", "oauth.token.refused", "--type", "account.created") == [
        "oauth.token.refused",
        "account.created",
    ]
    assert listed("--type", "oauth.token") == []
    assert listed("--client", other.id) == ["oauth.token.issued"]
    assert listed("--client", client.id) == ["oauth.client.created", "oauth.token.refused", "oauth.token.issued"]
    assert listed("--subject", other.id) == ["oauth.client.created"]
    times = [each["at"] for each in gatepost.cli_json("audit", "list", "--account", account_name)]
    assert listed("--since", times[2]) == [type_ for type_, at in zip(everything, times, strict=True) if at >= times[2]]
    assert listed("--until", times[2]) == [type_ for type_, at in zip(everything, times, strict=True) if at < times[2]]
    assert listed("--since", "1h") == everything
    assert listed("--until", "1h") == []
    assert listed("--limit", "2") == everything[:2]
    [entry] = gatepost.cli_json("audit", "list", "--account", account, "--client", other.id)
    assert entry["account"] == account
    assert entry["id"] in gatepost.cli("audit", "list", "--account", account, "--client", other.id).stdout


@pytest.mark.parametrize("when", ["yesterday", "5", "2026-11-15", "999999999d", ""])
def test_times_that_are_none_are_refused(sqlite_gatepost: Service, when: str) -> None:
    ended = sqlite_gatepost.cli("audit", "list", "--account", "default", "--since", when, check=False)
    assert ended.returncode == 2
    assert "1h for an hour ago" in ended.stderr


# --- exporting


def test_export_is_whole_and_its_head_verifies(gatepost: Service, account_name: str, tmp_path: Path) -> None:
    account, client = gatepost.account(account_name)
    for _ in range(30):
        gatepost.token(client, ADMIN)
    *lines, last = [
        json.loads(line) for line in gatepost.cli("audit", "export", "--account", account).stdout.splitlines()
    ]
    assert lines == gatepost.cli_json("audit", "list", "--account", account_name)[::-1]
    assert len(lines) == 32
    head = last["head"]
    assert head["account"] == account
    assert head["text"] == f"{head['seal']}:{head['mac']}"
    verify = ["audit", "verify", "--account", account_name, "--head", head["text"]]
    [verdict] = gatepost.cli_json(*verify)
    assert verdict["problem"] is None
    assert verdict["entries"] == 32
    assert verdict["unsealed"] == 0, "everything exported is sealed"
    assert verdict["head"] == head["text"]
    gatepost.token(client, ADMIN)
    assert gatepost.cli(*verify).returncode == 0, "what came after changes nothing"
    file = tmp_path / "ledger.jsonl"
    gatepost.cli("audit", "export", "--account", account, "--until", lines[-1]["at"], "-o", str(file))
    earlier = [entry for entry in lines if entry["at"] < lines[-1]["at"]]
    assert [json.loads(line) for line in file.read_text().splitlines()[:-1]] == earlier
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    exported = file.read_bytes()
    again = gatepost.cli("audit", "export", "--account", account, "-o", str(file), check=False)
    assert (again.returncode, "exists already" in again.stderr) == (4, True)
    assert file.read_bytes() == exported
    ended = gatepost.cli("audit", "export", "--account", account, "-o", str(tmp_path / "no" / "where"), check=False)
    assert ended.returncode == 2
    assert "-o" in ended.stderr


def test_export_and_verify_beside_a_busy_service(gatepost: Service, account_name: str) -> None:
    """Sealed by the service and by exports at once, while new entries come: every entry once, and no false alarm."""
    account, client = gatepost.account(account_name)
    done = threading.Event()
    asked = []

    def ask() -> None:
        while not done.is_set():
            asked.append(gatepost.token(client, ADMIN))

    busy = threading.Thread(target=ask)
    busy.start()
    try:
        for _ in range(3):
            exported = gatepost.cli("audit", "export", "--account", account).stdout.splitlines()
            head = json.loads(exported[-1])["head"]["text"]
            [verdict] = gatepost.cli_json("audit", "verify", "--account", account, "--head", head)
            assert verdict["problem"] is None
            assert verdict["entries"] >= len(exported) - 1
    finally:
        done.set()
        busy.join()
    exported = gatepost.cli("audit", "export", "--account", account).stdout.splitlines()
    assert len({json.loads(line)["id"] for line in exported[:-1]}) == len(exported) - 1 == len(asked) + 2
    [verdict] = gatepost.cli_json("audit", "verify", "--account", account)
    assert verdict["entries"] == len(asked) + 2


def test_verify_of_all_accounts(gatepost: Service, account_name: str) -> None:
    gatepost.account(account_name)
    found = {each["name"]: each for each in gatepost.cli_json("audit", "verify")}
    assert {account_name, "default", "gatepost"} <= set(found)
    assert not any(each["problem"] for each in found.values())
    assert f"{account_name}: intact" in gatepost.cli("audit", "verify").stdout
    for head in ("1:ab", "x", "", "1:" + "0" * 64):
        ended = gatepost.cli("audit", "verify", "--head", head, check=False)
        assert ended.returncode == 2, "a head belongs to one account"


def test_a_receipt_is_checked_with_the_public_key_alone(gatepost: Service, account_name: str, tmp_path: Path) -> None:
    account, client = gatepost.account(account_name)
    gatepost.token(client, ADMIN)
    event = gatepost.cli_json("audit", "list", "--account", account)[0]["id"]
    proof = tmp_path / "receipt.tlog-proof"
    proof.write_text(gatepost.cli("audit", "prove", event).stdout)
    assert gatepost.cli("audit", "prove", event, "--account", account).stdout == proof.read_text()
    unknown = gatepost.cli("audit", "prove", ids.new("evt"), check=False)
    assert (unknown.returncode, "there is no entry" in unknown.stderr) == (3, True)
    key = gatepost.cli("audit", "key", "--account", account).stdout.strip()
    assert gatepost.cli_json("audit", "key", "--account", account)["key"] == key
    nowhere = command.alone(tmp_path / "nowhere")
    found = json.loads(nowhere.cli("audit", "check-proof", str(proof), "--key", key, "--json").stdout)
    assert found["entry"]["id"] == event
    assert found["origin"].endswith(f"/accounts/{account}")
    proof.write_text(proof.read_text().replace("\nindex ", "\nindex 1"))
    assert nowhere.cli("audit", "check-proof", str(proof), "--key", key, check=False).returncode == 1
    for content in (b"not a proof", b"\xff\xfe"):
        proof.write_bytes(content)
        unreadable = nowhere.cli("audit", "check-proof", str(proof), "--key", key, check=False)
        assert (unreadable.returncode, str(proof) in unreadable.stderr) == (2, content == b"\xff\xfe")
    listed = gatepost.session.get(f"{gatepost.ops}/checkpoints").json()["checkpoints"]
    [note] = [each["checkpoint"] for each in listed if each["account"] == account]
    assert all(set(each) == {"account", "size", "checkpoint"} for each in listed)
    kept = tmp_path / "checkpoint"
    kept.write_text(note)
    [verdict] = gatepost.cli_json("audit", "verify", "--account", account, "--checkpoint", str(kept))
    assert verdict["problem"] is None


# --- tampering


SEALS = 3


class Ledger:
    """A store of its own with an account whose chain has three seals, and everything an intruder may do to it."""

    def __init__(self, store: Alone, account: str, head: str) -> None:
        self.store, self.account, self.head = store, account, head
        self.raw = ids.raw(account)
        self.execute = store.execute

    def entries(self) -> list[bytes]:
        """Oldest first: two under each seal."""
        return [bytes(row[0]) for row in self.execute("SELECT id FROM entries WHERE account = ? ORDER BY id", self.raw)]

    def name(self, number: int) -> str:
        return ids.text("evt", self.entries()[number])

    def problem(self, *options: str) -> str:
        ended = self.store.cli("audit", "verify", "--account", "acme", "--json", *options, check=False)
        [verdict] = json.loads(ended.stdout)
        assert ended.returncode == (1 if verdict["problem"] else 0)
        return verdict["problem"] or ""

    def leaves(self) -> list[bytes]:
        rows = self.execute("SELECT leaves FROM seals WHERE account = ? ORDER BY number", self.raw)
        return [leaf.id for (leaves,) in rows for leaf in seal.unpack(bytes(leaves))]


def prepared(store: Alone) -> tuple[str, str]:
    """Three seals: created (2 entries), changed twice, changed twice."""
    store.cli("store", "migrate")
    account = store.cli_json("account", "create", "acme")["account"]["id"]
    for number in range(SEALS):
        if number:
            store.cli("account", "set", "acme", f"max_clients={number}0")
            store.cli("account", "set", "acme", f"max_scopes={number}0")
        exported = store.cli("audit", "export", "--account", "acme").stdout
    return account, json.loads(exported.splitlines()[-1])["head"]["text"]


@pytest.fixture(scope="module")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    directory = tmp_path_factory.mktemp("audit") / "data"
    return directory, *prepared(command.alone(directory))


@pytest.fixture(scope="module")
def postgres_template(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: postgres.Server
) -> tuple[postgres.Server, str, str, str]:
    name = f"audit_{next(_numbers)}"
    store = command.alone(tmp_path_factory.mktemp("audit") / "data", postgres_server.create_database(name))
    return postgres_server, name, *prepared(store)


@pytest.fixture
def sqlite_ledger(sqlite_template: tuple[Path, str, str], tmp_path: Path) -> Ledger:
    template, account, head = sqlite_template
    shutil.copytree(template, tmp_path / "data")
    return Ledger(command.alone(tmp_path / "data"), account, head)


@pytest.fixture
def postgres_ledger(postgres_template: tuple[postgres.Server, str, str, str], tmp_path: Path) -> Iterator[Ledger]:
    server, template, account, head = postgres_template
    name = f"{template}_{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    yield Ledger(command.alone(tmp_path / "data", server.url(name)), account, head)
    server.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres"])
def tampered(request: pytest.FixtureRequest) -> Ledger:
    found: Ledger = request.getfixturevalue(f"{request.param}_ledger")
    return found


def test_an_untouched_ledger_is_intact(tampered: Ledger) -> None:
    assert len(tampered.entries()) == 2 * SEALS
    assert tampered.problem("--head", tampered.head) == ""
    assert tampered.head.startswith(f"{SEALS}:")


def test_changed_data_is_named(tampered: Ledger) -> None:
    tampered.execute("UPDATE entries SET data = replace(data, '10', '11') WHERE id = ?", tampered.entries()[2])
    assert tampered.problem() == f"entry {tampered.name(2)} (seal 2) differs from what was sealed"
    output = tampered.store.cli("audit", "verify", check=False).stdout
    assert tampered.name(2) in output
    assert "intact before it: entries 2, seals 1" in output
    checked = tampered.store.cli("store", "check", check=False)
    assert checked.returncode == 1
    assert tampered.name(2) in checked.stdout


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("type", "'account.resumed'"), ("at", "at + 1"), ("actor", "'somebody'"), ("subject", "'other'"),
        ("matched", "1"), ("keep_days", "30"), ("request", "'req_1'"), ("source", "'192.0.2.1'"), ("data", "NULL"),
    ],
)  # fmt: skip
def test_every_column_is_covered(sqlite_ledger: Ledger, column: str, value: str) -> None:
    sqlite_ledger.execute(f"UPDATE entries SET {column} = {value} WHERE id = ?", sqlite_ledger.entries()[3])
    assert sqlite_ledger.problem() == f"entry {sqlite_ledger.name(3)} (seal 2) differs from what was sealed"


def test_every_column_that_there_is(sqlite_ledger: Ledger) -> None:
    """A new column must be sealed, and be tried above."""
    columns = {row[1] for row in sqlite_ledger.execute("PRAGMA table_info(entries)")}
    tried = {"type", "at", "actor", "subject", "matched", "keep_days", "request", "source", "data"}
    assert columns == tried | {"account", "id", "data_hash"}


def test_the_first_of_several_is_named(tampered: Ledger) -> None:
    for number in (5, 1, 3):
        tampered.execute("UPDATE entries SET actor = 'somebody' WHERE id = ?", tampered.entries()[number])
    assert tampered.name(1) in tampered.problem()


def test_erased_data_is_reported(tampered: Ledger) -> None:
    name = tampered.name(2)
    [(data,)] = tampered.execute("SELECT data FROM entries WHERE id = ?", tampered.entries()[2])
    erase = "UPDATE entries SET data = NULL, data_hash = ? WHERE id = ?"
    tampered.execute(erase, hashlib.sha256(data.encode()).digest(), tampered.entries()[2])
    assert tampered.problem() == f"data was erased, but not by the service: {name}"
    tampered.execute(erase, hashlib.sha256(b"{}").digest(), tampered.entries()[2])
    assert tampered.name(2) in tampered.problem()


def test_a_deleted_entry_is_named(tampered: Ledger) -> None:
    name = tampered.name(4)
    tampered.execute("DELETE FROM entries WHERE id = ?", tampered.entries()[4])
    assert tampered.problem() == f"entry {name} (seal 3) is missing before its retention ended"


def test_an_entry_removed_before_its_seal_is_named(tampered: Ledger) -> None:
    tampered.store.cli("account", "set", "acme", "max_clients=7")
    name = tampered.name(6)
    tampered.execute("DELETE FROM entries WHERE id = ?", tampered.entries()[6])
    assert tampered.problem() == f"entry {name} was removed before it was sealed"


@pytest.mark.parametrize("number", [1, 2])
def test_a_deleted_seal_is_named(tampered: Ledger, number: int) -> None:
    tampered.execute("DELETE FROM seals WHERE account = ? AND number = ?", tampered.raw, number)
    assert tampered.problem() == f"seal {number} is missing"


def test_the_last_seal_deleted_leaves_entries_without_one(tampered: Ledger) -> None:
    tampered.execute("DELETE FROM seals WHERE account = ? AND number = 3", tampered.raw)
    assert tampered.problem() == CUT


def test_a_leaf_taken_out_of_its_seal_is_named(tampered: Ledger) -> None:
    [(leaves,)] = tampered.execute("SELECT leaves FROM seals WHERE account = ? AND number = 2", tampered.raw)
    tampered.execute("DELETE FROM entries WHERE id = ?", tampered.entries()[3])
    shorter = bytes(leaves)[: seal.LEAF]
    tampered.execute("UPDATE seals SET leaves = ? WHERE account = ? AND number = 2", shorter, tampered.raw)
    assert tampered.problem() == "seal 2 was altered, or the chain before it was"


def test_a_stray_entry_is_named(tampered: Ledger) -> None:
    stray = ids.new_raw()
    tampered.execute(
        "INSERT INTO entries SELECT account, ?, type, at, actor, subject, data, data_hash, matched, keep_days, "
        "request, source FROM entries WHERE id = ?",
        stray, tampered.entries()[0],
    )  # fmt: skip
    name = ids.text("evt", stray)
    assert tampered.problem() == f"entry {name} was never sealed: it did not come through the service"


CUT = f"the chain ends at seal {SEALS - 1}, but the service made {SEALS}: its tail was cut off"


def cut_tail(tampered: Ledger) -> None:
    for entry in tampered.entries()[4:]:
        tampered.execute("DELETE FROM entries WHERE id = ?", entry)
    tampered.execute("DELETE FROM seals WHERE account = ? AND number = 3", tampered.raw)


def test_a_cut_tail_shows_by_the_head(tampered: Ledger) -> None:
    cut_tail(tampered)
    assert tampered.problem() == CUT
    assert "its tail was cut off" in tampered.problem("--head", tampered.head)


def test_a_tail_that_grew_again_is_reported(tampered: Ledger) -> None:
    """The chain goes on after the seal that the service made last, so the gap stays."""
    cut_tail(tampered)
    for number in (5, 6):
        tampered.store.cli("account", "set", "acme", f"max_clients={number}")
        tampered.store.cli("audit", "export", "--account", "acme")
    assert tampered.problem() == f"seal {SEALS} is missing"


def test_an_anchor_that_pruning_did_not_leave_is_reported(tampered: Ledger) -> None:
    """The beginning is cut off, and the anchor made to look as if it had been pruned."""
    [(mac,)] = tampered.execute("SELECT mac FROM seals WHERE account = ? AND number = 2", tampered.raw)
    for entry in tampered.entries()[:4]:
        tampered.execute("DELETE FROM entries WHERE id = ?", entry)
    tampered.execute("DELETE FROM seals WHERE account = ? AND number <= 2", tampered.raw)
    tampered.execute("INSERT INTO anchors VALUES (?, 2, ?, ?)", tampered.raw, mac, mac)
    assert tampered.problem() == "the seals up to 2 were removed, but not by pruning"
    assert tampered.problem("--head", tampered.head)


# --- beside pruning and other sealers


def opened_later(tampered: Ledger, later: timedelta) -> Any:
    def now() -> Any:
        return clock.now() + later

    if tampered.store.database:
        return PostgresStore(tampered.store.database, now, create_deliveries)
    return SqliteStore(tampered.store.directory / "gatepost.db", now, create_deliveries)


def seal_key(tampered: Ledger) -> bytes:
    found = settings.load({}, tampered.store.environment)
    opened = app.open_for_use(found)
    opened.store.close()
    return opened.service.keys.seal


def test_pruning_leaves_a_chain_that_verifies(tampered: Ledger) -> None:
    key = seal_key(tampered)
    with closing(opened_later(tampered, timedelta(days=420))) as store:
        store.maintain_partitions()  # on PostgreSQL, they are kept for up to 14 days longer
        while store.run_now(lambda tx: retention.prune_batch(tx, key, tampered.account)).examined:
            verdict = verification.verify(store, key, tampered.account)
            assert verdict.problem == ""
        assert verification.verify(store, key, tampered.account).head.number == SEALS
    assert tampered.entries() == []
    tampered.execute("DELETE FROM prunings")  # its marks are of a clock that was ahead
    assert tampered.problem("--head", tampered.head) == ""
    assert "rewritten" in tampered.problem("--head", f"{SEALS}:{'0' * 64}")
    tampered.store.cli("account", "set", "acme", "max_clients=9")
    tampered.store.cli("audit", "export", "--account", "acme")
    assert tampered.problem("--head", tampered.head) == ""


def test_two_sealers_never_take_the_same_entry(postgres_ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second seals everything between two statements of the first. (SQLite has one writer at a time.)"""
    tampered = postgres_ledger
    key = seal_key(tampered)
    tampered.store.cli("account", "set", "acme", "max_clients=9")
    with closing(opened_later(tampered, timedelta())) as one, closing(opened_later(tampered, timedelta())) as other:
        asked: list[str] = []

        def interrupted(name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
            def method(tx: Tx, *arguments: Any) -> Any:
                asked.append(name)
                if len(asked) == 2:
                    other.run_now(lambda rival: sealing.seal_batch(rival, key, tampered.account))
                return whole(tx, *arguments)

            return method

        for name in ("with_newer_seals", "unsealed"):
            monkeypatch.setattr(seal_rows, name, interrupted(name, getattr(seal_rows, name)))
        one.run_now(lambda tx: sealing.seal_batch(tx, key, tampered.account))
    assert len(asked) >= 4
    assert sorted(tampered.leaves()) == tampered.entries()
    assert tampered.problem() == ""
