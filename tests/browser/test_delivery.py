"""One delivery: the sentences of the command, where the time went, what was sent, and the same by curl."""

import json
import re
import subprocess
from datetime import datetime

import pytest
from playwright.sync_api import Route

from gatepost.verify import verify
from tests.browser.conftest import HOSTILE, Account, Opener
from tests.browser.look import Look
from tests.waiting import LIMIT, wait_until

pytestmark = pytest.mark.xdist_group("browser")

_TOLD = """() => [...document.querySelectorAll('.why li')].map((line) => {
  const copy = line.cloneNode(true)
  for (const each of copy.querySelectorAll('button')) each.remove()
  for (const each of copy.querySelectorAll('time')) each.textContent = each.dateTime
  for (const each of copy.querySelectorAll('.command code')) each.textContent = '`' + each.textContent + '`'
  return copy.textContent
})"""


def opened(inside: Look, account: Account, which: str) -> Look:
    """Come from elsewhere, so that nothing of another delivery is seen."""
    inside.go("#/health")
    inside.heading("Health").wait_for()
    inside.go(f"#/delivery?id={account.deliveries[which]}")
    inside.heading("Explanation").wait_for()
    return inside


def alike(sentence: str) -> str:
    """Without what differs between two readings, and what only the command knows."""
    sentence = re.sub(r"in (?:[0-9.]+[dhms]+ ?)+: ", "in a while: ", sentence)
    return re.sub(r"held for longer than .*hold_limit\)?", "held for longer than hold_limit", sentence)


@pytest.mark.parametrize(
    "which",
    ["succeeded", "pending", "failed", "in_flight", "timed out", "gone", "held", "cancelled", "removed"],
)
def test_it_says_what_the_command_says(inside: Look, account: Account, which: str) -> None:
    platform, delivery = account.platform, account.deliveries[which]
    seen = opened(inside, account, which)

    def told() -> list[str]:
        return [alike(each) for each in seen.page.evaluate(_TOLD)]

    def wanted() -> list[str]:
        command = platform.gatepost.cli_json("delivery", "explain", delivery, "--account", platform.account)
        return [alike(each) for each in command["story"]]

    if which == "in_flight":  # what follows assumes that it fails now, and now is later each time
        wait_until(lambda: told()[:3] == wanted()[:3], "the sentences of the command")
    else:
        assert told() == wanted()


def test_attempts_made_and_planned(inside: Look, account: Account) -> None:
    seen = opened(inside, account, "pending")
    record = account.platform.record(account.deliveries["pending"])
    made, coming = seen.page.locator(".timeline .made"), seen.page.locator(".timeline .coming")
    assert made.count() == len(record["attempts"]) == 2
    assert coming.count() == len(record["retries"]["plan"]) == 8
    times = coming.locator("time").evaluate_all("all => all.map(each => each.dateTime)")
    assert times == [each["at"] for each in record["retries"]["plan"]]
    assert "the retry schedule plans it for this time" in coming.first.inner_text()
    assert seen.page.locator(".strip .point").count() == 10


def test_where_the_time_went(look: Opener, account: Account) -> None:
    """Each phase lasts from the end of the phase before it. The response to the page has known timings."""
    seen = look()

    def with_known_timings(route: Route) -> None:
        response = route.fetch()
        page = response.json()
        for delivery in page["data"]:
            for attempt in delivery.get("attempts", []):
                attempt["timings"] = {"dns_ms": 0.25, "connect_ms": 3.5, "tls_ms": 45.5, "first_byte_ms": 1750.5}
                attempt["duration_ms"] = 2000.5
        route.fulfill(response=response, json=page)

    seen.page.route("**/webhooks/deliveries?*", with_known_timings)
    seen.enter(account.platform.client, f"#/delivery?id={account.deliveries['pending']}")
    seen.heading("Explanation").wait_for()
    text = seen.page.locator(".timeline .made").first.locator(".timings").inner_text()
    shown = re.findall(r"(dns|connect|tls|first byte|body) ([0-9.]+ m?s)", " ".join(text.split()))
    wanted = {"dns": "0.3 ms", "connect": "3.3 ms", "tls": "42 ms", "first byte": "1.71 s", "body": "250 ms"}
    assert dict(shown) == wanted
    widths = (
        seen.page.locator(".timeline .made")
        .first.locator(".phase")
        .evaluate_all("all => all.map(each => each.getBoundingClientRect().width)")
    )
    assert len(widths) == len(wanted)
    assert sum(widths) > 100
    assert min(widths) >= 2


