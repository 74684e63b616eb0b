"""Definitions are cached, and every transaction knows by its first statement which of them changed, and where."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.core.errors import Unavailable
from gatepost.ledger.record import append_entry
from gatepost.oauth import client_rows, key_rows, scope_rows, signing_keys
from gatepost.store.cache import Cache
from gatepost.store.interface import Store
from gatepost.store.pending import Again
from gatepost.store.transaction import APPEND_ONLY, SHORT, Hints, Tx, Unit
from tests.contract import make, parallel
from tests.contract.backends import Backend, FakeClock

MANY = 24  # more than any store has connections
PAIR = b"p" * 16


def everywhere(store: Store, unit: Unit[Any]) -> list[Any]:
    """What the unit comes to on each of a store's paths, so often that every connection of each has its turn."""

    async def reads() -> list[Any]:
        return await asyncio.gather(*[store.read(unit) for _ in range(MANY)])

    return [
        *parallel.run(store, [unit] * MANY),
        *parallel.run(store, [unit] * MANY, hints=APPEND_ONLY),
        *asyncio.run(reads()),
        store.read_now(unit),
        store.run_now(unit),
    ]


def only(outcomes: Sequence[Any]) -> Any:
    """The one value that they all are."""
    [value] = {msgspec.json.encode(outcome): outcome for outcome in outcomes}.values()
    return value


# --- a change by another process


def test_a_disabled_client_is_disabled_everywhere_at_once(store: Store, other: Store, account: str) -> None:
    made = store.run_now(lambda tx: make.client(tx, account))

    def status(tx: Tx) -> str | None:
        found = client_rows.load(tx, made.id)
        return found.status if found else None

    assert only(everywhere(other, status)) == "active"
    store.run_now(lambda tx: client_rows.update(tx, msgspec.structs.replace(made, status="disabled")))
    assert only(everywhere(other, status)) == "disabled"
    assert only(everywhere(store, status)) == "disabled"


def test_a_changed_scope_is_changed_everywhere_at_once(store: Store, other: Store, account: str) -> None:
    made = store.run_now(lambda tx: make.scope(tx, account, "read"))

    def lifetime(tx: Tx) -> int | None:
        found = scope_rows.load(tx, account, "read")
        return found.max_lifetime if found else None

    assert only(everywhere(other, lifetime)) is None
    for seconds in (60, 120):
        changed = msgspec.structs.replace(made, max_lifetime=seconds)
        store.run_now(lambda tx, changed=changed: scope_rows.update(tx, changed))  # type: ignore[misc]
        assert only(everywhere(other, lifetime)) == seconds


def test_a_suspended_account_is_suspended_everywhere_at_once(store: Store, other: Store, account: str) -> None:
    def active(tx: Tx) -> bool:
        found = account_rows.load(tx, account)
        return found is not None and found.active

    assert only(everywhere(other, active)) is True

    def suspend(tx: Tx) -> None:
        found = account_rows.lock(tx, account)
        assert found is not None
        account_rows.update(tx, msgspec.structs.replace(found, status="suspended"))

    store.run_now(suspend)
    assert only(everywhere(other, active)) is False


def test_a_key_is_known_everywhere_at_once(store: Store, other: Store, watch: FakeClock) -> None:
    def known(tx: Tx) -> list[tuple[str, str]]:
        return [(each.key.id, each.key.status) for each in key_rows.load(tx)]

    assert only(everywhere(other, known)) == []
    first, second = (signing_keys.generate("ES256", watch()) for _ in range(2))
    store.run_now(lambda tx: key_rows.add(tx, first.key, b"wrapped"))
    assert only(everywhere(other, known)) == [(first.key.id, "announced")]
    store.run_now(lambda tx: key_rows.add(tx, second.key, b"wrapped"))
    store.run_now(lambda tx: key_rows.update(tx, msgspec.structs.replace(first.key, status="revoked"), wipe=True))
    assert only(everywhere(other, known)) == [(first.key.id, "revoked"), (second.key.id, "announced")]


