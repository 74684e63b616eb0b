"""What the console changes: every action is confirmed, shown as its request, and done by the service."""

import json
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Route
from standardwebhooks import Webhook

from tests.browser.conftest import Opener
from tests.browser.look import PHONE, Look
from tests.flows.test_delivery import Json, Platform
from tests.receiver import OK, Receiver, receiver
from tests.service import Client, Service
from tests.waiting import LIMIT, wait_until

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


def act(seen: Look, name: str) -> Locator:
    """Open the dialog of an action."""
    seen.page.get_by_role("button", name=name, exact=True).first.click()
    return dialog(seen)


def confirm(opened: Locator, verb: str, result: str) -> None:
    """Confirm, wait for the result and close the dialog."""
    opened.get_by_role("button", name=verb, exact=True).click()
    opened.get_by_text(result).first.wait_for()
    opened.get_by_role("button", name="Close").click()
    opened.wait_for(state="hidden")


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
        ["bash", "-c", command], env={"PATH": "/usr/bin:/bin", "TOKEN": platform.token},
        capture_output=True, text=True, check=True, timeout=LIMIT,
    )  # fmt: skip
    assert "200 OK" in done.stdout
    assert len(platform.records(event_id=record["event"]["id"])) == 2, "repeated with the same key"


def test_resend_all_failed_deliveries_of_an_endpoint(look: Opener, platform: Platform) -> None:
    """One request for each subscription of the endpoint."""
    with receiver((500, {}, b"broken")) as broken:
        endpoint = platform.connect(broken.url, "order.paid", retry_schedule=[], description="broken")
        platform.subscription(endpoint, "order.late")
        failed = [platform.send({"order": 1}, "order.paid"), platform.send({"order": 2}, "order.late")]
        for each in failed:
            platform.once(each, "failed")
        seen = look()
        seen.enter(platform.client, f"#/endpoint?id={endpoint['id']}")
        opened = act(seen, "Send failed deliveries again")
        opened.get_by_text("2 failed.").wait_for()
        assert opened.locator(".preview pre").count() == 2
        assert shown_request(opened)["replay"] == {"only": "failed"}
        confirm(opened, "Send again", "2 deliveries created")
        wait_until(lambda: len(platform.records(endpoint_id=endpoint["id"])) == 4, "two more deliveries")


def test_replay_a_time_range(look: Opener, platform: Platform, target: Receiver) -> None:
    endpoint = platform.connect(target.url, "order.*")
    for number in range(3):
        platform.once(platform.send({"order": number}, "order.paid"), "succeeded")
    seen = look()
    seen.enter(platform.client, f"#/endpoint?id={endpoint['id']}")
    opened = act(seen, "Replay a time range")
    opened.get_by_label("From").fill("2020-01-02T03:04:05")
    assert shown_request(opened)["replay"] == {"from": "2020-01-02T03:04:05Z"}
    confirm(opened, "Start the replay", "3 deliveries created")
    wait_until(lambda: len(platform.records(endpoint_id=endpoint["id"])) == 6, "three more deliveries")


def test_the_life_of_an_endpoint(look: Opener, platform: Platform, target: Receiver) -> None:
    """Create, edit, disable, enable, rotate and remove. The secrets that are shown verify what is sent."""
    seen = look()
    seen.enter(platform.client)
    opened = act(seen, "Create an endpoint")
    assert seen.serious() == []
    opened.get_by_label("URL").fill(target.url)
    opened.get_by_label("Name or description").fill("Acme billing")
    opened.get_by_label("Headers").fill("x-team: billing")
    assert shown_request(opened) == {
        "url": target.url, "description": "Acme billing", "headers": {"x-team": "billing"}
    }  # fmt: skip
    opened.get_by_role("button", name="Create", exact=True).click()
    secret = opened.locator(".secret code").inner_text()
    opened.get_by_role("link", name="Acme billing").click()
    seen.heading("Acme billing").wait_for()
    [endpoint] = platform.read(view="endpoints").json()["data"]
    platform.subscription(endpoint, "order.paid")

    opened = act(seen, "Edit")
    opened.get_by_text("Delivery options").click()
    opened.get_by_label("Timeout").fill("31")
    assert shown_request(opened) == {"id": endpoint["id"], "timeout": 31}
    opened.get_by_role("button", name="Save").click()
    opened.get_by_text("timeout: must be").wait_for()
    opened.get_by_label("Timeout").fill("9")
    opened.get_by_label("Retry schedule").fill("5, 60")
    confirm(opened, "Save again", "Changed")
    assert platform.redefine(endpoint)["timeout"] == 9
    assert platform.redefine(endpoint)["retry_schedule"] == [5, 60]

    confirm(act(seen, "Disable"), "Disable", "It is disabled")
    held = platform.send({"order": 1}, "order.paid")
    seen.page.get_by_text("This endpoint is disabled").wait_for()
    platform.once(held, "held")
    confirm(act(seen, "Enable"), "Enable", "It is enabled")
    platform.once(held, "succeeded")
    came = target.requests[-1]
    assert Webhook(secret).verify(came.body, dict(came.headers))

    opened = act(seen, "Rotate the secret")
    opened.get_by_label("The previous secret").select_option("0")
    assert shown_request(opened) == {"id": endpoint["id"], "rotate_secret": {"overlap": 0}}
    opened.get_by_role("button", name="Rotate").click()
    rotated = opened.locator(".secret code").inner_text()
    assert rotated != secret
    opened.get_by_role("button", name="Close").click()
    platform.once(platform.send({"order": 2}, "order.paid"), "succeeded")
    came = target.requests[-1]
    assert Webhook(rotated).verify(came.body, dict(came.headers))
    assert rotated not in seen.page.content()

    confirm(act(seen, "Remove"), "Remove", "It is removed")
    seen.heading("Endpoint not found").wait_for()
    assert platform.read(view="endpoints").json()["data"] == []


