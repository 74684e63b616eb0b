"""`gatepost simulate`: the retry plan for a series of outcomes, and the capacity that a load needs.

The plan comes from the code that decides and plans.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from gatepost.accounts import SETTINGS
from gatepost.cli import show
from gatepost.cli.capacity import capacity
from gatepost.cli.options import json_option
from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.webhooks import decide, plan
from gatepost.webhooks.decide import Attempted, Decision, Receiver, Released, RetryAt
from gatepost.webhooks.deliveries import BECAUSE, ENDS, FAILURES
from gatepost.webhooks.plan import Planned

INTERRUPTED = "interrupted"
_URL = "https://receiver.example"


class Outcome(NamedTuple):
    """How an attempt ends: a status code, optionally with a Retry-After, or a failure."""

    text: str
    code: int | None = None
    failure: str | None = None
    retry_after: str | None = None


class Step(NamedTuple):
    """An attempt: when it is made, in milliseconds from the start, how it ends, and what follows."""

    number: int
    at: int
    outcome: Outcome
    decision: Decision


class Simulation(NamedTuple):
    """What happens to a delivery."""

    steps: list[Step]
    rest: list[Planned]  # the remaining plan if every further attempt fails at once
    unused: list[Outcome]  # outcomes for attempts that are never made


def simulation(schedule: Sequence[int], delivery: bytes, outcomes: Sequence[Outcome]) -> Simulation:
    """Simulate a delivery. Attempts take no time; only the waiting counts."""
    receiver = Receiver(_URL, "active", schedule)
    steps: list[Step] = []
    number, at, because, used, interrupted, not_before = 1, 0, "event", 0, 0, 0
    for index, outcome in enumerate(outcomes):
        if outcome.failure == INTERRUPTED:
            decision: Decision = decide.after_interruption(delivery, number, used, interrupted, at, receiver)
        else:
            attempted = Attempted(
                delivery, number, used, interrupted, _URL, outcome.code, outcome.failure, outcome.retry_after, at
            )
            decision = decide.after_attempt(attempted, receiver)
        if isinstance(decision, RetryAt):
            not_before = max(not_before, decision.not_before)
            _, next_at, because = plan.postponed(Planned(number + 1, decision.at, decision.because), not_before)
            decision = decision._replace(at=next_at, because=because)
        steps.append(Step(number, at, outcome, decision))
        if not isinstance(decision, RetryAt):
            return Simulation(steps, [], list(outcomes[index + 1 :]))
        number, at, because = number + 1, decision.at, decision.because
        used, interrupted = decision.used, decision.interrupted
    return Simulation(steps, plan.remaining(schedule, used, delivery, Planned(number, at, because)), [])


# --- the commands


class _WithDefault(click.Group):
    """A group that runs `plan` if the first argument is not the name of a command."""

    default = "plan"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [self.default, *args])


@click.group(cls=_WithDefault)
def simulate() -> None:
    """Show the retry plan for a series of outcomes, or the capacity that a load needs.

    `gatepost simulate 503 200` is short for `gatepost simulate plan 503 200`.
    """


simulate.add_command(capacity)


@simulate.command("plan")
@click.argument("texts", nargs=-1, metavar="[OUTCOME]...")
@click.option("--schedule", metavar="DELAYS", help="Delays as in retry_schedule: 5s,5m,1h; `none` for no retries.")
@click.option("--delivery", metavar="ID", help="Use the jitter of this delivery.")
@json_option
def show_plan(texts: tuple[str, ...], schedule: str | None, delivery: str | None, as_json: bool) -> None:
    """Show the retry plan for a series of outcomes.

    An OUTCOME is a status code (503), a status code with Retry-After in seconds (429:120), a failure (timeout), or
    interrupted for an attempt whose worker was lost. Without outcomes, the whole plan is shown. Attempts take no time.
    """
    delays, raw = _schedule(schedule), _delivery(delivery)
    result = simulation(delays, raw, [parse(text) for text in texts])
    if as_json:
        show.document({"delivery": ids.text("dlv", raw), "schedule": list(delays)} | render(result))
    else:
        _show(result)


def _schedule(text: str | None) -> list[int]:
    setting = SETTINGS["retry_schedule"]
    if text is None:
        return list(setting.default)
    try:
        return list(setting.parse(text, False))
    except ValueError as error:
        raise BadSetting(f"--schedule {text}: {error} (bounds: {setting.bounds})") from None


def _delivery(text: str | None) -> bytes:
    """Parse the id, or return a fixed one, so that the same outcomes always give the same plan."""
    if text is None:
        return b"\0" * 16
    raw = ids.parse("dlv", text)
    if raw is None:
        raise BadSetting(f"--delivery {text}: not the id of a delivery; see `gatepost delivery list`")
    return raw


def parse(text: str) -> Outcome:
    """Parse an outcome as a user writes it."""
    if text in (INTERRUPTED, *FAILURES):
        return Outcome(text, failure=text)
    code, colon, seconds = text.partition(":")
    valid = len(code) == 3 and code.isascii() and code.isdigit() and "100" <= code <= "599"
    if not valid or (colon and not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 9)):
        names = ", ".join([*FAILURES, INTERRUPTED])
        raise BadSetting(f"{text!r} is not an outcome; write 503, 429:120 for a Retry-After, or one of {names}")
    return Outcome(text, int(code), None, seconds if colon else None)


def render(result: Simulation) -> dict[str, Any]:
    """Return the result as JSON."""
    last = result.steps[-1].decision if result.steps else None
    reason = _reason(last) if last is not None else None
    return {
        "attempts": [_render_step(step) for step in result.steps],
        "plan": [
            {"number": planned.number, "after_ms": planned.at, "because": planned.because} for planned in result.rest
        ],
        "status": ENDS[reason][0] if reason else "pending",
        "ended_reason": reason,
        "unused": [outcome.text for outcome in result.unused],
    }


def _render_step(step: Step) -> dict[str, Any]:
    retry = step.decision if isinstance(step.decision, RetryAt) else None
    return {
        "number": step.number,
        "after_ms": step.at,
        "outcome": step.outcome.text,
        "decision": "retry" if retry else "end",
        "because": retry.because if retry else _reason(step.decision),
        "next_after_ms": retry.at if retry else None,
    }


def _reason(decision: Decision) -> str | None:
    return None if isinstance(decision, RetryAt | Released) else decision.reason


def _show(result: Simulation) -> None:
    rows: list[tuple[Any, ...]] = [
        (step.number, format_duration(step.at), step.outcome.text, *_describe(step.decision, step.at))
        for step in result.steps
    ]
    rows += [
        (planned.number, format_duration(planned.at), None, "planned", BECAUSE[planned.because])
        for planned in result.rest
    ]
    show.table(("attempt", "after", "outcome", "decision", "because"), rows)
    if result.unused:
        print(f"Not used: {' '.join(outcome.text for outcome in result.unused)}.")


def _describe(decision: Decision, at: int) -> tuple[str, str]:
    if isinstance(decision, RetryAt):
        wait = f"retry in {format_duration(decision.at - at)}" if decision.at > at else "retry at once"
        return wait, BECAUSE[decision.because]
    reason = _reason(decision) or ""
    return f"{ENDS[reason][0]}: {reason}", ENDS[reason][1]


def format_duration(milliseconds: int) -> str:
    """Format a duration in its two largest units: below a minute in seconds, below a second in milliseconds."""
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f}s"
    seconds = max(60, milliseconds // 1000)
    parts = [("d", seconds // 86400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60), ("s", seconds % 60)]
    first = next(index for index, (_, count) in enumerate(parts) if count)
    return " ".join(f"{count}{unit}" for unit, count in parts[first : first + 2] if count)
