"""Issuing tokens: each rule refuses its cases, and the claims are those of RFC 9068 and of Gatepost."""

from typing import Any

import msgspec
import pytest

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.ledger.operations import OPERATIONS
from gatepost.oauth.client_grants import GRANT_TYPES, JWT_BEARER
from gatepost.oauth.clients import Client
from gatepost.oauth.dpop import Proof
from gatepost.oauth.grants import GRANTS, client_credentials
from gatepost.oauth.scopes import split
from gatepost.oauth.signing_keys import SigningKey
from gatepost.oauth.token_rules import CONSENT_RULES, SHARED, Draft, GrantContext, Rule, decide, explain, mint
from tests.unit.drafts import (
    ACCOUNT,
    ALL,
    API,
    BASE_URL,
    NOW,
    OTHER,
    PERSON,
    PROOF,
    SCOPES,
    STRICT,
    by_code,
    client,
    draft,
)

AT = 1_794_729_600
RULES = client_credentials.RULES
CODE = CONSENT_RULES
ORDER = [
    "client_is_confidential",
    "key_is_shown",
    "grant_is_configured",
    "scopes_are_named",
    "scopes_are_granted",
    "scopes_are_active",
    "audience_is_one",
    "lifetime_is_shortest",
]


def decided(asked: Draft, rules: tuple[Rule, ...] = RULES) -> Draft:
    found = decide(asked, SCOPES, rules)
    assert isinstance(found, Draft), found
    return found


def test_the_order_of_the_rules() -> None:
    assert [rule.__name__ for rule in RULES] == ORDER
    assert [rule.__name__ for rule in SHARED] == ORDER[1:]
    assert all(rule.__doc__ for way in GRANTS.values() for rule in way.rules)


@pytest.mark.parametrize("grant_type", list(GRANTS))
def test_no_grant_type_leaves_a_rule_out(grant_type: str) -> None:
    """A grant with a consent or an assertion checks what was agreed to; every other one authenticates its client."""
    names = [rule.__name__ for rule in GRANTS[grant_type].rules]
    always = ["key_is_shown", "grant_is_configured", "scopes_are_granted", "scopes_are_active", "audience_is_one"]
    assert [name for name in names if name in always] == always
    assert "lifetime_is_shortest" in names
    by_code = GRANT_TYPES[grant_type].consent
    first = "scopes_are_agreed" if by_code or grant_type == JWT_BEARER else "client_is_confidential"
    assert first in names
    assert ("scopes_are_named" in names) == (not by_code)
    assert len(set(names)) == len(names)


# What is asked, by whom → the code, and the rule that refuses it.
REFUSED: list[tuple[Draft, str, str]] = [
    (draft("read", by=client("read", token_endpoint_auth_method="none")), "unauthorized_client",
     "client_is_confidential"),
    (draft("read", by=client("read", dpop_bound_access_tokens=True)), "invalid_dpop_proof", "key_is_shown"),
    (draft("read", account=STRICT), "invalid_dpop_proof", "key_is_shown"),
    (draft("read", by=Client("cli_1", "acc_1", NOW, NOW)), "unauthorized_client", "grant_is_configured"),
    (draft("read", by=client("read", grant={"status": "disabled"})), "unauthorized_client", "grant_is_configured"),
    (draft(), "invalid_scope", "scopes_are_named"),
    (draft(resources=(API,)), "invalid_scope", "scopes_are_named"),
    (draft("read", by=client()), "invalid_scope", "scopes_are_granted"),
    (draft("read", "write", by=client("read")), "invalid_scope", "scopes_are_granted"),
    (draft("read", "gatepost:clients", by=client("read")), "invalid_scope", "scopes_are_granted"),
    (draft("READ"), "invalid_scope", "scopes_are_granted"),
    (draft("*"), "invalid_scope", "scopes_are_granted"),
    (draft(""), "invalid_scope", "scopes_are_granted"),
    (draft("retired"), "invalid_scope", "scopes_are_active"),
    (draft("read", "retired"), "invalid_scope", "scopes_are_active"),
    (draft("undefined"), "invalid_scope", "scopes_are_active"),
    (draft("theirs"), "invalid_scope", "scopes_are_active"),
    (draft("openid", by=client("openid")), "invalid_scope", "scopes_are_active"),
    (draft("read", "openid", by=client("read", "openid")), "invalid_scope", "scopes_are_active"),
    (draft("read", "offline_access", by=client("read", "offline_access")), "invalid_scope", "scopes_are_active"),
    (draft("read", "other"), "invalid_scope", "audience_is_one"),
    (draft("read", "gatepost:clients"), "invalid_scope", "audience_is_one"),
    (draft("read", resources=(OTHER,)), "invalid_target", "audience_is_one"),
    (draft("read", resources=(API + "/",)), "invalid_target", "audience_is_one"),
    (draft("read", resources=(BASE_URL,)), "invalid_target", "audience_is_one"),
    (draft("gatepost:clients", resources=(API,)), "invalid_target", "audience_is_one"),
    (draft("read", "other", resources=(API, OTHER)), "invalid_target", "audience_is_one"),
    (draft("read", resources=(API, "https://unknown.example")), "invalid_target", "audience_is_one"),
]  # fmt: skip


