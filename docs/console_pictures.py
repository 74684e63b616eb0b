"""Takes the pictures of the console in images/: `.venv/bin/python docs/console_pictures.py`. It needs Chromium.

A service delivers to receivers on the loopback interface. Only their addresses are replaced by example URLs on the way
to the browser, and the counts of the last day are added to the store.
"""

import math
import random  # noqa: TID251 (example data)
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from playwright.sync_api import Browser, Page, Route

DOCS = Path(__file__).parent
IMAGES = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "images"
sys.path.insert(0, str(DOCS.parent))
from gatepost.core import clock, ids  # noqa: E402 (the root is not on the path before)
from gatepost.store.transaction import Tx  # noqa: E402
from gatepost.webhooks import endpoint_rows, summary  # noqa: E402
from tests import command, service  # noqa: E402
from tests.browser import look  # noqa: E402
from tests.browser.look import PHONE  # noqa: E402
from tests.flows.test_delivery import Platform  # noqa: E402
from tests.receiver import Authority, Connection, Raw, receiver  # noqa: E402
from tests.service import Client, Service  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

NO_HEADERS: dict[str, str] = {}
HOUR = 3600
FAILING_SINCE = clock.now() - timedelta(days=4, hours=8)  # of the endpoint that will be disabled soon
# url, description, events, response, seconds until the response
RECEIVERS = (
    ("https://hooks.lumen.example/gatepost", "Lumen billing", ("invoice.*", "order.*"), (200, NO_HEADERS, b"ok"), 0.02),
    ("https://api.northwind.example/v2/webhooks", "Northwind fulfilment", ("order.*",), (200, NO_HEADERS, b""), 0.3),
    ("https://events.quarry.example/in", "Quarry analytics", ("invoice.*",), (503, NO_HEADERS, b"try later"), 0.005),
    ("https://webhooks.tern.example/billing", "Tern", ("invoice.paid",), (429, {"Retry-After": "90"}, b""), 0.01),
    ("https://in.osprey.example/hooks/gatepost", "Osprey CRM", ("customer.*",), (500, NO_HEADERS, b"error"), 0.01),
    ("https://old.harbor.example/hook", "Harbor (old)", ("customer.*",), (410, NO_HEADERS, b""), 0.01),
)
EVENTS = ("order.shipped", "invoice.paid", "customer.created", "invoice.created", "invoice.paid", "order.shipped")


