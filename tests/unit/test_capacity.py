"""The capacity model: what grows with the load, where its limits are, and what the command prints and refuses."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gatepost.cli.simulate import simulate
from gatepost.run import capacity
from gatepost.run.capacity import Load

LOADS = [Load(tokens=rate / 10, refreshes=rate / 100, deliveries=rate, accounts=1000) for rate in (
    10, 100, 1000, 10_000, 100_000, 1_000_000
)]  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(simulate, ["capacity", *arguments])


def printed(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_figure_grows_with_the_load_and_says_why() -> None:
    results = [capacity.capacity(load) for load in LOADS]
    for index, figure in enumerate(results[0].figures):
        values = [result.figures[index].value for result in results]
        assert figure.because
        if figure.name != "sealed within":  # more deployments seal sooner
            assert values == sorted(values), figure.name


def test_a_small_load_needs_one_process_of_each_kind_on_two_nodes() -> None:
    small = capacity.capacity(LOADS[0])
    names = ("web processes", "operations processes", "deliverers", "nodes", "PostgreSQL primaries")
    assert [small.value(name) for name in names] == [1, 1, 1, 2, 1]
    assert small.value("connections") == 7 * (3 + 2) + 2


def test_figures_follow_from_the_costs() -> None:
    found = capacity.capacity(Load(deliveries=10_000, deliveries_per_event=4, accounts=1, receiver_ms=10))
    assert found.value("deliverers") == 4  # 2.21 cores at 60 %
    assert found.value("archive per day") == 52 * 10_000 * 86_400
    assert found.value("network out") == 520 * 10_000 + 300 * 2_500
    slow = capacity.capacity(Load(deliveries=10_000, accounts=1, receiver_ms=1000))
    assert slow.value("deliverers") == 33  # 10,000 in flight of 512 slots at 60 %


def test_one_primary_is_enough_until_a_limit_is_reached() -> None:
    assert capacity.capacity(LOADS[3]).value("PostgreSQL primaries") == 1
    million = capacity.capacity(LOADS[5])
    assert million.value("PostgreSQL primaries") > 10
    assert "one PostgreSQL primary is not enough: " in million.warnings[0]
    assert "cores of PostgreSQL" in million.warnings[0]
    assert "WAL a second" in million.warnings[0]
    assert "entries to seal" in million.warnings[0]


def test_many_active_accounts_wait_for_their_seals() -> None:
    few, many = (capacity.capacity(Load(deliveries=3000, accounts=count)) for count in (10, 100_000))
    assert few.value("sealed within") == 0.5
    assert few.warnings == []
    assert 10 < many.value("sealed within") <= 100_000 * capacity.SEAL_MS / 1000
    assert "one process seals" in many.warnings[0]


def test_many_connections_need_a_pooler() -> None:
    slow = capacity.capacity(Load(deliveries=50_000, deliveries_per_event=10, receiver_ms=1000))
    assert slow.value("PostgreSQL primaries") == 1
    assert any("PgBouncer" in warning for warning in slow.warnings)


def test_the_table_and_json_have_the_same_figures() -> None:
    arguments = ("--tokens-per-second", "100", "--deliveries-per-second", "1000", "--accounts", "50")
    found = printed(*arguments)
    lines = run(*arguments).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [
        figure.name for figure in capacity.capacity(Load(tokens=100, deliveries=1000, accounts=50)).figures
    ]
    assert found["load"]["tokens"] == 100
    assert found["needed"]["deliverers"]["value"] == 1
    assert found["needed"]["tables"]["unit"] == "bytes"
    assert found["costs"]["delivery"] == capacity.DELIVERY._asdict()
    assert found["warnings"] == []
    assert "fairness" not in found


def test_fairness_is_part_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatepost.cli.capacity._SECONDS", 0.2)
    arguments = ("--deliveries-per-second", "100", "--accounts", "30", "--receiver-ms", "20", "--fairness")
    normal = printed(*arguments)["fairness"][0]
    assert normal["name"] == "normal load"
    assert len(normal["lateness"]) == 3
    assert "overload by the biggest account" in run(*arguments).stdout


def test_the_fairness_of_slow_receivers() -> None:
    """The simulation lasts long enough for several responses of each endpoint. Accounts without deliveries have –."""
    arguments = ("--deliveries-per-second", "100", "--accounts", "1", "--receiver-ms", "30000", "--fairness")
    restarted = printed(*arguments)["fairness"][1]
    small, _, biggest = restarted["lateness"]
    assert (small["deliveries"], small["p50_ms"]) == (0, None)
    assert biggest["deliveries"] > biggest["waiting"]
    assert biggest["max_ms"] > 30_000
    lines = [line.split() for line in run(*arguments).stdout.splitlines()]
    heading = next(line for line in lines if "waiting" in line)
    assert heading == ["scenario", "offered", "sent", "accounts", "waiting", "p50", "p99", "max"]
    assert [line[-4:] for line in lines if line[-1:] == ["–"]] == [["0", "–", "–", "–"]] * 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is no load"),
        (("--tokens-per-second", "0"), "there is no load"),
        (("--tokens-per-second", "-1"), "--tokens-per-second"),
        (("--deliveries-per-second", "many"), "--deliveries-per-second"),
        (("--deliveries-per-second", "nan"), "--deliveries-per-second"),
        (("--deliveries-per-second", "1", "--accounts", "0"), "--accounts"),
        (("--deliveries-per-second", "1", "--cores", "0"), "--cores"),
        (("--deliveries-per-second", "1", "--fairness", "--accounts", "100001"), "at most 100000 accounts"),
        (("--no-such-option",), "No such option"),
    ],
)
def test_wrong_options_are_named(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (1_234_567, "1.23 MB"),
        (5e15, "5 PB"),
        (1.234e19, "12,340 PB"),
    ],
)
def test_sizes(size: float, text: str) -> None:
    assert capacity.format_size(size) == text