class TestRefusing:
    @pytest.mark.parametrize(("asked", "code", "rule"), REFUSED)
    def test_each_rule_refuses_what_it_names(self, asked: Draft, code: str, rule: str) -> None:
        found = decide(asked, SCOPES, RULES)
        assert isinstance(found, Refusal)
        assert (found.code, found.rule) == (code, rule)

    def test_every_rule_that_can_refuse_does(self) -> None:
        assert {rule for _, _, rule in REFUSED} == set(ORDER) - {"lifetime_is_shortest"}

    def test_a_refusal_names_the_scope_at_fault(self) -> None:
        found = decide(draft("read", "write", by=client("read")), SCOPES, RULES)
        assert isinstance(found, Refusal)
        assert found.detail == "scope: write is not in the client's grant"

    @pytest.mark.parametrize("scope", ["read  write", " read", "read ", " "])
    def test_two_spaces_are_named(self, scope: str) -> None:
        asked = by_code(*split(scope), agreed=("read", "write"))
        for found in (decide(draft(*split(scope)), SCOPES, RULES), decide(asked, SCOPES, CODE)):
            assert isinstance(found, Refusal)
            assert (found.code, found.detail) == ("invalid_scope", "scope: names must be separated by single spaces")

    def test_a_grant_of_another_type_does_not_count(self) -> None:
        asked = draft("read")
        other = msgspec.structs.replace(asked.request, grant_type="authorization_code")
        found = decide(msgspec.structs.replace(asked, request=other), SCOPES, RULES)
        assert isinstance(found, Refusal)
        assert (found.code, found.rule) == ("unauthorized_client", "grant_is_configured")


class TestAudience:
    @pytest.mark.parametrize(
        ("names", "resources", "audience", "kept"),
        [
            (("read",), (), API, ("read",)),
            (("read", "write"), (), API, ("read", "write")),
            (("write", "read"), (API,), API, ("write", "read")),
            (("other",), (), OTHER, ("other",)),
            (("gatepost:clients",), (), BASE_URL, ("gatepost:clients",)),
            (("gatepost:clients",), (BASE_URL,), BASE_URL, ("gatepost:clients",)),
            (("read", "other", "write"), (API,), API, ("read", "write")),
            (("read", "other", "write"), (OTHER,), OTHER, ("other",)),
            (("read", "gatepost:clients"), (BASE_URL,), BASE_URL, ("gatepost:clients",)),
            (("read",), (API, API), API, ("read",)),
        ],
    )
    def test_one_resource_and_its_scopes(
        self, names: tuple[str, ...], resources: tuple[str, ...], audience: str, kept: tuple[str, ...]
    ) -> None:
        found = decided(draft(*names, resources=resources))
        assert (found.resource, found.scope) == (audience, kept)

    def test_several_resources_are_named_to_choose_from(self) -> None:
        found = decide(draft("read", "other", "gatepost:clients"), SCOPES, RULES)
        assert isinstance(found, Refusal)
        assert (
            found.detail
            == f"scope: these belong to several resources ({API}, {BASE_URL}, {OTHER}); name one in resource"
        )

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_the_services_own_scopes_are_for_the_service(self, name: str) -> None:
        assert decided(draft(name, by=client(name))).resource == BASE_URL


