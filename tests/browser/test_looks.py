"""For everybody: in light and dark, on a phone, by keys alone, with assistive technology; and only what is allowed."""

import pytest

from tests.browser.conftest import Account, Opener
from tests.browser.look import PHONE, Look
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("browser")


def views(seen: Look, account: Account) -> list[str]:
    """Places, one after the other, once they show something."""
    return [
        "#/health",
        "#/deliveries",
        "#/deliveries?status=held&created_after=2020-01-01T00:00:00Z",
        "#/deliveries?event_type=nothing.such",
        f"#/endpoint?id={account.endpoints['failing']['id']}&range=1h",
        "#/access",
        *(f"#/delivery?id={account.deliveries[each]}" for each in ("pending", "in_flight", "gone")),
    ]


def open_view(seen: Look, place: str) -> None:
    seen.go(place)
    if place.startswith("#/health"):
        seen.page.locator(".plot canvas").nth(1).wait_for()
        seen.page.locator("li.endpoint").first.wait_for()
    elif place.startswith("#/endpoint"):
        seen.page.locator(".plot canvas").nth(1).wait_for()
        seen.page.locator("tr[data-id]").first.wait_for()
    elif place == "#/access":
        seen.heading("What is in a token?").wait_for()
    elif place.startswith("#/deliveries"):
        seen.settled()
    else:
        seen.page.locator(".json").wait_for()
        for each in seen.page.locator(".timeline summary").all():
            each.click()


COLOURS = ["color-contrast", "link-in-text-block"]
_SMALL_TEXTS = """() => [...document.querySelectorAll('body *')]
  .filter(each => [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
  .filter(each => each.checkVisibility() && parseFloat(getComputedStyle(each).fontSize) < 12)
  .map(each => `${getComputedStyle(each).fontSize} ${each.textContent}`)"""


@pytest.mark.parametrize(("theme", "rules"), [("light", []), ("dark", COLOURS)], ids=["light", "dark"])
def test_nobody_is_kept_out(look: Opener, account: Account, theme: str, rules: list[str]) -> None:
    """The themes differ in their colours only."""
    seen = look(theme=theme)
    seen.open()
    seen.page.get_by_label("Client ID").wait_for()
    assert seen.serious(*rules) == []
    seen.give(account.platform.client)
    seen.page.locator(".head").wait_for()
    for place in views(seen, account):
        open_view(seen, place)
        assert seen.serious(*rules) == [], place
        assert seen.page.evaluate(_SMALL_TEXTS) == [], place
    seen.page.keyboard.press("?")
    seen.heading("Keyboard shortcuts").wait_for()
    assert seen.serious(*rules) == []


def test_the_check_finds_what_it_looks_for(look: Opener) -> None:
    seen = look()
    seen.open()
    seen.page.get_by_label("Client ID").wait_for()
    seen.page.evaluate("document.querySelector('.sign-in h1').style.color = '#ddd'")
    assert any(each.startswith("color-contrast") for each in seen.serious())


def test_on_a_phone(look: Opener, account: Account) -> None:
    """In one theme: what test_nobody_is_kept_out checks in both is the colours, the only difference."""
    seen = look(PHONE)
    seen.open()
    seen.page.get_by_label("Client ID").wait_for()
    assert seen.overflow() == 0
    seen.give(account.platform.client)
    seen.page.locator(".head").wait_for()
    for place in views(seen, account):
        open_view(seen, place)
        assert seen.overflow() == 0, place
    assert seen.serious() == []
    seen.go("#/deliveries")
    seen.settled()
    seen.page.get_by_role("button", name="More filters").tap()
    assert seen.overflow() == 0
    seen.page.get_by_label("Last failure").select_option("timeout")
    wait_until(lambda: account.deliveries["succeeded"] not in seen.rows(), "the list of what timed out")
    assert account.deliveries["timed out"] in seen.rows()


