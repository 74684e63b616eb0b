"""Secrets of a client: at most two are active, and the API never returns them."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from gatepost.core.secret_rotation import OVERLAP
from gatepost.core.secrets import digest, new_client_secret
from gatepost.oauth import clients
from gatepost.oauth.clients import MAX_OVERLAP, Client, with_secret
from tests.unit.clients import KEYED, MACHINE, NOW, PUBLIC, defined, definition, refused

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def client(*made: tuple[bytes, timedelta, datetime]) -> Client:
    """A client given these secrets, one after the other."""
    found = defined(MACHINE)
    for hashed, overlap, at in made:
        found = with_secret(found, hashed, overlap, at)
    return found


def live(found: Client, at: datetime) -> list[bytes]:
    return [secret.hash for secret in found.secrets if secret.is_active(at)]


class TestRotation:
    def test_the_first_does_not_end(self) -> None:
        one = client((b"1", OVERLAP, NOW))
        assert [(secret.hash, secret.created_at, secret.expires_at) for secret in one.secrets] == [(b"1", NOW, None)]
        assert live(one, NOW + 1000 * DAY) == [b"1"]

    def test_two_live_for_the_overlap(self) -> None:
        two = client((b"1", OVERLAP, NOW), (b"2", OVERLAP, NOW + HOUR))
        end = NOW + HOUR + DAY
        assert live(two, NOW + HOUR) == [b"1", b"2"]
        assert live(two, end - timedelta(milliseconds=1)) == [b"1", b"2"]
        assert live(two, end) == [b"2"]

    def test_a_third_ends_the_oldest(self) -> None:
        three = client((b"1", OVERLAP, NOW), (b"2", OVERLAP, NOW + HOUR), (b"3", OVERLAP, NOW + 2 * HOUR))
        assert live(three, NOW + 2 * HOUR) == [b"2", b"3"]
        assert [secret.hash for secret in three.secrets] == [b"2", b"3"]

    def test_no_overlap_ends_the_old_at_once(self) -> None:
        two = client((b"1", OVERLAP, NOW), (b"2", timedelta(0), NOW + HOUR))
        assert [secret.hash for secret in two.secrets] == [b"2"]
        three = client((b"1", OVERLAP, NOW), (b"2", OVERLAP, NOW), (b"3", timedelta(0), NOW))
        assert [secret.hash for secret in three.secrets] == [b"3"]

    def test_a_longer_overlap_never_prolongs_what_is_ending(self) -> None:
        """The second ends the first in an hour; were it gone by the third, the first would still end when it was to."""
        two = client((b"1", OVERLAP, NOW), (b"2", HOUR, NOW))
        ending = msgspec.structs.replace(two, secrets=two.secrets[:1])
        three = with_secret(ending, b"3", 30 * DAY, NOW)
        assert live(three, NOW + HOUR) == [b"3"]

    def test_what_ended_is_forgotten(self) -> None:
        two = client((b"1", OVERLAP, NOW), (b"2", HOUR, NOW))
        three = with_secret(two, b"3", HOUR, NOW + 2 * HOUR)
        assert [secret.hash for secret in three.secrets] == [b"2", b"3"]

    def test_ids_and_all_else_stay(self) -> None:
        one = client((b"1", OVERLAP, NOW))
        two = with_secret(one, b"2", OVERLAP, NOW)
        assert two.secrets[0].id == one.secrets[0].id
        assert two.secrets[1].id != one.secrets[0].id
        assert msgspec.structs.replace(two, secrets=one.secrets) == one


class TestAsking:
    @pytest.mark.parametrize(
        ("value", "wanted", "overlap"),
        [
            (True, True, DAY),
            (False, False, DAY),
            (None, False, DAY),
            ({"overlap": 0}, True, timedelta(0)),
            ({"overlap": 60}, True, timedelta(seconds=60)),
            ({"overlap": 30 * 86_400}, True, MAX_OVERLAP),
        ],
    )
    def test_forms(self, value: Any, wanted: bool, overlap: timedelta) -> None:
        known = client((b"1", OVERLAP, NOW))
        found = definition({"rotate_secret": value}, known)
        assert (found.needs_secret, found.overlap) == (wanted, overlap)
        assert found.client == known

    @pytest.mark.parametrize(
        "value",
        [
            "true", 1, 0, "", [], [60], {}, {"overlap": None}, {"overlap": -1}, {"overlap": 30 * 86_400 + 1},
            {"overlap": 1 << 70}, {"overlap": 60.0}, {"overlap": "60"}, {"overlap": True}, {"overlap": 60, "more": 1},
            {"Overlap": 60},
        ],
    )  # fmt: skip
    def test_no_other_forms(self, value: Any) -> None:
        for known in (None, client((b"1", OVERLAP, NOW))):
            found = refused(MACHINE | {"rotate_secret": value}, known)
            assert (found.code, found.pointer) == ("invalid_client_metadata", "/rotate_secret")

    def test_without_a_live_secret_one_is_made_unasked(self) -> None:
        assert definition({"client_name": "x"}, defined(MACHINE)).needs_secret
        ended = client((b"1", OVERLAP, NOW), (b"2", HOUR, NOW))
        ended = msgspec.structs.replace(ended, secrets=ended.secrets[:1])
        assert not definition({"client_name": "x"}, ended, NOW).needs_secret
        assert definition({"client_name": "x"}, ended, NOW + HOUR).needs_secret

    @pytest.mark.parametrize("body", [PUBLIC, KEYED])
    def test_who_has_no_secret_cannot_rotate_one(self, body: dict[str, Any]) -> None:
        for value in (True, {"overlap": 0}):
            assert refused(body | {"rotate_secret": value}).pointer == "/rotate_secret"
        assert not definition(body | {"rotate_secret": False}).needs_secret


class TestShown:
    def test_never_a_secret_nor_its_hash(self) -> None:
        secret = new_client_secret()
        hashed = digest(b"k" * 32, secret.reveal())
        found = with_secret(defined(MACHINE), hashed, OVERLAP, NOW)
        shown = msgspec.json.encode(clients.render(found, {found.secrets[0].id: NOW})).decode()
        for kept in (
            secret.reveal(),
            secret.reveal()[4:],
            hashed.hex(),
            hashed.hex().upper(),
            "hash",
            'client_secret"',
        ):
            assert kept not in shown
        assert msgspec.json.encode(hashed).decode().strip('"') not in shown

    def test_when_each_was_made_ends_and_was_used(self) -> None:
        found = client((b"1", OVERLAP, NOW), (b"2", HOUR, NOW))
        one, two = found.secrets
        shown = clients.render(found, {one.id: NOW + HOUR})
        assert shown["client_secret_expires_at"] == 0
        assert shown["secrets"] == [
            {
                "id": one.id,
                "created_at": "2026-11-15T08:00:00.000Z",
                "expires_at": "2026-11-15T09:00:00.000Z",
                "last_used_at": "2026-11-15T09:00:00.000Z",
            },
            {"id": two.id, "created_at": "2026-11-15T08:00:00.000Z", "expires_at": None, "last_used_at": None},
        ]

    def test_a_client_without_secrets_shows_none(self) -> None:
        assert {"secrets", "client_secret_expires_at"}.isdisjoint(clients.render(defined(KEYED), {}))
