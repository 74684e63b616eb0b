"""The examples on the pages match what a running service returns and records."""

import json
import re
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import jwt
import pytest
import requests

from gatepost import accounts
from gatepost.core.errors import ERRORS
from gatepost.ledger import entries
from gatepost.web.app import ROUTES
from tests import command
from tests.docs.pages import REFERENCE, bare, first_column, inline_code, json_with, prose, rows, tables
from tests.docs.reader import Reader
from tests.login import Browser, Platform, redirect_target
from tests.receiver import Answer, receiver
from tests.service import Client, Service
from tests.waiting import LIMIT

HTTP, WEBHOOKS, EVENTS = (REFERENCE / f"{name}.md" for name in ("http", "webhooks", "events"))

pytestmark = pytest.mark.xdist_group("docs")


class Seen(NamedTuple):
    """Responses and ledger entries of a service after each recorded action was done once."""

    client: dict[str, Any]
    scope: dict[str, Any]
    token: dict[str, Any]
    explained: dict[str, Any]
    entries: list[dict[str, Any]]
    refused: Mapping[str, str]
    webhooks: "Webhooks"


class Webhooks(NamedTuple):
    """Responses of the webhook operations."""

    problem: dict[str, Any]
    endpoint: dict[str, Any]
    subscription: dict[str, Any]
    published: dict[str, Any]
    delivery: dict[str, Any]
    summary: dict[str, Any]
    endpoints: dict[str, Any]


@pytest.fixture(scope="module")
def seen(reader: Reader) -> Seen:
    running = reader.service
    _, first = running.account("seen", "access_token_lifetime=600")
    running.cli("account", "set", "seen", "access_token_lifetime=900")
    running.cli("account", "suspend", "seen", "--reason", "unpaid")
    running.cli("account", "resume", "seen")
    admin = running.token(first, "gatepost:clients gatepost:scopes")
    scope = running.post("/oauth/scopes", admin, {"name": "read", "resource": "https://seen.example.com"}).json()
    running.post("/oauth/scopes", admin, {"name": "old"})
    assert running.post("/oauth/scopes", admin, {"name": "old", "status": "retired", "redefine": True}).ok
    assert running.post("/oauth/scopes", admin, {"name": "old", "status": "active"}).status_code == 409
    machine = {"client_name": "Billing", "grant_types": ["client_credentials"], "scope": "read"}
    client = running.post("/oauth/clients", admin, machine).json()
    assert running.post("/oauth/clients", admin, machine | {"scope": "unknown"}).status_code == 400
    shown = Client(client["client_id"], client["client_secret"])
    token = running.token_answer(shown, "read").json()
    assert running.token_answer(shown, "write").status_code == 400
    explained = running.token_answer(shown, "read", {"Prefer": "explain"}).json()
    assert running.post("/oauth/clients", admin, {"client_id": shown.id, "status": "disabled"}).ok
    refused = {path: str(without_scope(running, path, admin)) for path in ROUTES if path.startswith("/webhooks/")}
    event = requests.post(f"{running.ops}/events", headers={"Authorization": f"Bearer {admin}"}, json={}, timeout=LIMIT)
    refused["/events"] = event.headers["Gatepost-Event"]
    webhooks = deliver(reader, first)
    people = sign_in(reader)
    running.cli("key", "rotate", "--alg", "EdDSA", "--now")
    active = next(
        key["id"] for key in running.cli_json("key", "list") if (key["alg"], key["status"]) == ("EdDSA", "active")
    )
    running.cli("key", "revoke", active, "--reason", "compromised", "--yes")
    running.cli("operator", "token", "--reason", "incident 42")
    newest = running.cli_json("audit", "list", "--account", "seen", "--limit", "1")[0]["id"]
    running.cli("audit", "prove", newest, "--account", "seen")  # records the heads now, not once a minute
    found = [
        *running.cli_json("audit", "list", "--account", "seen", "--limit", "1000"),
        *running.cli_json("audit", "list", "--account", accounts.OPERATOR, "--limit", "1000"),
        *people,
        *restore(reader),
    ]
    return Seen(client, scope, token, explained, found, refused, webhooks)


def restore(reader: Reader) -> list[dict[str, Any]]:
    """Restore the store in another directory, as the guide describes a rehearsal."""
    running, rehearsal = reader.service, reader.directory / "rehearsal"
    backup = reader.directory / "rehearsed.db"
    running.cli("store", "backup", str(backup))
    rehearsal.mkdir(mode=0o700)
    shutil.copy(running.directory / "master.key", rehearsal)
    restored = command.alone(rehearsal)
    restored.cli("store", "restore", str(backup))
    found: list[dict[str, Any]] = restored.cli_json(
        "audit", "list", "--account", accounts.OPERATOR, "--type", "account.store.restored"
    )
    return found


