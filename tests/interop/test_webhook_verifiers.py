"""Other people's libraries verify what we sign, byte for byte, also while secrets rotate, and refuse the rest."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import standardwebhooks
from standardwebhooks.webhooks import WebhookVerificationError

from gatepost.core import ids
from gatepost.core.webhook_signature import NewSecret, new_secret, signature, signer
from gatepost.verify import VerificationError, verify
from tests.waiting import LIMIT

Headers = dict[str, str]
Verifier = Callable[[str, bytes, Headers], bool]


def by_standardwebhooks(secret: str, body: bytes, headers: Headers) -> bool:
    try:
        return bool(standardwebhooks.Webhook(secret).verify(body, headers) == json.loads(body))
    except WebhookVerificationError:
        return False


def by_svix(secret: str, body: bytes, headers: Headers) -> bool:
    import svix.webhooks  # imports all models of its API: half a second in each test process

    try:
        svix.webhooks.Webhook(secret).verify(body, headers)
    except svix.webhooks.WebhookVerificationError:
        return False
    return True


def by_ours(secret: str, body: bytes, headers: Headers) -> bool:
    try:
        return bool(verify(secret, headers, body) == json.loads(body))
    except VerificationError:
        return False


@pytest.fixture(params=[by_standardwebhooks, by_svix, by_ours])
def verified(request: pytest.FixtureRequest) -> Verifier:
    found: Verifier = request.param
    return found


def signed(body: bytes, *secrets: NewSecret, seconds_ago: int = 0) -> Headers:
    """The headers of a webhook with this body, as an endpoint with these live secrets gets it."""
    event, timestamp = ids.new("evt"), int(datetime.now(UTC).timestamp()) - seconds_ago
    signers = [signer("v1a" if each.public else "v1", each.raw) for each in secrets]
    return {
        "webhook-id": event,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(signers, event, timestamp, body),
        "content-type": "application/json",
    }


BODIES = {
    "small": b"{}",
    "an event": b'{"id":"evt_1","type":"invoice.paid","timestamp":"2026-11-15T08:00:00.000Z","data":{"total":5}}',
    "unicode": '{"name":"Größe","face":"😀","han":"漢字","zero width":"\u200b"}'.encode(),
    "escaped": rb'{"name":"Gr\u00f6\u00dfe","slash":"\/","quote":"\""}',
    "key order": b'{"b":1,"a":2,"B":3}',
    "floats": b'{"a":1.0,"b":1.10,"c":1e2,"d":0.1,"e":100000000000000000000.5,"f":-0.0}',
    "whitespace": b'{ "a" : 1 ,\r\n\t"b" : [ ] }\n',
    "large": json.dumps({"text": "é" * 100_000}).encode(),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
class TestBodies:
    def test_verifies(self, verified: Verifier, body: bytes) -> None:
        secret = new_secret("v1")
        assert verified(secret.shown, body, signed(body, secret))

    def test_refused_when_a_byte_is_added(self, verified: Verifier, body: bytes) -> None:
        secret = new_secret("v1")
        assert not verified(secret.shown, body + b" ", signed(body, secret))

    def test_refused_with_another_secret(self, verified: Verifier, body: bytes) -> None:
        assert not verified(new_secret("v1").shown, body, signed(body, new_secret("v1")))


BODY = BODIES["an event"]


def test_written_again_it_is_another_body(verified: Verifier) -> None:
    secret, body = new_secret("v1"), BODIES["floats"]
    assert not verified(secret.shown, json.dumps(json.loads(body)).encode(), signed(body, secret))


def test_two_secrets_while_rotating(verified: Verifier) -> None:
    old, new = new_secret("v1"), new_secret("v1")
    headers = signed(BODY, old, new)
    assert verified(old.shown, BODY, headers)
    assert verified(new.shown, BODY, headers)
    assert not verified(new_secret("v1").shown, BODY, headers)


def test_only_the_new_one_afterwards(verified: Verifier) -> None:
    old, new = new_secret("v1"), new_secret("v1")
    headers = signed(BODY, new)
    assert not verified(old.shown, BODY, headers)
    assert verified(new.shown, BODY, headers)


@pytest.mark.parametrize("order", [1, -1])
def test_a_receiver_of_hmac_is_not_disturbed_by_a_key(verified: Verifier, order: int) -> None:
    """While `signing` changes from v1 to v1a both are sent."""
    secret, key = new_secret("v1"), new_secret("v1a")
    assert verified(secret.shown, BODY, signed(BODY, *[secret, key][::order]))


def test_a_key_alone_is_nothing_to_a_receiver_of_hmac(verified: Verifier) -> None:
    assert not verified(new_secret("v1").shown, BODY, signed(BODY, new_secret("v1a")))


@pytest.mark.parametrize(("seconds_ago", "recent"), [(240, True), (-240, True), (360, False), (-360, False)])
def test_only_what_is_recent(verified: Verifier, seconds_ago: int, recent: bool) -> None:
    secret = new_secret("v1")
    assert verified(secret.shown, BODY, signed(BODY, secret, seconds_ago=seconds_ago)) is recent


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_headers_of_another_webhook(verified: Verifier, name: str) -> None:
    secret = new_secret("v1")
    one, other = signed(BODY, secret), signed(BODY, secret, seconds_ago=60)
    assert not verified(secret.shown, BODY, one | {name: other[name]})


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_what_they_sign_we_verify(body: bytes) -> None:
    secret, at = new_secret("v1").shown, datetime.now(UTC)
    theirs = standardwebhooks.Webhook(secret).sign("msg_1", at, body.decode())
    headers = {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(int(at.timestamp())), "Webhook-Signature": theirs}
    assert verify(secret, headers, body) == json.loads(body)


def test_importing_verify_imports_neither_the_service_nor_its_libraries() -> None:
    """A receiver needs only the standard library to verify an HMAC signature."""
    secret = new_secret("v1")
    script = f"""
import sys
from gatepost.verify import verify
verify({secret.shown!r}, {signed(b"{}", secret)!r}, b"{{}}")
print(*sorted(name for name in sys.modules if name.split(".")[0] in ("gatepost", "cryptography", "msgspec", "joserfc")))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout.split() == ["gatepost", "gatepost.verify"]
