"""Who looks: a client's secret or a token, kept in the page's memory and renewed by itself; and what goes wrong."""

import json

import pytest
from playwright.sync_api import Route

from tests.browser.conftest import Opener
from tests.flows.test_delivery import Platform
from tests.service import Client, Service
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def platform(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, f"look-{account_name}")


def test_a_clients_secret_opens_its_account(look: Opener, platform: Platform) -> None:
    seen = look()
    seen.enter(platform.client)
    seen.page.get_by_text(platform.account).first.wait_for()
    seen.heading("No attempts").wait_for()
    seen.heading("No endpoints").wait_for()
    assert {each.url.split("?")[0] for each in seen.asked if each.url.startswith(platform.gatepost.url)} == {
        f"{platform.gatepost.url}/oauth/tokens",
        f"{platform.gatepost.url}/webhooks/deliveries",
    }


def test_so_does_a_client_that_sends_it_in_the_body(look: Opener, platform: Platform) -> None:
    by_post = platform.gatepost.define_client(
        platform.token, scope="gatepost:deliveries", token_endpoint_auth_method="client_secret_post"
    )
    seen = look()
    seen.open()
    seen.page.get_by_label("Authentication method").select_option("client_secret_post")
    seen.give(by_post)
    seen.heading("Health").wait_for()


def test_so_does_a_token(look: Opener, platform: Platform) -> None:
    seen = look()
    seen.open("#/deliveries")
    seen.page.get_by_role("radio", name="Access token").check()
    seen.page.get_by_label("Token", exact=True).fill(platform.token)
    seen.page.get_by_role("button", name="Sign in").click()
    seen.heading("No deliveries yet").wait_for()


def test_a_wrong_secret(look: Opener, platform: Platform) -> None:
    seen = look()
    seen.open()
    seen.give(Client(platform.client.id, "gps_wrong"))
    seen.heading("These credentials are not accepted").wait_for()
    assert not seen.page.locator(".head").count()
    seen.give(platform.client)
    seen.heading("Health").wait_for()


def test_too_many_wrong_secrets(look: Opener, platform: Platform) -> None:
    for _ in range(10):
        platform.gatepost.token_answer(Client(platform.client.id, "gps_wrong"), "gatepost:deliveries")
    seen = look()
    seen.open()
    seen.give(Client(platform.client.id, "gps_wrong"))
    seen.heading("Too many failed attempts").wait_for()
    seen.give(platform.client)
    seen.heading("Health").wait_for()


def test_a_client_or_token_without_the_scope(look: Opener, platform: Platform) -> None:
    without = platform.gatepost.define_client(platform.token, scope="gatepost:events")
    seen = look()
    seen.open()
    seen.give(without)
    seen.heading("The scope gatepost:deliveries is missing").wait_for()
    seen.page.get_by_role("radio", name="Access token").check()
    seen.page.get_by_label("Token", exact=True).fill(platform.gatepost.token(without, "gatepost:events"))
    seen.page.get_by_role("button", name="Sign in").click()
    seen.heading("The scope gatepost:deliveries is missing").wait_for()
    assert "req_" in seen.page.locator(".trace").inner_text()


def test_the_service_is_away_and_back(look: Opener, platform: Platform) -> None:
    seen = look()
    answers = f"{platform.gatepost.url}/**"
    seen.context.route(answers, lambda route: route.abort())
    seen.open()
    seen.give(platform.client)
    seen.heading("The service does not respond").wait_for()
    assert platform.gatepost.url in seen.page.locator(".trouble").inner_text()
    seen.context.unroute(answers)
    seen.give(platform.client)
    seen.page.locator(".figures").wait_for()
    seen.context.route(answers, lambda route: route.abort())
    seen.page.keyboard.press("r")
    seen.page.get_by_text("The data shown was read").first.wait_for()
    assert seen.page.locator(".figures").is_visible(), "what was read stays"
    seen.context.unroute(answers)
    seen.page.keyboard.press("r")
    seen.page.get_by_text("The data shown was read").first.wait_for(state="detached")


def test_a_token_that_ends(look: Opener, platform: Platform) -> None:
    """The view stays in the address: signed in again, one is where one was."""
    seen = look()
    seen.open("#/deliveries?status=failed")
    seen.page.get_by_role("radio", name="Access token").check()
    seen.page.get_by_label("Token", exact=True).fill(platform.gatepost.token(platform.client, "gatepost:deliveries"))
    seen.page.get_by_role("button", name="Sign in").click()
    seen.heading("No deliveries match").wait_for()
    platform.gatepost.cli("token", "revoke", "--client", platform.client.id)
    seen.heading("The token is no longer valid").wait_for()
    assert seen.place == "#/deliveries?status=failed"
    seen.page.get_by_role("radio", name="Client credentials").check()
    seen.give(platform.client)
    seen.heading("No deliveries match").wait_for()


def test_a_secret_gets_another_token_when_one_is_refused(look: Opener, platform: Platform) -> None:
    seen = look()
    seen.enter(platform.client, "#/deliveries")
    seen.heading("No deliveries yet").wait_for()
    assert seen.tokens_asked_for() == 1
    platform.gatepost.cli("token", "revoke", "--client", platform.client.id)
    with seen.page.expect_response(lambda answer: answer.url.endswith("/oauth/tokens") and answer.status == 200):
        pass
    with seen.page.expect_response(lambda answer: "/deliveries" in answer.url and answer.status == 200):
        pass
    assert seen.heading("No deliveries yet").is_visible()
    assert seen.tokens_asked_for() == 2, "several readings share one"


