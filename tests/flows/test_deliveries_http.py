"""GET /webhooks/deliveries from outside: what may be asked, what is refused and recorded, and whose records it has."""

from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import requests

from gatepost.core import ids
from gatepost.store.transaction import Tx
from gatepost.webhooks import deliveries, delivery_rows
from gatepost.webhooks.deliveries import Delivery
from tests.service import Service
from tests.wire import check_every_answer, check_refusal

PATH = "/webhooks/deliveries"


class Tenant:
    """An account with a disabled endpoint, a subscription, and deliveries that are held for it."""

    def __init__(self, gatepost: Service, name: str) -> None:
        self.gatepost = gatepost
        self.account, self.client = gatepost.account(name)
        self.token = gatepost.token(self.client, "gatepost:deliveries gatepost:endpoints gatepost:subscriptions")
        url = {"url": f"https://{name}.example.com/hooks", "status": "disabled"}
        self.endpoint = self._define("/webhooks/endpoints", url)
        self.subscription = self._define(
            "/webhooks/subscriptions", {"endpoint_id": self.endpoint, "events": ["invoice.paid"]}
        )
        self.event = ids.new("evt")
        self.deliveries = [ids.text("dlv", each.id) for each in self._deliver(5)]

    def _define(self, path: str, body: dict[str, Any]) -> str:
        answer = self.gatepost.post(path, self.token, body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def _deliver(self, count: int) -> list[Delivery]:
        raw = [ids.raw(each) for each in (self.account, self.subscription, self.endpoint, self.event)]

        def unit(tx: Tx) -> list[Delivery]:
            account, subscription, endpoint, event = raw
            made = [
                deliveries.new_delivery(account, ids.new_raw(), subscription, endpoint, event, "invoice.paid", 30)
                for _ in range(count)
            ]
            delivery_rows.create(tx, made)
            return made

        return self.gatepost.opened.store.run_now(unit)

    def get(self, query: str | dict[str, Any] = "", method: str = "GET", **headers: str) -> requests.Response:
        text = query if isinstance(query, str) else urlencode(query)
        sent = {"Authorization": f"Bearer {self.token}"} | headers
        return self.gatepost.session.request(method, f"{self.gatepost.url}{PATH}?{text}", headers=sent)

    def ids(self, **query: Any) -> list[str]:
        answer = self.get(query)
        assert answer.status_code == 200, answer.text
        return [each["id"] for each in answer.json()["data"]]


class Two(NamedTuple):
    one: Tenant
    other: Tenant


@pytest.fixture(scope="module")
def two(gatepost: Service) -> Two:
    return Two(Tenant(gatepost, "listing-one"), Tenant(gatepost, "listing-other"))


@pytest.fixture(scope="module")
def sqlite_one(sqlite_gatepost: Service) -> Tenant:
    """For rules that no store can change."""
    return Tenant(sqlite_gatepost, "listing-sqlite")


@pytest.fixture
def one(two: Two) -> Tenant:
    return two.one


# --- what may be asked


def test_a_page(one: Tenant) -> None:
    answer = one.get()
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Type"] == "application/json"
    check_every_answer({name.lower(): value for name, value in answer.headers.items()})
    assert "Gatepost-Event" not in answer.headers
    assert set(answer.json()) == {"data", "next_cursor"}
    assert [each["id"] for each in answer.json()["data"]] == one.deliveries[::-1]
    assert answer.json()["next_cursor"] is None
    first = answer.json()["data"][0]
    assert (first["status"], first["account"], first["endpoint"]["id"]) == ("held", one.account, one.endpoint)


def test_head_is_the_same_without_the_body(one: Tenant) -> None:
    head, get = one.get("limit=2", "HEAD"), one.get("limit=2")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]
    assert one.get("limit=0", "HEAD").status_code == 400


def test_reading_writes_nothing(one: Tenant) -> None:
    before = one.gatepost.entries(one.account)
    for query in ("", "status=failed", "view=summary", "view=endpoints", "limit=1"):
        assert one.get(query).status_code == 200
    assert one.gatepost.entries(one.account) == before


