"""The conformance page agrees with the tables of the conformance tests."""

import re
from typing import get_args

import pytest

from tests.conformance.modules import PLANS, Outcome, Plan
from tests.docs.pages import REFERENCE, bare, cells, first_column, section

PAGE = REFERENCE / "conformance.md"


def table_rows(plan: Plan) -> list[tuple[str, str, str]]:
    """Return the rows of the plan's table: module, outcome, reason."""
    lines = section(PAGE, plan.title).splitlines()
    start = lines.index("| module | outcome | why |") + 2
    found = [cells(line) for line in lines[start:] if line.startswith("|")]
    return [(bare(module), outcome, "" if why == "–" else why) for module, outcome, why in found]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_every_module_is_listed(plan: Plan) -> None:
    assert table_rows(plan) == [(name, module.outcome, module.why) for name, module in plan.modules.items()]
    run = f"with {plan.variant}." if plan.variant else "takes no variants."
    assert f"`{plan.name}` {run}" in section(PAGE, plan.title)


def test_every_outcome_is_explained() -> None:
    assert first_column(PAGE, "outcome", "what it means") == list(get_args(Outcome))


def test_no_other_plan_is_listed() -> None:
    assert re.findall(r"^## (.+)$", PAGE.read_text("utf-8"), re.MULTILINE) == [plan.title for plan in PLANS]