def test_a_token_is_renewed_before_it_ends(look: Opener, platform: Platform) -> None:
    seen = look(own_context=True)
    seen.page.clock.install()
    seen.enter(platform.client, "#/deliveries")
    seen.heading("No deliveries yet").wait_for()
    with seen.page.expect_response(lambda answer: answer.url.endswith("/oauth/tokens") and answer.status == 200):
        seen.page.clock.fast_forward(3575 * 1000)
    assert not [each for each in seen.said if "401" in each]


def test_a_secret_that_ends(look: Opener, platform: Platform) -> None:
    """Renewed by itself until it no longer can be; then it says why."""
    other = platform.gatepost.define_client(platform.token, scope="gatepost:deliveries")
    seen = look()
    seen.enter(other, "#/deliveries")
    seen.heading("No deliveries yet").wait_for()
    platform.gatepost.cli("client", "disable", other.id)
    seen.heading("These credentials are not accepted").wait_for()


def test_what_was_entered_is_nowhere(look: Opener, platform: Platform) -> None:
    """Not in cookies, the address, the page, the browser's console or the service's log.

    The tab alone keeps the token, so that a reload does not end the session. Signing out discards it.
    """
    seen = look()
    seen.enter(platform.client, "#/deliveries?status=failed&secret=from-a-link")
    seen.heading("No deliveries match").wait_for()
    seen.page.get_by_role("radio", name="Dark").check()
    seen.page.get_by_role("link", name="All", exact=True).click()
    seen.heading("No deliveries yet").wait_for()
    token = next(each.headers["authorization"] for each in seen.asked if "/webhooks/" in each.url).split()[1]
    kept = seen.page.evaluate(
        """async () => JSON.stringify([
          {...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state,
          document.documentElement.outerHTML, [...document.querySelectorAll('input')].map(each => each.value),
          await indexedDB.databases(), await caches.keys(), performance.getEntries().map(each => each.name),
        ])"""
    )
    logs = (platform.gatepost.directory.parent / f"{platform.gatepost.directory.name}.log").read_text()
    result = json.dumps([kept, seen.context.storage_state(), seen.said, [each.url for each in seen.asked], logs])
    for secret in (platform.client.secret, platform.client.basic.split()[1]):
        assert secret not in result
    assert result.count(token) == 1
    assert seen.page.evaluate("sessionStorage.getItem('gatepost-token')") == token
    assert "dark" in kept, "or nothing would have been found anyway"
    seen.page.reload()
    seen.heading("No deliveries yet").wait_for()
    assert seen.tokens_asked_for() == 1
    seen.page.get_by_role("button", name="Sign out").click()
    seen.page.reload()
    seen.page.get_by_label("Client ID").wait_for()
    assert not seen.page.get_by_label("Client secret").input_value()
    assert token not in seen.page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")


def test_leaving_forgets(look: Opener, platform: Platform) -> None:
    seen = look()
    seen.enter(platform.client)
    seen.heading("Health").wait_for()
    seen.page.get_by_role("button", name="Sign out").click()
    seen.page.get_by_label("Client ID").wait_for()


def test_the_store_cannot_answer(look: Opener, platform: Platform) -> None:
    def busy(route: Route) -> None:
        body = {"code": "temporarily_unavailable", "detail": "the store cannot answer now"}
        headers = {"Access-Control-Allow-Origin": "*"}
        route.fulfill(status=503, headers=headers, content_type="application/problem+json", body=json.dumps(body))

    seen = look()
    seen.context.route("**/webhooks/deliveries?*", busy)
    seen.enter(platform.client, "#/deliveries")
    seen.heading("The service is temporarily unavailable").wait_for()
    seen.page.get_by_text("the store cannot answer now").wait_for()


def test_what_one_account_confirmed_is_not_sent_by_the_next(
    look: Opener, platform: Platform, sqlite_gatepost: Service, account_name: str
) -> None:
    """The token is renewed before the request. Meanwhile somebody signs out, and another client signs in."""
    other = Platform(sqlite_gatepost, f"other-{account_name}")
    seen = look()
    tokens = f"{sqlite_gatepost.url}/oauth/tokens"

    def issue_for_a_moment(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json=response.json() | {"expires_in": 10})

    seen.context.route(tokens, issue_for_a_moment)
    seen.enter(platform.client)
    seen.heading("No endpoints").wait_for()
    stalled: list[Route] = []

    def stall(route: Route) -> None:
        if route.request.headers["authorization"] == platform.client.basic:
            stalled.append(route)
        else:
            route.continue_()

    def has_stalled() -> bool:
        seen.page.wait_for_timeout(20)
        return bool(stalled)

    seen.context.unroute(tokens)
    seen.context.route(tokens, stall)
    seen.page.get_by_role("button", name="Create an endpoint").first.click()
    seen.page.get_by_label("URL").fill("https://receiver.example/hooks")
    seen.page.get_by_role("dialog").get_by_role("button", name="Create", exact=True).click()
    wait_until(has_stalled, "the renewal")
    seen.page.keyboard.press("Escape")
    seen.page.get_by_role("button", name="Sign out").click()
    seen.give(other.client)
    seen.page.get_by_text(other.account).first.wait_for()
    with seen.page.expect_event("requestfinished", lambda request: request.url == tokens):
        stalled[0].continue_()
    seen.page.evaluate("new Promise((resolve) => setTimeout(resolve, 100))")  # in which it would be sent
    seen.page.reload()
    seen.heading("No endpoints").wait_for()
    assert not [each for each in seen.asked if each.url.endswith("/webhooks/endpoints")]
