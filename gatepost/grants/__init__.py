"""The ways to obtain a token. A grant is one file here and one line in GRANTS."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gatepost.grants import client_credentials
from gatepost.tokens.issue import Draft, Rule


class GrantRules(NamedTuple):
    """What tells one way from another: its rules, whom its token is about, and what else it says."""

    rules: tuple[Rule, ...]
    subject: Callable[[Draft], str]
    extra_claims: Callable[[Draft], dict[str, Any]]
    explainable: bool


GRANTS: dict[str, GrantRules] = {
    "client_credentials": GrantRules(
        client_credentials.RULES, client_credentials.subject, client_credentials.extra_claims, explainable=True
    ),
}
