"""What was altered or removed in the store: the attempts that depend on it fail, and no others."""

import msgspec

from gatepost.core import ids
from gatepost.ledger import entry_rows
from gatepost.store.transaction import Tx
from gatepost.webhooks import endpoint_rows
from tests.flows.test_delivery import Platform
from tests.receiver import receiver
from tests.service import Service


def test_an_endpoint_that_cannot_be_signed_for_stops_no_other(altered_gatepost: Service, account_name: str) -> None:
    platform = Platform(altered_gatepost, account_name)
    with receiver() as found:
        spoilt = platform.connect(f"{found.url}/spoilt", "invoice.*", retry_schedule=[])
        platform.connect(found.url, "invoice.*")

        def alter(tx: Tx) -> None:
            known = endpoint_rows.load_uncached(tx, spoilt["account"], spoilt["id"])
            assert known is not None
            [secret] = known.secrets
            other = msgspec.structs.replace(secret, sealed=secret.sealed[:-8] + "AAAAAAA=")
            endpoint_rows.update(tx, msgspec.structs.replace(known, secrets=[other]))

        altered_gatepost.opened.store.run_now(alter)
        result = platform.publish(1)
        records = [platform.record(each) for each in result["deliveries"]]
        first, second = sorted(records, key=lambda each: each["endpoint"]["id"])
        failed = platform.once(first["id"], "failed")
        assert (failed["ended_reason"], failed["attempts"][0]["failure"]) == ("attempts_exhausted", "send")
        assert "secret" in failed["attempts"][0]["detail"]
        platform.once(second["id"], "succeeded")
    assert [each.headers[":path"] for each in found.requests] == ["/hooks"]


def test_an_event_that_is_missing_fails_only_its_own_delivery(altered_gatepost: Service, account_name: str) -> None:
    platform = Platform(altered_gatepost, account_name)
    with receiver() as found:
        endpoint = platform.connect(found.url, "invoice.*", retry_schedule=[], status="disabled")
        lost, kept = platform.publish(1), platform.publish(2)
        raw = ids.raw(lost["id"])
        altered_gatepost.opened.store.run_now(lambda tx: entry_rows.delete(tx, endpoint["account"], [raw]))
        platform.redefine(endpoint, status="active")
        failed = platform.once(lost["deliveries"][0], "failed")
        assert (failed["ended_reason"], failed["attempts"][0]["failure"]) == ("attempts_exhausted", "send")
        assert "missing in the ledger" in failed["attempts"][0]["detail"]
        platform.once(kept["deliveries"][0], "succeeded")
    assert len(found.requests) == 1
