"""Interactions and pushed requests are limited by browser, client and address: the oldest make room for the newest."""

from datetime import timedelta

import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.core.secrets import Box
from gatepost.oauth.authorize import interactions, pushed_requests
from gatepost.oauth.authorize.interactions import Interaction
from gatepost.store.interface import Store
from gatepost.store.transaction import Tx
from tests.contract import make, parallel
from tests.contract.backends import Backend, FakeClock

BOX = Box([b"k" * 32])
HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def client(store: Store, account: str, watch: FakeClock) -> str:
    watch.at = clock.from_milliseconds(clock.milliseconds(watch()))
    return store.run_now(lambda tx: make.client(tx, account)).id


class Interactions:
    """What is open in an account, by names that a test gives."""

    def __init__(self, store: Store, account: str, watch: FakeClock) -> None:
        self.store, self.account, self.watch = store, account, watch
        self.names: dict[str, str] = {}

    def open(self, name: str, client: str, *, browser: bytes = b"b" * 32, source: str = HERE, first: bool) -> None:
        made = Interaction(
            self.account, ids.new("int"), client, browser, None, b"{}", self.watch() + timedelta(minutes=10)
        )  # fmt: skip
        self.names[name] = made.id
        self.store.run_now(lambda tx: interactions.add(tx, made, source, BOX, first_visit=first))
        self.watch.forward(timedelta(milliseconds=1))

    @property
    def left(self) -> str:
        def unit(tx: Tx) -> list[str]:
            return [name for name, each in self.names.items() if interactions.load(tx, self.account, each, BOX)]

        return " ".join(self.store.read_now(unit))


@pytest.fixture
def opened(store: Store, account: str, client: str, watch: FakeClock) -> Interactions:
    del client
    return Interactions(store, account, watch)


def test_the_oldest_of_a_browser_make_room(store: Store, account: str, client: str, opened: Interactions) -> None:
    for name in "abcd":
        opened.open(name, client, first=name == "a")
    opened.open("other", client, browser=b"o" * 32, first=False)
    assert store.run_now(lambda tx: interactions.evict_of_browser(tx, account, b"b" * 32, 4)) == 0
    assert store.run_now(lambda tx: interactions.evict_of_browser(tx, account, b"b" * 32, 2)) == 2
    assert opened.left == "c d other"


def test_the_oldest_of_a_client_and_address_make_room(
    store: Store, account: str, client: str, opened: Interactions
) -> None:
    second = store.run_now(lambda tx: make.client(tx, account)).id
    for number, name in enumerate("abcd"):
        opened.open(name, client, browser=bytes([number]) * 32, first=True)
    opened.open("there", client, source=THERE, first=True)
    opened.open("second", second, first=True)
    opened.open("returning", client, first=False)
    evicted = store.run_now(lambda tx: interactions.evict(tx, account, client, HERE, 3, first_visit=True))
    assert (evicted, opened.left) == (1, "b c d there second returning")
    evicted = store.run_now(lambda tx: interactions.evict(tx, account, client, HERE, 0, first_visit=False))
    assert (evicted, opened.left) == (1, "b c d there second")


def test_what_is_finished_neither_counts_nor_goes(
    store: Store, account: str, client: str, opened: Interactions
) -> None:
    for name in "abc":
        opened.open(name, client, first=True)
    store.run_now(lambda tx: interactions.finish(tx, account, opened.names["a"]))
    assert store.run_now(lambda tx: interactions.evict_of_browser(tx, account, b"b" * 32, 2)) == 0
    assert store.run_now(lambda tx: interactions.evict(tx, account, client, HERE, 1, first_visit=True)) == 1
    assert opened.left == "a c"


def test_another_account_is_not_concerned(
    store: Store, account: str, client: str, opened: Interactions, watch: FakeClock
) -> None:
    opened.open("a", client, first=True)
    stranger = accounts.new("stranger", watch())
    store.run_now(lambda tx: account_rows.add(tx, stranger))
    assert store.run_now(lambda tx: interactions.evict_of_browser(tx, stranger.id, b"b" * 32, 0)) == 0
    assert store.run_now(lambda tx: interactions.evict(tx, stranger.id, client, HERE, 0, first_visit=True)) == 0
    assert store.run_now(lambda tx: pushed_requests.evict(tx, stranger.id, client, HERE, 0)) == 0
    assert opened.left == "a"


def test_the_oldest_pushed_requests_make_room(store: Store, account: str, client: str, watch: FakeClock) -> None:
    def push(raw: bytes, source: str = HERE) -> None:
        ends = watch() + timedelta(minutes=5)
        store.run_now(lambda tx: pushed_requests.add(tx, account, raw * 32, client, source, b"{}", BOX, ends))
        watch.forward(timedelta(milliseconds=1))

    for raw in (b"d", b"c", b"b", b"a"):
        push(raw)
    push(b"t", THERE)
    assert store.run_now(lambda tx: pushed_requests.evict(tx, account, client, HERE, 4)) == 0
    assert store.run_now(lambda tx: pushed_requests.evict(tx, account, client, HERE, 2)) == 2

    def left(tx: Tx) -> list[bytes]:
        return [
            raw for raw in (b"d", b"c", b"b", b"a", b"t") if pushed_requests.load(tx, account, raw * 32, client, BOX)
        ]

    assert store.read_now(left) == [b"b", b"a", b"t"]


def test_many_at_once_stay_within_the_limit(
    store: Store, other: Store, backend: Backend, account: str, client: str, watch: FakeClock
) -> None:
    """Each makes room for itself; what two leave between them, the next takes away."""

    def unit(tx: Tx) -> None:
        made = Interaction(account, ids.new("int"), client, b"b" * 32, None, b"{}", watch() + timedelta(minutes=10))
        interactions.add(tx, made, HERE, BOX)
        interactions.evict_of_browser(tx, account, b"b" * 32, 5)

    assert parallel.failures(parallel.run([store, other], [unit] * 60)) == []
    store.run_now(unit)
    assert backend.execute("SELECT count(*) FROM interactions") == [(5,)]
