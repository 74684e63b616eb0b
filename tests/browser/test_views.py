"""What the views show is what the operation answers: figures, charts, filters, pages, and what is new."""

import re

import pytest
from playwright.sync_api import APIResponse, Route

from gatepost.core import clock, ids
from gatepost.web.deliveries import VIEWS
from tests.browser.conftest import Account, Opener
from tests.browser.look import Look
from tests.flows.test_delivery import Json, Platform
from tests.service import Service
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("browser")

_PIXELS = """(canvas, name) => {
  const probe = document.body.appendChild(document.createElement('span'))
  probe.style.color = `var(--${name})`
  const [red, green, blue] = getComputedStyle(probe).color.match(/\\d+/g).map(Number)
  probe.remove()
  const pen = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d')
  pen.drawImage(canvas, 0, 0)
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height)
  let found = 0
  for (let at = 0; at < data.length; at += 4)
    found += data[at] === red && data[at + 1] === green && data[at + 2] === blue && data[at + 3] === 255
  return found
}"""


def drawn(seen: Look, chart: int, colour: str) -> int:
    """How many pixels of a chart have a colour of the stylesheet."""
    found: int = seen.page.locator(".plot canvas").nth(chart).evaluate(_PIXELS, colour)
    return found


def test_the_figures_are_the_summarys(look: Opener, account: Account) -> None:
    """One attempt is always under way or about to be: the page and the summary are compared until both know it."""
    seen = look()
    seen.enter(account.platform.client)
    seen.page.locator(".figures").wait_for()

    def missing() -> list[str]:
        summary = account.platform.read(view="summary").json()
        ended, share = summary["total"]["deliveries"]["ended"], summary["total"]["success_ratio"]
        attempts = summary["total"]["attempts"]
        wanted = [
            f"{ended['delivered']} of {sum(ended.values())} ended deliveries",
            f"{attempts['2xx']} of {sum(attempts.values()) - attempts['interrupted'] - attempts['not_sent']} attempts",
            "1 endpoint gone",
            "1 attempts exhausted",
            re.escape(f"{int(share * 10_000) / 100:.2f}"),
            *("median of answered attempts", "p95", "p99"),
            rf"Held\s+{summary['now']['held']}",
            rf"Pending\s+{summary['now']['pending']}\s+oldest",
        ]
        text = seen.page.locator(".figures").inner_text()
        return [each for each in wanted if not re.search(each, text)]

    wait_until(lambda: not missing(), "the figures of the summary")


def test_the_charts_are_drawn(look: Opener, account: Account) -> None:
    """From one summary, read once, with durations that are far enough apart for lines of their own."""
    seen = look()
    read: list[tuple[APIResponse, Json]] = []

    def always_the_same(route: Route) -> None:
        if not read:
            response = route.fetch()
            summary = response.json()
            for each in summary["data"]:
                if each["duration_ms"]["p50"] is not None:
                    each["duration_ms"] = {"p50": 10, "p95": 200, "p99": 4000}
            read.append((response, summary))
        response, summary = read[0]
        route.fulfill(response=response, json=summary)

    seen.page.route(re.compile("view=summary"), always_the_same)
    seen.enter(account.platform.client)
    seen.page.locator(".plot canvas").nth(1).wait_for()
    wait_until(lambda: drawn(seen, 0, "class-2xx") > 20, "bars of what was delivered")
    wait_until(lambda: drawn(seen, 0, "class-5xx") > 20, "bars of what failed")
    wait_until(lambda: drawn(seen, 1, "line-p50") > 2, "a line or a point of p50")
    wait_until(lambda: drawn(seen, 1, "line-p99") > 2, "a line or a point of p99")
    light = drawn(seen, 0, "class-2xx")
    seen.page.get_by_role("radio", name="Dark").check()
    wait_until(lambda: drawn(seen, 0, "class-2xx") == light, "the same bars in the colours of the dark")


def test_the_charts_are_tables_too(look: Opener, account: Account) -> None:
    seen = look()
    seen.enter(account.platform.client)
    seen.page.get_by_text("As a table").first.click()
    last = seen.page.locator(".as-table tbody").first.locator("tr").last
    attempts = account.platform.read(view="summary").json()["data"][-1]["attempts"]
    assert last.locator("td").first.inner_text() == f"{attempts['2xx']:,}"


