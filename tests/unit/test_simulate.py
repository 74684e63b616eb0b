"""Simulating a delivery: the plan that is printed is the one that the deciding code makes."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from gatepost.accounts import SETTINGS
from gatepost.cli.simulate import format_duration, parse, simulate, simulation
from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.webhooks import decide, plan
from gatepost.webhooks.decide import Attempted, Delivered, Exhausted, Gone, Receiver, RetryAt
from gatepost.webhooks.deliveries import FAILURES

SCHEDULE: list[int] = SETTINGS["retry_schedule"].default
DELIVERY = bytes(range(16))


def outcomes(*texts: str) -> list[Any]:
    return [parse(text) for text in texts]


def printed(*arguments: str) -> Any:
    ended = CliRunner().invoke(simulate, [*arguments, "--json"], catch_exceptions=False)
    assert ended.exit_code == 0
    return json.loads(ended.stdout)


def test_each_step_is_what_the_deciding_code_says() -> None:
    found = simulation(SCHEDULE, DELIVERY, outcomes("503", "timeout", "404"))
    used = 0
    for step in found.steps:
        attempted = Attempted(
            DELIVERY, step.number, used, 0, "https://r.example", step.outcome.code, step.outcome.failure, None,
            step.at,
        )  # fmt: skip
        decision = decide.after_attempt(attempted, Receiver("https://r.example", "active", SCHEDULE))
        assert step.decision == decision
        assert isinstance(decision, RetryAt)
        used = decision.used
    assert [step.number for step in found.steps] == [1, 2, 3]
    assert [each.number for each in found.rest] == [4, 5, 6, 7, 8, 9, 10]
    last = found.steps[-1].decision
    assert isinstance(last, RetryAt)
    assert found.rest == plan.remaining(SCHEDULE, 3, DELIVERY, plan.Planned(4, last.at, "schedule"))


def test_without_outcomes_it_is_the_whole_plan() -> None:
    found = simulation(SCHEDULE, DELIVERY, [])
    assert found.steps == []
    assert [each.because for each in found.rest] == ["event"] + ["schedule"] * 9
    assert found.rest[0].at == 0
    assert 0.9 * sum(SCHEDULE) <= found.rest[-1].at / 1000 <= 1.1 * sum(SCHEDULE)


def test_every_failure_in_a_row_ends_it_with_the_last_of_the_schedule() -> None:
    found = simulation(SCHEDULE, DELIVERY, outcomes(*["500"] * 10, "200"))
    assert [isinstance(step.decision, RetryAt) for step in found.steps] == [True] * 9 + [False]
    assert found.steps[-1].decision == Exhausted()
    assert (found.rest, [each.text for each in found.unused]) == ([], ["200"])


@pytest.mark.parametrize(("text", "decision"), [("200", Delivered()), ("204", Delivered()), ("410", Gone())])
def test_what_ends_it_at_once(text: str, decision: object) -> None:
    found = simulation(SCHEDULE, DELIVERY, outcomes(text))
    assert [step.decision for step in found.steps] == [decision]


def test_retry_after_counts_where_it_is_later_and_for_429_and_503_alone() -> None:
    for text, because in (("429:120", "retry_after"), ("503:120", "retry_after"), ("500:120", "schedule"),
                          ("429:1", "schedule")):  # fmt: skip
        [step] = simulation(SCHEDULE, DELIVERY, outcomes(text)).steps
        assert isinstance(step.decision, RetryAt)
        assert step.decision.because == because
        assert (step.decision.at == 120_000) == (because == "retry_after")


def test_an_interrupted_attempt_uses_up_none_but_the_third_in_a_row() -> None:
    found = simulation(SCHEDULE, DELIVERY, outcomes("interrupted", "interrupted", "interrupted", "interrupted"))
    made = [step.decision for step in found.steps if isinstance(step.decision, RetryAt)]
    assert [each.used for each in made] == [0, 0, 1, 1]
    assert [each.at > step.at for each, step in zip(made, found.steps, strict=True)] == [False, False, True, False]
    assert (
        simulation([], DELIVERY, outcomes("interrupted", "interrupted", "interrupted")).steps[-1].decision
        == Exhausted()
    )


def test_the_jitter_is_that_of_the_delivery_named() -> None:
    name = ids.text("dlv", DELIVERY)
    found = printed("--delivery", name, "503")
    [step] = simulation(SCHEDULE, DELIVERY, outcomes("503")).steps
    assert isinstance(step.decision, RetryAt)
    assert found["delivery"] == name
    assert found["attempts"][0]["next_after_ms"] == step.decision.at
    assert found["attempts"] != printed("503")["attempts"]
    assert printed("503") == printed("503")


def test_json_tells_all_of_it() -> None:
    found = printed("--schedule", "5s,5m", "503", "429:3600", "dns", "200")
    assert found["schedule"] == [5, 300]
    assert [(each["number"], each["outcome"], each["decision"], each["because"]) for each in found["attempts"]] == [
        (1, "503", "retry", "schedule"),
        (2, "429:3600", "retry", "retry_after"),
        (3, "dns", "end", "attempts_exhausted"),
    ]
    assert (found["status"], found["ended_reason"]) == ("failed", "attempts_exhausted")
    assert (found["plan"], found["unused"]) == ([], ["200"])
    waiting = printed("--schedule", "5s,5m", "503")
    assert (waiting["status"], waiting["ended_reason"]) == ("pending", None)
    assert [each["number"] for each in waiting["plan"]] == [2, 3]


def test_people_get_a_table_in_words() -> None:
    output = CliRunner().invoke(simulate, ["--schedule", "1h", "503", "200", "500"], catch_exceptions=False).stdout
    lines = output.splitlines()
    assert lines[0].split() == ["attempt", "after", "outcome", "decision", "because"]
    assert "retry in" in lines[1]
    assert "succeeded: delivered" in lines[2]
    assert lines[3] == "Not used: 500."


@pytest.mark.parametrize("text", [*FAILURES, "interrupted", "100", "599", "429:0"])
def test_what_is_an_outcome(text: str) -> None:
    assert parse(text).text == text


@pytest.mark.parametrize("text", ["", "99", "600", "2xx", "429:", "429:soon", "429:-1", "٢٠٠", "lost", "1000"])
def test_what_is_not_an_outcome_is_refused_with_words(text: str) -> None:
    with pytest.raises(BadSetting, match="write 503, 429:120"):
        parse(text)


@pytest.mark.parametrize("arguments", [["--schedule", "soon"], ["--schedule", "8d"], ["--delivery", "evt_1"]])
def test_other_values_are_refused_with_words(arguments: list[str]) -> None:
    with pytest.raises(BadSetting, match=arguments[0]):
        CliRunner().invoke(simulate, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0s"),
        (50, "50ms"),
        (59_949, "59.9s"),
        (59_950, "1m"),
        (60_000, "1m"),
        (61_500, "1m 1s"),
        (3_600_000, "1h"),
        (3_600_000 + 59_000, "1h"),
        (90_000_000, "1d 1h"),
    ],
)
def test_durations_in_words(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text