def sign_in(reader: Reader) -> list[dict[str, Any]]:
    """Record each event about people once: consent, its revocation, a denial, and errors of a client."""
    platform = Platform(reader.service, "people")
    tokens = platform.tokens()
    assert platform.post("par", scope="").status_code == 400
    again = platform.refresh(tokens["refresh_token"]).json()
    assert platform.refresh(again["refresh_token"]).ok
    assert platform.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert platform.post("revoke", token=platform.tokens()["access_token"]).ok
    browser = Browser()
    interaction = platform.interaction(browser, platform.auth_request())
    said_no = platform.handoff(interaction, error="access_denied", sub=None, scope=None, claims=None, auth_time=None)
    assert redirect_target(platform.submit_handoff(browser, said_no))[1]["error"] == "access_denied"
    offboarding = platform.handoff(interaction, header={"typ": "gatepost-revoke+jwt"}, scope=None, claims=None)
    assert platform.gatepost.session.post(f"{platform.url}/oauth/revoke", data={"token": offboarding}).ok
    return platform.entries()


def deliver(reader: Reader, client: Client) -> Webhooks:
    """Record each webhook event once: one delivery fails permanently, and one with planned retries is cancelled."""
    running = reader.service
    scopes = "gatepost:endpoints gatepost:subscriptions gatepost:deliveries gatepost:events"
    token = running.token(client, scopes)
    bearer = {"Authorization": f"Bearer {token}"}

    def define(what: str, **body: Any) -> dict[str, Any]:
        answer = running.post(f"/webhooks/{what}", token, body)
        assert answer.ok, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def look(query: str) -> dict[str, Any]:
        found: dict[str, Any] = requests.get(
            f"{running.url}/webhooks/deliveries?{query}", headers=bearer, timeout=LIMIT
        ).json()
        return found

    def publish(type_: str) -> dict[str, Any]:
        event = {"specversion": "1.0", "source": "/seen", "id": type_, "type": type_, "data": {}}
        answer = requests.post(f"{running.ops}/events", headers=bearer, json=event, timeout=LIMIT)
        assert answer.status_code == 200, answer.text
        reader.wait()
        found: dict[str, Any] = answer.json()
        return found

    unavailable: Answer = (503, {}, b"")
    with receiver(unavailable) as to:
        problem = running.post("/webhooks/endpoints", token, {"url": to.url, "timeout": 99}).json()
        endpoint = define("endpoints", url=to.url)
        subscription = define("subscriptions", endpoint_id=endpoint["id"], events=["planned.*"])
        published = publish("planned.once")
        [delivery] = look("event_type=planned.once")["data"]
        once = define("endpoints", url=to.url, retry_schedule=[])
        failing = define("subscriptions", endpoint_id=once["id"], events=["failing.*"])
        publish("failing.once")
        define("subscriptions", id=failing["id"], replay={"only": "failed"})
        reader.wait()
        replayed = define("subscriptions", id=failing["id"])
        define("subscriptions", id=failing["id"], events=["*"])
        define("subscriptions", id=failing["id"], status="removed")
        for change in ({"rotate_secret": True}, {"status": "disabled"}, {"status": "active"}, {"status": "removed"}):
            define("endpoints", id=once["id"], **change)
    summary, endpoints = look("view=summary"), look("view=endpoints")
    running.cli("delivery", "cancel", delivery["id"], "--account", "seen")
    shown = subscription | {"replay": replayed["replay"]}
    return Webhooks(problem, endpoint, shown, published, delivery, summary, endpoints)


def without_scope(running: Service, path: str, token: str) -> str | None:
    """Return the entry that records a call without the required scope."""
    method = next(iter(ROUTES[path].methods))
    answer = requests.request(
        method, running.url + path, headers={"Authorization": f"Bearer {token}"}, json={}, timeout=LIMIT
    )
    assert answer.status_code == 403
    return answer.headers.get("Gatepost-Event")


PREFIXES = {
    "account": "acc_", "client": "cli_", "caller": "cli_", "token": "tok_", "family": "fam_", "consent": "con_",
    "interaction": "int_", "key": "key_", "scope's": "", "endpoint": "ep_", "subscription": "sub_", "replay": "rpl_",
    "delivery": "dlv_",
}  # fmt: skip


@pytest.mark.parametrize("kind", entries.TYPES)
def test_entries_match_the_examples(seen: Seen, kind: str) -> None:
    recorded = [each for each in seen.entries if each["type"] == kind]
    assert any(set(entries.TYPES[kind]) <= set(each["data"]) for each in recorded), recorded
    [about] = [row[1] for row in rows(EVENTS, "type", "about") if bare(row[0]) == kind]
    allowed = tuple(PREFIXES[word] for word in re.findall(r"[a-z']+", about) if word in PREFIXES)
    assert allowed
    assert all(each["subject"].startswith(allowed) for each in recorded), recorded


def test_a_whole_entry_matches_the_example(seen: Seen) -> None:
    whole = json_with(EVENTS, "matched")
    assert list(whole) == list(seen.entries[0]) == first_column(EVENTS, "member", "value")
    assert next(list(each["data"]) for each in seen.entries if each["type"] == whole["type"]) == list(whole["data"])