def test_filters(one: Tenant) -> None:
    for query in (
        {"endpoint_id": one.endpoint}, {"subscription_id": one.subscription}, {"event_id": one.event},
        {"event_type": "invoice.paid"}, {"status": "held"}, {"created_after": "2020-01-01T00:00:00Z"},
        {"created_before": "2100-01-01T00:00:00+01:00"}, {"created_before": "9999-12-31T23:59:59.999999Z"},
        {"created_after": "0001-01-01T00:00:00Z"},
    ):  # fmt: skip
        assert one.ids(**query) == one.deliveries[::-1], query
    for query in (
        {"order": "oldest"}, {"due_before": "2100-01-01T00:00:00Z"},
        {"due_before": "2100-01-01T00:00:00Z", "limit": "5"},
    ):  # fmt: skip
        assert sorted(one.ids(**query)) == one.deliveries, query
    for query in (
        {"status": "pending"}, {"status": "in_flight"}, {"status": "succeeded"}, {"response_code": "5xx"},
        {"response_code": "404"}, {"failure": "timeout"}, {"created_before": "2020-01-01T00:00:00Z"},
        {"created_before": "0001-01-01T00:00:00Z"}, {"due_before": "1960-01-01T00:00:00Z"}, {"event_type": "a.b"},
        {"due_before": "2100-01-01T00:00:00Z", "status": "failed"},
    ):  # fmt: skip
        assert one.ids(**query) == [], query
    for wanted in one.deliveries:
        assert one.ids(id=wanted) == [wanted]


def test_pages_to_the_end(one: Tenant) -> None:
    for order, expected in (("newest", one.deliveries[::-1]), ("oldest", one.deliveries)):
        found: list[str] = []
        query: dict[str, Any] = {"order": order, "limit": 2}
        while True:
            body = one.get(query).json()
            found += [each["id"] for each in body["data"]]
            if body["next_cursor"] is None:
                break
            query["cursor"] = body["next_cursor"]
        assert found == expected


def test_views(one: Tenant) -> None:
    summary = one.get(
        "view=summary&interval=day&created_after=2026-01-01T00:00:00Z&created_before=2026-01-04T00:00:00Z"
    )
    assert [each["start"][:10] for each in summary.json()["data"]] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert summary.json()["now"]["held"] == 5
    whole, part = (
        one.get({"view": "summary", "interval": "minute"} | of) for of in ({}, {"endpoint_id": one.endpoint})
    )
    assert len(part.json()["data"]) in (60, 61)
    assert part.json()["total"] == whole.json()["total"]
    assert part.json()["now"] == whole.json()["now"]
    endpoints = one.get("view=endpoints&limit=1").json()
    shown = endpoints["data"][0]
    assert (shown["condition"], shown["waiting"], shown["last_delivery"]["id"]) == ("disabled", 5, one.deliveries[-1])
    assert [each["id"] for each in endpoints["data"]] == [one.endpoint]
    assert endpoints["next_cursor"] is None
    assert endpoints["data"][0]["held"] == 5
    assert [each["id"] for each in endpoints["data"][0]["subscriptions"]] == [one.subscription]


# --- what is refused