class TestLifetime:
    @pytest.mark.parametrize(
        ("account", "of_client", "of_grant", "names", "lifetime"),
        [
            (None, None, None, ("read",), 3600),
            (600, None, None, ("read",), 600),
            (600, 500, None, ("read",), 500),
            (600, 500, 400, ("read",), 400),
            (600, 500, 400, ("read", "short"), 120),
            (100, 500, 400, ("read", "short"), 100),
            (600, 90, 400, ("short",), 90),
            (600, 500, 80, ("short",), 80),
            (None, 7200, 7200, ("read",), 3600),
            (86_400, 7200, None, ("read",), 7200),
        ],
    )
    def test_the_shortest_wins(
        self, account: int | None, of_client: int | None, of_grant: int | None, names: tuple[str, ...], lifetime: int
    ) -> None:
        whose = Account("acc_1", "acme", NOW, settings={"access_token_lifetime": account} if account else {})
        by = client(*ALL, grant={"access_token_lifetime": of_grant}, access_token_lifetime=of_client)
        assert decided(draft(*names, by=by, account=whose)).lifetime == lifetime

    def test_a_scope_that_is_left_out_does_not_shorten(self) -> None:
        assert decided(draft("read", "other-short", resources=(API,))).lifetime == 3600
        assert decided(draft("read", "other-short", resources=(OTHER,))).lifetime == 60


class TestExplaining:
    def test_every_rule_is_listed_in_order_with_its_meaning(self) -> None:
        result = explain(draft("read"), SCOPES, RULES)
        assert [each["rule"] for each in result] == ORDER
        assert all(each["held"] for each in result)
        assert [each["means"] for each in result] == [rule.__doc__ for rule in RULES]

    @pytest.mark.parametrize(("asked", "code", "rule"), REFUSED)
    def test_the_last_rule_listed_is_the_one_that_refused(self, asked: Draft, code: str, rule: str) -> None:
        result = explain(asked, SCOPES, RULES)
        assert [each["rule"] for each in result] == ORDER[: ORDER.index(rule) + 1]
        assert [each["held"] for each in result] == [True] * (len(result) - 1) + [False]


class TestKeys:
    """RFC 9449: who is bound to a key shows it, and who shows one gets tokens bound to it."""

    @pytest.mark.parametrize("account", [ACCOUNT, STRICT])
    def test_a_proof_is_enough(self, account: Account) -> None:
        for bound in (True, False):
            asked = by_code(agreed=("read",), proof=PROOF, account=account, dpop_bound_access_tokens=bound)
            assert decided(asked, CODE).request.proof == PROOF

    @pytest.mark.parametrize(
        ("alg", "strict"), [("ES256", True), ("PS256", True), ("EdDSA", True), ("Ed25519", True), ("RS256", False)]
    )
    def test_under_fapi2_no_proof_is_signed_by_rs256(self, alg: str, strict: bool) -> None:
        proof = Proof("t" * 43, "1", alg)
        decided(by_code(agreed=("read",), proof=proof), CODE)
        found = decide(by_code(agreed=("read",), proof=proof, account=STRICT), SCOPES, CODE)
        assert isinstance(found, Draft) == strict
        if isinstance(found, Refusal):
            assert (found.code, found.rule) == ("invalid_dpop_proof", "key_is_shown")


