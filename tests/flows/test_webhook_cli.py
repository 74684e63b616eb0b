"""The commands of the webhook area beside a running server: what they print, what they change, and how they refuse."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from gatepost import app, clock, ids
from gatepost.app import Opened
from gatepost.cli.main import all_commands
from gatepost.deliveries import model
from gatepost.endpoints import Endpoint
from gatepost.errors import Refusal
from gatepost.ledger import entries
from gatepost.ledger import publish as rules
from gatepost.ledger.entries import Entry, Origin
from gatepost.ledger.publish import Event
from gatepost.settings import load
from gatepost.store.effects import Birth
from gatepost.store.listing import Wanted
from gatepost.store.tx import Tx
from gatepost.subscriptions import Subscription
from gatepost.units import accounts, listing, publish
from gatepost.units.listing import Query
from gatepost.units.publish import Published
from gatepost.units.service import Answer
from tests import command
from tests.receiver import OK, Behaviour, Raw, Receiver, receiver, silent
from tests.service import Service

DEADLINE = 20.0  # seconds: never reached unless something hangs


class Shop(NamedTuple):
    """An account with one endpoint, subscribed to invoice.*, and the receiver behind it."""

    gatepost: Service
    name: str
    account: str
    token: str
    endpoint: str
    subscription: str
    receiver: Receiver

    def cli_json(self, *arguments: str) -> Any:
        return self.gatepost.cli_json(*arguments, "--account", self.name)

    def cli(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.gatepost.cli(*arguments, "--account", self.name, **options)

    def publish(self, data: Any = 1) -> str:
        """As `event publish` does, without the price of a process; the id of the one delivery that it made."""
        event = rules.event("invoice.paid", data)
        assert isinstance(event, Event)

        def unit(tx: Tx) -> Published | Refusal:
            return publish.one(tx, accounts.named(tx, self.name), event, Origin("operator"))

        made = self.gatepost.opened.store.run_now(unit)
        assert isinstance(made, Published)
        [found] = made.deliveries
        return found

    def record(self, delivery: str) -> dict[str, Any]:
        """What `delivery show --json` prints, without the price of a process."""
        opened, wanted = self.gatepost.opened, Query(Wanted(id=ids.raw(delivery)))

        def unit(tx: Tx) -> Answer | Refusal:
            return listing.page(tx, opened.service, accounts.named(tx, self.name), wanted)

        answer = opened.store.read_now(unit)
        assert isinstance(answer, Answer)
        found: dict[str, Any] = answer.body["data"][0]
        return found

    def status(self, delivery: str, *wanted: str) -> dict[str, Any]:
        """The delivery, once it is so."""
        wait_until(lambda: self.record(delivery)["status"] in wanted)
        return self.record(delivery)

    def explain(self, delivery: str) -> list[str]:
        return self.cli("delivery", "explain", delivery).stdout.splitlines()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to this"
        time.sleep(0.05)


@contextmanager
def opening(gatepost: Service, name: str, behaviour: Behaviour = OK, *settings: str, **members: Any) -> Iterator[Shop]:
    account, client = gatepost.account(name, *settings)
    token = gatepost.token(client, "gatepost:endpoints gatepost:subscriptions")
    with receiver(behaviour) as behind:
        endpoint = gatepost.post("/webhooks/endpoints", token, {"url": behind.url} | members)
        assert endpoint.status_code == 201, endpoint.text
        body = {"endpoint_id": endpoint.json()["id"], "events": ["invoice.*"]}
        subscription = gatepost.post("/webhooks/subscriptions", token, body)
        assert subscription.status_code == 201, subscription.text
        yield Shop(gatepost, name, account, token, endpoint.json()["id"], subscription.json()["id"], behind)


@pytest.fixture
def shop(gatepost: Service, account_name: str) -> Iterator[Shop]:
    with opening(gatepost, account_name) as found:
        yield found


@pytest.fixture
def sqlite_shop(sqlite_gatepost: Service, account_name: str) -> Iterator[Shop]:
    with opening(sqlite_gatepost, account_name) as found:
        yield found


def refusal(shop: Shop, *arguments: str, stdin: str | None = None) -> str:
    ended = shop.cli(*arguments, check=False, stdin=stdin)
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert ended.stderr.startswith("gatepost: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def platform(shop: Shop) -> list[Any]:
    """The data of what was published, oldest first."""
    found = shop.gatepost.entries(shop.account, 1000)[::-1]
    return [each["data"] for each in found if each["type"].startswith("invoice.")]


def test_every_command_is_there_and_says_what_it_is_for() -> None:
    wanted = {
        "endpoint": {"list", "show", "enable", "disable"},
        "delivery": {"list", "show", "explain", "retry", "cancel"},
        "event": {"publish", "tail"},
    }
    for noun, verbs in wanted.items():
        group = all_commands().commands[noun]
        assert isinstance(group, click.Group)
        assert set(group.commands) == verbs
        assert all(each.help for each in group.commands.values())
    assert {"simulate"} <= set(all_commands().commands)
    store = all_commands().commands["store"]
    assert isinstance(store, click.Group)
    assert {"migrate", "check", "prune"} <= set(store.commands)


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
    said = shop.cli("event", "publish", "--type", "invoice.paid", "--data", f"@{tmp_path / 'data.json'}").stdout
    words = dict(line.split(maxsplit=1) for line in said.splitlines())
    assert words["type"] == "invoice.paid"
    assert words["id"].startswith("evt_")
    assert words["deliveries"].startswith('["dlv_')
    assert platform(shop) == [{"text": "ünïcödé 雪"}]


def test_publish_refuses_with_words(sqlite_shop: Shop) -> None:
    shop = sqlite_shop
    one = ("event", "publish", "--type")
    shop.cli(*one, "invoice.paid", "--data", "1", "--id", "a")
    for arguments, words in (
        ((*one, "invoice.paid"), "--data: needed"),
        ((*one, "invoice.paid", "--data", "{"), "--data: it is not JSON"),
        ((*one, "invoice.paid", "--data", '{"a": 1, "a": 2}'), "--data: "),
        ((*one, "invoice.paid", "--data", "@no-such-file"), "cannot read"),
        ((*one, "Paid", "--data", "1"), "--type: must be a dotted lower-case name"),
        ((*one, "oauth.token.issued", "--data", "1"), "--type: oauth.token.issued is the service's own"),
        ((*one, "invoice.paid", "--data", "1", "--id", ""), "--id: must be"),
        ((*one, "invoice.paid", "--data", "2", "--id", "a"), "--id: published before"),
        (("event", "publish", "--data", "1"), "with --type"),
        (("event", "publish", "--id", "a"), "with --type"),
    ):
        assert words in refusal(shop, *arguments, stdin=""), arguments
    assert platform(shop) == [1]
    gone = shop.gatepost.cli("event", "publish", "--account", "no-such", "--type", "a.b", "--data", "1", check=False)
    assert (gone.returncode, "account list" in gone.stderr) == (2, True)


# --- publishing lines


def lines(*numbers: int, **more: Any) -> str:
    return "".join(
        json.dumps({"type": "invoice.paid", "data": number, "id": f"n{number}"} | more) + "\n" for number in numbers
    )


def test_lines_are_published_each_once(shop: Shop) -> None:
    said = shop.cli("event", "publish", stdin="\n" + lines(*range(250)) + "  \n").stdout
    assert said == "250 events published (0 of them had been before), 250 deliveries made\n"
    assert platform(shop) == list(range(250))
    said = shop.cli("event", "publish", stdin=lines(*range(260))).stdout
    assert said == "260 events published (250 of them had been before), 10 deliveries made\n"
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
        ('{"type": "oauth.token.issued", "data": 1}\n', "the service's own"),
        ('{"type": "invoice.paid", "data": 1, "data": 2}\n', "twice"),
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
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.startswith("gatepost: line 122: "), ended.stderr
        assert words in ended.stderr
        assert "120 events published" in ended.stderr
        assert "\x1b" not in ended.stderr
        assert platform(shop) == list(range(120))
        said = shop.cli("event", "publish", stdin=lines(*range(120), *range(200, 210))).stdout
        assert said.startswith("130 events published (120 of them had been before)")


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
        rest, errors = process.communicate(timeout=DEADLINE)
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
    reading.join(DEADLINE)
    assert found, "it printed nothing"
    return found[0]


def test_tail_prints_what_is_recorded_from_now_on(shop: Shop) -> None:
    shop.publish("before")
    with following(shop, "--type", "invoice.*", "--type", "account.changed", "--json") as process:
        shop.publish("\x1b[31mred")
        told = json.loads(next_line(process))
        assert (told["type"], told["data"]) == ("invoice.paid", "\x1b[31mred")
        shop.cli("event", "publish", "--type", "other.thing", "--data", "1")
        shop.gatepost.cli("account", "set", shop.name, "max_scopes=7")
        assert json.loads(next_line(process))["type"] == "account.changed"


def test_tail_speaks_to_people_in_plain_lines(shop: Shop) -> None:
    with following(shop, "--type", "invoice.*") as process:
        shop.publish("a\u009b\u202eb")
        line = next_line(process)
        assert re.fullmatch(r'\d{4}-\S+Z  invoice\.paid  evt_\w{26}  operator  –  "a��b"\n', line), line


def record_at(opened: Opened, account: str, data: str, age: timedelta) -> Entry:
    """An entry whose id was made so long before it is committed."""

    def unit(tx: Tx) -> Entry:
        raw = clock.milliseconds(tx.at - age).to_bytes(6, "big") + ids.fresh()[6:]
        made = entries.new("invoice.paid", account=account, origin=Origin("operator"), subject="", data={"said": data},
                           at=tx.at, keep_days=30, raw_id=raw)  # fmt: skip
        return tx.record(made)

    return opened.store.run_now(unit)


def test_tail_sees_what_was_committed_late(shop: Shop) -> None:
    """A lower id than those already printed, and each only once."""
    with following(shop, "--type", "invoice.*", "--json") as process:
        for number in range(3):
            shop.publish(f"on time {number}")
            assert json.loads(next_line(process))["data"] == f"on time {number}"
            record_at(shop.gatepost.opened, shop.account, f"late {number}", timedelta(seconds=6))
            assert json.loads(next_line(process))["data"] == {"said": f"late {number}"}


# --- endpoints


def test_endpoints_are_listed_and_shown_without_secrets(shop: Shop) -> None:
    [listed] = shop.cli_json("endpoint", "list")
    assert (listed["id"], listed["url"], listed["status"]) == (shop.endpoint, shop.receiver.url, "active")
    found = shop.cli_json("endpoint", "show", shop.endpoint)
    assert [each["id"] for each in found.pop("subscriptions")] == [shop.subscription]
    assert found == listed
    said = shop.cli("endpoint", "show", shop.endpoint).stdout
    assert shop.subscription in said
    assert "whsec_" not in said + json.dumps(found)
    assert shop.endpoint in shop.cli("endpoint", "list").stdout
    shop.gatepost.post("/webhooks/endpoints", shop.token, {"id": shop.endpoint, "status": "removed"})
    assert shop.cli_json("endpoint", "list") == []
    assert shop.cli_json("endpoint", "show", shop.endpoint)["status"] == "removed"


def test_a_disabled_endpoint_holds_and_an_enabled_one_goes_on(shop: Shop) -> None:
    disabled = shop.cli_json("endpoint", "disable", shop.endpoint)
    assert (disabled["status"], disabled["disabled_reason"]) == ("disabled", "operator")
    delivery = shop.publish()
    assert shop.status(delivery, "held")["retries"]["next_at"] is None
    assert shop.cli_json("endpoint", "show", shop.endpoint)["held"] == 1
    story = shop.explain(delivery)
    assert "It is held, because the endpoint is disabled (operator)" in story[2]
    assert f"`gatepost endpoint enable {shop.endpoint} --account {shop.name}`" in story[2]
    assert "7d" in story[3]
    assert shop.receiver.requests == []
    assert shop.cli_json("endpoint", "enable", shop.endpoint)["status"] == "active"
    shop.status(delivery, "succeeded")
    types = [each["type"] for each in shop.gatepost.entries(shop.account)]
    assert types.count("webhook.endpoint.disabled") == types.count("webhook.endpoint.enabled") == 1


def test_a_suspended_account_holds_too(shop: Shop) -> None:
    shop.gatepost.cli("account", "suspend", shop.name)
    delivery = shop.publish()
    shop.status(delivery, "held")
    assert f"`gatepost account resume {shop.name}`" in shop.explain(delivery)[2]
    shop.gatepost.cli("account", "resume", shop.name)
    shop.status(delivery, "succeeded")


def test_what_is_of_another_account_is_not_there(shop: Shop) -> None:
    other, _ = shop.gatepost.account(f"{shop.name}-other")
    delivery = shop.publish()
    for arguments in (
        *(("endpoint", verb, shop.endpoint) for verb in ("show", "enable", "disable")),
        *(("delivery", verb, delivery) for verb in ("show", "explain", "retry", "cancel")),
    ):
        ended = shop.gatepost.cli(*arguments, "--account", other, check=False)
        assert (ended.returncode, ended.stdout) == (2, ""), arguments
    assert shop.gatepost.cli_json("delivery", "list", "--account", other) == []
    assert shop.gatepost.cli_json("endpoint", "list", "--account", other) == []
    assert "endpoint list" in refusal(shop, "endpoint", "show", "ep_none")
    assert "delivery list" in refusal(shop, "delivery", "show", "dlv_none")


# --- deliveries


def test_the_story_of_one_that_succeeded(shop: Shop) -> None:
    delivery = shop.publish()
    record = shop.status(delivery, "succeeded")
    story = shop.explain(delivery)
    assert delivery in story[0]
    assert f"invoice.paid ({record['event']['id']})" in story[0]
    assert f"{shop.receiver.url} ({shop.endpoint}) by {shop.subscription}" in story[0]
    assert story[1] == f"It was made at {record['created_at']} in one commit with its event."
    assert re.search(r"^Attempt 1 was begun at \S+\. The receiver answered 200 after [\d.]+m?s\.$", story[2]), story[2]
    assert story[3] == f"It ended at {record['ended_at']}: succeeded (delivered). The receiver answered with 2xx."
    assert len(story) == 4
    told = shop.cli_json("delivery", "explain", delivery)
    assert told == {"id": delivery, "status": "succeeded", "story": story}


def test_the_story_of_one_that_is_tried_again(gatepost: Service, account_name: str) -> None:
    behaviour: Behaviour = [(503, {"Retry-After": "3000"}, b"busy"), OK]
    with opening(gatepost, account_name, behaviour, "retry_schedule=1s,1h,2h") as shop:
        delivery = shop.publish()
        wait_until(lambda: (found := shop.record(delivery))["status"] == "pending" and found["attempts"] != [])
        record = shop.cli_json("delivery", "show", delivery)
        assert record == shop.record(delivery)
        story = shop.explain(delivery)
        assert "The receiver answered 503 after" in story[2]
        assert "asked to wait (Retry-After: 3000)" in story[2]
        assert story[3].startswith(f"Next, attempt 2 is planned for {record['retries']['next_at']}, in 49m ")
        assert "the receiver asked for it with Retry-After" in story[3]
        assert f"there are 2 more, the last at {record['retries']['plan'][-1]['at']}" in story[3]
        said = shop.cli("delivery", "show", delivery).stdout
        assert record["retries"]["next_at"] in said
        assert record["attempts"][0]["started_at"] in said


def test_retry_makes_the_next_attempt_now(gatepost: Service, account_name: str) -> None:
    with opening(gatepost, account_name, [(500, {}, b""), OK], "retry_schedule=1h") as shop:
        delivery = shop.publish()
        wait_until(lambda: (found := shop.record(delivery))["status"] == "pending" and found["attempts"] != [])
        assert "Next, attempt 2 is planned for" in shop.explain(delivery)[3]
        assert shop.cli_json("delivery", "retry", delivery)["id"] == delivery
        ended = shop.status(delivery, "succeeded")
        assert [each["outcome"] for each in ended["attempts"]] == ["failed", "succeeded"]


def test_the_story_of_one_that_failed_and_what_retry_makes_of_it(gatepost: Service, account_name: str) -> None:
    with opening(gatepost, account_name, (500, {}, b""), "retry_schedule=1s") as shop:
        delivery = shop.publish()
        record = shop.status(delivery, "failed")
        story = shop.explain(delivery)
        assert [line.partition(" was")[0] for line in story[2:4]] == ["Attempt 1", "Attempt 2"]
        assert "failed (attempts_exhausted)" in story[4]
        assert story[5] == (
            f"Put the receiver right, then `gatepost delivery retry {delivery} --account {shop.name}` sends it anew."
        )
        shop.receiver.behaviour = OK
        made = shop.cli_json("delivery", "retry", delivery)
        assert made["id"] != delivery
        assert (made["trigger"], made["event"]) == ("retry", record["event"])
        shop.status(made["id"], "succeeded")
        assert "by an operator, out of one that had ended" in shop.explain(made["id"])[1]
        assert shop.record(delivery) == record


def test_the_story_of_one_whose_receiver_is_gone(gatepost: Service, account_name: str) -> None:
    with opening(gatepost, account_name, (410, {}, b"")) as shop:
        delivery = shop.publish()
        shop.status(delivery, "failed")
        story = shop.explain(delivery)
        assert "failed (endpoint_gone)" in story[3]
        assert f"endpoint enable {shop.endpoint}" in story[4]
        assert f"delivery retry {delivery}" in story[4]


def test_the_story_of_one_that_never_came_through(gatepost: Service, account_name: str) -> None:
    with opening(gatepost, account_name, Raw(silent), "retry_schedule=none", timeout=1) as shop:
        delivery = shop.publish()
        under_way = shop.status(delivery, "in_flight", "failed")
        if under_way["status"] == "in_flight":
            story = shop.explain(delivery)
            assert "It is under way now." in story[2] or "failed" in story[3]
        shop.status(delivery, "failed")
        assert re.search(r"It failed after 1\.\ds \(timeout\): \S", shop.explain(delivery)[2])


def test_cancel_ends_it_and_retry_makes_a_new_one(shop: Shop) -> None:
    shop.cli("endpoint", "disable", shop.endpoint)
    delivery = shop.publish()
    cancelled = shop.cli_json("delivery", "cancel", delivery)
    assert (cancelled["status"], cancelled["ended_reason"]) == ("cancelled", "cancelled_by_operator")
    assert "sends it after all" in shop.explain(delivery)[-1]
    assert "not an unfinished delivery" in refusal(shop, "delivery", "cancel", delivery)
    shop.cli("endpoint", "enable", shop.endpoint)
    made = shop.cli_json("delivery", "retry", delivery)["id"]
    shop.status(made, "succeeded")
    assert len(shop.receiver.requests) == 1


def test_an_endpoint_that_was_removed_ends_what_it_had(shop: Shop) -> None:
    shop.cli("endpoint", "disable", shop.endpoint)
    delivery = shop.publish()
    shop.gatepost.post("/webhooks/endpoints", shop.token, {"id": shop.endpoint, "status": "removed"})
    shop.status(delivery, "cancelled")
    assert shop.explain(delivery)[-1].startswith("Nothing goes to that endpoint any more")
    assert "final" in refusal(shop, "endpoint", "enable", shop.endpoint)


def test_deliveries_are_listed_newest_first_and_filtered(shop: Shop) -> None:
    shop.cli("endpoint", "disable", shop.endpoint)
    ended = shop.cli("event", "publish", "--json", stdin=lines(*range(210)) + lines(1000, type="invoice.sent"))
    made = [json.loads(line) for line in ended.stdout.splitlines()]
    newest = [each["deliveries"][0] for each in made][::-1]

    def listed(*filters: str) -> list[str]:
        return [each["id"] for each in shop.cli_json("delivery", "list", *filters)]

    assert listed() == newest[:50]
    assert listed("--limit", "205") == newest[:205]
    assert listed("--limit", "1000") == newest
    assert listed("--type", "invoice.sent") == newest[:1]
    assert listed("--event", made[7]["id"]) == made[7]["deliveries"]
    assert listed("--endpoint", shop.endpoint, "--status", "held", "--limit", "3") == newest[:3]
    assert listed("--status", "succeeded") == []
    assert listed("--since", "1h", "--limit", "1") == newest[:1]
    assert listed("--until", "1h") == []
    said = shop.cli("delivery", "list", "--limit", "1").stdout.splitlines()
    assert said[0].split()[:3] == ["id", "status", "event"]
    assert said[1].split()[:4] == [newest[0], "held", "invoice.sent", shop.receiver.url]


def test_a_filter_that_makes_no_sense_is_refused(sqlite_shop: Shop) -> None:
    for arguments, words in (
        (["--endpoint", "evt_1"], "begins with ep_"),
        (["--event", sqlite_shop.endpoint], "begins with evt_"),
        (["--since", "soon"], "not a time"),
        (["--watch"], "terminal"),
        (["--watch", "--json"], "terminal"),
    ):
        assert words in refusal(sqlite_shop, "delivery", "list", *arguments)


def test_watch_draws_until_it_is_interrupted(shop: Shop) -> None:
    shop.cli("endpoint", "disable", shop.endpoint)
    first = shop.publish()
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gatepost", "delivery", "list", "--watch", "--account", shop.name],
        env=shop.gatepost.environment | {"COLUMNS": "250", "TERM": "xterm"}, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    drawn = b""

    def wait_for(text: str) -> None:
        nonlocal drawn
        deadline = time.monotonic() + DEADLINE
        while text.encode() not in drawn:
            assert time.monotonic() < deadline, drawn
            if select.select([screen], [], [], 1.0)[0]:
                drawn += os.read(screen, 65536)

    try:
        wait_for(first)
        second = shop.publish()
        wait_for(second)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)


# --- the store


@pytest.fixture(params=["sqlite", "postgres"])
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> command.Alone:
    """A store that nobody serves, so that nobody prunes it behind our back."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    made = command.alone(tmp_path / "data", url, dev="true")
    made.cli("store", "migrate")
    return made