def test_a_timeout_shows_where_it_ran_out(inside: Look, account: Account) -> None:
    seen = opened(inside, account, "timed out")
    attempt = seen.page.locator(".timeline .made").first
    assert "failed in first byte" in attempt.inner_text()
    assert attempt.locator(".phase.broken").count() == 1


def test_what_was_sent_and_came_back(inside: Look, account: Account) -> None:
    """Numbers keep their digits, and foreign content is shown as text."""
    seen = opened(inside, account, "succeeded")
    assert "9007199254740993" in seen.page.locator(".json").inner_text()
    assert json.dumps(HOSTILE) in seen.page.locator(".json").inner_text()
    cells = seen.page.locator(".headers code").all_inner_texts()
    headers = dict(zip(cells[::2], cells[1::2], strict=True))
    record = account.platform.record(account.deliveries["succeeded"])
    [came] = [each for each in account.healthy.requests if each.headers["webhook-id"] == record["event"]["id"]][:1]
    for name in ("content-type", "x-team", "webhook-id", "webhook-timestamp"):
        assert headers[name] == came.headers[name]
    seen.go(f"#/delivery?id={account.deliveries['pending']}")
    answer = seen.page.locator(".response pre").first
    answer.wait_for()
    assert answer.inner_text() == HOSTILE
    assert seen.page.title() == "Delivery · Gatepost"


def test_the_same_by_curl(inside: Look, account: Account) -> None:
    """What is copied runs in a shell, and the receiver verifies it."""
    seen = opened(inside, account, "succeeded")
    seen.context.grant_permissions(["clipboard-read", "clipboard-write"])
    seen.page.get_by_role("button", name="Copy as curl").click()
    seen.page.get_by_text("Copied").wait_for()
    command = seen.page.evaluate("navigator.clipboard.readText()")
    secret = account.endpoints["healthy"]["secret"]
    before = len(account.healthy.requests)
    done = subprocess.run(
        ["bash", "-c", command], env={"PATH": "/usr/bin:/bin", "WEBHOOK_SECRET": secret},
        capture_output=True, text=True, check=True, timeout=LIMIT,
    )  # fmt: skip
    assert "200" in done.stdout
    came = account.healthy.wait_for(before + 1)[-1]
    event = verify(secret, came.headers, came.body)
    assert event["data"] == {"order": 9007199254740993, "note": HOSTILE}
    assert came.headers["x-team"] == "a'b"
    without = subprocess.run(
        ["bash", "-c", command],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert without.returncode != 0
    assert "whsec_" in without.stderr
    assert len(account.healthy.requests) == before + 1, "without the secret nothing is sent"


def test_it_follows_what_happens(look: Opener, account: Account) -> None:
    """Held, then let go: the page tells without being asked."""
    platform = account.platform
    endpoint = platform.connect(account.healthy.url, "order.later", status="disabled")
    delivery = platform.send({"order": 10}, "order.later")
    seen = look()
    seen.enter(platform.client, f"#/delivery?id={delivery}")
    seen.page.locator("h1 .status.is-held").wait_for()
    platform.redefine(endpoint, status="active")
    seen.page.locator("h1 .status.is-succeeded").wait_for()
    wait_until(lambda: "delivered" in seen.page.locator(".facts").inner_text(), "the end and its reason")
    seen.page.locator(".why").get_by_text("The receiver responded with a 2xx status.").wait_for()


def test_times_in_utc_or_here(inside: Look, account: Account) -> None:
    record = account.platform.record(account.deliveries["failed"])
    seen = opened(inside, account, "failed")
    shown = seen.page.locator(".facts time").first.inner_text()
    assert datetime.fromisoformat(f"{shown}+00:00") == datetime.fromisoformat(record["created_at"])


def test_no_such_delivery(look: Opener, account: Account) -> None:
    seen = look()
    unknown = account.deliveries["failed"][:-6] + "000000"
    seen.enter(account.platform.client, f"#/delivery?id={unknown}")
    seen.heading("Delivery not found").wait_for()
