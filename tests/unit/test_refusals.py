"""The key under which refusals of one client and address are counted."""

import pytest

from gatepost.oauth.refusals import network, pair


@pytest.mark.parametrize(
    ("source", "counted_as"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_an_ipv6_caller_counts_by_its_network(source: str, counted_as: str) -> None:
    """Otherwise it could take a new address for every request."""
    assert network(source) == counted_as


def test_clients_and_addresses_are_told_apart() -> None:
    pairs = [("a", "192.0.2.1"), ("a", "192.0.2.2"), ("b", "192.0.2.1"), ("", "192.0.2.1"), ("a\0", "192.0.2.1")]
    assert len({pair(*each) for each in pairs}) == len(pairs)
    assert pair("\ud800", "192.0.2.1")
