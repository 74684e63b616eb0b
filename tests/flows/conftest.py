"""Shops, each with an account of its own."""

from collections.abc import Iterator

import pytest

from tests.flows.shop import Shop, opening
from tests.service import Service


@pytest.fixture
def shop(gatepost: Service, account_name: str) -> Iterator[Shop]:
    with opening(gatepost, account_name) as found:
        yield found


@pytest.fixture
def sqlite_shop(sqlite_gatepost: Service, account_name: str) -> Iterator[Shop]:
    with opening(sqlite_gatepost, account_name) as found:
        yield found
