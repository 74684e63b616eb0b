"""Counting together, and the wide lines of the log: what they say, and how they are written."""

import asyncio
import importlib.util
import json
import math
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Histogram, Metric

from gatepost.core import clock, logging, metrics, supervisor_metrics
from gatepost.core.logging import AttemptLine, Line, RequestLine
from gatepost.core.metrics import BatchHistogram
from gatepost.web.ops import metrics as metrics_page

ANSWERED = RequestLine(
    "info", None, "req_1", "POST", "/oauth/tokens", 200, 1.23, "203.0.113.7", "evt_1", "", "acc_1", "cli_1",
    "client_credentials",
)  # fmt: skip
ATTEMPTED = AttemptLine(
    "warning", None, "acc_1", "ep_1", "dlv_1", "evt_1", "invoice.paid", 2, "failed", "plan", 3, "wrk_1", 503, None, 12.5
)


# --- counting


@given(st.lists(st.sampled_from([0.0, 0.001, 0.0011, 0.5, 0.999, 1.0, 1.5, 2.0, 1e9]) | st.floats(0, 10), max_size=20))
def test_observed_together_is_observed_each(amounts: list[float]) -> None:
    buckets = (0.001, 0.5, 1, 2)
    one_by_one = Histogram("h", "words", ["path"], buckets=buckets, registry=None)
    together = BatchHistogram("h", "words", "path", buckets)
    for amount in amounts:
        one_by_one.labels("/").observe(amount)
    together.observe_all("/", amounts)
    if not amounts:
        one_by_one.labels("/")
    [expected], [histogram] = one_by_one.collect(), together.collect()
    assert (histogram.name, histogram.type, histogram.documentation) == ("h", "histogram", "words")
    assert values(histogram) == pytest.approx(values(expected))


def values(family: Metric) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in family.samples}


def families(*found: tuple[str, dict[str, str], float]) -> Iterator[Metric]:
    for name, labels, value in found:
        metric = Metric(name, "words", "gauge")
        metric.add_sample(name, labels, value)
        yield metric


def test_what_several_processes_counted_is_added_up() -> None:
    one, other = metrics_page.add_up(
        families(("a", {"x": "1", "y": "2"}, 1), ("b", {}, 5), ("a", {"y": "2", "x": "1"}, 2), ("a", {"x": "2"}, 4))
    )
    assert (one.name, other.name) == ("a", "b")
    assert [(each.labels, each.value) for each in one.samples] == [({"x": "1", "y": "2"}, 3), ({"x": "2"}, 4)]
    assert [each.value for each in other.samples] == [5]


def test_histograms_of_several_processes_stay_histograms() -> None:
    made = [Histogram("s", "words", buckets=(1, 2), registry=None) for _ in range(2)]
    made[0].observe(0.5)
    made[1].observe(1.5)
    [found] = metrics_page.add_up(family for each in made for family in each.collect())
    assert {(each.name, each.labels.get("le")): each.value for each in found.samples} == {
        ("s_bucket", "1.0"): 1, ("s_bucket", "2.0"): 2, ("s_bucket", "+Inf"): 2, ("s_count", None): 2,
        ("s_sum", None): 2,
    }  # fmt: skip


def test_nothing_is_known_of_missing_deliveries_at_first() -> None:
    """Not even that there are none: of a fresh copy of the module, as a supervisor has it when it starts."""
    spec = importlib.util.spec_from_file_location("fresh", Path(str(supervisor_metrics.__file__)))
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    [family] = fresh.UNACCOUNTED.collect()
    assert [math.isnan(sample.value) for sample in family.samples] == [True]


def test_unknown_values_are_nan() -> None:
    families = metrics_page.of_queue(metrics_page.UNKNOWN, clock.now())
    values = [sample.value for family in families for sample in family.samples]
    assert values
    assert all(math.isnan(value) for value in values)


def test_requests_of_one_turn_are_logged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[list[Line]] = []
    monkeypatch.setattr(logging, "_write", lambda lines: reported.append(list(lines)))

    async def turns() -> None:
        for _ in range(2):
            for _ in range(3):
                logging.log_request(ANSWERED)
                logging.count_token_request(("client_credentials", "issued"))
            await asyncio.sleep(0)

    def counted() -> tuple[float, float, float]:
        labels = {"path": "/oauth/tokens", "status": "200"}
        return (
            sum(s.value for m in metrics.REQUESTS.collect() for s in m.samples if s.labels == labels),
            sum(s.value for m in metrics.TOKENS.collect() for s in m.samples if s.labels["outcome"] == "issued"),
            sum(s.value for m in metrics.REQUEST_SECONDS.collect() for s in m.samples if s.name.endswith("_count")),
        )

    before = counted()
    asyncio.run(turns())
    assert reported == [[ANSWERED] * 3, [ANSWERED] * 3]
    assert tuple(after - earlier for after, earlier in zip(counted(), before, strict=True)) == (6, 6, 6)
    asyncio.run(turns())  # another event loop, as when one ended with something untold
    assert len(reported) == 4


