"""Hidden header values: not returned by the API, encrypted in the store, sent unchanged, bound to one origin."""

import msgspec
import pytest

from gatepost.store.transaction import Tx
from gatepost.webhooks import endpoint_headers, endpoint_rows
from gatepost.webhooks.endpoints import Endpoint
from tests.flows.test_delivery import Platform
from tests.receiver import receiver
from tests.service import Service


def stored(platform: Platform, endpoint: str) -> Endpoint:
    found = platform.gatepost.opened.store.read_now(
        lambda tx: endpoint_rows.load_uncached(tx, platform.account, endpoint)
    )  # fmt: skip
    assert found is not None
    return found


def put(platform: Platform, endpoint: Endpoint) -> None:
    platform.gatepost.opened.store.run_now(lambda tx: endpoint_rows.update(tx, endpoint))


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, account_name)


def test_a_value_is_encrypted_and_sent_as_it_was_given(platform: Platform) -> None:
    with receiver() as found:
        made = platform.connect(found.url, headers={"X-Api-Key": "k-12345", "x-team": "blue"})
        assert made["headers"] == {"X-Api-Key": "***", "x-team": "blue"}
        platform.once(platform.send(), "succeeded")
        [request] = found.requests
    assert (request.headers["x-api-key"], request.headers["x-team"]) == ("k-12345", "blue")
    kept = stored(platform, made["id"])
    assert kept.headers == {"x-team": "blue"}
    assert b"k-12345" not in msgspec.json.encode(kept)
    same = platform.redefine(made, headers=made["headers"], description="another")
    assert same["headers"] == made["headers"]
    box = platform.gatepost.opened.service.keys.data
    assert endpoint_headers.plaintext(box, stored(platform, made["id"]))["X-Api-Key"] == "k-12345"


def test_another_origin_does_not_get_it(platform: Platform) -> None:
    with receiver() as first, receiver() as second:
        made = platform.connect(first.url, headers={"X-Api-Key": "k-12345", "x-team": "blue"})
        moved = platform.redefine(made, url=second.url)
        assert (moved["dropped_headers"], moved["headers"]) == (["X-Api-Key"], {"x-team": "blue"})
        platform.once(platform.send(), "succeeded")
        [request] = second.requests
        assert "x-api-key" not in request.headers
        again = platform.redefine(made, url=first.url, headers={"X-Api-Key": "k-67890"})
        assert ("dropped_headers" in again, again["headers"]) == (False, {"X-Api-Key": "***"})
    assert "dropped_headers" not in platform.redefine(made)


def test_a_row_that_was_altered_to_lead_elsewhere_does_not_take_it_along(platform: Platform) -> None:
    with receiver() as first, receiver() as second:
        made = platform.connect(first.url, headers={"X-Api-Key": "k-12345"}, retry_schedule=[])
        put(platform, msgspec.structs.replace(stored(platform, made["id"]), url=second.url))
        record = platform.once(platform.send(), "failed")
        assert (record["attempts"][0]["failure"], second.requests) == ("send", [])
        mended = platform.redefine(made, url=first.url)
        assert (mended["dropped_headers"], mended["headers"]) == (["X-Api-Key"], {})


def test_what_an_earlier_release_stored_in_clear(platform: Platform) -> None:
    """It is sent as before, and encrypted by the next change or by the command."""
    with receiver() as found:
        changed = platform.connect(found.url, headers={"x-token": "t-1"})
        left = platform.endpoint(found.url, headers={"x-token": "t-2"})
        for made, value in ((changed, "t-1"), (left, "t-2")):
            kept = stored(platform, made["id"])
            put(platform, msgspec.structs.replace(kept, headers={"x-token": value}, sealed_headers={}))
        platform.once(platform.send(), "succeeded")
        assert found.requests[0].headers["x-token"] == "t-1"
        assert platform.redefine(changed)["headers"] == {"x-token": "***"}
        platform.redefine(changed, description="another")
        assert stored(platform, changed["id"]).headers == {}
        assert "gatepost key rewrap" in platform.gatepost.cli("doctor", check=False).stdout
        assert platform.gatepost.cli_json("key", "rewrap")["endpoints_encrypted"] == 1
        assert platform.gatepost.cli_json("key", "rewrap")["endpoints_encrypted"] == 0
    box = platform.gatepost.opened.service.keys.data
    for made, value in ((changed, "t-1"), (left, "t-2")):
        kept = stored(platform, made["id"])
        assert (kept.headers, endpoint_headers.plaintext(box, kept)) == ({}, {"x-token": value})


def test_a_removed_endpoint_keeps_none(platform: Platform) -> None:
    made = platform.endpoint("https://example.com/hooks", headers={"x-token": "t-1"})
    platform.redefine(made, status="removed")
    kept = stored(platform, made["id"])
    assert (kept.headers, kept.sealed_headers) == ({}, {})


def test_moved_to_another_row_or_header_it_does_not_open(platform: Platform) -> None:
    made, other = (platform.endpoint("https://example.com/", headers={"x-token": f"t-{n}"}) for n in range(2))
    box = platform.gatepost.opened.service.keys.data

    def unit(_tx: Tx) -> None:
        kept = stored(platform, made["id"])
        for altered in (
            msgspec.structs.replace(stored(platform, other["id"]), sealed_headers=kept.sealed_headers),
            msgspec.structs.replace(kept, sealed_headers={"x-key": kept.sealed_headers["x-token"]}),
        ):
            assert endpoint_headers.decrypted(box, altered).unreadable

    platform.gatepost.opened.store.read_now(unit)