def deliver(opened: Opened, age: timedelta, *, ended: bool) -> str:
    """One that was made so long ago."""

    def unit(tx: Tx) -> str:
        account = tx.account_named("default")
        assert account is not None
        old = clock.milliseconds(tx.at - age)
        made = model.born(ids.raw(account.id), old.to_bytes(6, "big") + ids.fresh()[6:], ids.fresh(), ids.fresh(),
                          ids.fresh(), "invoice.paid", 30, "replay")  # fmt: skip
        if ended:
            made = made._replace(status="succeeded", ended_at=old, ended_reason="delivered", last_code=200)
        tx.effects.births.append(Birth(made, model.queued(made, old)))
        return ids.text("dlv", made.id)

    return opened.store.run_now(unit)


def test_prune_deletes_what_is_old_and_ended(alone: command.Alone) -> None:
    with closing(app.open_for_use(load({}, alone.environment)).store) as store:
        opened = Opened(store, None)  # type: ignore[arg-type]
        for _ in range(3):
            deliver(opened, timedelta(days=31), ended=True)
        kept = {deliver(opened, timedelta(days=31), ended=False), deliver(opened, timedelta(days=29), ended=True)}
    told = {each["name"]: each for each in alone.cli_json("store", "prune")}
    assert set(told) == {"default", "gatepost"}
    assert (told["default"]["deliveries"], told["gatepost"]["deliveries"]) == (3, 0)
    assert {ids.text("dlv", row[0]) for row in alone.execute("SELECT id FROM deliveries")} == kept
    said = alone.cli("store", "prune").stdout.splitlines()
    assert said[0].split() == ["account", "deliveries", "deleted", "entries", "looked", "at"]
    assert said[1].split()[:2] == ["default", "0"]


