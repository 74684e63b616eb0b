"""`gatepost event` beside a running server: publishing one event or many lines of them, and following the ledger."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gatepost.cli import event as event_cli
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.ledger import entries
from gatepost.ledger.entries import Entry, Origin
from gatepost.ledger.record import append_entry
from gatepost.run.app import Runtime
from gatepost.store.transaction import Tx
from gatepost.webhooks import publish
from gatepost.webhooks.publish import Published
from tests.flows.shop import Shop, lines, opening, platform, refusal
from tests.service import Service
from tests.waiting import LIMIT

# --- publishing one


def test_publish_prints_the_entry_with_its_deliveries(shop: Shop) -> None:
    made = shop.cli_json("event", "publish", "--type", "invoice.paid", "--data", '{"amount": 1}', "--id", "a")
    assert (made["type"], made["data"], made["matched"], made["actor"]) == (
        "invoice.paid",
        {"amount": 1},
        1,
        "operator",
    )
    [delivery] = made["deliveries"]
    [sent] = shop.receiver.wait_for(1)
    assert sent.headers["webhook-id"] == made["id"]
    assert shop.status(delivery, "succeeded")["event"]["id"] == made["id"]
    again = shop.cli_json("event", "publish", "--type", "invoice.paid", "--data", '{"amount": 1}', "--id", "a")
    assert again == made | {"again": True}
    assert not made["again"]
    assert platform(shop) == [{"amount": 1}]


def test_publish_takes_a_file_and_speaks_to_people(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"text": "ünïcödé 雪"}')
    output = shop.cli("event", "publish", "--type", "invoice.paid", "--data", f"@{tmp_path / 'data.json'}").stdout
    words = dict(line.split(maxsplit=1) for line in output.splitlines())
    assert words["type"] == "invoice.paid"
    assert words["id"].startswith("evt_")
    assert words["deliveries"].startswith('["dlv_')
    assert platform(shop) == [{"text": "ünïcödé 雪"}]


def test_publish_refuses_with_words(sqlite_shop: Shop) -> None:
    shop = sqlite_shop
    one = ("event", "publish", "--type")
    shop.cli(*one, "invoice.paid", "--data", "1", "--id", "a")
    for arguments, words in (
        ((*one, "invoice.paid"), "--type needs --data"),
        ((*one, "invoice.paid", "--data", "{"), "--data: it is not JSON"),
        ((*one, "invoice.paid", "--data", '{"a": 1, "a": 2}'), "--data: "),
        ((*one, "invoice.paid", "--data", "@no-such-file"), "cannot read"),
        ((*one, "Paid", "--data", "1"), "--type: must be a dotted lower-case name"),
        ((*one, "oauth.token.issued", "--data", "1"), "--type: oauth.token.issued is reserved"),
        ((*one, "invoice.paid", "--data", "1", "--id", ""), "--id: must be"),
        ((*one, "invoice.paid", "--data", "2", "--id", "a"), "--id: published before"),
        (("event", "publish", "--data", "1"), "need --type"),
        (("event", "publish", "--id", "a"), "need --type"),
    ):
        assert words in refusal(shop, *arguments, stdin=""), arguments
    assert platform(shop) == [1]
    gone = shop.gatepost.cli("event", "publish", "--account", "no-such", "--type", "a.b", "--data", "1", check=False)
    assert (gone.returncode, "account list" in gone.stderr) == (3, True)


# --- publishing lines


def test_lines_are_published_each_once(shop: Shop) -> None:
    output = shop.cli("event", "publish", stdin="\n" + lines(*range(250)) + "  \n").stdout
    assert output == "250 events published (0 were already published), 250 deliveries created\n"
    assert platform(shop) == list(range(250))
    output = shop.cli("event", "publish", stdin=lines(*range(260))).stdout
    assert output == "260 events published (250 were already published), 10 deliveries created\n"
    assert platform(shop) == list(range(260))


def test_lines_as_json_come_back_as_lines(shop: Shop) -> None:
    ended = shop.cli("event", "publish", "--json", stdin=lines(1, 2, 1))
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(each["data"], each["again"], len(each["deliveries"])) for each in found] == [
        (1, False, 1),
        (2, False, 1),
        (1, True, 1),
    ]
    assert found[2]["id"] == found[0]["id"]
    assert shop.cli("event", "publish", stdin="").stdout.startswith("0 events published")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{\n", "not JSON"),
        ("[]\n", "must be an object"),
        ('{"data": 1}\n', "type is missing"),
        ('{"type": "invoice.paid"}\n', "data is missing"),
        ('{"type": "invoice.paid", "data": 1, "colour": "\\u001b[31m"}\n', "colour is not a member"),
        ('{"type": "oauth.token.issued", "data": 1}\n', "is reserved"),
        ('{"type": "invoice.paid", "data": 1, "data": 2}\n', "repeated"),
        (lines(2, data="other"), "published before"),
    ],
)
def test_the_first_bad_line_ends_it_and_what_was_before_is_published(
    sqlite_gatepost: Service, account_name: str, bad: str, words: str
) -> None:
    with opening(sqlite_gatepost, account_name) as shop:
        ended = shop.cli(
            "event", "publish", stdin=lines(*range(120)) + "\n" + bad + lines(*range(200, 210)), check=False
        )
        assert (ended.returncode, ended.stdout) == (4 if words == "published before" else 2, "")
        assert ended.stderr.startswith("gatepost: line 122: "), ended.stderr
        assert words in ended.stderr
        assert "120 events published" in ended.stderr
        assert "\x1b" not in ended.stderr
        assert platform(shop) == list(range(120))
        output = shop.cli("event", "publish", stdin=lines(*range(120), *range(200, 210))).stdout
        assert output.startswith("130 events published (120 were already published)")


def test_an_interruption_is_not_blamed_on_a_line(sqlite_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    output = sqlite_shop.cli("event", "publish", stdin=lines(1)).stdout
    assert output == "1 event published (0 were already published), 1 delivery created\n"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gatepost.cli.event._publish", interrupted)
    ended = sqlite_shop.cli("event", "publish", stdin=lines(2), check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("gatepost: interrupted; before that, 0 events published")
    assert "Correct" not in ended.stderr


@pytest.mark.parametrize(
    ("limits", "commits"),
    [
        ({"MAX_NEW_DELIVERIES": 3}, [3, 3, 3, 1]),
        ({"MAX_BYTES": 1000}, [2, 2, 2, 2, 2]),
        ({"MAX_BYTES": 100}, [1] * 10),
        ({"MAX_NEW_DELIVERIES": 1, "MAX_BYTES": 1000}, [1] * 10),
    ],
)
@pytest.mark.parametrize("bad", ["", "{\n", lines(2, data="other")], ids=["all good", "invalid line", "conflict"])
def test_a_commit_takes_no_more_than_enough(
    sqlite_shop: Shop, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], commits: list[int], bad: str
) -> None:
    """The command continues with the other lines, and reports exactly what it has published."""
    sizes: list[int] = []

    def counted(*arguments: Any) -> list[Published | Refusal]:
        outcomes = _publish(*arguments)
        sizes.append(sum(isinstance(outcome, Published) for outcome in outcomes))
        return outcomes

    _publish = event_cli._publish
    monkeypatch.setattr(event_cli, "_publish", counted)
    for name, limit in limits.items():
        monkeypatch.setattr(publish, name, limit)
    large = "".join(lines(number, data={"number": number, "x": "x" * 400}) for number in range(10))
    ended = sqlite_shop.cli("event", "publish", stdin=large + bad, check=False)
    assert [size for size in sizes if size] == commits
    if bad:
        assert "line 11: " in ended.stderr
        assert "before that, 10 events published (0 were already published), 10 deliveries created." in ended.stderr
    else:
        assert ended.stdout == "10 events published (0 were already published), 10 deliveries created\n"
    assert [each["number"] for each in platform(sqlite_shop)] == list(range(10))


def test_long_lines_and_a_last_line_without_an_end(sqlite_shop: Shop) -> None:
    texts = ["a" * 200_000, "b", "c" * 70_000, "d"]
    stdin = "".join(json.dumps({"type": "invoice.paid", "data": text}) + "\n" for text in texts)
    output = sqlite_shop.cli("event", "publish", stdin=stdin.rstrip("\n")).stdout
    assert output.startswith("4 events published")
    assert platform(sqlite_shop) == texts


def test_lines_of_a_pipe_are_published_when_they_arrive(sqlite_shop: Shop) -> None:
    shop = sqlite_shop
    process = subprocess.Popen(
        [sys.executable, "-m", "gatepost", "event", "publish", "--account", shop.name, "--json"],
        env=shop.gatepost.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        for number in range(3):
            print(lines(2 * number, 2 * number + 1), end="", file=process.stdin, flush=True)
            assert [json.loads(next_line(process))["data"] for _ in range(2)] == [2 * number, 2 * number + 1]
        rest, errors = process.communicate(timeout=LIMIT)
        assert (process.returncode, rest, errors) == (0, "", "")
    finally:
        process.kill()
        process.communicate()


def test_a_closed_standard_input(sqlite_shop: Shop) -> None:
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', sys.executable, "-m", "gatepost", "event", "publish", "--account",
         sqlite_shop.name],
        env=sqlite_shop.gatepost.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("gatepost: standard input is closed")
    assert ended.stderr.count("\n") == 1


# --- following


@contextmanager
def following(shop: Shop, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`event tail`, once it looks."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gatepost", "event", "tail", "--account", shop.name, *arguments],
        env=shop.gatepost.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(f"following {shop.name}")
        yield process
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=LIMIT)
        assert (process.returncode, rest, errors) == (0, "", "")
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[str]) -> str:
    """The next that it prints; fails when none comes."""
    found: list[str] = []
    assert process.stdout is not None
    reading = threading.Thread(target=lambda out: found.append(out.readline()), args=(process.stdout,), daemon=True)
    reading.start()
    reading.join(LIMIT)
    assert found, "it printed nothing"
    return found[0]


def test_tail_prints_what_is_recorded_from_now_on(shop: Shop) -> None:
    shop.publish("before")
    with following(shop, "--type", "invoice.*", "--type", "account.changed", "--json") as process:
        shop.publish("\x1b[31mred")
        result = json.loads(next_line(process))
        assert (result["type"], result["data"]) == ("invoice.paid", "\x1b[31mred")
        shop.cli("event", "publish", "--type", "other.thing", "--data", "1")
        shop.gatepost.cli("account", "set", shop.name, "max_scopes=7")
        assert json.loads(next_line(process))["type"] == "account.changed"


def test_tail_speaks_to_people_in_plain_lines(shop: Shop) -> None:
    with following(shop, "--type", "invoice.*") as process:
        shop.publish("a\u009b\u202eb")
        line = next_line(process)
        assert re.fullmatch(r'\d{4}-\S+Z  invoice\.paid  evt_\w{26}  operator  –  "a��b"\n', line), line


def record_at(opened: Runtime, account: str, data: str, age: timedelta) -> Entry:
    """An entry whose id was made so long before it is committed."""

    def unit(tx: Tx) -> Entry:
        raw = clock.milliseconds(tx.at - age).to_bytes(6, "big") + ids.new_raw()[6:]
        made = entries.new("invoice.paid", account=account, origin=Origin("operator"), subject="", data={"said": data},
                           at=tx.at, keep_days=30, raw_id=raw)  # fmt: skip
        return append_entry(tx, made).entry

    return opened.store.run_now(unit)


def test_tail_sees_what_was_committed_late(shop: Shop) -> None:
    """A lower id than those already printed, and each only once."""
    with following(shop, "--type", "invoice.*", "--json") as process:
        for number in range(3):
            shop.publish(f"on time {number}")
            assert json.loads(next_line(process))["data"] == f"on time {number}"
            record_at(shop.gatepost.opened, shop.account, f"late {number}", timedelta(seconds=6))
            assert json.loads(next_line(process))["data"] == {"said": f"late {number}"}
