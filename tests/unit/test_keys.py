"""Signing keys: the plan at each instant that matters, and signatures that another library verifies."""

from base64 import urlsafe_b64decode
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import msgspec
import pytest

from gatepost.core import ids
from gatepost.core.secrets import Box, WrongKey
from gatepost.oauth import signing_keys
from gatepost.oauth.signing_keys import ALGORITHMS, KeyRing, SigningKey, StoredKey, plan, revoke
from tests.unit.signing_keys import Kept, generate

START = datetime(2026, 11, 15, 8, tzinfo=UTC)
MOMENT = timedelta(milliseconds=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """The keys after the first start."""
    monkeypatch.setattr(signing_keys, "generate", generate)
    found = Kept()
    found.apply(plan([], START))
    return found


def events(changes: list[signing_keys.KeyChange]) -> list[tuple[str, str | None]]:
    return [(change.key.alg, change.event) for change in changes]


def jwks_ids(kept: Kept) -> set[str]:
    return {key["kid"] for key in signing_keys.jwks(kept.listed())["keys"]}


def test_the_contracts_times() -> None:
    assert list(ALGORITHMS) == ["ES256", "RS256", "EdDSA"]
    assert (signing_keys.ANNOUNCE, signing_keys.ROTATE) == (24 * HOUR, 90 * DAY)
    assert timedelta(hours=24, minutes=15) == signing_keys.LONGEST_TOKEN + signing_keys.JWKS_MAX_AGE


class TestFirstStart:
    def test_each_algorithm_signs_at_once_and_announces_the_next(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(signing_keys, "generate", generate)
        reported = ["oauth.key.announced", "oauth.key.activated", "oauth.key.announced"]
        assert events(plan([], START)) == [(alg, event) for alg in ALGORITHMS for event in reported]

    def test_one_active_and_one_announced_with_their_private_parts(self, kept: Kept) -> None:
        assert len(kept.keys) == 6
        for alg in ALGORITHMS:
            assert kept.one(alg, "active").activated_at == START
            assert kept.one(alg, "announced").activated_at is None
        assert all(kept.private.values())
        assert jwks_ids(kept) == set(kept.keys)


class TestNothingDue:
    @pytest.mark.parametrize("after", [timedelta(0), HOUR, DAY, 90 * DAY - MOMENT])
    def test_is_an_empty_plan(self, kept: Kept, after: timedelta) -> None:
        assert plan(kept.listed(), START + after) == []

    def test_nor_is_anything_right_after_what_was_due(self, kept: Kept) -> None:
        kept.apply(plan(kept.listed(), START + 90 * DAY))
        assert plan(kept.listed(), START + 90 * DAY) == []


class TestRotation:
    def test_after_ninety_days_the_announced_key_takes_over(self, kept: Kept) -> None:
        at = START + 90 * DAY
        before = {alg: (kept.one(alg, "active"), kept.one(alg, "announced")) for alg in ALGORITHMS}
        changes = kept.apply(plan(kept.listed(), at))
        reported = ["oauth.key.activated", "oauth.key.retired", "oauth.key.announced"]
        assert events(changes) == [(alg, event) for alg in ALGORITHMS for event in reported]
        for alg, (active, announced) in before.items():
            assert kept.one(alg, "active") == msgspec.structs.replace(announced, status="active", activated_at=at)
            assert kept.one(alg, "retired") == msgspec.structs.replace(
                active, status="retired", retired_at=at, purge_at=at + timedelta(hours=24, minutes=15)
            )
            assert kept.one(alg, "announced").announced_at == at

    def test_not_before_the_next_was_announced_for_a_day(self, kept: Kept) -> None:
        """The announced key was revoked, and another announced, an hour before the active one was due."""
        late = START + 90 * DAY - HOUR
        announced = kept.one("ES256", "announced")
        kept.apply(revoke(kept.listed(), [announced], late))
        active = kept.one("ES256", "active")
        for after in (HOUR, DAY - MOMENT):
            kept.apply(plan(kept.listed(), late + after))
            assert kept.one("ES256", "active") == active
        kept.apply(plan(kept.listed(), late + DAY))
        assert kept.one("ES256", "retired").id == active.id

    def test_the_private_part_goes_when_the_key_no_longer_signs(self, kept: Kept) -> None:
        kept.apply(plan(kept.listed(), START + 90 * DAY))
        for key in kept.listed():
            assert (kept.private[key.id] is None) == (key.status == "retired")

    def test_a_retired_key_leaves_jwks_when_its_last_token_has_expired(self, kept: Kept) -> None:
        at = START + 90 * DAY
        kept.apply(plan(kept.listed(), at))
        retired = {kept.one(alg, "retired").id for alg in ALGORITHMS}
        assert plan(kept.listed(), at + timedelta(hours=24, minutes=15) - MOMENT) == []
        assert retired <= jwks_ids(kept)
        changes = kept.apply(plan(kept.listed(), at + timedelta(hours=24, minutes=15)))
        assert {change.key.id for change in changes} == retired
        assert all(change.key.status == "purged" and change.event is None and change.wipe for change in changes)
        assert retired.isdisjoint(jwks_ids(kept))

    def test_asked_for_it_comes_at_once_and_for_the_named_only(self, kept: Kept) -> None:
        announced = kept.one("RS256", "announced")
        changes = kept.apply(plan(kept.listed(), START + HOUR, rotate=frozenset({"RS256"})))
        assert {change.key.alg for change in changes} == {"RS256"}
        assert kept.one("RS256", "active").id == announced.id
        assert kept.one("RS256", "announced").announced_at == START + HOUR


class TestRepairing:
    def test_without_an_announced_key_one_is_announced_and_waits_its_day(self, kept: Kept) -> None:
        """However long the active key has been due."""
        at = START + 100 * DAY
        active = [kept.one(alg, "active") for alg in ALGORITHMS]
        assert events(plan(active, at)) == [(alg, "oauth.key.announced") for alg in ALGORITHMS]

    def test_without_an_active_key_the_announced_takes_over(self, kept: Kept) -> None:
        announced = [kept.one(alg, "announced") for alg in ALGORITHMS]
        reported = ["oauth.key.activated", "oauth.key.announced"]
        assert events(plan(announced, START + HOUR)) == [(alg, event) for alg in ALGORITHMS for event in reported]


class TestRevoking:
    def test_the_active_key_leaves_at_once_and_the_announced_takes_over(self, kept: Kept) -> None:
        active, announced = kept.one("ES256", "active"), kept.one("ES256", "announced")
        changes = kept.apply(revoke(kept.listed(), [active], START + HOUR))
        reported = ["oauth.key.revoked", "oauth.key.activated", "oauth.key.announced"]
        assert events(changes) == [("ES256", event) for event in reported]
        assert kept.one("ES256", "active").id == announced.id
        assert kept.keys[active.id].retired_at == START + HOUR
        assert active.id not in jwks_ids(kept)
        assert kept.private[active.id] is None

    def test_the_announced_key_is_replaced(self, kept: Kept) -> None:
        active, announced = kept.one("EdDSA", "active"), kept.one("EdDSA", "announced")
        changes = kept.apply(revoke(kept.listed(), [announced], START + HOUR))
        assert events(changes) == [("EdDSA", "oauth.key.revoked"), ("EdDSA", "oauth.key.announced")]
        assert kept.one("EdDSA", "active") == active
        assert kept.one("EdDSA", "announced").id != announced.id
        assert kept.private[announced.id] is None

    def test_a_retired_key_leaves_before_its_time_and_keeps_when_it_retired(self, kept: Kept) -> None:
        at = START + 90 * DAY
        kept.apply(plan(kept.listed(), at))
        retired = kept.one("ES256", "retired")
        assert events(revoke(kept.listed(), [retired], at + HOUR)) == [("ES256", "oauth.key.revoked")]
        kept.apply(revoke(kept.listed(), [retired], at + HOUR))
        assert retired.id not in jwks_ids(kept)
        assert kept.keys[retired.id].retired_at == at

    @pytest.mark.parametrize("status", ["announced", "active", "retired"])
    def test_a_revoked_key_is_never_touched_again(self, kept: Kept, status: str) -> None:
        kept.apply(plan(kept.listed(), START + 90 * DAY))
        key = kept.one("ES256", status)
        kept.apply(revoke(kept.listed(), [key], START + 90 * DAY + HOUR))
        for day in range(91, 400):
            assert key.id not in {change.key.id for change in kept.apply(plan(kept.listed(), START + day * DAY))}


class TestKeySet:
    @pytest.mark.parametrize(
        ("status", "published"),
        [("announced", True), ("active", True), ("retired", True), ("revoked", False), ("purged", False)],
    )
    def test_what_is_in_it(self, status: Any, published: bool) -> None:
        key = SigningKey("key_1", "ES256", status, {"kid": "key_1"}, START)
        assert signing_keys.jwks([key]) == {"keys": [{"kid": "key_1"}] if published else []}


@pytest.fixture(scope="module", params=ALGORITHMS)
def made(request: pytest.FixtureRequest) -> signing_keys.GeneratedKey:
    return signing_keys.generate(request.param, START)


BOX = Box([bytes(range(32))])
CLAIMS = {"iss": "https://gatepost.example", "sub": "cli_1", "text": "größer ≥ 😀"}


class TestMaking:
    def test_the_public_part_says_what_it_is_for_and_nothing_private(self, made: signing_keys.GeneratedKey) -> None:
        assert ids.parse("key", made.key.id) is not None
        assert (made.key.status, made.key.announced_at) == ("announced", START)
        expected = {
            "ES256": {"kty", "crv", "x", "y"},
            "RS256": {"kty", "n", "e"},
            "EdDSA": {"kty", "crv", "x"},
        }[made.key.alg]
        assert set(made.key.public) == expected | {"kid", "alg", "use"}
        named = {"kid": made.key.id, "alg": made.key.alg, "use": "sig"}
        assert {name: made.key.public[name] for name in named} == named

    def test_an_rsa_key_has_2048_bits(self) -> None:
        modulus = signing_keys.generate("RS256", START).key.public["n"]
        assert int.from_bytes(urlsafe_b64decode(modulus + "=="), "big").bit_length() == 2048

    def test_no_two_are_the_same(self) -> None:
        one, other = signing_keys.generate("EdDSA", START), signing_keys.generate("EdDSA", START)
        assert one.key.id != other.key.id
        assert one.private != other.private

    @pytest.mark.parametrize("alg", ["none", "HS256", "PS256", ""])
    def test_only_algorithms_of_the_table(self, alg: str) -> None:
        with pytest.raises(ValueError):
            signing_keys.generate(alg, START)


class TestRing:
    def test_pyjwt_verifies_what_it_signs(self, made: signing_keys.GeneratedKey) -> None:
        ring = KeyRing(BOX)
        ring.load(StoredKey(made.key, BOX.encrypt(made.private, made.key.id)))
        token = ring.sign(made.key, msgspec.json.encode(CLAIMS), "at+jwt")
        found = jwt.decode_complete(token, jwt.PyJWK.from_dict(made.key.public), algorithms=[made.key.alg])
        assert found["payload"] == CLAIMS
        assert found["header"] == {"alg": made.key.alg, "typ": "at+jwt", "kid": made.key.id}

    def test_another_key_of_the_same_kind_does_not(self, made: signing_keys.GeneratedKey) -> None:
        ring = KeyRing(BOX)
        ring.load(StoredKey(made.key, BOX.encrypt(made.private, made.key.id)))
        token = ring.sign(made.key, msgspec.json.encode(CLAIMS), "at+jwt")
        other = jwt.PyJWK.from_dict(signing_keys.generate(made.key.alg, START).key.public)
        with pytest.raises(jwt.InvalidSignatureError):
            jwt.decode(token, other, algorithms=[made.key.alg])

    def test_each_kind_of_token_has_its_own_header(self, made: signing_keys.GeneratedKey) -> None:
        ring = KeyRing(BOX)
        ring.load(StoredKey(made.key, BOX.encrypt(made.private, made.key.id)))
        for typ in ("at+jwt", "JWT", "at+jwt"):
            assert jwt.get_unverified_header(ring.sign(made.key, b"{}", typ))["typ"] == typ

    def test_a_signature_always_has_its_full_length(self) -> None:
        """RFC 7518, section 3.4: 64 bytes, though one number in 256 would fit into fewer."""
        made = signing_keys.generate("ES256", START)
        ring = KeyRing(BOX)
        ring.load(StoredKey(made.key, BOX.encrypt(made.private, made.key.id)))
        lengths = {len(ring.sign(made.key, b"{}", "at+jwt").rpartition(b".")[2]) for _ in range(500)}
        assert lengths == {86}

    def test_a_key_it_was_not_given_cannot_sign(self, made: signing_keys.GeneratedKey) -> None:
        ring = KeyRing(BOX)
        ring.load(StoredKey(made.key, None))
        with pytest.raises(KeyError):
            ring.sign(made.key, b"{}", "at+jwt")

    def test_a_private_part_of_another_row_is_refused(self, made: signing_keys.GeneratedKey) -> None:
        with pytest.raises(WrongKey):
            KeyRing(BOX).load(StoredKey(made.key, BOX.encrypt(made.private, "key_2")))
