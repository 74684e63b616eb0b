"""Tokens for any request: never more scope, never a longer life, never another's claims."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.ledger import operations
from gatepost.oauth import scopes
from gatepost.oauth.grants.client_credentials import RULES
from gatepost.oauth.signing_keys import SigningKey
from gatepost.oauth.token_rules import Draft, decide, explain, mint
from tests.unit.drafts import ALL, API, BASE_URL, NOW, OTHER, SCOPES, Defined, client, draft, scope

NAMES = st.lists(st.sampled_from([*ALL, "openid", ""]), unique=True)
RESOURCES = st.lists(st.sampled_from([API, OTHER, BASE_URL, "https://unknown.example"]), max_size=2).map(tuple)
LIFETIME = st.one_of(st.none(), st.integers(60, 86_400))
KEY = SigningKey("key_1", "ES256", "active", {}, NOW)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)


@given(NAMES, NAMES, RESOURCES)
def test_issued_is_a_part_of_what_was_asked_and_of_what_was_granted(
    asked: list[str], granted: list[str], resources: tuple[str, ...]
) -> None:
    wanted = draft(*asked, resources=resources, by=client(*granted))
    found = decide(wanted, SCOPES, RULES)
    result = explain(wanted, SCOPES, RULES)
    if isinstance(found, Refusal):
        assert result[-1] == {"rule": found.rule, "held": False, "means": result[-1]["means"]}
        return
    assert all(each["held"] for each in result)
    assert found.scope
    assert set(found.scope) <= set(asked) & set(granted)
    assert list(found.scope) == [name for name in asked if name in found.scope], "in the order asked"
    assert set(asked) <= set(granted), "nothing that was not granted is silently left out"
    for name in found.scope:
        known = SCOPES.scope("acc_1", name)
        assert found.resource == (BASE_URL if name in operations.OPERATIONS else known and known.resource)


@given(st.integers(60, 86_400), LIFETIME, LIFETIME, st.lists(LIFETIME, min_size=1, max_size=5))
def test_the_shortest_lifetime_wins(
    of_account: int, of_client: int | None, of_grant: int | None, of_scopes: list[int | None]
) -> None:
    names = [f"scope-{number}" for number in range(len(of_scopes))]
    known = Defined(*(scope(name, max_lifetime=each) for name, each in zip(names, of_scopes, strict=True)))
    by = client(*names, grant={"access_token_lifetime": of_grant}, access_token_lifetime=of_client)
    account = Account("acc_1", "acme", NOW, settings={"access_token_lifetime": of_account})
    found = decide(draft(*names, by=by, account=account), known, RULES)
    assert isinstance(found, Draft)
    assert found.lifetime == min(each for each in (of_account, of_client, of_grant, *of_scopes) if each is not None)
    made = mint(found, KEY, token=bytes(16), subject="cli_1", extra={}, at=NOW)
    assert made.claims["exp"] - made.claims["iat"] == made.lifetime == found.lifetime


@given(st.dictionaries(st.one_of(st.sampled_from(sorted(scopes.PROTOCOL_CLAIMS)), st.text()), JSON))
def test_extra_claims_never_change_what_the_service_says(extra: dict[str, Any]) -> None:
    found = decide(draft("read"), SCOPES, RULES)
    assert isinstance(found, Draft)
    plain = mint(found, KEY, token=bytes(16), subject="cli_1", extra={}, at=NOW)
    made = mint(found, KEY, token=bytes(16), subject="cli_1", extra=extra, at=NOW)
    assert {name: made.claims[name] for name in plain.claims} == plain.claims
    fixed = {name: value for name, value in extra.items() if name not in scopes.PROTOCOL_CLAIMS}
    assert {name: made.claims[name] for name in fixed} == fixed
