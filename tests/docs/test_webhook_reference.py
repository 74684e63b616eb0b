"""Members, parameters, numbers and examples on the webhook pages agree with the code."""

import inspect
import json
import re
from base64 import b64encode
from datetime import timedelta
from ipaddress import ip_network

import pytest

from gatepost import accounts, settings
from gatepost.core import clock, ids, secret_rotation, webhook_signature
from gatepost.egress import address_guard
from gatepost.ingest import cloudevents, http
from gatepost.ledger import entries, publishable
from gatepost.verify import TOLERANCE
from gatepost.web import deliveries as web_deliveries
from gatepost.webhooks import (
    decide,
    deliveries,
    endpoints,
    message,
    peers,
    plan,
    replay,
    schedule,
    subscriptions,
    worker,
)
from gatepost.webhooks import listing as units_listing
from gatepost.webhooks import listing_query as listing
from gatepost.webhooks import publish as units_publish
from gatepost.webhooks.claim import LEASE
from gatepost.webhooks.message import EventMessage
from tests.docs.pages import (
    DOCS,
    HOW_TO,
    REFERENCE,
    bare,
    blocks,
    first_column,
    inline_code,
    json_blocks,
    named,
    prose,
    rows,
    section,
    tables,
)

WEBHOOKS, DELIVERIES, EVENTS = (REFERENCE / f"{name}.md" for name in ("webhooks", "deliveries", "events"))
EXPLAINED = DOCS / "explanation" / "deliveries.md"


def test_members() -> None:
    shown = tables(WEBHOOKS, "member", "value", "default", "meaning")
    known = (endpoints.MEMBERS, subscriptions.MEMBERS, subscriptions.REPLAY_MEMBERS)
    assert shown == [list(table.request) for table in known]
    assert first_column(WEBHOOKS, "attribute", "value") == list(cloudevents._CHECKS)
    assert first_column(WEBHOOKS, "content type", "body")[-1] == http.BATCH
    assert set(first_column(WEBHOOKS, "parameter", "value")) == set(web_deliveries.PARAMETERS)


def test_bounds() -> None:
    """Check numbers outside the generated tables."""
    assert timedelta(hours=24) == secret_rotation.OVERLAP
    for size, right in ((24, True), (64, True), (23, False), (65, False)):
        secret = webhook_signature.SECRET + b64encode(b"1" * size).decode()
        assert (endpoints.MEMBERS.problem("secret", secret) == "") is right
    assert "24 to 64 bytes" in section(WEBHOOKS, "POST /webhooks/endpoints")
    assert endpoints.MAX_HELD == listing.MAX_COUNTED == 10_000


def test_hidden_and_forbidden_headers() -> None:
    text = section(WEBHOOKS, "POST /webhooks/endpoints")
    [line] = [line for line in text.splitlines() if line.startswith("- **Headers**")]
    forbidden, hidden = line.split("A value whose header")
    for name in re.findall(r"`([a-z…-]+)`", forbidden):
        assert endpoints.MEMBERS.problem("headers", {name.replace("…", "x"): "v"}), name
    words = re.findall(r"`([a-z]+)`", hidden)
    assert set(words) == set(endpoints._CREDENTIAL.pattern.split("|"))


def test_patterns() -> None:
    exact, below, every = first_column(WEBHOOKS, "pattern", "is for")
    assert subscriptions.MEMBERS.problem("events", [exact, below, every, "oauth.token.*"]) == ""
    assert subscriptions.matches_type([below], "invoice.line.added")
    assert not subscriptions.matches_type([every], "oauth.token.issued")


def test_states_and_ends() -> None:
    result = {bare(row[0]): row for row in rows(DELIVERIES, "status", "goes to", "meaning")}
    assert list(result) == list(deliveries.TRANSITIONS)
    assert all(row[2] for row in result.values()), "say what a state means"
    assert first_column(DELIVERIES, "ended_reason", "status") == list(deliveries.ENDS)
    assert first_column(DELIVERIES, "because", "meaning") == list(deliveries.BECAUSE)
    failures = rows(DELIVERIES, "failure", "meaning")
    assert [bare(row[0]) for row in failures] == list(deliveries.FAILURES)
    assert all(row[1] for row in failures), "say what a failure means"


def test_wait_reasons() -> None:
    """Every wait reason of the schedule is in the table."""
    source = inspect.getsource(schedule) + inspect.getsource(decide)
    result = first_column(DELIVERIES, "waited for", "meaning")
    assert set(result) == {
        word for word in ("plan", "rate_limit", "retry_after", "window", "turn") if f'"{word}"' in source
    }
    assert set(re.findall(r'blocked = "(\w+)"', source)) <= set(result)