def test_check_counts_every_delivery(alone: command.Alone) -> None:
    def subscribe(tx: Tx) -> None:
        account = tx.account_named("default")
        assert account is not None
        endpoint = Endpoint(ids.new("ep"), account.id, "https://receiver.example/hooks", tx.at, tx.at)
        tx.webhooks.add_endpoint(endpoint)
        tx.webhooks.add_subscription(Subscription(ids.new("sub"), account.id, endpoint.id, ["*"], tx.at, tx.at))

    with closing(app.open_for_use(load({}, alone.environment)).store) as store:
        store.run_now(subscribe)
    made = alone.cli_json("event", "publish", "--account", "default", "--type", "invoice.paid", "--data", "1")
    told = {each["check"]: each for each in alone.cli_json("store", "check")}
    assert told["deliveries of default"]["status"] == "ok"
    assert "made 1 deliveries, 1 are there" in told["deliveries of default"]["found"]
    alone.execute("DELETE FROM deliveries")
    ended = alone.cli("store", "check", "--json", check=False)
    assert ended.returncode == 1
    found = {each["check"]: each for each in json.loads(ended.stdout)}["deliveries of default"]
    assert found["status"] == "problem"
    assert f"{made['id']} says that it made 1 deliveries, there are 0" in found["found"]
    assert "made 1 deliveries, 0 are there" in found["found"]
