"""One browser and one account with a delivery in every state, shared by the tests of this folder."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser

from tests.browser.look import WIDE, Contexts, Look, browser
from tests.flows.test_delivery import Platform
from tests.receiver import OK, Raw, Receiver, receiver, silent
from tests.service import Service

Opener = Callable[..., Look]
HOSTILE = '<img src=x onerror="document.title=\'taken\'"><script>document.title="taken"</script>'


class Account(NamedTuple):
    """`deliveries`: state → the id of one that is in it."""

    platform: Platform
    deliveries: dict[str, str]
    endpoints: dict[str, dict[str, Any]]
    healthy: Receiver


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """For this folder only: while it runs no test of the same process can run a loop of its own."""
    with browser() as started:
        yield started


@pytest.fixture(scope="package")
def contexts(chromium: Browser) -> Contexts:
    return Contexts(chromium)


@pytest.fixture
def look(contexts: Contexts, sqlite_gatepost: Service) -> Iterator[Opener]:
    """Opens pages. In the end none of them may have complained of anything.

    A page whose clock is replaced needs `own_context`: the clock is that of all later pages of the context.
    """
    opened: list[tuple[Look, tuple[int, int], bool]] = []

    def opening(size: tuple[int, int] = WIDE, theme: str = "light", *, own_context: bool = False) -> Look:
        context = contexts.new(size) if own_context else contexts.take(size)
        opened.append((Look(context, sqlite_gatepost, theme), size, own_context))
        return opened[-1][0]

    yield opening
    for each, size, own_context in opened:
        if own_context:
            each.context.close()
        else:
            contexts.give_back(each.context, size, sqlite_gatepost.ops)
    assert [complaint for each, *_ in opened for complaint in each.complaints()] == []


@pytest.fixture(scope="package")
def inside(contexts: Contexts, sqlite_gatepost: Service, account: Account) -> Iterator[Look]:
    """A page that has signed in to the account, for tests that only read."""
    seen = Look(contexts.new(WIDE), sqlite_gatepost, "light")
    seen.enter(account.platform.client)
    yield seen
    seen.context.close()
    assert seen.complaints() == []


@pytest.fixture(scope="package")
def account(sqlite_gatepost: Service) -> Iterator[Account]:
    """Receivers that are healthy, failing, silent and gone, and what was sent to them."""
    platform = Platform(sqlite_gatepost, "looked-at")
    no_headers: dict[str, str] = {}
    failing = (503, no_headers, HOSTILE.encode())
    with (
        receiver(OK) as healthy,
        receiver(failing) as bad,
        receiver(Raw(silent)) as mute,
        receiver((410, {}, b"")) as gone,
    ):
        endpoints = {
            "healthy": platform.connect(healthy.url, "order.paid", description="healthy", headers={"x-team": "a'b"}),
            "failing": platform.connect(bad.url, "order.late", retry_schedule=[1, *[86400] * 8], description="failing"),
            "given up": platform.connect(bad.url, "order.lost", retry_schedule=[], description="given up"),
            "silent": platform.connect(
                mute.url, "order.slow", timeout=30, retry_schedule=[1] * 24, description="silent"
            ),
            "timing out": platform.connect(
                mute.url, "order.out", timeout=1, retry_schedule=[86400], description="late"
            ),
            "gone": platform.connect(gone.url, "order.gone", description="gone"),
            "paused": platform.connect(healthy.url, "order.held", description="paused", status="disabled"),
            "removed": platform.connect(bad.url, "order.removed", description="removed"),
        }
        sent = {
            "succeeded": platform.send({"order": 9007199254740993, "note": HOSTILE}, "order.paid"),
            "pending": platform.send({"order": 2}, "order.late"),
            "failed": platform.send({"order": 3}, "order.lost"),
            "in_flight": platform.send({"order": 4}, "order.slow"),
            "timed out": platform.send({"order": 5}, "order.out"),
            "gone": platform.send({"order": 6}, "order.gone"),
            "held": platform.send({"order": 7}, "order.held"),
            "cancelled": platform.send({"order": 8}, "order.held"),
            "removed": platform.send({"order": 9}, "order.removed"),
        }
        sqlite_gatepost.cli("delivery", "cancel", sent["cancelled"], "--account", platform.name)
        platform.once(sent["removed"], "pending", 1)
        platform.redefine(endpoints["removed"], status="removed")
        platform.once(sent["succeeded"], "succeeded")
        platform.once(sent["pending"], "pending", 2)
        platform.once(sent["failed"], "failed")
        platform.once(sent["in_flight"], "in_flight")
        platform.once(sent["timed out"], "pending", 1)
        platform.once(sent["gone"], "failed")
        platform.once(sent["removed"], "cancelled")
        yield Account(platform, sent, endpoints, healthy)