# --- lines


def test_the_line_of_a_request(capfd: pytest.CaptureFixture[str]) -> None:
    logging._write_json([ANSWERED])
    line = json.loads(capfd.readouterr().err)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "request.answered", "level": "info", "request": "req_1", "method": "POST", "path": "/oauth/tokens",
        "status": 200, "ms": 1.23, "source": "203.0.113.7", "entry": "evt_1", "account": "acc_1", "client": "cli_1",
        "grant_type": "client_credentials",
    }  # fmt: skip


def test_the_line_of_an_attempt(capfd: pytest.CaptureFixture[str]) -> None:
    logging._write_json([ATTEMPTED])
    line = json.loads(capfd.readouterr().err)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "delivery.attempted", "level": "warning", "account": "acc_1", "endpoint": "ep_1", "delivery": "dlv_1",
        "entry": "evt_1", "type": "invoice.paid", "attempt": 2, "outcome": "failed", "waited_for": "plan",
        "waited_ms": 3, "worker": "wrk_1", "response_code": 503, "ms": 12.5,
    }  # fmt: skip


def test_lines_are_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces that a pipe takes at once: other processes write to the same one."""
    pieces: list[bytes] = []
    monkeypatch.setattr(os, "write", lambda _file, data: pieces.append(data))
    logging._write_json([ANSWERED, ATTEMPTED] * 50)
    assert 1 < len(pieces) < 20
    assert all(len(piece) <= select.PIPE_BUF and piece.endswith(b"\n") for piece in pieces)
    assert len([json.loads(line) for line in b"".join(pieces).splitlines()]) == 100


def test_a_blocked_log_stops_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_file: int, _data: bytes) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", write)
    logging._write_json([ANSWERED])


def test_a_person_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with structlog.testing.capture_logs() as logged:
        monkeypatch.setattr(logging, "log", structlog.get_logger())
        logging._write_readable([ANSWERED, ATTEMPTED])
    assert [(each["event"], each["log_level"]) for each in logged] == [
        ("request.answered", "info"), ("delivery.attempted", "warning"),
    ]  # fmt: skip
    assert (logged[0]["request"], logged[1]["delivery"]) == ("req_1", "dlv_1")


@pytest.mark.parametrize(("terminal", "how"), [(True, logging._write_readable), (False, logging._write_json)])
def test_who_reads_decides_the_form(terminal: bool, how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "_write", logging._discard)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    try:
        logging.configure_logs()
        assert logging._write is how
    finally:
        structlog.reset_defaults()


def test_what_a_command_logs_is_not_in_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    logging._Log().warning("database node cannot be reached")
    written = capsys.readouterr()
    assert written.out == ""
    assert "database node cannot be reached" in written.err


@pytest.mark.parametrize(("terminal", "variables"), [(True, {}), (False, {}), (True, {"NO_COLOR": "1"})])
def test_lines_of_a_command_have_colours_on_a_terminal(
    terminal: bool, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    structlog.reset_defaults()
    try:
        logging._Log().warning("database node cannot be reached")
    finally:
        structlog.reset_defaults()
    assert ("\x1b[" in capsys.readouterr().err) == (terminal and not variables)


def test_lines_of_a_command_in_a_file_have_no_colours() -> None:
    """Even if standard output is a terminal, as in `gatepost doctor 2>file`."""
    screen, terminal = pty.openpty()
    log = "from gatepost.core.logging import log; log.warning('database node cannot be reached')"
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    done = subprocess.run(
        [sys.executable, "-c", log], env=environment, stdout=terminal, stderr=subprocess.PIPE, text=True, check=True
    )
    os.close(terminal)
    os.close(screen)
    assert "database node cannot be reached" in done.stderr
    assert "\x1b" not in done.stderr


def test_no_line_has_room_for_a_secret() -> None:
    """What could hold one, as a URL, a header, a parameter or what a receiver answered, is no field of any line."""
    fields = {*RequestLine.__struct_fields__, *AttemptLine.__struct_fields__}
    assert fields == {
        "level", "timestamp", "request", "method", "path", "status", "ms", "source", "entry", "error", "account",
        "client", "grant_type", "trace", "endpoint", "delivery", "type", "attempt", "outcome", "waited_for",
        "waited_ms", "worker", "response_code", "failure",
    }  # fmt: skip
