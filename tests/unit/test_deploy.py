"""The files in deploy/ name only existing metrics, labels, commands, settings and paths."""

import configparser
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from gatepost import settings
from gatepost.cli.main import all_commands
from gatepost.core import clock
from gatepost.core.logging import AttemptLine, RequestLine
from gatepost.core.metrics import OF_EVERY_PROCESS, BatchHistogram
from gatepost.core.supervisor_metrics import OF_SUPERVISOR
from gatepost.ledger.entries import TYPES
from gatepost.oauth.grants import GRANTS
from gatepost.run import chores
from gatepost.web.app import ROUTES
from gatepost.web.ops import metrics
from gatepost.webhooks.deliveries import FAILURES
from tests.docs.pages import HOW_TO, REFERENCE, ROOT, bare, inline_code, json_blocks, rows

DEPLOY = ROOT / "deploy"
PAGE = REFERENCE / "metrics.md"
OF_PROMETHEUS = {"job", "instance", "le", "alertname"}
KINDS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
WAITED_FOR = {"plan", "rate_limit", "retry_after", "window", "turn"}
VALUES: dict[tuple[str, str], set[str]] = {
    ("gatepost_token_requests", "grant_type"): {*GRANTS, ""},
    ("gatepost_requests", "path"): {*ROUTES, "/events", ""},
    ("gatepost_request_seconds", "path"): {*ROUTES, "/events", ""},
    ("gatepost_ledger_entries", "type"): {*TYPES, "platform"},
    ("gatepost_attempts", "outcome"): {"succeeded", "failed", "interrupted", "not_sent"},
    ("gatepost_attempts", "failure"): {*FAILURES, ""},
    ("gatepost_attempt_lateness_seconds", "waited_for"): WAITED_FOR,
    ("gatepost_deliveries", "state"): set(metrics.UNKNOWN.states),
    ("gatepost_replay_events", "what"): {"examined", "made"},
}


class Exported(NamedTuple):
    type: str
    labels: list[str]


def exported() -> dict[str, Exported]:
    """Every metric, by the name of its family."""
    families: dict[str, Exported] = {}
    for metric in (*OF_EVERY_PROCESS, *OF_SUPERVISOR):
        [family] = metric.collect()
        labels = [metric.label] if isinstance(metric, BatchHistogram) else list(metric._labelnames)
        families[family.name] = Exported(family.type, labels)
    deployment = metrics.Deployment(Counter([("a.example", "all", "1.0")]), 1)
    for family in (*metrics.of_queue(metrics.UNKNOWN, clock.now()), *metrics.of_deployment(deployment)):
        families[family.name] = Exported(family.type, sorted({name for each in family.samples for name in each.labels}))
    return families


def series() -> dict[str, str]:
    """Every name that may be asked for, and the family that it is of."""
    return {
        name + ending: name for name, metric in exported().items() for ending in KINDS[metric.type]
    }  # fmt: skip


