"""The ways to obtain a token. A grant is one file here and one line in GRANTS."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gatepost.oauth.client_grants import JWT_BEARER, TOKEN_EXCHANGE
from gatepost.oauth.grants import (
    authorization_code,
    basis,
    client_credentials,
    jwt_bearer,
    refresh_token,
    token_exchange,
)
from gatepost.oauth.token_rules import Draft, Rule


class GrantRules(NamedTuple):
    """What tells one way from another: its rules, whom its token is about, what else it says, and what it may send."""

    rules: tuple[Rule, ...]
    subject: Callable[[Draft], str] = basis.subject
    extra_claims: Callable[[Draft], dict[str, Any]] = basis.extra_claims
    explainable: bool = False
    parameters: tuple[str, ...] = ()


GRANTS: dict[str, GrantRules] = {
    "client_credentials": GrantRules(
        client_credentials.RULES, client_credentials.subject, client_credentials.extra_claims, explainable=True
    ),
    "authorization_code": GrantRules(
        authorization_code.RULES, parameters=("code", "redirect_uri", "code_verifier")
    ),
    "refresh_token": GrantRules(refresh_token.RULES, parameters=("refresh_token",)),
    JWT_BEARER: GrantRules(jwt_bearer.RULES, explainable=True, parameters=("assertion",)),
    TOKEN_EXCHANGE: GrantRules(
        token_exchange.RULES,
        explainable=True,
        parameters=(
            "subject_token", "subject_token_type", "requested_token_type", "actor_token", "actor_token_type",
        ),
    ),
}  # fmt: skip
BY_CODE = ("authorization_code", "refresh_token")  # need a person, and so the endpoints where one takes part