def test_subscriptions_with_a_preview(look: Opener, platform: Platform, target: Receiver) -> None:
    """What the preview says matches is what the service matches."""
    everything = platform.connect(target.url, "*", description="everything")
    other = platform.endpoint(target.url, description="other")
    for country in ("NL", "BE", "NL"):
        platform.send({"customer": {"country": country}}, "order.paid")
    platform.send({"customer": {"country": "NL"}}, "invoice.paid")
    seen = look()
    seen.enter(platform.client, f"#/endpoint?id={other['id']}")
    opened = act(seen, "Subscribe to events")
    opened.get_by_text("Matches 0 of 4 recent events").wait_for()
    opened.get_by_label("Event types").fill("order.*")
    opened.get_by_text("Matches 3 of 4 recent events").wait_for()
    opened.get_by_label("Filter").fill('/customer/country = "NL"')
    opened.get_by_text("Matches 2 of 4 recent events").wait_for()
    assert seen.serious() == []
    wanted = {"endpoint_id": other["id"], "events": ["order.*"], "filter": {"/customer/country": "NL"}}
    assert shown_request(opened) == wanted
    confirm(opened, "Subscribe", "The endpoint is subscribed.")
    [subscription] = [
        each
        for endpoint in platform.read(view="endpoints").json()["data"]
        if endpoint["id"] == other["id"]
        for each in endpoint["subscriptions"]
    ]
    assert platform.publish({"customer": {"country": "NL"}}, "order.paid")["matched"] == 2
    assert platform.publish({"customer": {"country": "BE"}}, "order.paid")["matched"] == 1

    row = seen.page.locator("li.subscription")
    row.get_by_role("button", name="Edit").click()
    opened = dialog(seen)
    opened.get_by_label("Filter").fill("")
    assert shown_request(opened) == {"id": subscription["id"], "filter": {}}
    confirm(opened, "Save", "The subscription is changed.")
    assert platform.publish({"customer": {"country": "BE"}}, "order.paid")["matched"] == 2
    row.get_by_role("button", name="Disable").click()
    confirm(dialog(seen), "Disable", "The subscription is disabled.")
    assert platform.publish({}, "order.paid")["matched"] == 1
    row.get_by_role("button", name="Remove").click()
    confirm(dialog(seen), "Remove", "The subscription is removed.")
    seen.heading("No subscriptions").wait_for()
    assert platform.redefine(everything)["status"] == "active"


def test_send_a_test_event(look: Opener, platform: Platform, target: Receiver) -> None:
    """The id of the event is the key: a lost answer can be asked for again."""
    endpoint = platform.connect(target.url, "order.*", description="orders")
    seen = look()
    seen.enter(platform.client, f"#/endpoint?id={endpoint['id']}")
    opened = act(seen, "Send a test event")
    assert opened.get_by_label("Event type").input_value() == "order.test"
    opened.get_by_text("1 endpoint will receive it: orders").wait_for()
    opened.get_by_label("Data").fill('{"order": }')
    opened.get_by_text("valid JSON").wait_for()
    opened.get_by_label("Data").fill('{"order": 17}')
    lost: list[int] = []

    def lose_the_answer(route: Route) -> None:
        lost.append(route.fetch().status)
        route.abort()

    seen.page.route("**/events", lose_the_answer)
    opened.get_by_role("button", name="Send", exact=True).click()
    opened.get_by_text("You can safely repeat it").wait_for()
    assert lost == [200]
    seen.page.unroute("**/events")
    opened.get_by_role("button", name="Send again").click()
    opened.get_by_role("link", name="dlv_").click()
    seen.page.locator("h1 .status.is-succeeded").wait_for()
    [record] = platform.records(endpoint_id=endpoint["id"], include="payload")
    assert record["payload"]["data"] == {"order": 17}