# --- what is asked for

ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((DEPLOY / "grafana" / "gatepost.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = {
    **{f"alert {rule['alert']}": rule["expr"] for rule in RULES},
    **{
        f"panel {panel['id']} {target['refId']}": target["expr"]
        for panel in PANELS
        for target in panel.get("targets", [])
    },
}


def selectors(query: str) -> Iterator[tuple[str, dict[str, tuple[str, str]]]]:
    """Each metric that a query asks for, and how its labels are matched: operator and value."""
    for name, inside in re.findall(r"\b(gatepost_\w+)(?:\{([^}]*)\})?", query):
        yield name, {label: (how, value) for label, how, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', inside)}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_what_is_asked_for_is_exported(query: str) -> None:
    known = series()
    labels: set[str] = set()
    for name, matched in selectors(query):
        assert name in known, name
        family = known[name]
        has = set(exported()[family].labels)
        labels |= has
        assert set(matched) <= has | OF_PROMETHEUS, matched
        for label, (how, value) in matched.items():
            options = VALUES.get((family, label))
            if options is not None:
                wanted = value.split("|") if "~" in how else [value]
                assert set(wanted) <= options, f"{label}: {value}"
    grouped = {each.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for each in group.split(",")}
    assert grouped <= labels | OF_PROMETHEUS
    assert query.count("(") == query.count(")")


def test_every_metric_is_on_the_dashboard() -> None:
    known = series()
    shown = {
        known[name] for panel in PANELS for target in panel.get("targets", []) for name, _ in selectors(target["expr"])
    }
    assert shown == set(exported())


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_what_is_of_the_store_is_not_added_up(query: str) -> None:
    """Every supervisor of a store reports the same value, so queries use the maximum, not the sum."""
    of_store = {bare(row[0]) for row in rows(PAGE, "metric", "kind", "labels") if "of the store" in row[1]}
    for name, _ in selectors(query):
        if name in of_store:
            assert re.search(rf"max(?: by \([\w, ]+\))? ?\({name}", query), query


# --- the dashboard


def test_the_dashboard_is_whole() -> None:
    assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("gatepost", "Gatepost")
    numbers = [panel["id"] for panel in PANELS]
    assert len(numbers) == len(set(numbers))
    for panel in PANELS:
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}", "whichever the reader has"
            assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {"datasource", "job"}


def test_no_panel_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


# --- the alerts


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"] in ({"severity": "page"}, {"severity": "ticket"})
    assert set(rule["annotations"]) == {"summary", "action"}
    assert all(len(text) > 20 and text.endswith(".") for text in rule["annotations"].values())
    assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) > 10


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_commands_and_settings_that_alerts_name(rule: dict[str, Any]) -> None:
    """In code marks: a command that is there, with its flags; a setting; or words that the log or the ledger has."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "gatepost").rglob("*.py"))
    for code in re.findall(r"`([^`]+)`", rule["annotations"]["action"]):
        first, *rest = code.split()
        if first == "gatepost":
            check_command(rest)
        else:
            is_chore = hasattr(chores, code) or hasattr(chores.Recounting, code)
            assert f'"{code}"' in source or code in settings.NAMES or is_chore or code == "--only web", code


def check_command(words: list[str]) -> None:
    command: click.Command = all_commands()
    for word in words:
        if isinstance(command, click.Group):
            command = command.commands[word]
    flags = {flag for option in command.params for flag in option.opts}
    assert {word for word in words if word.startswith("--")} <= flags, words


# --- the unit for systemd


def test_the_unit_for_systemd() -> None:
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    text = (DEPLOY / "systemd" / "gatepost.service").read_text("utf-8")
    unit.read_string(text)
    assert unit["Service"]["ExecStart"].endswith("/gatepost serve")
    assert unit["Service"]["KillMode"] == "mixed", "children end with their supervisor, which drains them"
    named = re.findall(r"^Environment=GATEPOST_(\w+)=", text, re.MULTILINE)
    assert {each.lower() for each in named} - {"config"} <= set(settings.NAMES)


# --- the reference


def test_the_reference_has_every_metric() -> None:
    result = {bare(row[0]): row for row in rows(PAGE, "metric", "kind", "labels")}
    known = {name + ("_total" if metric.type == "counter" else ""): metric for name, metric in exported().items()}
    assert set(result) == set(known)
    for name, (_, kind, labels, meaning) in result.items():
        assert kind.partition(",")[0] == known[name].type, name
        assert re.findall(r"`(\w+)`", labels) == known[name].labels, name
        assert meaning


def test_the_reference_has_every_label() -> None:
    result = {row[0]: row[1] for row in rows(PAGE, "label", "values")}
    assert {bare(name) for name in result} == {label for each in exported().values() for label in each.labels}
    for (family, label), options in VALUES.items():
        which = {"gatepost_attempts": " of attempts"}.get(family, "") if label == "outcome" else ""
        named = set(re.findall(r"`([^`]+)`", result[f"`{label}`{which}"]))
        if label not in ("path", "type"):
            assert named == options - {""}, label


def test_the_reference_has_every_field_of_a_line() -> None:
    result = {bare(row[0]): re.findall(r"`(\w+)`", row[1]) for row in rows(PAGE, "line", "fields")}
    for name, line in (("request.answered", RequestLine), ("delivery.attempted", AttemptLine)):
        assert result[name] == [each for each in line.__struct_fields__ if each not in ("level", "timestamp")]
    for shown in json_blocks(PAGE):
        assert set(shown) - {"event", "level", "timestamp"} <= set(result[shown["event"]])


@pytest.mark.parametrize("page", [PAGE, HOW_TO / "watch-it.md"], ids=lambda page: str(page.name))
def test_pages_name_only_what_is_there(page: Path) -> None:
    known = {*series(), *exported()}
    text = page.read_text("utf-8")
    assert set(re.findall(r"\bgatepost_\w+", text)) <= known
    assert inline_code(page)


def test_the_page_of_panels_names_panels() -> None:
    titles = {panel["title"] for panel in PANELS}
    reported = [re.match(r"\*([^*]+)\*", row[0]) for row in rows(HOW_TO / "watch-it.md", "you see", "it means")]
    assert {found[1] for found in reported if found} <= titles
