"""What the authorization flows keep: one use decided by the write, nothing in clear, and what is forgotten when."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock, ids
from gatepost.core.secrets import Box, WrongKey
from gatepost.ledger import entry_rows
from gatepost.ledger.entries import Origin
from gatepost.oauth import (
    client_rows,
    consent_rows,
    expiry,
    family_rows,
    issuer_rows,
    refresh_tokens,
    revocation,
    revoked_tokens,
)
from gatepost.oauth.authorize import codes, interactions, pushed_requests
from gatepost.oauth.authorize.codes import Code
from gatepost.oauth.authorize.interactions import Interaction
from gatepost.oauth.consents import Consent, ConsentDetails
from gatepost.oauth.issuers import Issuer
from gatepost.oauth.refresh_tokens import Family
from gatepost.store.interface import Store
from gatepost.store.pending import Again
from gatepost.store.transaction import LOWEST, Hints, Prefetch, Tx, Unit
from tests.contract import make, parallel
from tests.contract.backends import Backend, FakeClock

BOX = Box([bytes(range(32))])
PERSON = b"p" * 32
MANY = 50
READERS = 4  # of one store, at most; each has a cache
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
TICK = timedelta(milliseconds=1)
SAID = ConsentDetails(
    "ada", ["openid", "things:read"], ["https://api.example"], 1_700_000_000, "gold", ["pwd"], {"email": "a@b.example"},
)  # fmt: skip


class Kept(NamedTuple):
    """One of each, all of one account and client."""

    account: str
    client: str
    pushed: bytes
    interaction: Interaction
    consent: Consent
    code: bytes
    family: Family
    token: bytes


def consent(account: str, client: str, watch: FakeClock, lasts: timedelta = 91 * DAY) -> Consent:
    return Consent(ids.new("con"), account, client, SAID, watch(), watch() + lasts)


def family(of: Consent, watch: FakeClock, lasts: timedelta = 90 * DAY) -> Family:
    first = refresh_tokens.first(ids.new("fam"), b"s" * 32)
    return Family(
        of.account, first.family, of.client, of.id, 0, refresh_tokens.leaf(first), "", watch(), watch() + lasts,
        watch() + lasts,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def whole_milliseconds(watch: FakeClock) -> None:
    """No finer than what is stored."""
    watch.at = clock.from_milliseconds(clock.milliseconds(watch()))


@pytest.fixture
def kept(store: Store, account: str, watch: FakeClock) -> Kept:
    client = store.run_now(lambda tx: make.client(tx, account)).id
    given = consent(account, client, watch)
    made = Kept(
        account, client, b"u" * 32,
        Interaction(account, ids.new("int"), client, b"b" * 32, b"u" * 32, b'{"a": "request"}', watch() + HOUR / 6),
        given, b"c" * 32, family(given, watch), ids.new_raw(),
    )  # fmt: skip

    def unit(tx: Tx) -> None:
        pushed_requests.add(
            tx, account, made.pushed, client, "192.0.2.1", b'{"a": "pushed one"}', BOX, watch() + HOUR / 12
        )
        interactions.add(tx, made.interaction, "192.0.2.1", BOX)
        consent_rows.add(tx, given, PERSON, BOX)
        codes.add(tx, account, made.code, Code(client, given.id, "{}", watch() + HOUR / 60))
        family_rows.add(tx, made.family)

    store.run_now(unit)
    return made


# --- used once

# What is used once, and the write that says who was first.
ONCE: dict[str, Callable[[Tx, Kept], bool]] = {
    "a pushed request": lambda tx, k: pushed_requests.delete(tx, k.account, k.pushed),
    "an interaction": lambda tx, k: interactions.finish(tx, k.account, k.interaction.id),
    "a consent": lambda tx, k: consent_rows.end(tx, k.account, k.consent.id, "why") is not None,
    "a code": lambda tx, k: codes.spend(tx, k.account, k.code),
    "a family": lambda tx, k: family_rows.end(tx, k.account, k.family.id, "why"),
    "a live refresh token": lambda tx, k: family_rows.rotate(tx, k.family, b"l" * 32, "", k.family.idle_ends_at),
    "an access token": lambda tx, k: revoked_tokens.add(tx, k.account, k.token, k.consent.expires_at),
    "the name of an issuer": lambda tx, k: issuer_rows.add(tx, issuer(k)),
}


def issuer(kept: Kept, name: str = "ci") -> Issuer:
    at = kept.consent.given_at
    return Issuer(
        kept.account, name, "https://ci.example", "https://ci.example/keys", {"sub": "a"}, kept.client, ["a"], at
    )


@pytest.mark.parametrize("what", ONCE)
def test_it_is_used_once(store: Store, other: Store, kept: Kept, what: str) -> None:
    outcomes = parallel.run([store, other], [lambda tx: ONCE[what](tx, kept)] * MANY)
    assert parallel.failures(outcomes) == []
    assert sorted(outcomes) == [False] * (MANY - 1) + [True]
    assert not store.run_now(lambda tx: ONCE[what](tx, kept))


@pytest.mark.parametrize("what", ONCE)
def test_a_use_that_is_undone_is_none(store: Store, other: Store, kept: Kept, what: str) -> None:
    def failing(tx: Tx) -> None:
        assert ONCE[what](tx, kept)
        raise ArithmeticError("died before the commit")

    with pytest.raises(ArithmeticError):
        store.run_now(failing)
    assert other.run_now(lambda tx: ONCE[what](tx, kept))


@pytest.mark.parametrize("what", [name for name in ONCE if name not in ("an access token", "the name of an issuer")])
def test_another_account_uses_nothing(store: Store, kept: Kept, watch: FakeClock, what: str) -> None:
    stranger = accounts.new("stranger", watch())
    store.run_now(lambda tx: account_rows.add(tx, stranger))
    theirs = kept._replace(account=stranger.id, family=kept.family._replace(account=stranger.id))
    assert not store.run_now(lambda tx: ONCE[what](tx, theirs))
    assert store.run_now(lambda tx: ONCE[what](tx, kept))


def test_another_account_sees_nothing(store: Store, kept: Kept, watch: FakeClock) -> None:
    stranger = accounts.new("stranger", watch()).id

    def seen(tx: Tx, account: str) -> list[Any]:
        return [
            pushed_requests.load(tx, account, kept.pushed, kept.client, BOX),
            interactions.load(tx, account, kept.interaction.id, BOX),
            consent_rows.load(tx, account, kept.consent.id, BOX),
            codes.load(tx, account, kept.code),
            family_rows.load(tx, account, kept.family.id),
            family_rows.load_with_consent(tx, account, kept.family.id, BOX),
            consent_rows.page(tx, account, LOWEST, 10, BOX),
            consent_rows.active_of(tx, account, person=PERSON, client=None, limit=10),
            consent_rows.active_of(tx, account, person=None, client=kept.client, limit=10),
            family_rows.of_consent(tx, account, kept.consent.id),
        ]

    assert not any(store.read_now(lambda tx: seen(tx, stranger)))
    assert all(store.read_now(lambda tx: seen(tx, kept.account)))


# --- rotating, alone and together with others


def test_a_rotation_wants_the_number_that_is_live(store: Store, kept: Kept, watch: FakeClock) -> None:
    row, later = kept.family, kept.family.idle_ends_at - DAY

    def rotate(tx: Tx, family: Family) -> bool:
        return family_rows.rotate(tx, family, b"l" * 32, "thumb", later)

    assert not store.run_now(lambda tx: rotate(tx, row._replace(number=1)))
    watch.forward(HOUR)
    assert store.run_now(lambda tx: rotate(tx, row))
    now = store.read_now(lambda tx: family_rows.load(tx, kept.account, row.id))
    assert now == row._replace(number=1, leaf=b"l" * 32, thumbprint="thumb", rotated_at=watch(), idle_ends_at=later)
    assert not store.run_now(lambda tx: family_rows.extend(tx, row, later))
    assert store.run_now(lambda tx: family_rows.extend(tx, now, row.idle_ends_at))
    assert store.run_now(lambda tx: family_rows.end(tx, kept.account, row.id, "why"))
    assert not store.run_now(lambda tx: rotate(tx, now))
    assert not store.run_now(lambda tx: family_rows.extend(tx, now, later))
    ended = store.read_now(lambda tx: family_rows.load(tx, kept.account, row.id))
    assert ended == now._replace(idle_ends_at=row.idle_ends_at, ended_at=watch(), ended_reason="why")


def run_wanting(stores: Sequence[Store], asked: Sequence[tuple[Unit[Any], tuple[str, str] | None]]) -> list[Any]:
    """Run all units at once, as token requests run. Units with a prefetched family read and rotate together."""

    def run(store: Store, unit: Unit[Any], wanted: tuple[str, str] | None) -> Coroutine[Any, Any, Any]:
        if wanted is None:
            return store.run(unit)
        row = family_rows.prefetch(wanted[0], ids.raw(wanted[1]))
        return store.run(unit, Hints(append_only=True, prefetch=lambda _: row))

    async def all_of_them() -> list[Any]:
        async with asyncio.timeout(parallel.LONG):
            running = [run(stores[number % len(stores)], *each) for number, each in enumerate(asked)]
            return await asyncio.gather(*running, return_exceptions=True)

    return asyncio.run(all_of_them())


def using(account: str, name: str, label: str = "") -> Unit[str]:
    """A use of the first token of a family, with an entry."""

    def unit(tx: Tx) -> str:
        found = family_rows.load_with_consent(tx, account, name, BOX)
        assert found is not None
        row, given = found
        assert given.details == SAID
        if row.ended_at is not None:
            result = "ended"
        elif row.number == 0:
            if not family_rows.rotate(tx, row, b"l" * 32, "", row.idle_ends_at):
                raise Again("another was first")
            result = "rotated"
        else:
            result = "repeated"
        make.record(tx, account, f"{name} {result} {label}")
        return result

    return unit


def test_of_many_at_once_one_rotates_and_all_are_on_record(store: Store, other: Store, kept: Kept) -> None:
    name = kept.family.id
    outcomes = run_wanting([store, other], [(using(kept.account, name), (kept.account, name))] * MANY)
    assert sorted(outcomes) == ["repeated"] * (MANY - 1) + ["rotated"]
    now = store.read_now(lambda tx: family_rows.load(tx, kept.account, name))
    assert now is not None
    assert now.number == 1
    result = store.read_now(lambda tx: make.subjects(tx, kept.account))
    assert sorted(result) == [f"{name} repeated "] * (MANY - 1) + [f"{name} rotated "]


def test_many_families_rotate_in_one_commit_while_some_end(
    store: Store, other: Store, kept: Kept, watch: FakeClock
) -> None:
    """In any order, the results match the rows, and no entry is lost or written twice."""
    rows = [family(kept.consent, watch) for _ in range(30)]

    def add(tx: Tx) -> None:
        for each in rows:
            family_rows.add(tx, each)

    store.run_now(add)

    def ending(name: str) -> Unit[str]:
        def unit(tx: Tx) -> str:
            result = "ended it" if family_rows.end(tx, kept.account, name, "why") else "was over"
            make.record(tx, kept.account, f"{name} {result} ")
            return result

        return unit

    asked: list[tuple[Unit[str], tuple[str, str] | None]] = []
    for number, row in enumerate(rows):
        asked += [(using(kept.account, row.id), (kept.account, row.id))] * (1 + number % 3)
        asked += [(ending(row.id), None)] * (number % 2)
    outcomes = run_wanting([store, other], asked)
    assert parallel.failures(outcomes) == []
    result = store.read_now(lambda tx: make.subjects(tx, kept.account))
    assert len(result) == len(asked)
    for number, row in enumerate(rows):
        now = store.read_now(lambda tx, row=row: family_rows.load(tx, kept.account, row.id))  # type: ignore[misc]
        assert now is not None
        output = [each.split(" ", 1)[1].strip() for each in result if each.startswith(row.id)]
        assert output.count("rotated") == now.number <= 1
        assert output.count("ended it") == number % 2 == (now.ended_at is not None)
        assert now.number == 1 or "ended" in output


def test_who_wants_a_family_decides_by_definitions_as_they_are(store: Store, other: Store, kept: Kept) -> None:
    """Though what was read ahead of the commit is the definition as it was."""

    def unit(tx: Tx) -> bool:
        account = account_rows.load(tx, kept.account)
        assert account is not None
        using(kept.account, kept.family.id, "active" if account.active else "suspended")(tx)
        return account.active

    def suspend(tx: Tx) -> None:
        account = account_rows.lock(tx, kept.account)
        assert account is not None
        account_rows.update(tx, msgspec.structs.replace(account, status="suspended"))

    wanted = (kept.account, kept.family.id)
    assert run_wanting([store], [(unit, wanted)]) == [True]
    assert run_wanting([store], [(unit, wanted)]) == [True], "and now it is remembered"
    other.run_now(suspend)
    assert run_wanting([store], [(unit, wanted)]) == [False]
    result = store.read_now(lambda tx: make.subjects(tx, kept.account))
    expected = ["rotated active", "repeated active", "repeated suspended"]
    assert sorted(result) == sorted(f"{kept.family.id} {each}" for each in expected)


def test_who_cannot_say_what_it_wants_runs_all_the_same(store: Store, kept: Kept) -> None:
    """And so does who comes after: no thread ends by it."""

    def fails(_tx: Tx) -> Prefetch:
        raise ValueError("a defect")

    async def run_unit(label: str) -> str:
        unit = using(kept.account, kept.family.id, label)
        async with asyncio.timeout(parallel.LONG):
            return await store.run(unit, Hints(append_only=True, prefetch=fails))

    assert [asyncio.run(run_unit(label)) for label in ("one", "other", "third")] == [
        "rotated",
        "repeated",
        "repeated",
    ]


def test_a_unit_whose_entry_cannot_be_written_leaves_nothing(store: Store, kept: Kept) -> None:
    """Not a rotation, nor an end, nor a definition: there is no fact without its entry."""
    name = kept.family.id
    taken = store.run_now(lambda tx: make.record(tx, kept.account)).id

    def failing(tx: Tx) -> None:
        using(kept.account, name)(tx)
        consent_rows.end(tx, kept.account, kept.consent.id, "why")
        make.client(tx, kept.account)
        make.record(tx, kept.account, raw_id=taken)

    def count(tx: Tx) -> tuple[int, int]:
        return client_rows.count(tx, kept.account), entry_rows.count(tx, kept.account)

    before = store.read_now(count)
    failed, fine = run_wanting(
        [store], [(failing, (kept.account, name)), (lambda tx: make.record(tx, kept.account, "fine").subject, None)]
    )
    assert isinstance(failed, Exception)
    assert fine == "fine"
    assert store.read_now(count) == (before[0], before[1] + 1)
    assert store.read_now(lambda tx: family_rows.load(tx, kept.account, name)) == kept.family
    assert store.read_now(lambda tx: consent_rows.load(tx, kept.account, kept.consent.id, BOX)) == kept.consent


def test_what_stands_is_remembered_until_anything_ends(store: Store, other: Store, kept: Kept) -> None:
    looks: list[bool] = []

    def look(tx: Tx) -> Any:
        def find() -> bool:
            found = family_rows.load(tx, kept.account, kept.family.id)
            looks.append(found is not None and found.ended_at is None)
            return looks[-1]

        return tx.valid("the family", find)

    ends: list[Callable[[Tx], Any]] = [
        lambda tx: revoked_tokens.add(tx, kept.account, kept.token, kept.consent.expires_at),
        lambda tx: consent_rows.end(tx, kept.account, kept.consent.id, "why"),
        lambda tx: family_rows.end(tx, kept.account, kept.family.id, "why"),
    ]
    for number, end in enumerate(ends):
        seen = len(looks)
        for _ in range(20):
            assert store.read_now(look) is True
        assert len(looks) - seen <= READERS, "it was looked up again though nothing had changed"
        seen = len(looks)
        other.run_now(end)
        assert store.read_now(look) is (number < 2)
        assert len(looks) > seen


# --- what comes back, and what is in clear


def test_everything_comes_back_as_it_was(store: Store, kept: Kept, watch: FakeClock) -> None:
    def unit(tx: Tx) -> list[Any]:
        return [
            pushed_requests.load(tx, kept.account, kept.pushed, kept.client, BOX),
            interactions.load(tx, kept.account, kept.interaction.id, BOX),
            consent_rows.load(tx, kept.account, kept.consent.id, BOX),
            codes.load(tx, kept.account, kept.code),
            family_rows.load(tx, kept.account, kept.family.id),
            family_rows.load_with_consent(tx, kept.account, kept.family.id, BOX),
        ]

    assert store.read_now(unit) == [
        b'{"a": "pushed one"}', kept.interaction, kept.consent,
        Code(kept.client, kept.consent.id, "{}", watch() + HOUR / 60), kept.family, (kept.family, kept.consent),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "nobody", "con_", "fam_06d8un0u5du3r3ifb9lnp3cult", "é", "int_" + "z" * 26])
def test_what_is_no_id_is_not_there(store: Store, kept: Kept, name: str) -> None:
    def unit(tx: Tx) -> list[Any]:
        return [
            interactions.load(tx, kept.account, name, BOX),
            consent_rows.load(tx, kept.account, name, BOX),
            family_rows.load(tx, kept.account, name),
        ]

    assert store.read_now(unit) == [None, None, None]


def test_what_was_said_is_encrypted_and_stays_in_its_row(
    store: Store, backend: Backend, kept: Kept, watch: FakeClock
) -> None:
    second = consent(kept.account, kept.client, watch)
    store.run_now(lambda tx: consent_rows.add(tx, second, PERSON, BOX))
    for column, table, words in (("said", "consents", b"ada"), ("request", "pushed", b"pushed one"),
                                 ("request", "interactions", b"request")):  # fmt: skip
        for (value,) in backend.execute(f"SELECT {column} FROM {table}"):
            assert words not in bytes(value)
    backend.execute(
        "UPDATE consents SET said = (SELECT said FROM consents WHERE id = ?) WHERE id = ?",
        ids.raw(second.id), ids.raw(kept.consent.id),
    )  # fmt: skip
    with pytest.raises(WrongKey):
        store.read_now(lambda tx: consent_rows.load(tx, kept.account, kept.consent.id, BOX))


def test_a_pushed_request_is_opened_by_its_client_in_its_time(store: Store, kept: Kept, watch: FakeClock) -> None:
    stranger = store.run_now(lambda tx: make.client(tx, kept.account)).id

    def opened(client: str) -> bytes | None:
        return store.read_now(lambda tx: pushed_requests.load(tx, kept.account, kept.pushed, client, BOX))

    assert opened(stranger) is None
    watch.forward(HOUR / 12 - TICK)
    assert opened(kept.client) is not None
    watch.forward(TICK)
    assert opened(kept.client) is None


def test_consents_are_found_by_person_and_client(store: Store, kept: Kept, watch: FakeClock) -> None:
    second = store.run_now(lambda tx: make.client(tx, kept.account)).id
    here, there, bob, over = (consent(kept.account, each, watch) for each in (kept.client, second, second, second))

    def unit(tx: Tx) -> None:
        for each, person in ((here, PERSON), (there, PERSON), (bob, b"b" * 32), (over, PERSON)):
            consent_rows.add(tx, each, person, BOX)
        assert consent_rows.end(tx, kept.account, over.id, "why") == second

    store.run_now(unit)

    def found(person: bytes | None, client: str | None, limit: int = 10) -> list[str]:
        return store.read_now(
            lambda tx: consent_rows.active_of(tx, kept.account, person=person, client=client, limit=limit)
        )

    assert found(PERSON, None) == [kept.consent.id, here.id, there.id]
    assert found(PERSON, None, limit=2) == [kept.consent.id, here.id]
    assert found(None, second) == [there.id, bob.id]
    assert found(PERSON, second) == [there.id]
    assert found(b"n" * 32, None) == []
    first, *_ = page = store.read_now(lambda tx: consent_rows.page(tx, kept.account, LOWEST, 3, BOX))
    assert [each.id for each in page] == [kept.consent.id, here.id, there.id]
    rest = store.read_now(lambda tx: consent_rows.page(tx, kept.account, ids.raw(page[-1].id), 3, BOX))
    assert rest[0] == bob
    assert rest[1:] == [over._replace(ended_at=watch(), ended_reason="why")]
    assert first == kept.consent


def test_many_consents_end_exactly_once(store: Store, other: Store, kept: Kept, watch: FakeClock) -> None:
    many = [consent(kept.account, kept.client, watch) for _ in range(450)]

    def add(tx: Tx) -> None:
        for each in many:
            consent_rows.add(tx, each, PERSON, BOX)
            family_rows.add(tx, family(each, watch))

    store.run_now(add)

    def end(tx: Tx) -> int:
        account = account_rows.load(tx, kept.account)
        assert account is not None
        return revocation.end_consents(tx, account, "why", Origin("test"), person=PERSON, client=None)

    assert sum(parallel.run([store, other], [end] * 4)) == 451
    result = store.read_now(lambda tx: make.subjects(tx, kept.account))
    assert sorted(result) == sorted([kept.consent.id, *(each.id for each in many)])
    assert (
        store.read_now(lambda tx: [each for one in many for each in family_rows.of_consent(tx, kept.account, one.id)])
        == []
    )


def test_a_revoked_token_is_revoked_in_its_account(store: Store, other: Store, kept: Kept, watch: FakeClock) -> None:
    stranger = accounts.new("stranger", watch()).id
    store.run_now(lambda tx: revoked_tokens.add(tx, kept.account, kept.token, watch() + HOUR))
    assert other.read_now(lambda tx: revoked_tokens.contains(tx, kept.account, kept.token))
    assert not other.read_now(lambda tx: revoked_tokens.contains(tx, stranger, kept.token))
    assert not other.read_now(lambda tx: revoked_tokens.contains(tx, kept.account, ids.new_raw()))


def test_issuers_are_known_everywhere_at_once(store: Store, other: Store, kept: Kept) -> None:
    def names(of: Store) -> list[list[str]]:
        return [of.read_now(lambda tx: [each.name for each in issuer_rows.load(tx, kept.account)]) for _ in range(4)]

    assert names(other) == [[]] * 4
    store.run_now(lambda tx: [issuer_rows.add(tx, issuer(kept, name)) for name in ("b", "a")])
    assert names(other) == names(store) == [["a", "b"]] * 4
    assert store.run_now(lambda tx: issuer_rows.remove(tx, kept.account, "b"))
    assert names(other) == names(store) == [["a"]] * 4
    assert not store.run_now(lambda tx: issuer_rows.remove(tx, kept.account, "b"))


# --- what is forgotten

# Of each table: what the row lives for, and how long it is kept after that, since something may still rest on it.
FORGOTTEN: dict[str, tuple[str, timedelta]] = {
    "pushed": ("expires_at", timedelta()),
    "interactions": ("expires_at", timedelta()),
    "codes": ("expires_at", DAY),  # a second use ends what the first gave
    "consents": ("expires_at", timedelta()),  # which is after the last access token
    "families": ("ends_at", DAY),  # an access token lives for a day at most
    "revoked": ("expires_at", timedelta(minutes=1)),
}


@pytest.mark.parametrize("table", FORGOTTEN)
def test_it_is_forgotten_when_nothing_rests_on_it(
    store: Store, backend: Backend, kept: Kept, watch: FakeClock, table: str
) -> None:
    store.run_now(lambda tx: revoked_tokens.add(tx, kept.account, kept.token, watch() + HOUR))
    column, after = FORGOTTEN[table]
    [(ends,)] = backend.execute(f"SELECT {column} FROM {table}")
    watch.at = clock.from_milliseconds(ends) + after
    store.run_now(expiry.delete_expired)
    assert len(backend.execute(f"SELECT * FROM {table}")) == 1
    watch.forward(TICK)
    store.run_now(expiry.delete_expired)
    assert backend.execute(f"SELECT * FROM {table}") == []


def test_what_has_ended_is_remembered_as_long_as_what_has_not(
    store: Store, backend: Backend, kept: Kept, watch: FakeClock
) -> None:
    """So that nothing comes to life because its end was forgotten."""

    def end(tx: Tx) -> None:
        consent_rows.end(tx, kept.account, kept.consent.id, "why")
        family_rows.end(tx, kept.account, kept.family.id, "why")
        codes.spend(tx, kept.account, kept.code)

    store.run_now(end)
    watch.forward(90 * DAY)
    store.run_now(expiry.delete_expired)
    assert [len(backend.execute(f"SELECT * FROM {table}")) for table in ("consents", "families")] == [1, 1]


def test_much_is_forgotten_in_slices(store: Store, backend: Backend, kept: Kept, watch: FakeClock) -> None:
    def push(tx: Tx) -> None:
        for number in range(449):
            raw = bytes([number // 256, number % 256]) * 16
            pushed_requests.add(tx, kept.account, raw, kept.client, "192.0.2.1", b"", BOX, watch())

    store.run_now(push)
    watch.forward(HOUR / 12 + TICK)
    assert [store.run_now(expiry.delete_expired) for _ in range(4)] == [200, 200, 50, 0]
    assert backend.execute("SELECT * FROM pushed") == []
