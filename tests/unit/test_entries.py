"""Entries of the ledger: the stored form, the form of the API, and the table of types."""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gatepost.core import ids
from gatepost.ledger import entries
from gatepost.ledger.entries import PLATFORM_TYPE, RESERVED, TYPES, Entry, Origin

NOW = datetime(2026, 11, 15, 8, 0, 0, 123_456, tzinfo=UTC)
RAW = bytes.fromhex("019a8f5c1e2b7c3d8e4f5a6b7c8d9eaf")
ORIGIN = Origin("cli_1", "req_1", "192.0.2.1")


def entry(**changes: Any) -> Entry:
    made = entries.new(
        "invoice.paid", account="acc_1", origin=ORIGIN, subject="inv_1", data={"größe": 1, "a": [None, "/"]}, at=NOW,
        keep_days=30, raw_id=RAW,
    )  # fmt: skip
    return made._replace(**changes)


def test_data_has_at_most_256_kib() -> None:
    assert entries.MAX_DATA == 262_144


class TestNew:
    def test_what_is_kept(self) -> None:
        assert entry() == Entry(
            account="acc_1", id=RAW, type="invoice.paid", at=1_794_729_600_123, actor="cli_1", subject="inv_1",
            data='{"größe":1,"a":[null,"/"]}', data_hash=None, matched=0, keep_days=30, request="req_1",
            source="192.0.2.1",
        )  # fmt: skip

    def test_the_id_is_new_unless_given(self) -> None:
        made = [
            entries.new("a.b", account="acc_1", origin=ORIGIN, subject="", data={}, at=NOW, keep_days=1).id
            for _ in range(2)
        ]
        assert len({*made, RAW}) == 3
        assert entry().name == ids.text("evt", RAW)


class TestShown:
    def test_an_entry(self) -> None:
        assert entries.render(entry()) == {
            "id": "evt_06d8un0u5du3r3ifb9lnp3culs",
            "account": "acc_1",
            "type": "invoice.paid",
            "at": "2026-11-15T08:00:00.123Z",
            "actor": "cli_1",
            "subject": "inv_1",
            "data": {"größe": 1, "a": [None, "/"]},
            "matched": 0,
            "request": "req_1",
            "source": "192.0.2.1",
        }

    def test_without_a_request_there_is_neither_request_nor_source(self) -> None:
        shown = entries.render(entry(request="", source=""))
        assert (shown["request"], shown["source"]) == (None, None)

    def test_erased_data_is_null(self) -> None:
        assert entries.render(entry(data=None, data_hash=b"h"))["data"] is None


class TestHash:
    def test_it_is_of_the_text_that_is_kept(self) -> None:
        assert entries.data_hash(entry()) == hashlib.sha256('{"größe":1,"a":[null,"/"]}'.encode()).digest()

    def test_it_stays_when_the_data_is_erased(self) -> None:
        kept = entries.data_hash(entry())
        assert entries.data_hash(entry(data=None, data_hash=kept)) == kept
        assert entries.data_hash(entry(data=None, data_hash=None)) == b""

    def test_beside_data_a_kept_hash_does_not_count(self) -> None:
        assert entries.data_hash(entry(data_hash=b"forged")) == entries.data_hash(entry())


class TestTypes:
    @pytest.mark.parametrize("name", TYPES)
    def test_every_type_is_reserved_and_in_the_form_of_all(self, name: str) -> None:
        assert name.startswith(RESERVED)
        assert PLATFORM_TYPE.fullmatch(name)
        assert msgspec.json.decode(msgspec.json.encode(TYPES[name])) == TYPES[name]

    def test_they_are_the_contracts_or_refusals(self) -> None:
        """Section 7, as far as this release goes; and what an authenticated caller was refused."""
        contract = """
            account.created|changed|suspended|resumed oauth.client.created|changed oauth.scope.created|changed
            oauth.token.issued|refused|revoked|reused|explained oauth.consent.given|ended
            oauth.key.announced|activated|retired|revoked
            webhook.endpoint.created|changed|disabled|enabled|removed webhook.subscription.created|changed|removed
            webhook.replay.started|ended webhook.delivery.failed account.heads.recorded
        """
        named = {
            f"{noun}.{verb}"
            for noun, verbs in re.findall(r"([a-z.]+)\.([a-z|]+)(?:\s|$)", contract)
            for verb in verbs.split("|")
        }
        assert len(named) == 31
        of_the_operator = {"account.store.restored", "account.operator.authorized", "webhook.delivery.changed"}
        assert {name for name in set(TYPES) - named if not name.endswith(".refused")} == of_the_operator
        assert {"account.created", "oauth.client.created", "oauth.token.issued", "oauth.key.revoked"} <= set(TYPES)

    @pytest.mark.parametrize("name", ["invoice.paid", "a.b.c", "a-b.c_d", "0.1"])
    def test_platform_types(self, name: str) -> None:
        assert PLATFORM_TYPE.fullmatch(name)

    @pytest.mark.parametrize(
        "name", ["", "invoice", "Invoice.paid", "invoice.", ".paid", "a..b", "a b.c", "a.b\n", "a.é", "a.*"]
    )
    def test_what_is_no_type(self, name: str) -> None:
        assert not PLATFORM_TYPE.fullmatch(name)


class TestWhatARefusalRepeats:
    @pytest.mark.parametrize("type_", sorted(entries.REFUSALS))
    def test_at_most_256_characters_of_a_value(self, type_: str) -> None:
        sent = {"scope": "a" * 60_000, "exact": "b" * 256, "count": 7, "nested": {"c" * 999: ["d" * 300]}}
        assert _data(type_, sent) == {
            "scope": "a" * 255 + "…",
            "exact": "b" * 256,
            "count": 7,
            "nested": {"c" * 255 + "…": ["d" * 255 + "…"]},
        }

    def test_a_secret_at_the_cut_is_not_repeated(self) -> None:
        """It is masked first: a part of it would be enough to guess the rest."""
        sent = "x" * 245 + "gps_" + "s" * 43
        assert _data("oauth.token.refused", {"scope": sent}) == {"scope": "x" * 245 + "gps_***"}

    @pytest.mark.parametrize("type_", ["payment.refused", "oauth.token.issued"])
    def test_events_and_what_was_issued_stay_whole(self, type_: str) -> None:
        assert _data(type_, {"scope": "a" * 60_000}) == {"scope": "a" * 60_000}


def _data(type_: str, data: dict[str, Any]) -> Any:
    made = entries.new(type_, account="acc_1", origin=ORIGIN, subject="", data=data, at=NOW, keep_days=1)
    return msgspec.json.decode(made.data or "")