def test_a_chart_leads_to_its_deliveries(look: Opener, account: Account) -> None:
    """By keys: back to the hour in which it was made, the newest or the one before, and Enter."""
    made = ids.made_at(ids.raw(account.deliveries["succeeded"]))
    seen = look()
    seen.enter(account.platform.client)
    seen.page.locator(".plot").first.focus()
    for _ in range(1 + int(clock.now().timestamp() // 3600 - made.timestamp() // 3600)):
        seen.page.keyboard.press("ArrowLeft")
    seen.page.keyboard.press("Enter")
    seen.heading("Deliveries").wait_for()
    assert re.fullmatch(r"#/deliveries\?created_after=[-0-9T:]+Z&created_before=[-0-9T:]+Z", seen.place)
    assert account.deliveries["succeeded"] in seen.rows()


def test_ranges_are_in_the_address(look: Opener, account: Account) -> None:
    seen = look()
    seen.enter(account.platform.client, "#/health?range=30d")
    seen.page.get_by_text("by day").wait_for()
    seen.page.get_by_role("link", name="7 days").click()
    seen.page.get_by_text("by hour").wait_for()
    assert seen.place == "#/health?range=7d"


@pytest.mark.parametrize("name", ["constructor", "__proto__", "1y", "%"])
def test_an_unknown_range_is_the_default(inside: Look, name: str) -> None:
    inside.go(f"#/health?range={name}")
    inside.heading("Health").wait_for()
    assert inside.page.get_by_role("link", name="24 hours").get_attribute("aria-current") == "true"


def test_an_address_without_an_endpoint(inside: Look) -> None:
    inside.go("#/endpoint")
    inside.heading("Endpoint not found").wait_for()


LONG_NAME = "W" * 249 + "\u202e" + "W" * 249  # with a mark that reverses what follows


def test_a_long_name_does_not_widen_a_page(look: Opener, own: tuple[Platform, Json]) -> None:
    platform, endpoint = own
    platform.redefine(endpoint, description=LONG_NAME)
    platform.send()
    seen = look()
    seen.enter(platform.client)
    for place in ("#/health", f"#/endpoint?id={endpoint['id']}", "#/deliveries"):
        seen.go(place)
        seen.page.get_by_text(LONG_NAME[:20]).locator("visible=true").first.wait_for()
        assert seen.overflow() <= 0, place
    named = seen.page.evaluate("getComputedStyle(document.querySelector('td')).unicodeBidi")
    assert named == "isolate"


def test_what_needs_attention_comes_first(look: Opener, account: Account) -> None:
    seen = look()
    seen.enter(account.platform.client)
    seen.page.locator("li.endpoint").first.wait_for()
    endpoints = len(account.platform.read(view="endpoints").json()["data"])
    words = seen.page.locator("li.endpoint .status").all_inner_texts()
    text = seen.page.locator(".attention").inner_text()
    assert f"{words.count('Failing')} of {endpoints} endpoints failing" in text
    assert f"{words.count('Disabled')} disabled" in text
    assert re.search(r"\d+ deliveries waiting, oldest ", text)
    seen.page.locator(".attention").get_by_role("link", name="given up").click()
    seen.page.get_by_text("Nothing succeeds at this endpoint.").wait_for()


def test_an_endpoint_has_its_own_charts(look: Opener, account: Account) -> None:
    """In the last hour by minute, and what a chart opens is of this endpoint."""
    seen = look()
    seen.enter(account.platform.client, f"#/endpoint?id={account.endpoints['given up']['id']}&range=1h")
    seen.page.get_by_text("by minute").wait_for()
    seen.page.get_by_text("0 of 1 ended delivery").wait_for()
    seen.page.get_by_text("1 attempts exhausted").wait_for()
    seen.page.locator(".plot").first.focus()
    seen.page.keyboard.press("ArrowLeft")
    seen.page.keyboard.press("Enter")
    seen.settled()
    assert f"endpoint_id={account.endpoints['given up']['id']}&created_after=" in seen.place


def test_endpoints_in_trouble_come_first(look: Opener, account: Account) -> None:
    seen = look()
    seen.enter(account.platform.client)
    rows = seen.page.locator("li.endpoint")
    rows.first.wait_for()
    words = rows.locator(".status").all_inner_texts()
    assert words == sorted(words, key=["Failing", "Degraded", "Disabled", "Healthy"].index)
    text = rows.filter(has_text=account.endpoints["failing"]["description"]).first.inner_text()
    assert "disabled in 4d 23h unless it succeeds" in text
    paused = rows.filter(has=seen.page.get_by_text("paused", exact=True))
    assert "on request" in paused.inner_text()
    paused.get_by_role("link", name="1 held").click()
    assert seen.rows() == [account.deliveries["held"]]


# --- the list


def test_every_filter_of_the_operation_is_there(look: Opener, account: Account) -> None:
    seen = look()
    seen.enter(account.platform.client, "#/deliveries")
    seen.page.get_by_role("button", name="More filters").click()
    named = set(seen.page.locator(".filters [name]").evaluate_all("all => all.map(each => each.name)"))
    assert named | {"status"} == set(VIEWS["deliveries"]) - {"cursor", "include"}


def test_filters_and_the_address(look: Opener, account: Account) -> None:
    """The filters are part of the URL, and the page shows what the API returns for them."""
    platform, failing = account.platform, account.endpoints["failing"]["id"]
    record = platform.record(account.deliveries["pending"])
    seen = look()
    seen.enter(platform.client, "#/deliveries")
    page = seen.page
    page.get_by_role("link", name="pending").click()
    page.get_by_label("Endpoint").select_option(failing)
    page.get_by_label("Event type").fill("order.late")
    page.get_by_label("Event type").press("Enter")
    page.get_by_label("Last code").fill("5xx")
    page.get_by_label("Last code").press("Enter")
    page.get_by_role("button", name="More filters").click()
    page.get_by_label("Event ID").fill(record["event"]["id"])
    page.get_by_label("Subscription ID").fill(record["subscription_id"])
    page.get_by_label("Created after").fill("2020-01-02T03:04:05")
    page.get_by_label("Due before").fill("2099-01-02T03:04:05")
    page.get_by_label("Due before").press("Tab")
    wait_until(lambda: "due_before" in seen.place, "the last filter to be in the address")
    assert seen.place == (
        f"#/deliveries?status=pending&event_type=order.late&endpoint_id={failing}"
        f"&subscription_id={record['subscription_id']}&event_id={record['event']['id']}&response_code=5xx"
        "&created_after=2020-01-02T03:04:05Z&due_before=2099-01-02T03:04:05Z"
    )
    assert seen.rows() == [record["id"]]
    other = look()
    other.enter(platform.client, seen.place)
    assert other.rows() == [record["id"]]
    assert other.page.get_by_label("Subscription ID").input_value() == record["subscription_id"]
    assert other.page.get_by_label("Created after").input_value() == "2020-01-02T03:04:05"
    other.page.get_by_role("link", name="Clear").click()
    wait_until(lambda: other.place == "#/deliveries", "an address without filters")
    assert set(other.rows()) >= set(account.deliveries.values())


@pytest.mark.parametrize(
    "query",
    [
        {"status": "held"}, {"status": "in_flight"}, {"status": "cancelled"}, {"failure": "timeout"},
        {"response_code": "410"}, {"due_before": "2099-01-01T00:00:00Z"}, {"order": "oldest", "limit": "3"},
        {"created_before": "2020-01-01T00:00:00Z"},
    ],
    ids=lambda query: "-".join(query.values()),
)  # fmt: skip
def test_a_shared_address(inside: Look, account: Account, query: dict[str, str]) -> None:
    place = "#/deliveries?" + "&".join(f"{name}={value}" for name, value in query.items())
    inside.go(place)

    def answered() -> list[str]:
        return [each["id"] for each in account.platform.read(**query).json()["data"]]

    wait_until(lambda: inside.rows() == answered(), "the rows that the operation answers")


def test_what_is_half_typed_stays(look: Opener, account: Account) -> None:
    """However often the list is read and drawn meanwhile."""
    seen = look()
    seen.enter(account.platform.client, "#/deliveries")
    seen.settled()
    seen.page.get_by_label("Event type").press_sequentially("order.pa")
    before = seen.page.locator(".read-at time").get_attribute("datetime")
    wait_until(
        lambda: seen.page.locator(".read-at time").get_attribute("datetime") != before, "the list to be read again"
    )
    seen.page.get_by_label("Event type").press_sequentially("id")
    assert seen.place == "#/deliveries"
    seen.page.get_by_label("Event type").press("Enter")
    wait_until(lambda: seen.place == "#/deliveries?event_type=order.paid", "the filter in the address")


def test_pages(look: Opener, account: Account) -> None:
    everything = [each["id"] for each in account.platform.read().json()["data"]]
    seen = look()
    seen.enter(account.platform.client, "#/deliveries?limit=4")
    found = [seen.rows()]
    for _ in range(2):
        seen.page.get_by_role("link", name="Older").click()
        wait_until(lambda: seen.rows() not in found, "the next page")
        found.append(seen.rows())
    assert found == [everything[:4], everything[4:8], everything[8:]]
    seen.page.get_by_text("End of the list.").wait_for()
    seen.page.get_by_role("button", name="Back").click()
    wait_until(lambda: seen.rows() == found[1], "the page before")
    seen.page.get_by_role("link", name="First page").click()
    wait_until(lambda: seen.rows() == found[0], "the first page")


def test_counts_on_the_tabs(look: Opener, account: Account) -> None:
    """Of the account or of one endpoint; with another filter there are none."""
    seen = look()
    seen.enter(account.platform.client, f"#/deliveries?endpoint_id={account.endpoints['paused']['id']}")
    tab = seen.page.get_by_role("navigation", name="Status").get_by_role("link")
    wait_until(lambda: tab.filter(has_text="Held").inner_text().split() == ["Held", "1"], "the count of the tab")
    assert tab.filter(has_text="Cancelled").inner_text().split() == ["Cancelled", "1"]
    seen.go("#/deliveries?event_type=order.paid")
    wait_until(lambda: tab.filter(has_text="Held").inner_text().split() == ["Held"], "no counts")


def test_a_refused_request_is_not_repeated(look: Opener, account: Account) -> None:
    """Each refusal is on record, so it is not asked again and again."""
    seen = look(own_context=True)
    seen.page.clock.install()
    seen.enter(account.platform.client, "#/deliveries?event_type=Not%20a%20type")
    seen.heading("The service refused the request").wait_for()
    seen.page.get_by_text("must be an event type").wait_for()
    seen.page.clock.run_for(60_000)
    refused = [each.url for each in seen.asked if "event_type" in each.url and each.method == "GET"]
    assert len(refused) == 1


@pytest.fixture
def own(sqlite_gatepost: Service, account_name: str, account: Account) -> tuple[Platform, Json]:
    platform = Platform(sqlite_gatepost, f"live-{account_name}")
    return platform, platform.connect(account.healthy.url)


def test_live(look: Opener, own: tuple[Platform, Json]) -> None:
    platform, _ = own
    seen = look()
    seen.enter(platform.client, "#/deliveries")
    seen.heading("No deliveries yet").wait_for()
    first = platform.send()
    seen.page.locator(f"tr[data-id={first}]").wait_for()
    second = platform.send()
    seen.page.locator(f"tr[data-id={second}].fresh").wait_for()
    assert seen.rows() == [second, first]
    seen.page.locator(f"tr[data-id={second}].is-succeeded").wait_for()


def test_not_live(look: Opener, own: tuple[Platform, Json]) -> None:
    """Switched off it reads when asked, and stays off over a reload."""
    platform, _ = own
    seen = look(own_context=True)
    seen.page.clock.install()
    seen.enter(platform.client, "#/deliveries")
    seen.heading("No deliveries yet").wait_for()
    seen.page.get_by_role("switch", name="Live").click()
    seen.until("document.querySelector('[role=switch]').ariaChecked === 'false'")
    seen.page.reload()
    seen.heading("No deliveries yet").wait_for()
    before = len(seen.asked)
    sent = platform.send()
    seen.page.clock.run_for(60_000)
    assert len(seen.asked) == before
    seen.page.keyboard.press("r")
    seen.page.locator(f"tr[data-id={sent}]").wait_for()