BAD: list[tuple[str, str]] = [
    ("limit=0", "limit"), ("limit=201", "limit"), ("limit=-1", "limit"), ("limit=ten", "limit"), ("limit=1.0", "limit"),
    ("limit=%31%30%30%30", "limit"), ("limit=%D9%A1", "limit"), ("limit=+5", "limit"),
    ("order=due", "order"), ("order=Newest", "order"),
    ("status=open", "status"), ("status=Failed", "status"), ("status=failed,cancelled", "status"),
    ("response_code=5", "response_code"), ("response_code=6xx", "response_code"),
    ("response_code=50x", "response_code"), ("response_code=5XX", "response_code"),
    ("response_code=%D9%A5%D9%A0%D9%A3", "response_code"),
    ("failure=tcp", "failure"), ("failure=none", "failure"),
    ("event_type=invoice", "event_type"), ("event_type=invoice.*", "event_type"), ("event_type=a.%E9", "UTF-8"),
    ("id=1", "id"), ("id=ep_06d8un0u5du3r3ifb9lnp3culs", "id"), ("id=dlv_06d8un0u5du3r3ifb9lnp3cult", "id"),
    ("id=dlv_06D8UN0U5DU3R3IFB9LNP3CULS", "id"), ("endpoint_id=ep_", "endpoint_id"),
    ("subscription_id=sub_06d8un0u5du3r3ifb9lnp3cul", "subscription_id"), ("event_id=*", "event_id"),
    ("created_after=yesterday", "created_after"), ("created_after=2026-11-15", "created_after"),
    ("created_before=2026-11-15T08:00:00", "created_before"), ("created_before=1794700800", "created_before"),
    ("created_after=2026-11-15T08:00:00+01:00", "%2B"), ("due_before=2026-13-01T00:00:00Z", "due_before"),
    ("created_after=0001-01-01T00:00:00%2B14:00", "created_after"),
    ("include=secrets", "include"), ("include=payload,", "include"), ("include=payload,payload", "include"),
    ("include=payload%20responses", "include"),
    ("cursor=x", "cursor"), ("cursor=%00", "NUL"), ("cursor=" + "A" * 43, "cursor"), ("cursor=" + "A" * 5000, "cursor"),
    ("view=deliveries", "view"), ("view=Summary", "view"), ("view=summary&interval=week", "interval"),
    ("interval=hour", "interval"), ("view=summary&limit=5", "limit"), ("view=summary&status=failed", "status"),
    ("view=endpoints&status=active", "status"), ("view=endpoints&order=oldest", "order"),
    ("view=endpoints&include=payload", "include"),
    ("view=summary&created_after=2026-11-15T00:00:00Z&created_before=2026-11-15T00:00:00Z", "created_after"),
    ("view=summary&created_after=2020-01-01T00:00:00Z", "1000 intervals"),
    ("view=summary&created_after=2999-01-01T00:00:00Z", "created_after"),
    ("view=summary&interval=minute&created_after=2999-01-01T00:00:00Z", "created_after: must be before"),
    ("view=summary&interval=minute&created_after=2020-01-01T00:00:00Z", "at most 3 hours before created_before"),
    ("view=summary&interval=minute&created_before=2020-01-01T00:00:00Z", "at most 3 hours ago"),
    ("view=summary&endpoint_id=ep_", "endpoint_id"), ("view=summary&event_id=*", "event_id"),
    ("view=endpoints&endpoint_id=ep_06d8un0u5du3r3ifb9lnp3culs", "endpoint_id: not allowed with view=endpoints"),
    ("view=summary&created_before=0001-01-01T00:00:00Z", "created_after"),
    ("state=failed", "state: unknown parameter"), ("Status=failed", "Status: unknown parameter"),
    ("account=acc_06d8un0u5du3r3ifb9lnp3culs", "account: unknown parameter"), ("page=2", "page: unknown"),
    ("=x", "unknown parameter"), ("limit=1&limit=1", "limit: sent more than once"),
    ("status=failed&status=held", "status: sent more than once"), ("status=", "value"), ("limit", "value"),
    ("unknown=", "value"), ("%FF=1", "UTF-8"), ("a%00=1", "NUL"), ("&".join(["limit=1"] * 200), "at most 100"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "word"), BAD)
def test_what_may_not_be_asked(sqlite_one: Tenant, query: str, word: str) -> None:
    """Refused with words that name the parameter. A malformed read changes nothing and is not ledgered."""
    before = sqlite_one.gatepost.entries(sqlite_one.account, 1)
    answer = sqlite_one.get(query)
    check_refusal(answer, PATH, "invalid_request", word)
    assert "Gatepost-Event" not in answer.headers
    assert sqlite_one.gatepost.entries(sqlite_one.account, 1) == before


