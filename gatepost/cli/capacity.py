"""`gatepost simulate capacity`: what a load needs, and how late deliveries are with it."""

from typing import Any

import click

from gatepost.cli import show
from gatepost.cli.options import json_option
from gatepost.run import capacity as model
from gatepost.run import fairness
from gatepost.run.capacity import Capacity, Figure, Load
from gatepost.run.fairness import Deliverer, Scenario

_MAX_RATE = 10_000_000
_MAX_ACCOUNTS = 10_000_000
_MAX_SIMULATED = 100_000  # accounts
_SECONDS = 10.0  # of simulated time, at least
_RESPONSES = 8  # that a receiver can send in this time, one after the other, so that slots are used more than once


class _Rate(click.FloatRange):
    """A rate. NaN is within every range, so it is refused separately."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        return number if number == number else self.fail(f"{value!r} is not a number.", param, ctx)  # noqa: PLR0124


rate = _Rate(0, _MAX_RATE)


@click.command()
@click.option("--tokens-per-second", "tokens", type=rate, default=0.0, help="Token requests by client credentials.")
@click.option("--refreshes-per-second", "refreshes", type=rate, default=0.0, help="Token requests by refresh token.")
@click.option(
    "--deliveries-per-second", "deliveries", type=rate, default=0.0, help="Deliveries, with one attempt each."
)
@click.option(
    "--deliveries-per-event", type=_Rate(0.01, 500), default=1.0, show_default=True,
    help="Subscriptions that an event matches.",
)  # fmt: skip
@click.option("--accounts", type=click.IntRange(1, _MAX_ACCOUNTS), default=1000, show_default=True, help="Accounts.")
@click.option(
    "--receiver-ms", type=_Rate(1, 30_000), default=100.0, show_default=True,
    help="How long receivers take to respond.",
)  # fmt: skip
@click.option("--cores", type=click.IntRange(1, 1024), default=8, show_default=True, help="Cores of a node.")
@click.option("--retention", type=click.IntRange(1, 2555), default=30, show_default=True, help="Days of deliveries.")
@click.option("--audit-retention", type=click.IntRange(1, 2555), default=400, show_default=True, help="Days of tokens.")
@click.option(
    "--fairness", "with_fairness", is_flag=True,
    help="Also simulate how late deliveries are for small and big accounts, in normal load and in overload.",
)  # fmt: skip
@json_option
def capacity(with_fairness: bool, as_json: bool, **load: Any) -> None:
    """Estimate the nodes, processes, cores, connections and disk that a load on PostgreSQL needs.

    The model extrapolates costs that were measured on one machine, and prints the assumptions behind each figure. With
    --fairness, it runs the schedule of a deliverer with a simulated clock and a Pareto-distributed load.
    """
    given = Load(**load)
    if not given.entries:
        raise click.UsageError(
            "there is no load; use --tokens-per-second, --refreshes-per-second or --deliveries-per-second"
        )
    if with_fairness and given.accounts > _MAX_SIMULATED:
        raise click.UsageError(f"--fairness simulates at most {_MAX_SIMULATED} accounts; use fewer with --accounts")
    result = model.capacity(given)
    scenarios = _simulate(given) if with_fairness else []
    if as_json:
        show.document(_render(given, result, scenarios))
        return
    show.table(
        ("", "needed", "assumption"), [(figure.name, _format(figure), figure.because) for figure in result.figures]
    )
    for warning in result.warnings:
        click.echo(f"Warning: {warning}.")
    if scenarios:
        _show(scenarios)


def _simulate(load: Load) -> list[Scenario]:
    deliverer = Deliverer(model.DELIVERY.deliverer, load.receiver_ms)
    seconds = max(_SECONDS, _RESPONSES * load.receiver_ms / 1000)
    with show.progress("scenarios", len(fairness.SCENARIOS)) as advance:
        scenarios = []
        for offered in fairness.SCENARIOS:
            scenarios.append(fairness.simulate(offered, load.accounts, seconds, deliverer))
            advance(1)
    return scenarios


def _render(load: Load, result: Capacity, scenarios: list[Scenario]) -> dict[str, Any]:
    costs = {name.lower(): getattr(model, name)._asdict() for name in ("TOKEN", "REFRESH", "EVENT", "DELIVERY", "SEAL")}
    rendered: dict[str, Any] = {
        "load": load._asdict(),
        "needed": {
            figure.name.lower().replace(" ", "_"): {
                "value": figure.value, "unit": figure.unit or None, "assumption": figure.because
            }
            for figure in result.figures
        },
        "warnings": result.warnings,
        "costs": costs,
    }  # fmt: skip
    if scenarios:
        rendered["fairness"] = [
            scenario._asdict() | {"lateness": [lateness._asdict() for lateness in scenario.lateness]}
            for scenario in scenarios
        ]
    return rendered


def _format(figure: Figure) -> str:
    if figure.unit.startswith("bytes"):
        return model.format_size(figure.value) + figure.unit.removeprefix("bytes")
    return f"{figure.value:,g} {figure.unit}".strip()


def _show(scenarios: list[Scenario]) -> None:
    click.echo("\nLateness of deliveries in one deliverer, from their creation until they are sent, or until the end:")
    rows = [
        (scenario.name, f"{scenario.offered:,.0f}/s", f"{scenario.sent:,.0f}/s", lateness.accounts,
         f"{lateness.waiting:,}", *map(_format_lateness, (lateness.p50_ms, lateness.p99_ms, lateness.max_ms)))
        for scenario in scenarios
        for lateness in scenario.lateness
    ]  # fmt: skip
    show.table(("scenario", "offered", "sent", "accounts", "waiting", "p50", "p99", "max"), rows)


def _format_lateness(milliseconds: float | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds:,.0f} ms"
