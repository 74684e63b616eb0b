"""Grants of a client: built from grant types and scope, or given; and their ids, which tokens name."""

from typing import Any

import msgspec
import pytest

from gatepost.core import ids
from gatepost.ledger.operations import OPERATIONS
from gatepost.oauth import client_grants, clients
from gatepost.oauth.client_grants import GRANT_TYPES, JWT_BEARER, TOKEN_EXCHANGE, Grant
from gatepost.oauth.clients import Client
from gatepost.oauth.scopes import BUILT_IN
from tests.unit.clients import MACHINE, PUBLIC, WEB, defined, refused

ALL: dict[str, Any] = WEB | {"grant_types": list(GRANT_TYPES)}
CODE = {"grant_type": "authorization_code", "scopes": ["openid", "read"]}
OWN = {"grant_type": "client_credentials", "scopes": ["read"]}
EXCHANGE = {"grant_type": TOKEN_EXCHANGE, "scopes": ["write"]}
NO_EXCHANGE: list[Any] = ["", "both", "Delegation", True, 0, [], ["delegation"], {}]


def scopes_by_type(client: Client) -> dict[str, list[str]]:
    return {grant.grant_type: grant.scopes for grant in client.grants}


class TestBuilt:
    def test_each_grant_type_has_the_scopes_that_make_sense_for_it(self) -> None:
        made = defined(ALL | {"scope": "read gatepost:clients openid offline_access write"})
        assert scopes_by_type(made) == {
            "client_credentials": ["read", "gatepost:clients", "write"],
            "authorization_code": ["read", "openid", "offline_access", "write"],
            "refresh_token": ["read", "openid", "offline_access", "write"],
            JWT_BEARER: ["read", "write"],
            TOKEN_EXCHANGE: ["read", "write"],
        }
        assert all(ids.parse("grt", grant.id) is not None for grant in made.grants)
        assert len({grant.id for grant in made.grants}) == len(GRANT_TYPES)
        assert not made.explicit_grants

    @pytest.mark.parametrize("grant_type", list(GRANT_TYPES))
    @pytest.mark.parametrize("scope", ["read", *BUILT_IN])
    def test_the_scope_must_fit_one_of_the_grant_types(self, grant_type: str, scope: str) -> None:
        """The contract: `gatepost:` by client_credentials only; `openid` and `offline_access` where a person allows."""
        by_person = grant_type in ("authorization_code", "refresh_token")
        fits = {"openid": by_person, "offline_access": by_person}.get(
            scope, scope not in OPERATIONS or grant_type == "client_credentials"
        )
        assert client_grants.can_obtain(grant_type, scope) == fits
        body = WEB | {"grant_types": [grant_type], "scope": scope}
        if fits:
            assert scopes_by_type(defined(body)) == {grant_type: [scope]}
        else:
            assert refused(body).pointer == "/scope"
            assert f"{scope} cannot be obtained by {grant_type}" in refused(body).detail

    def test_ids_stay_with_their_type_over_redefinitions(self) -> None:
        made = defined(WEB | {"grant_types": ["authorization_code", "refresh_token"], "scope": "read"})
        wider = defined({"scope": "read write"}, made)
        assert [grant.id for grant in wider.grants] == [grant.id for grant in made.grants]
        assert scopes_by_type(wider) == {"authorization_code": ["read", "write"], "refresh_token": ["read", "write"]}
        fewer = defined({"grant_types": ["refresh_token"]}, wider)
        assert fewer.grants == [wider.grants[1]]
        again = defined({"grant_types": ["authorization_code", "refresh_token"]}, fewer)
        assert again.grants[1].id == made.grants[1].id
        assert again.grants[0].id != made.grants[0].id  # what was taken away does not come back under its name

    def test_a_scope_taken_away_leaves_every_grant(self) -> None:
        made = defined(ALL | {"scope": "read write"})
        fewer = defined({"scope": "read"}, made)
        assert all(names == ["read"] for names in scopes_by_type(fewer).values())
        assert all(names == [] for names in scopes_by_type(defined({"scope": None}, made)).values())


