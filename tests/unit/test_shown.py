"""A delivery as the API returns it: in every state, with every kind of attempt, and with its plan."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gatepost.core import clock, ids
from gatepost.ledger.entries import Entry
from gatepost.webhooks import plan
from gatepost.webhooks.deliveries import ENDS, Attempt, AttemptDocument, Delivery, OpenAttempt, Queued
from gatepost.webhooks.endpoints import Endpoint, SigningSecret
from gatepost.webhooks.render import render_delivery

AT = datetime(2026, 11, 15, 8, tzinfo=UTC)
NOW = clock.milliseconds(AT)
SCHEDULE = [5, 300, 1800]
ACCOUNT = b"a" * 16
ID = NOW.to_bytes(6, "big") + b"d" * 10
EVENT = (NOW - 7).to_bytes(6, "big") + b"v" * 10
WORKER = b"w" * 16
ENDPOINT = Endpoint(
    ids.text("ep", b"e" * 16), ids.text("acc", ACCOUNT), "https://receiver.example/hooks", AT, AT,
    headers={"X-Api-Key": "hidden-header"}, secrets=[SigningSecret("sk_1", AT, "hidden-secret")],
)  # fmt: skip
PENDING = Delivery(
    ACCOUNT, ID, b"e" * 16, b"s" * 16, EVENT, "invoice.paid", "event", "pending", None, None, None, None, 30
)
OPENED = OpenAttempt(NOW + 3, "https://receiver.example/old", ["sk_1", "sk_2"], "window", 3)


def queued(number: int = 0, used: int = 0, *, due: int = NOW, because: str = "event", open_: bool = False) -> Queued:
    worker = (WORKER, msgspec.json.encode(OPENED).decode(), due + 45_000) if open_ else ()
    return Queued(ACCOUNT, ID, b"e" * 16, EVENT, 0, due, due, because, number, used, 0, *worker)


def attempt(number: int, outcome: str = "failed", **members: Any) -> Attempt:
    document = AttemptDocument(
        NOW,
        NOW + 1,
        NOW + 32,
        "https://receiver.example/hooks",
        ["sk_1"],
        "plan",
        0,
        ids.text("wrk", WORKER),
        **members,
    )
    return Attempt(ACCOUNT, ID, number, outcome, msgspec.json.encode(document).decode())


def ended(reason: str) -> Delivery:
    return PENDING._replace(status=ENDS[reason][0], ended_at=NOW + 32, ended_reason=reason)


def show(delivery: Delivery, waiting: Queued | None, *attempts: Attempt, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"endpoint": ENDPOINT, "schedule": SCHEDULE, "entry_at": NOW - 5, "at": NOW} | more
    return render_delivery(delivery, waiting, attempts, **result)


def time(at: int) -> str:
    return clock.rfc3339(clock.from_milliseconds(at))


def test_a_record_is_the_contracts() -> None:
    waits = queued(1, 1, due=NOW + 5000, because="schedule")
    timings = {"dns_ms": 0.2, "connect_ms": 1.1, "tls_ms": 6.0, "first_byte_ms": 30.9}
    failed = attempt(
        1, duration_ms=31.4, response_code=503, timings=timings, remote_ip="192.0.2.1", detail="in words",
        retry_after="120", response="secret words",
    )  # fmt: skip
    after = plan.remaining(SCHEDULE, 1, ID, plan.Planned(2, NOW + 5000, "schedule"))
    assert show(PENDING, waits, failed) == {
        "id": ids.text("dlv", ID),
        "account": ids.text("acc", ACCOUNT),
        "endpoint": {"id": ENDPOINT.id, "url": "https://receiver.example/hooks"},
        "subscription_id": ids.text("sub", b"s" * 16),
        "event": {"id": ids.text("evt", EVENT), "type": "invoice.paid", "at": "2026-11-15T07:59:59.995Z"},
        "status": "pending",
        "created_at": "2026-11-15T08:00:00.000Z",
        "ended_at": None,
        "ended_reason": None,
        "trigger": "event",
        "attempts": [
            {
                "number": 1,
                "because": "event",
                "planned_at": "2026-11-15T08:00:00.000Z",
                "started_at": "2026-11-15T08:00:00.001Z",
                "ended_at": "2026-11-15T08:00:00.032Z",
                "duration_ms": 31.4,
                "outcome": "failed",
                "response_code": 503,
                "failure": None,
                "detail": "in words",
                "retry_after": "120",
                "timings": timings,
                "url": "https://receiver.example/hooks",
                "remote_ip": "192.0.2.1",
                "signed_with": ["sk_1"],
                "waited": {"for": "plan", "ms": 0},
                "worker": ids.text("wrk", WORKER),
            }
        ],
        "retries": {
            "made": 0,
            "remaining": 3,
            "next_at": "2026-11-15T08:00:05.000Z",
            "plan": [
                {"number": 2, "at": "2026-11-15T08:00:05.000Z", "because": "schedule"},
                {"number": 3, "at": time(after[1].at), "because": "schedule"},
                {"number": 4, "at": time(after[2].at), "because": "schedule"},
            ],
        },
    }


def test_nothing_secret_is_shown() -> None:
    result = str(show(PENDING, queued(1, 1), attempt(1, response="secret words")))
    assert "secret words" not in result
    assert "hidden" not in result


class TestStates:
    @pytest.mark.parametrize(("still", "status"), [(False, "pending"), (True, "held")])
    def test_waiting(self, still: bool, status: str) -> None:
        result = show(PENDING, queued(), inactive=still)
        assert (result["status"], result["attempts"], result["ended_at"]) == (status, [], None)

    @pytest.mark.parametrize("still", [False, True])
    def test_under_way(self, still: bool) -> None:
        """Whatever becomes of the endpoint meanwhile."""
        result = show(PENDING, queued(1, open_=True), inactive=still)
        assert result["status"] == "in_flight"
        [open_] = result["attempts"]
        assert open_ == {
            "number": 1,
            "because": "event",
            "planned_at": time(NOW),
            "started_at": time(NOW + 3),
            "ended_at": None,
            "duration_ms": None,
            "outcome": None,
            "response_code": None,
            "failure": None,
            "detail": "",
            "timings": {},
            "url": "https://receiver.example/old",
            "remote_ip": None,
            "signed_with": ["sk_1", "sk_2"],
            "waited": {"for": "window", "ms": 3},
            "worker": ids.text("wrk", WORKER),
        }

    @pytest.mark.parametrize("reason", ENDS)
    def test_ended(self, reason: str) -> None:
        result = show(ended(reason), None, attempt(1), attempt(2), inactive=True, not_before=NOW + 9)
        assert result["status"] == ENDS[reason][0]
        assert (result["ended_at"], result["ended_reason"]) == (time(NOW + 32), reason)
        assert result["retries"] == {"made": 1, "remaining": 0, "next_at": None, "plan": []}

    @pytest.mark.parametrize("origin", ["event", "replay", "retry"])
    def test_trigger(self, origin: str) -> None:
        assert show(PENDING._replace(origin=origin), queued())["trigger"] == origin

    def test_an_event_that_is_no_longer_kept(self) -> None:
        result = show(ended("delivered"), None, entry_at=None, include=frozenset({"payload"}))
        assert result["event"]["at"] == time(NOW - 7)
        assert result["payload"] is None


class TestRetries:
    def test_before_the_first_attempt(self) -> None:
        result = show(PENDING, queued())["retries"]
        assert (result["made"], result["remaining"], result["next_at"]) == (0, 3, time(NOW))
        assert [each["number"] for each in result["plan"]] == [1, 2, 3, 4]
        assert [each["because"] for each in result["plan"]] == ["event", "schedule", "schedule", "schedule"]

    def test_the_last_one_to_come(self) -> None:
        result = show(PENDING, queued(3, 3), attempt(1), attempt(2), attempt(3))["retries"]
        assert (result["made"], result["remaining"], [each["number"] for each in result["plan"]]) == (2, 1, [4])

    def test_what_was_never_sent_is_no_retry(self) -> None:
        waits = queued(1, 0, because="released")
        result = show(PENDING, waits, attempt(1, "not_sent"))["retries"]
        assert (result["made"], result["remaining"]) == (0, 3)
        assert [each["number"] for each in result["plan"]] == [2, 3, 4, 5]
        result = show(PENDING, queued(3, 1), attempt(1, "not_sent"), attempt(2), attempt(3, "not_sent"))["retries"]
        assert (result["made"], result["remaining"]) == (0, 3)

    def test_what_was_interrupted_is_made_again(self) -> None:
        result = show(PENDING, queued(1, 0, because="interrupted"), attempt(1, "interrupted"))["retries"]
        assert (result["made"], result["remaining"]) == (0, 4)
        assert result["plan"][0] == {"number": 2, "at": time(NOW), "because": "interrupted"}

    def test_while_one_is_under_way_the_plan_assumes_that_it_fails_now(self) -> None:
        result = show(PENDING, queued(2, 1, open_=True), attempt(1), at=NOW + 999)["retries"]
        wait = plan.delay(SCHEDULE, 2, ID, 3)
        assert wait is not None
        assert (result["made"], result["remaining"], result["next_at"]) == (1, 2, None)
        assert result["plan"][0] == {"number": 3, "at": time(NOW + 999 + wait), "because": "schedule"}
        assert [each["number"] for each in result["plan"]] == [3, 4]

    def test_while_the_last_one_is_under_way(self) -> None:
        result = show(PENDING, queued(4, 3, open_=True), attempt(1), attempt(2), attempt(3))["retries"]
        assert result == {"made": 3, "remaining": 0, "next_at": None, "plan": []}

    def test_without_a_schedule(self) -> None:
        result = show(PENDING, queued(), schedule=[])["retries"]
        assert (result["remaining"], [each["number"] for each in result["plan"]]) == (0, [1])

    def test_held_has_a_plan_but_no_time(self) -> None:
        result = show(PENDING, queued(1, 1), attempt(1), inactive=True)["retries"]
        assert result["next_at"] is None
        assert result["remaining"] == 3

    def test_the_endpoints_own_retry_after(self) -> None:
        result = show(PENDING, queued(1, 1, due=NOW + 5000), attempt(1), not_before=NOW + 60_000)["retries"]
        assert result["next_at"] == time(NOW + 60_000)
        assert result["plan"][0] == {"number": 2, "at": time(NOW + 60_000), "because": "retry_after"}
        wait = plan.delay(SCHEDULE, 2, ID, 3)
        assert wait is not None
        assert result["plan"][1]["at"] == time(NOW + 60_000 + wait)

    def test_a_retry_after_that_is_over(self) -> None:
        result = show(PENDING, queued(1, 1, due=NOW + 5000, because="schedule"), not_before=NOW + 4999)["retries"]
        assert result["plan"][0] == {"number": 2, "at": time(NOW + 5000), "because": "schedule"}


class TestIncluding:
    ENTRY = Entry(
        ids.text("acc", ACCOUNT), EVENT, "invoice.paid", NOW - 5, "x", "", '{"amount":5}', None, 1, 30, "", ""
    )

    def test_responses(self) -> None:
        result = show(PENDING, queued(2, 1, open_=True), attempt(1, response="no"), include=frozenset({"responses"}))
        assert [each["response"] for each in result["attempts"]] == ["no", ""]
        assert "payload" not in result

    @pytest.mark.parametrize("erased", [False, True])
    def test_the_payload_is_the_body_that_is_sent(self, erased: bool) -> None:
        entry = self.ENTRY._replace(data=None) if erased else self.ENTRY
        result = show(PENDING, queued(), include=frozenset({"payload"}), entry=entry)
        assert result["payload"] == {
            "id": ids.text("evt", EVENT),
            "type": "invoice.paid",
            "timestamp": time(NOW - 5),
            "account": ids.text("acc", ACCOUNT),
            "data": None if erased else {"amount": 5},
        }

    def test_the_payload_in_the_endpoints_format(self) -> None:
        events = msgspec.structs.replace(ENDPOINT, format="cloudevents")
        result = show(PENDING, queued(), include=frozenset({"payload"}), entry=self.ENTRY, endpoint=events)
        assert (result["payload"]["specversion"], result["payload"]["data"]) == ("1.0", {"amount": 5})