def test_a_decision_falls_with_the_definition_it_was_derived_from(store: Store, other: Store, account: str) -> None:
    def exists(tx: Tx) -> bool:
        return tx.derived((account, "does read exist?"), lambda: scope_rows.load(tx, account, "read") is not None)

    def lifetime(tx: Tx) -> int:
        found = scope_rows.load(tx, account, "read")
        return tx.derived((account, "for how long?"), lambda: (found.max_lifetime if found else None) or 0)

    assert only(everywhere(other, exists)) is False
    made = store.run_now(lambda tx: make.scope(tx, account, "read"))
    assert only(everywhere(other, exists)) is True
    assert only(everywhere(other, lifetime)) == 0
    store.run_now(lambda tx: scope_rows.update(tx, msgspec.structs.replace(made, max_lifetime=60)))
    assert only(everywhere(other, lifetime)) == 60


@pytest.mark.parametrize("refusal", ["returned", "raised"])
def test_what_a_unit_decided_too_early_does_not_stand(store: Store, other: Store, account: str, refusal: str) -> None:
    """The unit decides with the cache of this process after another process has committed a change."""
    made = store.run_now(lambda tx: make.client(tx, account))

    def issue(tx: Tx) -> str:
        found = client_rows.load(tx, made.id)
        outcome = "issued" if found and found.active else "refused"
        make.record(tx, account, outcome)
        if refusal == "raised" and outcome == "refused":
            raise Failed
        return outcome

    assert only(everywhere(other, lambda tx: client_rows.load(tx, made.id))) == made
    store.run_now(lambda tx: client_rows.update(tx, msgspec.structs.replace(made, status="disabled")))
    refused = parallel.run(other, [issue] * 5, hints=APPEND_ONLY)
    assert all(isinstance(each, Failed) if refusal == "raised" else each == "refused" for each in refused)
    store.run_now(lambda tx: client_rows.update(tx, made))
    assert parallel.run(other, [issue] * 5, hints=APPEND_ONLY) == ["issued"] * 5
    kept = ["refused"] * 5 * (refusal == "returned") + ["issued"] * 5
    assert sorted(other.read_now(lambda tx: make.subjects(tx, account))) == sorted(kept)


# --- what the cache must not keep


class Failed(Exception):
    """What the units of these tests raise."""


def _raise(_tx: Tx, _account: str) -> None:
    raise Failed


def _never_first(_tx: Tx, _account: str) -> None:
    raise Again("for ever")


def _take_a_taken_name(tx: Tx, account: str) -> None:
    make.scope(tx, account, "taken")