class TestGiven:
    def test_they_are_kept_as_given(self) -> None:
        grant = OWN | {"access_token_lifetime": 600, "refresh_token_lifetime": 7200, "status": "disabled"}
        made = defined({"grants": [grant, EXCHANGE]})
        assert made.explicit_grants
        assert made.grants == [
            Grant(made.grants[0].id, "client_credentials", ["read"], 600, 7200, "disabled"),
            Grant(made.grants[1].id, TOKEN_EXCHANGE, ["write"]),
        ]
        assert (made.grant_types, made.scope) == (["client_credentials", TOKEN_EXCHANGE], "read write")

    @pytest.mark.parametrize(
        ("sent", "shown"),
        [
            ({}, "delegation"),
            ({"exchange": None}, "delegation"),
            ({"exchange": "delegation"}, "delegation"),
            ({"exchange": "impersonation"}, "impersonation"),
        ],
    )
    def test_an_exchange_delegates_unless_it_is_said_to_impersonate(self, sent: dict[str, Any], shown: str) -> None:
        made = defined({"grants": [OWN, EXCHANGE | sent]})
        own, exchange = clients.render(made, {})["grants"]
        assert exchange["exchange"] == shown
        assert "exchange" not in own
        assert defined({"grants": [own, exchange]}, made) == made, "what was answered may be sent again"
        assert defined({"client_name": "x"}, made).grants == made.grants

    def test_an_exchange_that_is_built_delegates(self) -> None:
        [shown] = clients.render(defined({"grant_types": [TOKEN_EXCHANGE], "scope": "read"}), {})["grants"]
        assert shown["exchange"] == "delegation"

    def test_how_it_exchanges_can_be_changed(self) -> None:
        made = defined({"grants": [EXCHANGE | {"exchange": "impersonation"}]})
        again = defined({"grants": [EXCHANGE | {"exchange": "delegation"}]}, made)
        assert clients.render(again, {})["grants"][0]["exchange"] == "delegation"
        assert again.grants[0].id == made.grants[0].id
        assert defined({"grants": [EXCHANGE | {"exchange": "impersonation"}]}, again) == made

    def test_the_scope_may_be_said_and_bounds_them(self) -> None:
        made = defined({"scope": "write read", "grants": [OWN, EXCHANGE]})
        assert made.scope == "write read"
        assert refused({"scope": "read", "grants": [OWN, EXCHANGE]}).detail == (
            "grants: write is not in the client's scope"
        )
        for body, known in (({"scope": "read write more", "grants": [OWN, EXCHANGE]}, None), ({"scope": "more"}, made)):
            assert refused(body, known).detail == (
                "scope: more is in none of the client's explicit grants; add it to one, or send grants: null"
            )

    def test_the_scope_that_is_built_from_them_is_bounded(self) -> None:
        names = [f"{number:0>128}" for number in range(125)]  # 16,124 characters with the spaces
        assert refused({"grants": [OWN | {"scopes": names}]}).detail == (
            "grants: the client's scope, which is built from them, must be scope names separated by single spaces, "
            "at most 16,000 characters in all"
        )
        assert len(defined({"grants": [OWN | {"scopes": names[:124]}]}).scope) == 15_995

    def test_grant_types_must_be_the_same(self) -> None:
        assert defined(MACHINE | {"grants": [OWN]}).grant_types == ["client_credentials"]
        for types in (["client_credentials", TOKEN_EXCHANGE], [TOKEN_EXCHANGE]):
            assert refused({"grant_types": types, "grants": [OWN]}).detail == (
                "grants: must have one entry for each of grant_types"
            )

    def test_names_stand_once(self) -> None:
        assert defined({"grants": [OWN | {"scopes": ["a", "b", "a"]}]}).grants[0].scopes == ["a", "b"]

    def test_rules_of_the_grant_type_hold_for_them_too(self) -> None:
        assert refused({"grants": [CODE]}).pointer == "/redirect_uris"
        assert defined(WEB | {"grants": [CODE]}).response_types == ["code"]
        assert refused(PUBLIC | {"grants": [OWN]}).pointer == "/grant_types"

    @pytest.mark.parametrize(
        "given",
        [
            [], {}, "client_credentials", 5, [5], [None], [[]], [{}], [{"grant_type": "client_credentials"}],
            [{"scopes": ["read"]}], [OWN, OWN], [OWN | {"grant_type": "password"}], [OWN | {"grant_type": "implicit"}],
            [OWN | {"grant_type": ["client_credentials"]}], [OWN | {"grant_type": None}], [OWN] * 6,
            [OWN | {"scopes": "read"}], [OWN | {"scopes": [5]}], [OWN | {"scopes": [""]}], [OWN | {"scopes": ["a b"]}],
            [OWN | {"scopes": None}], [OWN | {"scopes": ["openid"]}], [OWN | {"scopes": ["offline_access"]}],
            *([EXCHANGE | {"scopes": [name]}] for name in OPERATIONS),
            *([CODE | {"scopes": [name]}] for name in OPERATIONS),
            [OWN | {"access_token_lifetime": 59}], [OWN | {"access_token_lifetime": 86_401}],
            [OWN | {"access_token_lifetime": True}], [OWN | {"access_token_lifetime": "600"}],
            [OWN | {"refresh_token_lifetime": 3599}], [OWN | {"refresh_token_lifetime": 1 << 70}],
            [OWN | {"status": "retired"}], [OWN | {"status": None}], [OWN | {"status": 1}], [OWN | {"secret": 1}],
            [OWN | {"id": "grt_06d8un0u5du3r3ifb9lnp3culs"}], [OWN | {"id": 5}], [OWN | {"": 1}],
            *([EXCHANGE | {"exchange": how}] for how in NO_EXCHANGE),
            *([each | {"exchange": how}] for each in (OWN, CODE) for how in ("delegation", "impersonation")),
        ],
    )  # fmt: skip
    def test_wrong(self, given: Any) -> None:
        for body in (WEB, WEB | {"client_name": "x"}):
            found = refused(body | {"grants": given})
            assert (found.code, found.pointer) == ("invalid_client_metadata", "/grants")
            assert len(found.detail) < 300

    def test_an_unknown_member_is_named(self) -> None:
        assert refused({"grants": [OWN | {"max_age": 1}]}).detail.startswith("grants: item 1 max_age must be left out")


