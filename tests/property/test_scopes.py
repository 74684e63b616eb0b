"""Defining scopes by any JSON: accepted or refused in words, stable once accepted."""

from typing import Any
from urllib.parse import urlsplit

from hypothesis import given
from hypothesis import strategies as st

from gatepost.core.errors import Refusal
from gatepost.oauth import resources, scopes
from gatepost.oauth.scopes import PROTOCOL_CLAIMS, Scope
from tests.property.test_clients import JSON, TEXT
from tests.unit.test_scopes import BASE_URL, FULL, LATER, NOW, define, defined

LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "description": TEXT,
    "resource": st.sampled_from(["https://a", "urn:a:b", BASE_URL, "api"]),
    "claims": st.lists(st.sampled_from(["email", "name", "sub"]), max_size=3),
    "max_lifetime": st.integers(59, 86_401),
    "status": st.sampled_from(["active", "retired", "disabled"]),
    "redefine": st.booleans(),
}
BODY = st.one_of(
    st.fixed_dictionaries({}, optional={name: st.none() | likely for name, likely in LIKELY.items()}),
    st.fixed_dictionaries({}, optional=dict.fromkeys([*scopes.MEMBERS.request, "x"], JSON)),
)


@given(BODY, st.sampled_from([None, defined({}), defined(FULL)]))
def test_a_body_is_a_scope_or_a_refusal(sent: dict[str, Any], known: Scope | None) -> None:
    sent = {"name": "invoices:read"} | sent
    found = define(sent, known, LATER)
    if isinstance(found, Refusal):
        assert found.code in ("invalid_request", "conflict")
        assert found.pointer.startswith("/")
        return
    assert not PROTOCOL_CLAIMS & set(found.claims)
    assert found.max_lifetime is None or 60 <= found.max_lifetime <= 86_400
    assert define(sent, found, LATER) == found, "the same definition again is the same scope"
    if known is not None and found != known:
        assert sent["redefine"] is True
        assert (found.created_at, found.updated_at) == (NOW, LATER)


@given(st.text(st.characters()) | st.from_regex(r"[a-zA-Z]{0,6}:/{0,3}[\x20-\x7eé]{0,30}", fullmatch=True))
def test_no_resource_is_a_surprise(text: str) -> None:
    if resources.problem(text, BASE_URL):
        return
    uri = urlsplit(text)
    assert uri.scheme
    if uri.scheme in ("http", "https"):
        assert uri.geturl() == text, "one spelling"
        assert uri.hostname
    assert not set(text) & set(" #\t\r\n\0")
    assert resources.owned_as(text) != BASE_URL
    assert not text.lower().startswith("urn:gatepost:")
    assert resources.normal_form(text) == text
