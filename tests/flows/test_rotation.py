"""Signing secrets replaced while events flow: for the overlap both verify, after it only the new one. And at rest."""

from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from gatepost.verify import VerificationError, verify
from tests import command, service
from tests.flows.test_delivery import Json, Platform, instant
from tests.receiver import OK, Receiver, Request, receiver
from tests.service import Service
from tests.waiting import wait_until

GIVEN = "whsec_" + b64encode(bytes(range(32))).decode()


@pytest.fixture
def platform(gatepost: Service, account_name: str) -> Platform:
    return Platform(gatepost, account_name)


@pytest.fixture
def one_store(sqlite_gatepost: Service, account_name: str) -> Platform:
    return Platform(sqlite_gatepost, account_name)


def verified(request: Request, secret: str) -> bool:
    try:
        verify(secret, request.headers, request.body)
    except VerificationError:
        return False
    return True


def next_one(platform: Platform, found: Receiver) -> tuple[Request, Json]:
    """What the receiver gets now, and the attempt on record."""
    before = len(found.requests)
    delivery = platform.send()
    request = found.wait_for(before + 1)[-1]
    return request, platform.once(delivery, "succeeded")["attempts"][-1]


def secret_ids(endpoint: Json) -> list[str]:
    return [each["id"] for each in endpoint["secrets"]]


def test_both_secrets_verify_until_the_overlap_ends(one_store: Platform) -> None:
    with receiver() as found:
        old = one_store.connect(found.url)
        new = one_store.redefine(old, rotate_secret={"overlap": 3})
        assert new["secret"] != old["secret"]
        [ending, lasting] = new["secrets"]
        assert (ending["id"], lasting["expires_at"]) == (old["secrets"][0]["id"], None)
        assert (instant(ending["expires_at"]) - instant(lasting["created_at"])).total_seconds() == 3
        request, attempt = next_one(one_store, found)
        assert instant(attempt["started_at"]) < instant(ending["expires_at"]), "the machine is too slow for this test"
        assert attempt["signed_with"] == secret_ids(new)
        assert len(request.headers["webhook-signature"].split(" ")) == 2
        for secret in (old["secret"], new["secret"]):
            assert verified(request, secret)
            Webhook(secret).verify(request.body, request.headers)

        def only_the_new_one() -> bool:
            return bool(next_one(one_store, found)[1]["signed_with"] == secret_ids(new)[1:])

        wait_until(only_the_new_one, "the overlap to end")
        request = found.requests[-1]
        assert (verified(request, old["secret"]), verified(request, new["secret"])) == (False, True)
        with pytest.raises(WebhookVerificationError):
            Webhook(old["secret"]).verify(request.body, request.headers)


def test_without_an_overlap_the_old_one_ends_at_once(platform: Platform) -> None:
    with receiver() as found:
        old = platform.connect(found.url)
        next_one(platform, found)
        new = platform.redefine(old, rotate_secret={"overlap": 0})
        request, attempt = next_one(platform, found)
        assert attempt["signed_with"] == secret_ids(new)
        assert len(attempt["signed_with"]) == 1
        assert (verified(request, old["secret"]), verified(request, new["secret"])) == (False, True)
    [result] = platform.entries("webhook.endpoint.changed")
    assert result["data"]["changed"] == ["secrets"]
    assert new["secret"].removeprefix("whsec_") not in str(result)


def test_a_day_unless_said_and_a_third_ends_the_oldest(one_store: Platform) -> None:
    with receiver() as found:
        first = one_store.connect(found.url)
        second = one_store.redefine(first, rotate_secret=True)
        ends = instant(second["secrets"][0]["expires_at"]) - instant(second["secrets"][1]["created_at"])
        assert ends.total_seconds() == 24 * 3600
        third = one_store.redefine(first, rotate_secret=True)
        request, attempt = next_one(one_store, found)
    assert attempt["signed_with"] == secret_ids(third) == [secret_ids(second)[1], secret_ids(third)[1]]
    assert [verified(request, each["secret"]) for each in (first, second, third)] == [False, True, True]


def test_a_retry_is_signed_with_what_is_live_then(one_store: Platform) -> None:
    with receiver([(500, {}, b""), OK]) as found:
        old = one_store.connect(found.url, retry_schedule=[1])
        delivery = one_store.send()
        one_store.once(delivery, "pending", 1)
        new = one_store.redefine(old, rotate_secret={"overlap": 0})
        record = one_store.once(delivery, "succeeded")
        first, second = found.requests
    assert [each["signed_with"] for each in record["attempts"]] == [secret_ids(old), secret_ids(new)]
    assert (verified(first, old["secret"]), verified(second, new["secret"])) == (True, True)
    assert not verified(second, old["secret"])


def test_from_a_shared_secret_to_a_key_of_ones_own(platform: Platform) -> None:
    with receiver() as found:
        old = platform.connect(found.url)
        new = platform.redefine(old, signing="v1a")
        assert (new["signing"], new["secret"][:5]) == ("v1a", "whpk_")
        request, attempt = next_one(platform, found)
        assert [each.split(",")[0] for each in request.headers["webhook-signature"].split(" ")] == ["v1", "v1a"]
        assert attempt["signed_with"] == secret_ids(new)
        assert verified(request, old["secret"])
        assert verified(request, new["secret"])
        Webhook(old["secret"]).verify(request.body, request.headers)
        last = platform.redefine(old, rotate_secret={"overlap": 0})
        request, _ = next_one(platform, found)
        assert [verified(request, each["secret"]) for each in (old, new, last)] == [False, False, True]
    assert last["secrets"][0]["public"] == last["secret"], "a public key may be read again"


def test_a_secret_that_was_brought_along(platform: Platform) -> None:
    with receiver() as found:
        endpoint = platform.connect(found.url, secret=GIVEN)
        assert endpoint["secret"] == GIVEN
        request, attempt = next_one(platform, found)
        assert attempt["signed_with"] == secret_ids(endpoint)
        assert Webhook(GIVEN).verify(request.body, request.headers)
        new = platform.redefine(endpoint, rotate_secret={"overlap": 0})
        assert new["secret"] != GIVEN
        request, _ = next_one(platform, found)
        assert not verified(request, GIVEN)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_c2hvcnQ=", "whsec_!" + "A" * 42, "A" * 43, "", 7])
def test_a_secret_that_is_none_is_refused_without_repeating_it(one_store: Platform, secret: object) -> None:
    result = one_store.post("/webhooks/endpoints", {"url": "http://127.0.0.1:9999/", "secret": secret}, 400)
    assert result["errors"][0]["pointer"] == "/secret"
    assert len(str(secret)) < 8 or str(secret) not in str(result)


def test_a_secret_at_rest_is_nothing_without_the_master_key(tmp_path: Path) -> None:
    with service.running(tmp_path / "data") as running:
        secret = Platform(running, "rest").endpoint("http://127.0.0.1:9999/")["secret"]
        running.stop()
        clear = (secret.encode(), secret.removeprefix("whsec_").encode(), b64decode(secret.removeprefix("whsec_")))
        files = [path for path in (tmp_path / "data").iterdir() if path.is_file()]
        assert any(b"sealed" in path.read_bytes() for path in files)
        assert not [path for path in files if any(each in path.read_bytes() for each in clear)]
        (tmp_path / "data" / "master.key").rename(tmp_path / "away")
        ended = command.Alone(running.directory, "", running.environment).cli("serve", check=False)
    assert ended.returncode == 2
    assert "the master key is missing" in ended.stderr
    assert not (tmp_path / "data" / "master.key").exists(), "and no new one is made for an old store"