def test_by_keys_alone(look: Opener, account: Account) -> None:
    seen = look()
    seen.open()
    page, keys = seen.page, seen.page.keyboard
    page.get_by_label("Client ID").wait_for()
    seen.until("document.activeElement.name === 'id'")
    keys.type(account.platform.client.id)
    keys.press("Tab")
    keys.type(account.platform.client.secret)
    keys.press("Enter")
    seen.heading("Health").wait_for()
    keys.press("2")
    seen.page.locator("a.opens").first.wait_for()
    keys.press("/")
    seen.until("document.activeElement.name === 'event_type'")
    keys.type("order.late")
    keys.press("Enter")
    wait_until(lambda: seen.rows() == [account.deliveries["pending"]], "the list of that type")
    keys.press("Escape")
    keys.press("j")
    keys.press("Enter")
    seen.heading("Explanation").wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
    keys.press("Escape")
    wait_until(lambda: seen.place == "#/deliveries?event_type=order.late", "the list again")
    keys.press("l")
    seen.until("document.querySelector('[role=switch]').ariaChecked === 'false'")
    keys.press("?")
    seen.heading("Keyboard shortcuts").wait_for()
    keys.press("Escape")
    seen.heading("Keyboard shortcuts").wait_for(state="hidden")
    keys.press("1")
    seen.heading("Health").wait_for()


_WORKING = """() => [...document.querySelectorAll('a[href], button, input, select')]
  .filter(each => each.checkVisibility() && !(each.type === 'radio' && !each.checked)).length"""
_RING = """() => {
  const at = document.activeElement
  const ringed = (each) => each && getComputedStyle(each).outlineStyle !== 'none'
  const row = at.closest('tr')
  return ringed(at) || ringed(at.nextElementSibling) || !!row && getComputedStyle(row).boxShadow !== 'none'
}"""


def test_everything_that_works_can_be_reached(look: Opener, account: Account) -> None:
    """Tab goes through every link, button and field that is seen, and each shows that it has the focus."""
    seen = look()
    seen.enter(account.platform.client, "#/deliveries?status=held")
    seen.settled()
    seen.page.get_by_role("switch", name="Live").click()
    wanted = seen.page.evaluate(_WORKING)
    assert wanted > 20
    reached = 0
    for _ in range(2 * wanted + 4):  # it goes round: it began somewhere in the middle
        seen.page.keyboard.press("Tab")
        if seen.page.evaluate("document.activeElement === document.body"):
            continue
        assert seen.page.evaluate(_RING), seen.page.evaluate("document.activeElement.outerHTML")
        reached = seen.page.evaluate(
            "document.activeElement.dataset.reached = 'yes', document.querySelectorAll('[data-reached]').length"
        )
        if reached == wanted:
            break
    assert reached == wanted
    seen.page.get_by_role("button", name="More filters").click()
    seen.page.get_by_label("Created after").focus()
    assert seen.page.evaluate(_RING)


def test_light_or_dark_as_chosen(look: Opener) -> None:
    """The theme is that of the system until the user chooses one, and the choice persists."""
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    dark, light = look(theme="dark"), look()
    for each in (dark, light):
        each.open()
        each.page.get_by_label("Client ID").wait_for()
    in_the_dark = dark.page.evaluate(paper)
    assert in_the_dark != light.page.evaluate(paper)
    light.page.get_by_role("radio", name="Dark").check()
    assert light.page.evaluate(paper) == in_the_dark
    light.page.reload()
    light.page.get_by_label("Client ID").wait_for()
    assert light.page.evaluate(paper) == in_the_dark


def test_states_differ_without_colour(look: Opener, account: Account) -> None:
    """Each has a shape of its own, and its word beside it."""
    seen = look()
    seen.enter(account.platform.client, "#/deliveries")
    seen.settled()
    shapes = seen.page.locator(".statuses svg").evaluate_all("all => all.map(each => each.innerHTML)")
    assert len(shapes) == 6
    assert len(set(shapes)) == 6
    assert all(seen.page.locator("td.state").all_inner_texts())


def test_only_what_is_allowed_runs(look: Opener, account: Account) -> None:
    """The policy holds: no code from elsewhere, no other address is asked. And the tests would hear of it."""
    seen = look()
    seen.enter(account.platform.client)
    seen.heading("Health").wait_for()
    assert seen.page.evaluate(
        """async (url) => {
          try { document.head.append(Object.assign(document.createElement('script'), {textContent: 'taken = 1'})) }
          catch { /* text that becomes code is refused already */ }
          const asked = await fetch(url).then(() => 'answered', () => 'refused')
          return [asked, typeof taken]
        }""",
        account.healthy.url,
    ) == ["refused", "undefined"]
    wait_until(lambda: "violation of connect-src" in seen.heard(), "word of the violation")
    seen.said.clear()
