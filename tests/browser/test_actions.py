"""What the console changes: every action is confirmed, shown as its request, and done by the service."""

import json
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator

from tests.browser.conftest import Opener
from tests.browser.look import Look
from tests.flows.test_delivery import Json, Platform
from tests.receiver import OK, Receiver, receiver
from tests.service import Service
from tests.waiting import LIMIT

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def target() -> Iterator[Receiver]:
    with receiver(OK) as started:
        yield started


@pytest.fixture
def platform(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, f"act-{account_name}")


def dialog(seen: Look) -> Locator:
    found = seen.page.locator("dialog[open]")
    found.wait_for()
    return found


def shown_request(opened: Locator) -> Json:
    """The body of the request that a dialog shows."""
    text = opened.locator(".preview pre").first.inner_text()
    assert "Idempotency-Key: " in text
    found: Json = json.loads(text.split("\n\n", 1)[1])
    return found


def test_resend_one_delivery(look: Opener, platform: Platform, target: Receiver) -> None:
    """The command that is copied is the same request, with the token from the environment."""
    platform.connect(target.url)
    delivery = platform.send({"order": 1})
    record = platform.once(delivery, "succeeded")
    seen = look()
    seen.enter(platform.client, f"#/delivery?id={delivery}")
    seen.page.get_by_role("button", name="Send again").click()
    opened = dialog(seen)
    assert seen.serious() == []
    body = {"id": record["subscription_id"], "replay": {"event_ids": [record["event"]["id"]]}}
    assert shown_request(opened) == body
    seen.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.get_by_role("button", name="Copy as curl").click()
    opened.get_by_text("Copied").wait_for()
    command = seen.page.evaluate("navigator.clipboard.readText()")
    opened.get_by_role("button", name="Send again").click()
    opened.get_by_text("1 delivery created").wait_for()
    assert len(platform.records(event_id=record["event"]["id"])) == 2
    opened.get_by_role("link", name="Show the deliveries").click()
    assert len(seen.rows()) == 2
    assert platform.token not in command
    done = subprocess.run(
        ["bash", "-c", command], env={"PATH": "/usr/bin:/bin", "GATEPOST_TOKEN": platform.token},
        capture_output=True, text=True, check=True, timeout=LIMIT,
    )  # fmt: skip
    assert "200 OK" in done.stdout
    assert len(platform.records(event_id=record["event"]["id"])) == 2, "repeated with the same key"
