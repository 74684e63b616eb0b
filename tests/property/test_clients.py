"""Defining clients by any JSON: accepted or refused in words, never a defect, and stable once accepted."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gatepost.core import secret_rotation
from gatepost.core.errors import ERRORS, Refusal
from gatepost.ledger import operations
from gatepost.oauth import client_grants, clients, redirect_uris, scopes
from gatepost.oauth.client_grants import GRANT_TYPES
from gatepost.oauth.client_rules import ClientDefinition
from gatepost.oauth.clients import Client, with_secret
from tests.unit.clients import KEY, MACHINE, NOW, PUBLIC, WEB, define, defined

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.lists(st.sampled_from(["read", "write", "openid", "offline_access", "gatepost:clients"]), unique=True)
TYPES = st.lists(st.sampled_from(list(GRANT_TYPES)), unique=True, min_size=1)
GRANT = st.fixed_dictionaries(
    {"grant_type": st.sampled_from(list(GRANT_TYPES)), "scopes": NAMES},
    optional={
        "access_token_lifetime": st.integers(60, 86_400),
        "status": st.sampled_from(["active", "disabled"]),
        "exchange": st.sampled_from([None, "delegation", "impersonation"]),
    },
)
# Values that have a chance of being right, so that the rules about the whole are reached.
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "grant_types": TYPES,
    "scope": NAMES.map(" ".join),
    "redirect_uris": st.lists(st.sampled_from(["https://a/b", "http://[::1]/", "a.b:/c", "http://a/"]), unique=True),
    "token_endpoint_auth_method": st.sampled_from(["client_secret_post", "private_key_jwt", "none"]),
    "application_type": st.sampled_from(["web", "native"]),
    "jwks": st.just({"keys": [KEY]}),
    "jwks_uri": st.just("https://a/jwks"),
    "id_token_claims": st.booleans(),
    "dpop_bound_access_tokens": st.booleans(),
    "require_pkce": st.booleans(),
    "require_nonce": st.booleans(),
    "rotate_secret": st.booleans() | st.fixed_dictionaries({"overlap": st.integers(-1, 10)}),
    "grants": st.lists(GRANT, max_size=3),
    "response_types": st.just(["code"]),
    "serves": st.lists(st.sampled_from(["https://a", "urn:a:b", "https://gatepost.example"])),
    "claims": st.dictionaries(TEXT, JSON, max_size=3),
    "metadata": st.dictionaries(TEXT, TEXT, max_size=3),
    "status": st.sampled_from(["active", "disabled"]),
}
BODY = st.one_of(
    st.fixed_dictionaries({}, optional={name: st.none() | likely for name, likely in LIKELY.items()}),
    st.fixed_dictionaries({}, optional=dict.fromkeys(clients.MEMBERS.request, JSON)),
    st.dictionaries(TEXT, JSON, max_size=3).map(lambda sent: MACHINE | sent),
)
KNOWN = st.sampled_from(
    [None, defined(MACHINE | {"scope": "read"}), defined(WEB | {"scope": "openid"}), defined(PUBLIC)]
)


@given(BODY, KNOWN)
def test_a_body_is_a_client_or_a_refusal(sent: dict[str, Any], known: Client | None) -> None:
    found = define(sent, known)
    if isinstance(found, Refusal):
        assert found.code in ("invalid_client_metadata", "invalid_redirect_uri")
        assert found.code in ERRORS
        assert found.pointer.startswith("/")
        return
    check_whole(found.client)
    assert found.needs_secret <= (found.client.token_endpoint_auth_method in clients.SECRET_METHODS)
    assert msgspec.json.decode(msgspec.json.encode(found.client), type=Client) == found.client
    again = define({}, found.client)
    assert isinstance(again, ClientDefinition)
    assert again.client == found.client, "nothing sent changes nothing"


def check_whole(client: Client) -> None:
    """What the contract promises of every client, however it came to be."""
    granted = [name for grant in client.grants for name in grant.scopes]
    assert set(granted) == set(scopes.split(client.scope))
    assert [grant.grant_type for grant in client.grants] == client.grant_types
    assert len({grant.id for grant in client.grants}) == len(client.grants)
    for grant in client.grants:
        by_person = grant.grant_type in ("authorization_code", "refresh_token")
        assert by_person or not {"openid", "offline_access"} & set(grant.scopes)
        assert grant.grant_type == "client_credentials" or not set(operations.OPERATIONS) & set(grant.scopes)
        assert not client.public or by_person or grant.grant_type == client_grants.JWT_BEARER, (
            "a public client can only use grants that identify it in another way"
        )
    assert client.redirect_uris or "authorization_code" not in client.grant_types
    assert client.jwks or client.jwks_uri or client.token_endpoint_auth_method != "private_key_jwt"
    assert client.jwks is None or client.jwks_uri is None
    for shown in clients.render(client, {})["grants"]:
        exchanges = shown["grant_type"] == client_grants.TOKEN_EXCHANGE
        assert shown.get("exchange") in (["delegation", "impersonation"] if exchanges else [None])
    assert client.require_pkce or not client.public
    assert client.require_nonce or not client.require_pkce
    assert not scopes.PROTOCOL_CLAIMS & set(client.claims)


@given(st.lists(BODY, max_size=6))
def test_ids_of_grants_stay_with_their_type(bodies: list[dict[str, Any]]) -> None:
    client = defined(MACHINE)
    for sent in bodies:
        found = define(sent, client)
        if isinstance(found, Refusal):
            continue
        before = {grant.grant_type: grant.id for grant in client.grants}
        after = {grant.grant_type: grant.id for grant in found.client.grants}
        assert all(after[each] == before[each] for each in before.keys() & after.keys())
        assert (found.client.id, found.client.account) == (client.id, client.account)
        client = found.client


@given(
    st.text(st.characters()) | st.from_regex(r"[a-zA-Z.]{0,12}:/{0,3}[\x20-\x7eé]{0,30}", fullmatch=True), st.booleans()
)
def test_no_redirect_uri_is_a_surprise(uri: str, native: bool) -> None:
    if redirect_uris.problem(uri, native=native):
        return
    scheme = uri.partition(":")[0]
    assert uri.isascii()
    assert not set(uri) & set(" #\\\t\r\n\0")
    assert scheme == scheme.lower()
    if scheme == "http":
        assert uri.removeprefix("http://").lower().startswith(("127.0.0.1", "localhost", "[::1]"))
    elif scheme == "https":
        assert "@" not in uri.removeprefix("https://").partition("/")[0].partition("?")[0]
    else:
        assert native
        assert "." in scheme


@given(
    st.lists(st.tuples(st.timedeltas(min_value=0 * (NOW - NOW), max_value=clients.MAX_OVERLAP), st.integers(0, 10**6)))
)
def test_at_most_two_secrets_live_and_the_newest_does(rotations: list[tuple[Any, int]]) -> None:
    client, at = defined(MACHINE), NOW
    for number, (overlap, seconds) in enumerate(rotations):
        at += seconds * secret_rotation.OVERLAP / 86_400
        before = {secret.id: secret for secret in client.secrets}
        client = with_secret(client, bytes([number % 256]), overlap, at)
        live = [secret for secret in client.secrets if secret.is_active(at)]
        assert 1 <= len(live) <= 2
        assert live[-1] == client.secrets[-1]
        assert (live[-1].expires_at, live[-1].created_at) == (None, at)
        for secret in live[:-1]:
            assert secret.expires_at is not None
            assert at < secret.expires_at <= at + overlap
            assert secret.expires_at <= (before[secret.id].expires_at or secret.expires_at), "never prolonged"