def main() -> None:
    """Start the service, fill it and save all pictures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = Authority(folder)
        gatepost = stack.enter_context(service.running(folder / "data", egress_ca=str(authority.file)))
        addresses: dict[str, str] = {}
        endpoints: dict[str, str] = {}
        platform = Platform(gatepost, "acme")
        for url, description, events, response, delay in RECEIVERS:
            behaviour = Raw(responder(response, delay))
            tls = authority.context("localhost")
            started = stack.enter_context(receiver(behaviour, tls=tls, name="localhost"))
            headers = {"x-team": "data", "x-api-key": "secret"}
            endpoint = platform.connect(started.url, *events, description=description, headers=headers)
            addresses[started.url], endpoints[url] = url, endpoint["id"]
        failing = endpoints["https://events.quarry.example/in"]
        publish(platform)
        wait_until(lambda: bool(retried(platform, failing)), "a second attempt")
        add_history(gatepost, platform, failing)
        browser = stack.enter_context(look.browser())
        delivery = retried(platform, failing)[0]["id"]
        save_pictures(browser, gatepost, platform.client, delivery, failing, addresses)


def responder(response: Any, delay: float) -> Any:
    """Respond to all requests of a connection after a delay."""

    def act(connection: Connection) -> None:
        while connection.read() is not None:
            if connection.wait(delay * random.uniform(0.7, 1.5)):  # noqa: S311 (no secret)
                return
            connection.answer(response)

    return act


def publish(platform: Platform) -> None:
    """Publish some events of each type."""
    for number in range(24):
        type_ = EVENTS[number % len(EVENTS)]
        data = {
            "invoice": f"INV-2026-{4000 + number}",
            "customer": {"id": 7000 + number, "plan": ("team", "solo")[number % 3 == 0]},
        }
        platform.publish(data, type_)
        time.sleep(0.3)


def retried(platform: Platform, endpoint: str) -> list[Any]:
    """Return the pending deliveries of an endpoint with two attempts."""
    records = platform.records(endpoint_id=endpoint, status="pending")
    return [each for each in records if len(each["attempts"]) == 2]


def add_history(gatepost: Service, platform: Platform, failing: str) -> None:
    """Add the counts of the last 23 hours, and a long series of failures of one endpoint."""
    dice = random.Random(7)  # noqa: S311 (no secret)

    def unit(tx: Tx) -> None:
        account, rows = ids.raw(platform.account), []
        this_hour = tx.now // 1000 // HOUR * HOUR
        for ago in range(1, 24):
            since = this_hour - ago * HOUR
            load = int(560 + 240 * math.sin(since / 86_400 * 2 * math.pi - 1.2) + dice.uniform(-25, 25))
            failed = {"5xx": 90 if ago in (9, 10) else dice.randint(2, 9), "4xx": dice.randint(0, 6)}
            failed["none"] = dice.randint(1, 12)
            counts = {"made": load, "ended delivered": load, "attempt 2xx": load}
            counts |= {f"attempt {name}": count for name, count in failed.items()}
            for _ in range(load):
                name = f"ms {summary.bucket(dice.lognormvariate(3.5 + 0.5 * (ago in (9, 10)), 0.9))}"
                counts[name] = counts.get(name, 0) + 1
            rows += [(account, since, HOUR, 0, what, count) for what, count in counts.items() if count]
        tx.write_given("tally", sorted(rows))
        tx.write_given("add_endpoint_tallies", last_hour(account, ids.raw(failing), tx.now // 60_000 * 60, dice))
        endpoint = endpoint_rows.load(tx, platform.account, failing)
        if endpoint is None:
            raise LookupError(failing)
        endpoint_rows.update(tx, msgspec.structs.replace(endpoint, resumed_at=FAILING_SINCE))

    gatepost.opened.store.run_now(unit)
    store = command.Alone(gatepost.directory, "", gatepost.environment)
    statement = "UPDATE health SET failures = 4201, failing_since = ? WHERE endpoint = ?"
    store.execute(statement, clock.milliseconds(FAILING_SINCE), ids.raw(failing))


def last_hour(account: bytes, endpoint: bytes, this_minute: int, dice: random.Random) -> list[Any]:
    """Counts by the minute of an endpoint that fails."""
    counts: Counter[tuple[int, str]] = Counter()
    for ago in range(1, 60):
        minute = this_minute - ago * 60
        for _ in range(dice.randint(5, 9)):
            counts[minute, f"attempt 5xx,ms {summary.bucket(dice.lognormvariate(2.5, 0.6))}"] += 1
        if dice.random() < 0.2:
            counts[minute, "attempt none"] += 1
    return [(account, endpoint, minute, 60, what, count) for (minute, what), count in counts.items()]


def save_pictures(
    browser: Browser, gatepost: Service, client: Client, delivery: str, endpoint: str, addresses: dict[str, str]
) -> None:
    """Save the pictures of all views, and of some dialogs: light and dark, and of the width of a phone."""
    page = new_page(browser, (1280, 620), "light", addresses)
    page.goto(f"{gatepost.ops}/console/")
    page.get_by_label("Client ID").wait_for()
    page.screenshot(path=IMAGES / "console-sign-in.png")
    page.context.close()
    for name, size, theme, place, action in (
        ("health", (1280, 1240), "light", "#/health", ""),
        ("health-dark", (1280, 1240), "dark", "#/health", ""),
        ("health-phone", PHONE, "light", "#/health", ""),
        ("deliveries", (1280, 760), "light", "#/deliveries", ""),
        ("deliveries-dark", (1280, 760), "dark", "#/deliveries", ""),
        ("deliveries-phone-dark", PHONE, "dark", "#/deliveries", ""),
        ("delivery", (1280, 1330), "light", f"#/delivery?id={delivery}", ""),
        ("delivery-dark", (1280, 1330), "dark", f"#/delivery?id={delivery}", ""),
        ("delivery-phone", PHONE, "light", f"#/delivery?id={delivery}", ""),
        ("endpoint", (1280, 1240), "light", f"#/endpoint?id={endpoint}&range=1h", ""),
        ("endpoint-phone-dark", PHONE, "dark", f"#/endpoint?id={endpoint}&range=1h", ""),
        ("subscribe", (1280, 900), "light", f"#/endpoint?id={endpoint}&range=1h", "Subscribe to events"),
        ("explain", (1280, 900), "light", "#/access", ""),
    ):
        page = new_page(browser, size, theme, addresses)
        page.goto(f"{gatepost.ops}/console/")
        page.get_by_label("Client ID").fill(client.id)
        page.get_by_label("Client secret").fill(client.secret)
        page.get_by_role("button", name="Sign in").click()
        page.locator(".head").wait_for()
        page.evaluate("place => { location.hash = place }", place)
        page.mouse.move(0, 0)
        if action:
            page.get_by_role("button", name=action).click()
        if name == "subscribe":
            page.get_by_label("Event types").fill("invoice.*")
            page.get_by_label("Filter").fill('/customer/plan = "team"')
        if name == "explain":
            explain(page, client)
        page.wait_for_timeout(1500)  # until the charts are drawn
        page.screenshot(path=IMAGES / f"console-{name}.png")
        page.unroute_all(behavior="ignoreErrors")
        page.context.close()


def explain(page: Page, client: Client) -> None:
    """Ask for the explanation of a refusal."""
    form = page.get_by_role("region", name="Would this token request succeed?")
    form.get_by_label("Client ID").fill(client.id)
    form.get_by_label("Secret of this client").fill(client.secret)
    form.get_by_label("Scopes").fill("invoices:read")
    form.get_by_role("button", name="Explain").click()
    form.get_by_text("The token would be refused").wait_for()


def new_page(browser: Browser, size: tuple[int, int], theme: Any, addresses: dict[str, str]) -> Page:
    """Return a page that shows the example URLs instead of the addresses of the receivers."""

    def replace(route: Route) -> None:
        response = route.fetch()
        if "json" not in response.headers.get("content-type", ""):
            route.fulfill(response=response)
            return
        body = response.text()
        for address, url in addresses.items():
            body = body.replace(address, url)
        route.fulfill(response=response, body=body)

    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        device_scale_factor=1.5 if size == PHONE else 1,
        timezone_id="UTC",
        color_scheme=theme,
    )
    page = context.new_page()
    page.route("**/*", replace)
    return page


if __name__ == "__main__":
    main()
