"""Answers for any detail: nothing that a caller sends breaks out of a body or a header."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from gatepost.core.errors import ERRORS, Refusal
from gatepost.web.responses import challenge, oauth_error, problem

DETAIL = st.text(st.characters())  # with half character pairs, as a form could not send but a defect could
REFUSAL = st.builds(Refusal, st.sampled_from(sorted(ERRORS)), DETAIL)


@given(REFUSAL)
def test_an_error_description_is_plain_ascii(refusal: Refusal) -> None:
    result = json.loads(oauth_error(refusal).body)["error_description"]
    assert re.fullmatch(r"[\x20-\x21\x23-\x5b\x5d-\x7e]*", result)
    assert len(result) == len(refusal.detail)


@given(REFUSAL)
def test_a_challenge_is_one_line_with_four_parameters(refusal: Refusal) -> None:
    name, value = challenge(refusal, "https://gatepost.example", "gatepost:clients")
    assert name == "www-authenticate"
    assert re.fullmatch(r'Bearer (\w+="[\x20-\x21\x23-\x5b\x5d-\x7e]*"(, |$)){2,4}', value)


@given(st.builds(Refusal, st.sampled_from(sorted(ERRORS)), st.text(), st.text()))
def test_problem_details_are_json_for_any_text(refusal: Refusal) -> None:
    result = json.loads(problem(refusal).body)
    assert result["detail"] == refusal.detail
    assert ("errors" in result) == refusal.pointer.startswith("/")