def test_nobody_in_particular(one: Tenant) -> None:
    """Without a token that works nothing is looked at, and nothing is recorded."""
    before = one.gatepost.entries(one.account)
    for header in ("", "Basic YTpi", "Bearer", "Bearer x", f"Bearer {one.token}x"):
        answer = one.get("limit=0", Authorization=header)
        check_refusal(answer, PATH, "invalid_token")
        assert 'scope="gatepost:deliveries"' in answer.headers["WWW-Authenticate"]
        assert "Gatepost-Event" not in answer.headers
    assert one.gatepost.entries(one.account) == before


def test_another_scope(one: Tenant) -> None:
    token = one.gatepost.token(one.client, "gatepost:endpoints gatepost:events")
    for query in ("", "limit=0"):
        answer = one.get(query, Authorization=f"Bearer {token}")
        check_refusal(answer, PATH, "insufficient_scope", "gatepost:deliveries")
        assert 'scope="gatepost:deliveries"' in answer.headers["WWW-Authenticate"]
        newest = one.gatepost.entries(one.account, 1)[0]
        assert (newest["id"], newest["type"]) == (answer.headers["Gatepost-Event"], "webhook.delivery.refused")
        assert (newest["actor"], newest["request"]) == (one.client.id, answer.headers["X-Request-Id"])


def test_a_suspended_account_reads_nothing(gatepost: Service, account_name: str) -> None:
    tenant = Tenant(gatepost, account_name)
    gatepost.cli("account", "suspend", account_name)
    check_refusal(tenant.get(), PATH, "invalid_token")


# --- two accounts


def test_what_is_anothers_is_as_if_unknown(two: Two) -> None:
    mine, theirs = two
    for name, their, prefix in (
        ("id", theirs.deliveries[0], "dlv"), ("endpoint_id", theirs.endpoint, "ep"),
        ("subscription_id", theirs.subscription, "sub"), ("event_id", theirs.event, "evt"),
    ):  # fmt: skip
        assert theirs.ids(**{name: their})
        found, unknown = mine.get({name: their}), mine.get({name: ids.new(prefix)})
        assert found.status_code == unknown.status_code == 200
        assert found.content == unknown.content == b'{"data":[],"next_cursor":null}'
    found, unknown = (mine.get({"view": "summary", "endpoint_id": each}) for each in (theirs.endpoint, ids.new("ep")))
    assert found.status_code == unknown.status_code == 200
    assert found.json()["total"] == unknown.json()["total"]
    assert found.json()["total"]["deliveries"]["made"] == 0
    assert found.json()["now"] == unknown.json()["now"]
    assert found.json()["now"]["held"] == 0
    for view in ("", "view=endpoints", "view=summary"):
        result = mine.get(view).text
        for each in (*theirs.deliveries, theirs.endpoint, theirs.subscription, theirs.account):
            assert each not in result


def test_a_cursor_is_bound(two: Two) -> None:
    """To the account, the filters, the order and the view; the limit and what is included may change."""
    mine, theirs = two
    cursor = mine.get("limit=2").json()["next_cursor"]
    rest = mine.deliveries[::-1][2:]
    assert mine.ids(cursor=cursor) == rest
    assert mine.ids(cursor=cursor, limit=1, include="payload,responses") == rest[:1]
    assert mine.ids(cursor=cursor, order="newest") == rest
    check_refusal(theirs.get({"cursor": cursor}), PATH, "invalid_request", "cursor: ")
    for more in (
        {"order": "oldest"}, {"status": "held"}, {"endpoint_id": mine.endpoint}, {"view": "endpoints"},
        {"created_after": "2020-01-01T00:00:00Z"}, {"due_before": "2100-01-01T00:00:00Z"},
        {"event_type": "invoice.paid"},
    ):  # fmt: skip
        check_refusal(mine.get({"cursor": cursor} | more), PATH, "invalid_request", "cursor: ")
    other = mine.get("limit=2&view=endpoints").json()
    assert other["next_cursor"] is None
    for changed in (cursor[:-1], cursor + "A", cursor.swapcase(), cursor[1:] + cursor[0]):
        check_refusal(mine.get({"cursor": changed}), PATH, "invalid_request", "cursor: ")