def test_numbers_in_the_text() -> None:
    text = prose(DELIVERIES)
    default = accounts.SETTINGS["retry_schedule"].default
    assert default == [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    assert "5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h: ten attempts over about 76 hours" in text
    assert round(sum(default) / 3600) == 76
    assert "at most the endpoint's `max_retry_after`: 1 hour by default, configurable from 1 second to 24 hours" in text
    assert (endpoints.MAX_RETRY_AFTER, *endpoints.RETRY_AFTER_BOUNDS) == (
        3600, 1, 86_400,
    )  # fmt: skip
    assert "up to a tenth" in text
    assert plan._JITTER == 0.1
    assert timedelta(hours=120) == endpoints.DISABLE_AFTER
    assert f"At most {address_guard.MAX_URL} characters" in text
    assert f"`{address_guard.UNICAST}`" in text
    assert decide.INTERRUPTIONS == 3
    assert timedelta(seconds=accounts.SETTINGS["hold_limit"].default) == timedelta(days=7)
    assert timedelta(minutes=5) == TOLERANCE
    assert publishable._LONGEST_TYPE == 128
    assert publishable._LONGEST_ID == 256
    assert entries.MAX_DATA == http.MAX_BODY == 256 * 1024
    assert units_publish.SLICE == http.MAX_BATCH == 100
    assert replay.SLICE == 200
    explained = prose(EXPLAINED)
    assert timedelta(seconds=30) == LEASE
    assert (peers.BEAT_EVERY, peers.DEAD_AFTER, peers.MAX_GAP) == (2.0, 10_000, 5.0)
    assert (worker.POLL_EVERY, worker.SETTLE_FOR) == (1.0, 5.0)
    for words in (
        "timeout plus 30 seconds",
        "beat every 2 seconds",
        "no new heartbeat of it for 10 seconds",
        "10 to 14 seconds after the last heartbeat",
        "a gap of more than 5 seconds",
        "once a second",
        "within 5 more seconds",
    ):
        assert words in explained, words


def test_listing_limits() -> None:
    result = {bare(row[0]): row[1] for row in rows(WEBHOOKS, "parameter", "value")}
    assert [int(number) for number in re.findall(r"\d+", result["limit"])] == [
        1,
        units_listing.MAX_LIMIT,
        units_listing.DEFAULT_LIMIT,
    ]
    text = section(WEBHOOKS, "GET /webhooks/deliveries")
    assert f"at most {listing.MAX_EXAMINED} records" in text
    assert f"over {units_listing.MAX_PAYLOAD // 1024**2} MiB" in text
    assert set(re.findall(r"`(\w+)`", result["status"])) == set(deliveries.TRANSITIONS)
    for query in (text for text in blocks(HOW_TO / "read-a-delivery.md", "sh") if "look '" in text):
        for asked in re.findall(r"look '(.+?)'", query):
            assert isinstance(web_deliveries.query(asked.encode()), units_listing.Query), asked


def test_refused_addresses() -> None:
    result = {
        ip_network(each) for row in rows(DELIVERIES, "what", "networks") for each in re.findall(r"`(.+?)`", row[1])
    }
    assert result == {each.network for each in address_guard.SPECIAL}


@pytest.mark.parametrize("format_", ["standard", "cloudevents"])
def test_the_body_matches_the_example(format_: str) -> None:
    shown = [text for text in blocks(EVENTS, "json") if text.count("\n") == 1]
    [example] = [text for text in shown if ("specversion" in text) == (format_ == "cloudevents")]
    found = json.loads(example)
    at = clock.parse_rfc3339(found.get("timestamp") or found["time"])
    assert at is not None
    account = found.get("account") or found["source"].removeprefix("urn:gatepost:")
    data = json.dumps(found["data"], separators=(",", ":"))
    result = EventMessage(account, found["id"], found["type"], clock.milliseconds(at), data)
    assert message.body(result, format_).decode() + "\n" == example


def test_the_headers_match_the_example() -> None:
    sent = message.headers(message.fixed_headers({}, "standard"), "evt_1", 1, "v1,x")
    assert {line.partition(":")[0] for line in sent} == set(first_column(EVENTS, "header", "value"))
    types = {bare(f"`{each}`") for each in message._TYPES.values()}
    assert types <= set(inline_code(EVENTS))
    assert first_column(EVENTS, "version", "signature") == ["v1", "v1a"]


def test_receiver_settings() -> None:
    code = inline_code(HOW_TO / "send-to-internal-receivers.md")
    assert {"https://", "socks5h://"} <= set(code)
    for scheme in ("http", "https", "socks5h"):
        settings.load({"egress_proxy": f"{scheme}://proxy.example.com:3128"}, {})
    policy = address_guard.Policy(tuple(ip_network(each) for each in ("10.20.0.0/16",)))
    assert address_guard.address_problem(policy, "10.20.1.2", 443) == ""
    assert address_guard.url_problem(policy, "https://hooks.corp.internal/x") == ""
    words = address_guard.address_problem(policy, "10.21.1.2", 443)
    assert f'reason="{words}"' in "".join(blocks(HOW_TO / "send-to-internal-receivers.md", "text"))


def test_ids_in_examples_are_well_formed() -> None:
    """They have the length and the alphabet of real ids."""
    for page in (WEBHOOKS, EVENTS, REFERENCE / "http.md"):
        for text in map(json.dumps, json_blocks(page)):
            for prefix, found in re.findall(r'"([a-z]+)_(0[0-9a-z]+)"', text):
                assert ids.parse(prefix, f"{prefix}_{found}"), f"{named(page)}: {prefix}_{found}"