# What a person agreed to, and what of it is asked for → the code, and the rule that refuses it.
BEYOND: list[tuple[Draft, str, str]] = [
    (by_code("write", agreed=("read",)), "invalid_scope", "scopes_are_agreed"),
    (by_code("read", "write", agreed=("read",)), "invalid_scope", "scopes_are_agreed"),
    (by_code("openid", agreed=("read",)), "invalid_scope", "scopes_are_agreed"),
    (by_code("read", agreed=()), "invalid_scope", "scopes_are_agreed"),
    (by_code(agreed=("read", "elsewhere")), "invalid_scope", "scopes_are_granted"),
    (by_code(agreed=("read", "retired")), "invalid_scope", "scopes_are_active"),
    (by_code(agreed=("openid", "undefined")), "invalid_scope", "scopes_are_active"),
    (by_code(agreed=("read", "theirs")), "invalid_scope", "scopes_are_active"),
    (by_code(agreed=("read", "other")), "invalid_scope", "audience_is_one"),
    (by_code(agreed=("read", "other"), resources=(API, OTHER)), "invalid_scope", "audience_is_one"),
    (by_code(agreed=("read", "other"), named=(API, OTHER)), "invalid_target", "audience_is_one"),
    (by_code(agreed=("read",), named=(OTHER,)), "invalid_target", "audience_is_one"),
    (by_code(agreed=("read",), named=(BASE_URL,)), "invalid_target", "audience_is_one"),
    (by_code(agreed=("openid", "read"), named=(BASE_URL,)), "invalid_target", "audience_is_one"),
    (by_code(agreed=("read", "other"), resources=(API,), named=(OTHER,)), "invalid_target", "audience_is_one"),
    (by_code("other", agreed=("read", "other"), resources=(API,)), "invalid_target", "audience_is_one"),
    (by_code(agreed=("offline_access",)), "invalid_scope", "audience_is_one"),
    (by_code("offline_access", agreed=("offline_access", "read")), "invalid_scope", "audience_is_one"),
]  # fmt: skip


class TestAgreed:
    """What rests on a consent never goes beyond it."""

    @pytest.mark.parametrize(("asked", "code", "rule"), BEYOND)
    def test_what_goes_beyond_is_refused(self, asked: Draft, code: str, rule: str) -> None:
        found = decide(asked, SCOPES, CODE)
        assert isinstance(found, Refusal), found
        assert (found.code, found.rule) == (code, rule)

    @pytest.mark.parametrize(
        ("asked", "scope", "audience"),
        [
            (by_code(agreed=("read",)), ("read",), API),
            (by_code(agreed=("read", "write")), ("read", "write"), API),
            (by_code("write", agreed=("read", "write")), ("write",), API),
            (by_code(agreed=("openid", "read")), ("openid", "read"), [API, BASE_URL]),
            (by_code("read", agreed=("openid", "read")), ("read",), API),
            (by_code(agreed=("openid",)), ("openid",), BASE_URL),
            (by_code(agreed=("openid", "offline_access")), ("openid", "offline_access"), BASE_URL),
            (by_code(agreed=("read", "offline_access")), ("read", "offline_access"), API),
            (by_code(agreed=("read", "other"), named=(OTHER,)), ("other",), OTHER),
            (by_code("other", agreed=("read", "other")), ("other",), OTHER),
            (by_code(agreed=("read", "other"), resources=(API,)), ("read",), API),
            (by_code(agreed=("read", "other"), resources=(API, OTHER), named=(API,)), ("read",), API),
            (by_code(agreed=("openid", "read", "other", "offline_access"), named=(OTHER,)),
             ("openid", "other", "offline_access"), [OTHER, BASE_URL]),
        ],
    )  # fmt: skip
    def test_left_out_means_all_and_each_token_is_for_one_resource(
        self, asked: Draft, scope: tuple[str, ...], audience: str | list[str]
    ) -> None:
        found = decided(asked, CODE)
        assert (found.scope, found.audience) == (scope, audience)

    def test_nothing_agreed_is_nothing(self) -> None:
        """Without a context the token gets no scopes, and never those of the client."""
        for context in (None, GrantContext(PERSON, ())):
            asked = msgspec.structs.replace(by_code("read", agreed=("read",)), context=context)
            assert isinstance(decide(asked, SCOPES, CODE), Refusal)