def _record_what_no_database_takes(tx: Tx, account: str) -> None:
    append_entry(tx, make.record(tx, account)._replace(id=ids.new_raw(), subject=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("records_only", [False, True], ids=["writing", "recording"])
@pytest.mark.parametrize("end", [_raise, _never_first, _take_a_taken_name, _record_what_no_database_takes])
def test_what_was_rolled_back_was_never_known(
    store: Store, account: str, end: Callable[[Tx, str], None], *, records_only: bool
) -> None:
    store.run_now(lambda tx: make.scope(tx, account, "taken"))
    kept = store.run_now(lambda tx: make.client(tx, account))
    lost = []

    def unit(tx: Tx) -> None:
        made = make.client(tx, account)
        lost.append(made.id)
        assert client_rows.load(tx, made.id) == made
        client_rows.update(tx, msgspec.structs.replace(kept, status="disabled"))
        assert client_rows.load(tx, kept.id) != kept
        end(tx, account)

    looking: Unit[Any] = lambda tx: client_rows.load(tx, kept.id)  # noqa: E731 (a unit like the one above)
    outcomes = parallel.run_in_one_batch(store, [looking, unit, looking], hints=Hints(append_only=records_only))
    assert outcomes[::2] == [kept, kept]
    assert isinstance(outcomes[1], Exception)
    assert only(everywhere(store, lambda tx: [client_rows.load(tx, each) for each in lost])) == [None] * len(lost)
    assert only(everywhere(store, lambda tx: client_rows.load(tx, kept.id))) == kept


def test_a_unit_sees_its_own_changes(store: Store, account: str) -> None:
    made = store.run_now(lambda tx: make.client(tx, account))

    def unit(tx: Tx) -> str | None:
        assert client_rows.load(tx, made.id) == made
        client_rows.update(tx, msgspec.structs.replace(made, client_name="changed"))
        found = client_rows.load(tx, made.id)
        return found.client_name if found else None

    assert store.run_now(unit) == "changed"


def test_what_is_not_there_is_not_remembered(store: Store, other: Store, watch: FakeClock) -> None:
    made = accounts.new("late", watch())
    assert only(everywhere(other, lambda tx: account_rows.load(tx, made.id))) is None
    store.run_now(lambda tx: account_rows.add(tx, made))
    assert only(everywhere(other, lambda tx: account_rows.load(tx, made.id))) == made


def test_the_cache_has_an_end(store: Store, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cache, "LIMIT", 10)
    made = [store.run_now(lambda tx: make.client(tx, account)).id for _ in range(25)]

    def sizes(tx: Tx) -> list[int]:
        found = []
        for client in made:
            assert client_rows.load(tx, client) is not None
            tx.derived(client, lambda: True)
            found.append(max(len(tx._cache.definitions), len(tx._cache.derived)))
        return found

    for outcome in everywhere(store, sizes):
        assert max(outcome) <= 10


# --- the list of changes


def test_a_cache_that_missed_too_many_changes_starts_anew(store: Store, other: Store, account: str) -> None:
    names = [f"{number:04}" for number in range(1002)]
    made = store.run_now(lambda tx: [make.scope(tx, account, name) for name in names])
    assert only(everywhere(other, lambda tx: scope_rows.load(tx, account, "0000"))) == made[0]
    changed = [msgspec.structs.replace(scope, max_lifetime=60) for scope in made]

    def change(tx: Tx) -> None:
        for scope in changed:
            scope_rows.update(tx, scope)

    store.run_now(change)
    assert only(everywhere(other, lambda tx: scope_rows.load(tx, account, "0000"))) == changed[0]
    assert only(everywhere(other, lambda tx: scope_rows.load(tx, account, "1001"))) == changed[-1]


@pytest.mark.parametrize(
    "forgotten", [">= max(version) - 2", "= max(version) - 2", "= max(version) - 1", "= max(version)"]
)
def test_a_cache_that_finds_changes_forgotten_starts_anew(
    store: Store, other: Store, backend: Backend, account: str, forgotten: str
) -> None:
    """Also in the middle: two machines' clocks differ, and changes are forgotten by their time."""
    made = store.run_now(lambda tx: [make.scope(tx, account, name) for name in "abc"])
    assert only(everywhere(other, lambda tx: [scope_rows.load(tx, account, name) for name in "abc"])) == made
    changed = [msgspec.structs.replace(scope, max_lifetime=60) for scope in made]
    for scope in changed:
        store.run_now(lambda tx, scope=scope: scope_rows.update(tx, scope))  # type: ignore[misc]
    how, which = forgotten.split(" ", 1)
    backend.execute(f"DELETE FROM changes WHERE version {how} (SELECT {which} FROM changes)")
    assert only(everywhere(other, lambda tx: [scope_rows.load(tx, account, name) for name in "abc"])) == changed


def test_changes_are_forgotten_after_an_hour(store: Store, backend: Backend, account: str, watch: FakeClock) -> None:
    made = store.run_now(lambda tx: make.scope(tx, account, "read"))
    watch.forward(timedelta(minutes=59))
    store.run_now(lambda tx: scope_rows.update(tx, made))
    assert store.run_now(Tx.delete_old_changes) == 0
    watch.forward(timedelta(minutes=2))
    assert store.run_now(Tx.delete_old_changes) == 1
    assert len(backend.execute("SELECT version FROM changes")) == 1


@pytest.mark.parametrize("name", ["changes", "ends"])
def test_a_store_without_its_counts_is_not_available(store: Store, backend: Backend, account: str, name: str) -> None:
    """Such as one that is only partly restored. When it is complete, the same processes continue."""

    def unit(tx: Tx) -> bool:
        return account_rows.load(tx, account) is not None

    async def outcomes() -> list[Any]:
        running = (
            store.run(unit), store.run(unit, APPEND_ONLY), store.read(unit), store.read(unit, SHORT),
            asyncio.to_thread(store.run_now, unit), asyncio.to_thread(store.read_now, unit),
        )  # fmt: skip
        return list(await asyncio.gather(*running, return_exceptions=True))

    assert asyncio.run(outcomes()) == [True] * 6
    [(count,)] = backend.execute("SELECT value FROM counters WHERE name = ?", name)
    backend.execute("DELETE FROM counters WHERE name = ?", name)
    problems = asyncio.run(outcomes())
    assert {type(problem) for problem in problems} == {Unavailable}
    assert all(f"the table counters has no row '{name}'" in str(problem) for problem in problems)
    backend.execute("INSERT INTO counters (name, value) VALUES (?, ?)", name, count)
    assert asyncio.run(outcomes()) == [True] * 6
