"""Requests in progress by source address: one address cannot take the share of another."""

import pytest

from gatepost.core.errors import Refusal
from gatepost.web.in_flight import InFlight, owner_of
from gatepost.web.requests import NO_HOST


def test_an_address_has_its_limit() -> None:
    found = InFlight(2)
    assert [found.enter("192.0.2.1", {}) for _ in range(4)] == ["192.0.2.1", "192.0.2.1", None, None]
    found.leave("192.0.2.1")
    assert [found.enter("192.0.2.1", {}) for _ in range(2)] == ["192.0.2.1", None]


def test_another_address_is_not_locked_out() -> None:
    found = InFlight(1)
    assert found.enter("192.0.2.1", {})
    assert not found.enter("192.0.2.1", {})
    assert found.enter("192.0.2.2", {})
    assert found.enter("2001:db8::1", {})


def test_the_addresses_of_one_ipv6_host_share_a_limit() -> None:
    found = InFlight(1)
    assert found.enter("2001:db8::1", {})
    assert not found.enter("2001:db8::ffff:1", {})
    assert found.enter("2001:db8:0:1::1", {})


def test_a_trusted_proxy_is_not_limited() -> None:
    """Requests that name no address behind it, such as its own health checks, are never refused."""
    found = InFlight(1, ("10.0.0.0/8",))
    assert all(found.enter("10.0.0.1", {}) for _ in range(100))
    assert found.enter("192.0.2.1", {})
    assert not found.enter("192.0.2.1", {})


@pytest.mark.parametrize("headers", [{"forwarded": "for=unknown"}, {"x-forwarded-for": "x"}, NO_HOST])
def test_a_caller_that_a_proxy_does_not_name_is_limited(headers: dict[str, str] | Refusal) -> None:
    found = InFlight(1, ("10.0.0.0/8",))
    assert [found.enter("10.0.0.1", headers) for _ in range(2)] == ["10.0.0.1", None]


def test_without_a_limit_all_enter() -> None:
    found = InFlight(0)
    assert all(found.enter("192.0.2.1", {}) for _ in range(1000))


def test_nothing_is_kept_of_those_who_left() -> None:
    found = InFlight(3)
    for address in ("192.0.2.1", "2001:db8::1", ""):
        for _ in range(3):
            assert found.enter(address, {}) == owner_of(address)
        for _ in range(3):
            found.leave(owner_of(address))
    assert found._counts == {}


@pytest.mark.parametrize(
    ("address", "owner"),
    [
        ("", ""),
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff::1", "2001:db8::/64"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_owners(address: str, owner: str) -> None:
    assert owner_of(address) == owner
