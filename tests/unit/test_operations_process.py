"""What an operations process knows of the supervisor."""

import time

import msgspec
import pytest

from gatepost.run import operations_process
from gatepost.run.child import SILENCE, Status


def test_the_service_is_not_ready_before_the_first_report() -> None:
    assert operations_process.Supervisor().not_ready() == "the service is starting"


def test_a_supervisor_that_stops_reporting(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    supervisor = operations_process.Supervisor()
    supervisor.receive(msgspec.json.encode(Status("", "a_metric 1\n")))
    now += SILENCE
    assert supervisor.not_ready() == ""
    now += 0.1
    assert supervisor.not_ready() == "the supervisor makes no progress"
    assert supervisor.metrics() == "a_metric 1\n"
    supervisor.receive(msgspec.json.encode(Status("a process for web is starting", "")))
    assert supervisor.not_ready() == "a process for web is starting"