def test_the_ledger_names_no_person(seen: Seen) -> None:
    of_people = [each for each in seen.entries if each["type"].startswith("oauth.consent.")]
    assert of_people
    assert "ada" not in json.dumps(
        [each["data"] for each in seen.entries if each["account"] == of_people[0]["account"]]
    )


def test_webhook_refusals_are_recorded_as_documented(seen: Seen) -> None:
    recorded = {each["id"]: each for each in seen.entries}
    types = {recorded[event]["type"] for event in seen.refused.values()}
    result = {code for code in inline_code(EVENTS) if code.startswith("webhook.") and code.endswith(".refused")}
    assert types == result


def test_webhook_responses_match_the_examples(seen: Seen) -> None:
    found = seen.webhooks
    assert found.problem == json_with(HTTP, "code")
    assert list(found.endpoint) == list(json_with(WEBHOOKS, "held"))
    assert list(found.endpoint["health"]) == list(json_with(WEBHOOKS, "held")["health"])
    assert list(found.endpoint["secrets"][0]) == list(json_with(WEBHOOKS, "held")["secrets"][0])
    subscription = json_with(WEBHOOKS, "endpoint_id")
    assert list(found.subscription) == list(subscription)
    assert set(found.subscription["replay"]) | {"from"} == set(subscription["replay"])
    assert list(found.published) == list(json_with(WEBHOOKS, "again"))
    endpoint, _ = tables(WEBHOOKS, "member of the response", "meaning")
    assert set(endpoint) - {"dropped_headers"} <= set(found.endpoint)
    [record] = tables(WEBHOOKS, "member", "value")
    assert {name.partition(".")[0] for name in record} - {"payload"} <= set(found.delivery)


def test_a_delivery_record_matches_the_example(seen: Seen) -> None:
    record, example = seen.webhooks.delivery, json_with(WEBHOOKS, "retries")
    assert list(record) == list(example)
    for member in ("endpoint", "event", "retries"):
        assert list(record[member]) == list(example[member])
    [attempt], [shown] = record["attempts"], example["attempts"]
    assert list(attempt) == list(shown)
    assert set(attempt["timings"]) <= set(shown["timings"])
    assert list(attempt["waited"]) == list(shown["waited"])
    assert list(record["retries"]["plan"][0]) == list(example["retries"]["plan"][0])
    assert record["retries"]["remaining"] == len(record["retries"]["plan"])
    assert example["retries"]["remaining"] == len(example["retries"]["plan"])
    assert record["retries"]["next_at"] == record["retries"]["plan"][0]["at"]


def test_views_match_the_examples(seen: Seen) -> None:
    summary, example = seen.webhooks.summary, json_with(WEBHOOKS, "total")
    assert list(summary) == list(example)
    assert shape(summary["data"][-1]) == shape(example["data"][0])
    assert shape(summary["total"]) == shape(example["total"])
    assert list(summary["now"]) == list(example["now"])
    assert summary["now"]["counted_to"] == example["now"]["counted_to"]
    assert summary["now"]["pending"] == 1
    [endpoint] = seen.webhooks.endpoints["data"]
    [added] = tables(WEBHOOKS, "added member", "value")
    assert set(endpoint) == {*seen.webhooks.endpoint, *added} - {"secret"}


def shape(found: Any) -> Any:
    return {name: shape(each) for name, each in found.items()} if isinstance(found, dict) else None


def test_responses_match_the_examples(seen: Seen) -> None:
    page = HTTP
    assert list(seen.client) == list(json_with(page, "client_id_issued_at"))
    assert list(seen.scope) == list(json_with(page, "max_lifetime"))
    assert list(seen.token) == list(json_with(page, "access_token"))
    issued = {"decision", "rules", "grant", "scope", "expires_in", "header", "claims"}
    assert set(seen.explained) == issued
    asked = [rule["rule"] for rule in seen.explained["rules"]]
    assert [name for name in first_column(page, "rule", "condition") if name in asked] == asked
    claims = jwt.decode(seen.token["access_token"], options={"verify_signature": False})
    assert list(claims) == first_column(page, "claim", "value")
    header = jwt.get_unverified_header(seen.token["access_token"])
    assert set(header) == {"alg", "typ", "kid"}
    assert header["typ"] == "at+jwt"


def test_metrics_match_the_table(reader: Reader, seen: Seen) -> None:
    """Every metric that is served has a row, and every row names such a metric."""
    assert seen.entries, "something was counted"
    served = requests.get(f"{reader.service.ops}/metrics", timeout=LIMIT).text
    found = set(re.findall(r"^# TYPE (gatepost_\w+)", served, re.MULTILINE))
    result = re.findall(r"^\| `(gatepost_\w+)", prose(REFERENCE / "metrics.md"), re.MULTILINE)
    assert {name for name in found if not name.endswith("_created")} == set(result)


def test_the_operations_plane_requires_its_own_host(reader: Reader) -> None:
    elsewhere = requests.get(f"{reader.service.ops}/metrics", headers={"Host": "gatepost.example"}, timeout=LIMIT)
    assert elsewhere.status_code == ERRORS["misdirected_request"].status
