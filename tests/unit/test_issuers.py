"""Trusted issuers: what an operator may type, and that a match is exact."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gatepost.core.errors import BadSetting
from gatepost.oauth import issuers
from gatepost.oauth.consents import Consent, ConsentDetails
from gatepost.oauth.issuers import Issuer

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
TYPED: dict[str, Any] = {
    "name": "ci",
    "account": "acc_1",
    "issuer": "https://ci.example",
    "jwks_uri": "https://ci.example/jwks",
    "match": ["sub=repo:acme/shop:ref:refs/heads/main"],
    "client": "cli_1",
    "scope": ["deploy"],
}


def define(**changes: Any) -> Issuer:
    typed = TYPED | changes
    return issuers.define(typed.pop("name"), at=NOW, **typed)


def test_what_is_typed_is_kept() -> None:
    found = define()
    assert found == Issuer(
        "acc_1", "ci", "https://ci.example", "https://ci.example/jwks", {"sub": "repo:acme/shop:ref:refs/heads/main"},
        "cli_1", ["deploy"], NOW, found.id,
    )  # fmt: skip
    assert found.identity == found.id != define().id
    assert msgspec.structs.replace(found, id="").identity == "2026-11-15T08:00:00.000Z"
    assert found.render() == {
        "account": "acc_1",
        "name": "ci",
        "issuer": "https://ci.example",
        "jwks_uri": "https://ci.example/jwks",
        "match": {"sub": "repo:acme/shop:ref:refs/heads/main"},
        "client": "cli_1",
        "scope": ["deploy"],
        "created_at": "2026-11-15T08:00:00.000Z",
        "id": found.id,
        "once": False,
        "sub": "acc_1:ci:repo:acme/shop:ref:refs/heads/main",
    }


def test_a_workload_never_has_the_sub_of_a_person() -> None:
    """Whatever the login application and the issuer call theirs: the character after the account's id differs."""
    names = ("ci", "ci.build", "ci:build", ":ci:build", "acc_1:ci:build", "acc_1.ci")
    people = {Consent("con_1", "acc_1", "cli_1", ConsentDetails(name, []), NOW, NOW).subject for name in names}
    workloads = {define().subject(name) for name in (*names, "build")}
    assert not people & workloads


def test_the_sub_is_shown_where_the_entry_leaves_it_open() -> None:
    assert define(match=["repository=acme/shop"]).render()["sub"] == "acc_1:ci:<sub>"


def test_several_matches_and_scopes() -> None:
    found = define(match=["sub=a=b", "tenant=acme"], scope=["deploy  read", " deploy ", "write"])
    assert found.match == {"sub": "a=b", "tenant": "acme"}
    assert found.scope == ["deploy", "read", "write"]


@pytest.mark.parametrize("name", ["a", "ci-2", "0", "a" * 63])
def test_names(name: str) -> None:
    assert define(name=name).name == name


REFUSED: list[tuple[dict[str, Any], str]] = [
    *[({"name": name}, "issuer name") for name in ("", "CI", "a.b", "a b", "a" * 64, "ci\n", "ü", "-" * 64)],
    *[({"issuer": issuer}, "--issuer") for issuer in ("", " ", "https://ci.example ", "a\nb", "é", "i" * 513)],
    *[
        ({"match": match}, "--match")
        for match in (
            [], ["sub"], ["sub="], ["=value"], ["="], [""], ["sub=a", "sub=b"], ["sub=a", "tenant"],
        )
    ],
    *[({"match": match}, "exactly") for match in (["sub=*"], ["sub=repo:acme/*"], ["sub=a", "tenant=acme*"])],
    *[({"scope": scope}, "--scope") for scope in ([], [""], ["  "])],
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_cannot_be_typed(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        define(**changes)


MATCHING: list[dict[str, Any]] = [
    {"sub": "a", "tenant": "acme"},
    {"sub": "a", "tenant": "acme", "more": ["x"]},
]
NOT_MATCHING: list[dict[str, Any]] = [
    {},
    {"sub": "a"},
    {"tenant": "acme"},
    {"sub": "a", "tenant": "ACME"},
    {"sub": "a", "tenant": "acme "},
    {"sub": "a", "tenant": "acme2"},
    {"sub": "a", "tenant": ""},
    {"sub": "a", "tenant": None},
    {"sub": "a", "tenant": ["acme"]},
    {"sub": "a", "tenant": {"acme": True}},
    {"sub": "b", "tenant": "acme"},
    {"Sub": "a", "tenant": "acme"},
]


@pytest.mark.parametrize("claims", MATCHING)
def test_what_matches(claims: dict[str, Any]) -> None:
    assert define(match=["sub=a", "tenant=acme"]).matches(claims)


@pytest.mark.parametrize("claims", NOT_MATCHING)
def test_what_does_not(claims: dict[str, Any]) -> None:
    assert not define(match=["sub=a", "tenant=acme"]).matches(claims)


@pytest.mark.parametrize("value", [5, 5.0, True, None])
def test_a_value_is_text(value: Any) -> None:
    assert not define(match=[f"sub={value}"]).matches({"sub": value})
