"""The tables are complete: each module has a test with its name, and a reason if it does not simply pass."""

from pathlib import Path

import pytest

from tests.conformance.modules import PLANS, Plan
from tests.test_checks import names_in

HERE = Path(__file__).parent
every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)


@every_plan
def test_each_module_has_its_test(plan: Plan) -> None:
    assert len(plan.modules) == plan.size
    assert all(each.startswith(plan.prefix or "oidcc-") for each in plan.modules)
    missing = {plan.test(each) for each in plan.modules} - names_in(HERE / plan.file)
    assert not missing


@every_plan
def test_each_test_of_that_form_is_of_a_module(plan: Plan) -> None:
    named = {each for each in names_in(HERE / plan.file) if each.startswith("test_oidcc_")}
    assert plan.prefix or named == {plan.test(each) for each in plan.modules}


@every_plan
def test_what_is_not_plainly_passed_is_explained(plan: Plan) -> None:
    for name, module in plan.modules.items():
        assert module.why or module.outcome == "passes", name
        assert not module.why or module.why.endswith("."), name


def test_the_files_are_all_of_a_plan() -> None:
    files = {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert files == {plan.file for plan in PLANS}