def test_clients_and_scopes(look: Opener, platform: Platform) -> None:
    """Define a scope and a client, open it by its id, rotate its secret and disable it."""
    seen = look()
    seen.enter(platform.client, "#/access")
    opened = act(seen, "Define a scope")
    assert seen.serious() == []
    opened.get_by_label("Name").fill("invoices:read")
    confirm(opened, "Define", "is created")
    opened = act(seen, "Create a client")
    assert seen.serious() == []
    opened.get_by_label("Name").fill("Billing worker")
    opened.get_by_label("Scopes").fill("invoices:read")
    opened.get_by_role("button", name="Create", exact=True).click()
    first = opened.locator(".secret code").inner_text()
    opened.get_by_role("link", name="cli_").click()
    opened.wait_for(state="hidden")
    seen.heading("Billing worker").wait_for()
    client = seen.place.split("client=")[1]
    assert platform.gatepost.token(Client(client, first), "invoices:read")

    opened = act(seen, "Edit")
    opened.get_by_label("Further members").fill('{"contacts": ["ops@example.com"]}')
    assert shown_request(opened) == {"client_id": client, "contacts": ["ops@example.com"]}
    confirm(opened, "Save", "Changed")
    opened = act(seen, "Rotate the secret")
    opened.get_by_label("The previous secret").select_option("0")
    opened.get_by_role("button", name="Rotate").click()
    second = opened.locator(".secret code").inner_text()
    opened.get_by_role("button", name="Close").click()
    assert platform.gatepost.token_answer(Client(client, first), "invoices:read").status_code == 401
    assert platform.gatepost.token(Client(client, second), "invoices:read")
    confirm(act(seen, "Disable"), "Disable", "The client is disabled.")
    assert platform.gatepost.token_answer(Client(client, second), "invoices:read").status_code == 401
    seen.go("#/access?client=cli_00000000000000000000000000")
    seen.heading("The service refused the request").wait_for()


def test_explain_a_token_request(look: Opener, platform: Platform) -> None:
    """The secret is gone from the page as soon as it is sent, and no token is issued."""
    other = platform.gatepost.define_client(platform.token, scope="gatepost:events")
    seen = look()
    seen.enter(platform.client, "#/access")
    form = seen.page.get_by_role("region", name="Would this token request succeed?")

    def explain(scope: str, result: str) -> None:
        form.get_by_label("Client ID").fill(other.id)
        form.get_by_label("Secret of this client").fill(other.secret)
        form.get_by_label("Scopes").fill(scope)
        form.get_by_role("button", name="Explain").click()
        form.get_by_text(result).wait_for()
        assert form.get_by_label("Secret of this client").input_value() == ""
        assert other.secret not in seen.page.content()

    explain("gatepost:clients", "The token would be refused: invalid_scope.")
    assert "Every requested scope is in the client's grant." in form.locator(".refused").inner_text()
    explain("gatepost:events", "The token would be issued.")
    assert other.id in form.locator("pre").inner_text()
    assert seen.serious() == []
    types = [each["type"] for each in platform.gatepost.entries(platform.account, 2)]
    assert types == ["oauth.token.explained", "oauth.token.explained"]
    seen.page.get_by_label("Token", exact=True).fill(platform.token)
    claims = seen.page.get_by_label("Header and claims").inner_text()
    assert json.loads(claims)["claims"]["client_id"] == platform.client.id


def test_what_the_scopes_do_not_allow_is_not_offered(look: Opener, platform: Platform, target: Receiver) -> None:
    """A client gets as many of the scopes as it has."""
    endpoint = platform.connect(target.url)
    delivery = platform.send()
    platform.once(delivery, "succeeded")
    reader = platform.gatepost.define_client(platform.token, scope="gatepost:deliveries")
    seen = look()
    seen.enter(reader, f"#/endpoint?id={endpoint['id']}")
    seen.heading("Latest deliveries").wait_for()
    assert seen.page.locator("[aria-haspopup=dialog]").count() == 0
    seen.go(f"#/delivery?id={delivery}")
    seen.heading("Explanation").wait_for()
    assert seen.page.locator("[aria-haspopup=dialog]").count() == 0
    seen.go("#/access")
    seen.heading("Would this token request succeed?").wait_for()
    assert not seen.heading("Open a client").count()
    keeper = platform.gatepost.define_client(platform.token, scope="gatepost:deliveries gatepost:endpoints")
    other = look()
    other.enter(keeper, f"#/endpoint?id={endpoint['id']}")
    other.heading("Latest deliveries").wait_for()
    assert set(other.page.locator("[aria-haspopup=dialog]").all_inner_texts()) == {
        "Edit", "Disable", "Rotate the secret", "Remove"
    }  # fmt: skip


def test_dialogs_on_a_phone(look: Opener, platform: Platform, target: Receiver) -> None:
    endpoint = platform.connect(target.url, "order.*")
    seen = look(PHONE, "dark")
    seen.enter(platform.client, f"#/endpoint?id={endpoint['id']}")
    for name in ("Edit", "Replay a time range", "Subscribe to events", "Send a test event", "Remove"):
        opened = act(seen, name)
        assert seen.overflow() == 0, name
        assert opened.evaluate("each => each.scrollWidth - each.clientWidth") <= 0, name
        assert seen.serious("color-contrast", "label", "button-name") == [], name
        opened.get_by_role("button", name="Cancel").click()
        opened.wait_for(state="hidden")
