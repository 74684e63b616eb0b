"""The commands about endpoints, deliveries and their store: what they print, what they change, and how they refuse."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import click
import pytest

from gatepost.accounts import account_rows
from gatepost.cli.main import all_commands
from gatepost.core import clock, ids
from gatepost.run import app
from gatepost.run.app import Runtime
from gatepost.settings import load
from gatepost.store.transaction import Tx
from gatepost.webhooks import deliveries, delivery_rows, endpoint_rows, subscription_rows
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.subscriptions import Subscription
from tests import command
from tests.flows.shop import Shop, lines, opening, refusal
from tests.receiver import OK, Behaviour, Raw, silent
from tests.service import Service
from tests.waiting import LIMIT, wait_until


def test_every_command_is_there_and_says_what_it_is_for() -> None:
    wanted = {
        "endpoint": {"create", "set", "list", "show", "enable", "disable", "rotate-secret"},
        "subscription": {"create", "set", "list", "show", "replay", "remove"},
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


# --- endpoints


def test_endpoints_are_listed_and_shown_without_secrets(shop: Shop) -> None:
    [listed] = shop.cli_json("endpoint", "list")
    assert (listed["id"], listed["url"], listed["status"]) == (shop.endpoint, shop.receiver.url, "active")
    found = shop.cli_json("endpoint", "show", shop.endpoint)
    assert [each["id"] for each in found["subscriptions"]] == [shop.subscription]
    assert found == listed
    output = shop.cli("endpoint", "show", shop.endpoint).stdout
    assert shop.subscription in output
    assert "whsec_" not in output + json.dumps(found)
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
    assert f"`gatepost endpoint enable {shop.endpoint}`" in story[2]
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
        assert (ended.returncode, ended.stdout) == (3, ""), arguments
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
    assert f"{shop.receiver.url} ({shop.endpoint}), for {shop.subscription}" in story[0]
    assert story[1] == f"It was created at {record['created_at']} in the same commit as its event."
    assert re.search(r"^Attempt 1 started at \S+\. The receiver responded 200 after [\d.]+m?s\.$", story[2]), story[2]
    assert story[3] == (
        f"It ended at {record['ended_at']}: succeeded (delivered). The receiver responded with a 2xx status."
    )
    assert len(story) == 4
    result = shop.cli_json("delivery", "explain", delivery)
    assert result == {"id": delivery, "status": "succeeded", "story": story}


def test_the_story_of_one_that_is_tried_again(gatepost: Service, account_name: str) -> None:
    behaviour: Behaviour = [(503, {"Retry-After": "3000"}, b"busy"), OK]
    with opening(gatepost, account_name, behaviour, "retry_schedule=1s,1h,2h") as shop:
        delivery = shop.publish()
        wait_until(lambda: (found := shop.record(delivery))["status"] == "pending" and found["attempts"] != [])
        record = shop.cli_json("delivery", "show", delivery)
        assert record == shop.record(delivery)
        story = shop.explain(delivery)
        assert "The receiver responded 503 after" in story[2]
        assert "with Retry-After: 3000" in story[2]
        assert story[3].startswith(f"Next, attempt 2 is planned for {record['retries']['next_at']}, in 49m ")
        assert "the receiver requested this time with Retry-After" in story[3]
        assert f"there are 2 more, the last at {record['retries']['plan'][-1]['at']}" in story[3]
        output = shop.cli("delivery", "show", delivery).stdout
        assert record["retries"]["next_at"] in output
        assert record["attempts"][0]["started_at"] in output


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
        assert [line.partition(" started")[0] for line in story[2:4]] == ["Attempt 1", "Attempt 2"]
        assert "failed (attempts_exhausted)" in story[4]
        assert story[5] == (
            f"Fix the receiver, and then send the event again with `gatepost delivery retry {delivery}`."
        )
        shop.receiver.behaviour = OK
        made = shop.cli_json("delivery", "retry", delivery)
        assert made["id"] != delivery
        assert (made["trigger"], made["event"]) == ("retry", record["event"])
        shop.status(made["id"], "succeeded")
        assert "by an operator, from a delivery that had ended" in shop.explain(made["id"])[1]
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
            assert "It is in progress." in story[2] or "failed" in story[3]
        shop.status(delivery, "failed")
        assert re.search(r"It failed after 1\.\ds \(timeout\): \S", shop.explain(delivery)[2])


def test_cancel_ends_it_and_retry_makes_a_new_one(shop: Shop) -> None:
    shop.cli("endpoint", "disable", shop.endpoint)
    delivery = shop.publish()
    cancelled = shop.cli_json("delivery", "cancel", delivery)
    assert (cancelled["status"], cancelled["ended_reason"]) == ("cancelled", "cancelled_by_operator")
    assert "To send the event anyway, run" in shop.explain(delivery)[-1]
    assert "not an unfinished delivery" in refusal(shop, "delivery", "cancel", delivery)
    shop.cli("endpoint", "enable", shop.endpoint)
    made = shop.cli_json("delivery", "retry", delivery)["id"]
    shop.status(made, "succeeded")
    assert len(shop.receiver.requests) == 1


def test_an_attempt_at_a_removed_endpoint_is_the_last(sqlite_gatepost: Service, account_name: str) -> None:
    with opening(sqlite_gatepost, account_name, Raw(silent)) as shop:
        delivery = shop.publish()
        shop.status(delivery, "in_flight")
        shop.gatepost.post("/webhooks/endpoints", shop.token, {"id": shop.endpoint, "status": "removed"})
        assert shop.explain(delivery)[-1] == "If it fails, the delivery is cancelled: the endpoint was removed."


def test_what_waits_for_a_removed_endpoint_is_cancelled(tmp_path: Path) -> None:
    store = command.alone(tmp_path / "data", dev="true", account="default")  # no service, which would cancel it at once
    store.cli("store", "migrate")
    endpoint = store.cli_json("endpoint", "create", "url=http://127.0.0.1:8443")["id"]
    store.cli("subscription", "create", f"endpoint_id={endpoint}", "events=*")
    store.cli("event", "publish", "--type", "invoice.paid", "--data", "{}")
    store.cli("endpoint", "set", endpoint, "status=removed")
    [delivery] = store.cli_json("delivery", "list")
    assert delivery["status"] == "held"
    [story] = store.cli("delivery", "explain", delivery["id"]).stdout.splitlines()[2:]
    assert story.startswith("The endpoint was removed, so the delivery is cancelled soon. Subscribe another endpoint")


def test_an_endpoint_that_was_removed_ends_what_it_had(shop: Shop) -> None:
    shop.cli("endpoint", "disable", shop.endpoint)
    delivery = shop.publish()
    shop.gatepost.post("/webhooks/endpoints", shop.token, {"id": shop.endpoint, "status": "removed"})
    shop.status(delivery, "cancelled")
    assert shop.explain(delivery)[-1].startswith("The endpoint was removed.")
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
    output = shop.cli("delivery", "list", "--limit", "1").stdout.splitlines()
    assert output[0].split()[:3] == ["id", "status", "event"]
    assert output[1].split()[:4] == [newest[0], "held", "invoice.sent", shop.receiver.url]


def test_a_filter_that_makes_no_sense_is_refused(sqlite_shop: Shop) -> None:
    for arguments, words in (
        (["--endpoint", "evt_1"], "the id of an endpoint: ep_"),
        (["--event", sqlite_shop.endpoint], "the id of an event: evt_"),
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
        deadline = time.monotonic() + LIMIT
        while text.encode() not in drawn:
            assert time.monotonic() < deadline, drawn
            if select.select([screen], [], [], 1.0)[0]:
                drawn += os.read(screen, 65536)

    try:
        wait_for(first)
        second = shop.publish()
        wait_for(second)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)


# --- the store


@pytest.fixture(params=["sqlite", "postgres"])
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> command.Alone:
    """A store without a running service, which would prune it."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    made = command.alone(tmp_path / "data", url, dev="true")
    made.cli("store", "migrate")
    if url:  # where the first start makes no account
        made.cli("account", "create", "default")
    return made