KEY = SigningKey("key_1", "ES256", "active", {}, NOW)
TOKEN = bytes.fromhex("019a8f5c1e2b7c3d8e4f5a6b7c8d9eaf")


class TestMinting:
    def test_the_claims(self) -> None:
        """RFC 9068, section 2.2, and ours."""
        made = mint(decided(draft("read", "short")), KEY, token=TOKEN, subject="cli_1", extra={"team": "blue"}, at=NOW)
        assert made.claims == {
            "iss": BASE_URL,
            "sub": "cli_1",
            "aud": API,
            "iat": 1_794_729_600,
            "exp": 1_794_729_720,
            "jti": "tok_06d8un0u5du3r3ifb9lnp3culs",
            "client_id": "cli_1",
            "scope": "read short",
            "account": ACCOUNT.id,
            "grant": "grt_1",
            "team": "blue",
        }
        assert (made.id, made.grant, made.scope) == ("tok_06d8un0u5du3r3ifb9lnp3culs", "grt_1", "read short")
        assert (made.audience, made.lifetime, made.expires_at) == (API, 120, 1_794_729_720)
        assert made.key is KEY

    def test_extra_claims_never_take_the_place_of_the_protocols(self) -> None:
        extra = dict.fromkeys(
            ["iss", "sub", "aud", "exp", "iat", "jti", "client_id", "scope", "account", "grant"], "evil"
        )
        made = mint(decided(draft("read")), KEY, token=TOKEN, subject="cli_1", extra=extra, at=NOW)
        assert "evil" not in made.claims.values()
        assert extra["iss"] == "evil", "the client's definition is not written to"

    def test_a_key_that_was_shown_is_in_the_token(self) -> None:
        """RFC 9449, section 6.1; also where the client's own claims say something else."""
        plain = mint(decided(draft("read")), KEY, token=TOKEN, subject="cli_1", extra={}, at=NOW)
        assert ("cnf" in plain.claims, plain.kind) == (False, "Bearer")
        asked = decided(by_code(agreed=("read",), proof=PROOF), CODE)
        made = mint(asked, KEY, token=TOKEN, subject=PERSON, extra={"cnf": {"jkt": "evil"}}, at=NOW)
        assert (made.claims["cnf"], made.kind) == ({"jkt": PROOF.thumbprint}, "DPoP")

    @pytest.mark.parametrize(
        ("until", "lifetime"), [(None, 3600), (AT + 60, 60), (AT + 3600, 3600), (AT + 9999, 3600), (AT + 1, 1)]
    )
    def test_it_never_outlives_what_it_rests_on(self, until: int | None, lifetime: int) -> None:
        asked = by_code(agreed=("read",))
        asked = msgspec.structs.replace(asked, context=GrantContext(PERSON, ("read",), expires_at=until))
        made = mint(decided(asked, CODE), KEY, token=TOKEN, subject=PERSON, extra={}, at=NOW)
        assert (made.lifetime, made.expires_at, made.claims["exp"]) == (lifetime, AT + lifetime, AT + lifetime)
        assert made.claims["iat"] == AT

    def test_signed_in_it_is_also_for_ourselves(self) -> None:
        asked = decided(by_code(agreed=("openid", "read")), CODE)
        made = mint(asked, KEY, token=TOKEN, subject=PERSON, extra={"auth_time": AT - 5}, at=NOW)
        assert made.claims["aud"] == made.audience == [API, BASE_URL]
        assert (made.claims["sub"], made.claims["auth_time"]) == (PERSON, AT - 5)

    def test_a_token_needs_the_grant_that_allows_it(self) -> None:
        with pytest.raises(TypeError):
            mint(draft("read"), KEY, token=TOKEN, subject="cli_1", extra={}, at=NOW)


class TestClientCredentials:
    def test_it_is_in_the_table_and_about_the_client_itself(self) -> None:
        way = GRANTS["client_credentials"]
        by: Any = client(*ALL, claims={"team": "blue"})
        found = decided(draft("read", by=by))
        assert way.rules == RULES
        assert way.subject(found) == "cli_1"
        assert way.claims(found) == {"team": "blue"}
        assert way.explainable
