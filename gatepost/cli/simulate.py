"""`gatepost simulate`: what becomes of a delivery whose attempts end so, from the code that decides and plans."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from gatepost.accounts import SETTINGS
from gatepost.cli import show
from gatepost.cli.options import json_option
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting
from gatepost.webhooks import decide, plan
from gatepost.webhooks.decide import Attempted, Decision, Delivered, Ended, Receiver, RetryAt
from gatepost.webhooks.deliveries import BECAUSE, ENDS, FAILURES
from gatepost.webhooks.plan import Planned

INTERRUPTED = "interrupted"
_URL = "https://receiver.example"


class Outcome(NamedTuple):
    """How one attempt ends: a code, perhaps with the Retry-After that came with it, or a failure."""

    text: str
    code: int | None = None
    failure: str | None = None
    retry_after: str | None = None


class Step(NamedTuple):
    """One attempt: when it is made, in milliseconds from the start, how it ends, and what follows."""

    number: int
    at: int
    outcome: Outcome
    decision: Decision


class Simulation(NamedTuple):
    steps: list[Step]
    rest: list[Planned]  # still to come if every attempt from here on fails at once
    unused: list[Outcome]  # given for attempts that are never made


def simulation(schedule: Sequence[int], delivery: bytes, outcomes: Sequence[Outcome]) -> Simulation:
    """Attempts take no time here: what is shown is the waiting."""
    receiver = Receiver(_URL, "active", schedule)
    steps: list[Step] = []
    number, at, because, used, interrupted, not_before = 1, 0, "event", 0, 0, 0
    for place, outcome in enumerate(outcomes):
        if outcome.failure == INTERRUPTED:
            decision = decide.after_interruption(delivery, number, used, interrupted, at, receiver)
        else:
            attempted = Attempted(
                delivery, number, used, interrupted, _URL, outcome.code, outcome.failure, outcome.retry_after,
                clock.from_milliseconds(at),
            )  # fmt: skip
            decision = decide.after_attempt(attempted, receiver)
        if isinstance(decision, RetryAt):
            not_before = max(not_before, decision.not_before)
            _, next_at, why = plan.postponed(Planned(number + 1, decision.at, decision.because), not_before)
            decision = decision._replace(at=next_at, because=why)
        steps.append(Step(number, at, outcome, decision))
        if not isinstance(decision, RetryAt):
            return Simulation(steps, [], list(outcomes[place + 1 :]))
        number, at, because = number + 1, decision.at, decision.because
        used, interrupted = decision.used, decision.interrupted
    return Simulation(steps, plan.remaining(schedule, used, delivery, Planned(number, at, because)), [])


# --- the command


@click.command()
@click.argument("texts", nargs=-1, metavar="[OUTCOME]...")
@click.option("--schedule", metavar="DELAYS", help="Delays as in retry_schedule: 5s,5m,1h; none for no retries.")
@click.option("--delivery", metavar="ID", help="With the jitter of this delivery.")
@json_option
def simulate(texts: tuple[str, ...], schedule: str | None, delivery: str | None, as_json: bool) -> None:
    """Print the plan of a delivery whose attempts end so.

    An OUTCOME is a code (503), a code with its Retry-After in seconds (429:120), a failure (timeout), or interrupted
    for an attempt whose worker was lost. Without any, the whole plan is printed. Attempts take no time here.
    """
    delays, raw = _schedule(schedule), _delivery(delivery)
    found = simulation(delays, raw, [parse(text) for text in texts])
    if as_json:
        show.document({"delivery": ids.text("dlv", raw), "schedule": list(delays)} | shown(found))
    else:
        _tell(found)


def _schedule(text: str | None) -> list[int]:
    setting = SETTINGS["retry_schedule"]
    if text is None:
        return list(setting.default)
    try:
        return list(setting.parse(text, False))
    except ValueError as error:
        raise BadSetting(f"--schedule {text}: {error} (bounds: {setting.bounds})") from None


def _delivery(text: str | None) -> bytes:
    """Without one, always the same: so that the same question has the same answer."""
    if text is None:
        return b"\0" * 16
    raw = ids.parse("dlv", text)
    if raw is None:
        raise BadSetting(f"--delivery {text}: not the id of a delivery; `gatepost delivery list` shows them")
    return raw


def parse(text: str) -> Outcome:
    if text in (INTERRUPTED, *FAILURES):
        return Outcome(text, failure=text)
    code, colon, seconds = text.partition(":")
    right = len(code) == 3 and code.isascii() and code.isdigit() and "100" <= code <= "599"
    if not right or (colon and not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 9)):
        names = ", ".join([*FAILURES, INTERRUPTED])
        raise BadSetting(f"{text!r} is not an outcome; write 503, 429:120 with its Retry-After, or one of {names}")
    return Outcome(text, int(code), None, seconds if colon else None)


def shown(found: Simulation) -> dict[str, Any]:
    last = found.steps[-1].decision if found.steps else None
    reason = _reason(last) if last is not None else None
    return {
        "attempts": [_shown_step(step) for step in found.steps],
        "plan": [{"number": each.number, "after_ms": each.at, "because": each.because} for each in found.rest],
        "status": ENDS[reason][0] if reason else "pending",
        "ended_reason": reason,
        "unused": [each.text for each in found.unused],
    }


def _shown_step(step: Step) -> dict[str, Any]:
    again = step.decision if isinstance(step.decision, RetryAt) else None
    return {
        "number": step.number,
        "after_ms": step.at,
        "outcome": step.outcome.text,
        "decision": "retry" if again else "end",
        "because": again.because if again else _reason(step.decision),
        "next_after_ms": again.at if again else None,
    }


def _reason(decision: Decision) -> str | None:
    match decision:
        case Delivered():
            return "delivered"
        case Ended():
            return decision.reason
        case RetryAt():
            return None


def _tell(found: Simulation) -> None:
    rows: list[tuple[Any, ...]] = [
        (step.number, span(step.at), step.outcome.text, *_words(step.decision, step.at)) for step in found.steps
    ]
    rows += [(each.number, span(each.at), None, "planned", BECAUSE[each.because]) for each in found.rest]
    show.table(("attempt", "after", "outcome", "decision", "because"), rows)
    if found.unused:
        print(f"Never made: {' '.join(each.text for each in found.unused)}.")


def _words(decision: Decision, at: int) -> tuple[str, str]:
    if isinstance(decision, RetryAt):
        wait = f"again in {span(decision.at - at)}" if decision.at > at else "again at once"
        return wait, BECAUSE[decision.because]
    reason = _reason(decision) or ""
    return f"{ENDS[reason][0]}: {reason}", ENDS[reason][1]


def span(milliseconds: int) -> str:
    """A duration in its two largest units; below a minute in seconds with one decimal, below a second without."""
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f}s"
    seconds = max(60, milliseconds // 1000)
    parts = [("d", seconds // 86400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60), ("s", seconds % 60)]
    first = next(place for place, (_, count) in enumerate(parts) if count)
    return " ".join(f"{count}{unit}" for unit, count in parts[first : first + 2] if count)