def deliver(opened: Runtime, age: timedelta, *, ended: bool) -> str:
    """One that was made so long ago."""

    def unit(tx: Tx) -> str:
        account = account_rows.load_named(tx, "default")
        assert account is not None
        old = clock.milliseconds(tx.at - age)
        made = deliveries.new_delivery(
            ids.raw(account.id), old.to_bytes(6, "big") + ids.new_raw()[6:], ids.new_raw(), ids.new_raw(),
            ids.new_raw(), "invoice.paid", 30, "replay",
        )  # fmt: skip
        if ended:
            made = made._replace(status="succeeded", ended_at=old, ended_reason="delivered", last_code=200)
        tx.now = old
        delivery_rows.create(tx, [made])
        return ids.text("dlv", made.id)

    return opened.store.run_now(unit)


def test_prune_deletes_what_is_old_and_ended(alone: command.Alone) -> None:
    with closing(app.open_for_use(load({}, alone.environment)).store) as store:
        opened = Runtime(store, None)  # type: ignore[arg-type]
        for _ in range(3):
            deliver(opened, timedelta(days=31), ended=True)
        kept = {deliver(opened, timedelta(days=31), ended=False), deliver(opened, timedelta(days=29), ended=True)}
    result = {each["name"]: each for each in alone.cli_json("store", "prune")}
    assert set(result) == {"default", "gatepost"}
    assert (result["default"]["deliveries_deleted"], result["gatepost"]["deliveries_deleted"]) == (3, 0)
    assert set(result["default"]) == {"account", "name", "deliveries_deleted", "entries_examined"}
    assert {ids.text("dlv", row[0]) for row in alone.execute("SELECT id FROM deliveries")} == kept
    output = alone.cli("store", "prune").stdout.splitlines()
    assert output[0].split() == ["account", "deliveries", "deleted", "entries", "examined"]
    assert output[1].split()[:2] == ["default", "0"]


def test_check_counts_every_delivery(alone: command.Alone) -> None:
    def subscribe(tx: Tx) -> None:
        account = account_rows.load_named(tx, "default")
        assert account is not None
        endpoint = Endpoint(ids.new("ep"), account.id, "https://receiver.example/hooks", tx.at, tx.at)
        endpoint_rows.add(tx, endpoint)
        subscription_rows.add(tx, Subscription(ids.new("sub"), account.id, endpoint.id, ["*"], tx.at, tx.at))

    with closing(app.open_for_use(load({}, alone.environment)).store) as store:
        store.run_now(subscribe)
    made = alone.cli_json("event", "publish", "--account", "default", "--type", "invoice.paid", "--data", "1")
    result = {each["check"]: each for each in alone.cli_json("store", "check")}
    assert result["deliveries of default"]["status"] == "ok"
    assert "deliveries expected 1, found 1" in result["deliveries of default"]["found"]
    alone.execute("DELETE FROM deliveries")
    ended = alone.cli("store", "check", "--json", check=False)
    assert ended.returncode == 1
    found = {each["check"]: each for each in json.loads(ended.stdout)}["deliveries of default"]
    assert found["status"] == "problem"
    assert f"{made['id']} should have 1 deliveries, but has 0" in found["found"]
    assert "deliveries expected 1, found 0" in found["found"]
