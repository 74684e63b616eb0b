"""The operator's view in a browser: the sign-in with a token, what it shows, and that it is accessible."""

import json

import pytest

from tests.browser.conftest import Account, Opener
from tests.browser.look import PHONE, Look
from tests.flows.test_operator_view import make_token
from tests.service import Service

pytestmark = pytest.mark.xdist_group("browser")


def sign_in(seen: Look, token: str, place: str = "") -> None:
    seen.page.goto(f"{seen.service.ops}/operator/{place}")
    seen.page.get_by_label("Operator token").fill(token)
    seen.page.get_by_role("button", name="Sign in").click()


def test_from_the_sign_in_to_an_entry(look: Opener, sqlite_gatepost: Service, account: Account) -> None:
    seen, token = look(), make_token(sqlite_gatepost)
    name, client = account.platform.name, account.platform.client
    seen.page.goto(f"{sqlite_gatepost.ops}/operator/")
    assert seen.serious() == []
    sign_in(seen, token)
    seen.heading("Signing keys").wait_for()
    assert seen.serious() == []

    seen.page.get_by_role("link", name="Accounts").click()
    seen.page.get_by_role("link", name="First page").or_(seen.page.get_by_text("End of the list.")).first.wait_for()

    seen.page.get_by_label("Open an account or an entry").fill(name)
    seen.page.keyboard.press("Enter")
    seen.page.get_by_text("Sealed up to").wait_for()
    seen.page.get_by_text("intact").wait_for()
    assert seen.serious() == []

    seen.page.get_by_role("link", name="Clients").click()
    seen.page.get_by_text(client.id).first.wait_for()
    seen.page.get_by_role("link", name="Tokens").last.click()
    seen.page.get_by_role("link", name="tok_").first.wait_for()
    assert f"client={client.id}" in seen.place

    seen.page.get_by_role("link", name="Entries").click()
    seen.page.get_by_label("Type").fill("webhook.endpoint.*")
    seen.page.get_by_role("button", name="Filter").click()
    seen.page.get_by_text("webhook.endpoint.removed").first.wait_for()
    assert seen.page.get_by_text("account.created").count() == 0
    assert seen.serious() == []

    created = sqlite_gatepost.entries(account.platform.account)[-1]
    seen.page.get_by_label("Open an account or an entry").fill(created["id"])
    seen.page.keyboard.press("Enter")
    seen.page.get_by_role("main").get_by_text("account.created").wait_for()
    seen.page.get_by_role("link", name=name).wait_for()

    assert {each.method for each in seen.asked} == {"GET"}
    assert all(each.url.startswith(sqlite_gatepost.ops) for each in seen.asked)
    stored = seen.page.evaluate("JSON.stringify([Object.values(sessionStorage), {...localStorage}, document.cookie])")
    assert json.loads(stored) == [[token], {}, ""]
    assert token not in seen.page.url


def test_a_token_that_is_refused(look: Opener, sqlite_gatepost: Service) -> None:
    seen = look()
    sign_in(seen, "gpo_wrong")
    seen.page.get_by_text("the operator token is not valid").wait_for()
    assert seen.page.evaluate("sessionStorage.length") == 0
    seen.page.get_by_label("Operator token").fill(make_token(sqlite_gatepost))
    seen.page.keyboard.press("Enter")
    seen.heading("Overview").wait_for()
    seen.page.reload()
    seen.heading("Overview").wait_for()
    seen.page.evaluate("sessionStorage.setItem('gatepost-operator-token', 'gpo_expired')")
    seen.page.reload()
    seen.heading("Operator sign-in").wait_for()
    seen.page.get_by_text("the operator token is not valid").wait_for()
    assert seen.page.evaluate("sessionStorage.length") == 0


def test_on_a_phone_and_in_the_dark(look: Opener, sqlite_gatepost: Service, account: Account) -> None:
    seen = look(PHONE, "dark")
    sign_in(seen, make_token(sqlite_gatepost), f"#/account?account={account.platform.name}&tab=entries")
    seen.heading("Entries").wait_for()
    seen.page.get_by_text("webhook.").first.wait_for()
    assert seen.overflow() <= 0
    assert seen.serious() == []
    seen.page.get_by_role("button", name="Sign out").click()
    seen.heading("Operator sign-in").wait_for()
    assert seen.page.evaluate("sessionStorage.length") == 0