class TestGivenAgain:
    def test_other_members_do_not_touch_them(self) -> None:
        made = defined({"grants": [OWN | {"access_token_lifetime": 600}, EXCHANGE]})
        renamed = defined({"client_name": "x", "metadata": {"a": "b"}}, made)
        assert renamed.grants == made.grants
        assert renamed.explicit_grants

    def test_ids_stay_with_their_type(self) -> None:
        made = defined({"grants": [OWN, EXCHANGE]})
        sent = [msgspec.to_builtins(grant) for grant in made.grants]
        assert defined({"grants": sent}, made) == made
        changed = defined({"grants": [OWN | {"access_token_lifetime": 60}, EXCHANGE]}, made)
        assert [grant.id for grant in changed.grants] == [grant.id for grant in made.grants]
        assert changed.grants[0].access_token_lifetime == 60

    def test_an_id_of_another_type_is_refused(self) -> None:
        made = defined({"grants": [OWN, EXCHANGE]})
        crossed = [OWN | {"id": made.grants[1].id}, EXCHANGE | {"id": made.grants[0].id}]
        assert "id must be left out" in refused({"grants": crossed}, made).detail

    def test_they_may_not_go_beyond_the_scope_there_is(self) -> None:
        made = defined({"grants": [OWN]})
        assert refused({"grants": [OWN | {"scopes": ["read", "more"]}]}, made).pointer == "/grants"
        wider = defined({"grants": [OWN | {"scopes": ["read", "more"]}], "scope": "read more"}, made)
        assert scopes_by_type(wider) == {"client_credentials": ["read", "more"]}

    def test_null_builds_them_from_scope_and_leaves_nothing_of_what_was_given(self) -> None:
        given = OWN | {"access_token_lifetime": 60, "status": "disabled"}
        made = defined({"grants": [given, EXCHANGE | {"exchange": "impersonation"}]})
        built = defined({"grants": None}, made)
        assert built.grants == [
            Grant(made.grants[0].id, "client_credentials", ["read", "write"]),
            Grant(made.grants[1].id, TOKEN_EXCHANGE, ["read", "write"]),
        ]
        assert not built.explicit_grants


class TestLookedUp:
    def test_a_grant_is_found_by_its_type(self) -> None:
        made = defined({"grants": [OWN, EXCHANGE]})
        assert made.grant("client_credentials") == made.grants[0]
        assert made.grant(TOKEN_EXCHANGE) == made.grants[1]
        assert made.grant("refresh_token") is None

    def test_a_disabled_grant_is_none(self) -> None:
        made = defined({"grants": [OWN | {"status": "disabled"}]})
        assert made.grant("client_credentials") is None


class TestKept:
    """Explicit grants when only other members are sent."""

    def test_a_scope_sent_again_adds_nothing(self) -> None:
        made = defined(MACHINE | {"scope": "read write", "grant_types": None, "grants": [OWN, EXCHANGE]})
        again = defined({"client_id": made.id, "scope": "read write"}, made)
        assert scopes_by_type(again) == {"client_credentials": ["read"], TOKEN_EXCHANGE: ["write"]}

    def test_a_smaller_scope_trims_them(self) -> None:
        made = defined(MACHINE | {"scope": "read write", "grant_types": None, "grants": [OWN, EXCHANGE]})
        smaller = defined({"client_id": made.id, "scope": "read"}, made)
        assert scopes_by_type(smaller) == {"client_credentials": ["read"], TOKEN_EXCHANGE: []}

    def test_a_scope_that_no_grant_has_is_refused(self) -> None:
        made = defined(MACHINE | {"scope": "read write", "grant_types": None, "grants": [OWN, EXCHANGE]})
        assert refused({"client_id": made.id, "scope": "read write more"}, made).pointer == "/scope"

    def test_other_grant_types_need_their_grants(self) -> None:
        made = defined(MACHINE | {"scope": "read write", "grant_types": None, "grants": [OWN, EXCHANGE]})
        assert refused({"client_id": made.id, "grant_types": ["client_credentials"]}, made).pointer == "/grant_types"
