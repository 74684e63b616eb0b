"""What the Python client does at most for one request, and how much it remembers."""

import hmac
import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from gatepost_client import TokenError, TokenVerifier, VerificationError
from gatepost_client.dpop import UsedProofs
from gatepost_client.webhooks import MAX_SIGNATURES, verify
from tests.clients.test_python_conformance import TOKENS, KeySets

NOW = 1_800_000_000
SECRETS = ["whsec_" + b64encode(secret).decode() for secret in (b"the first secret", b"the second secret")]


def test_one_hmac_for_each_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    digests: list[bytes] = []

    def counted(key: bytes, content: bytes, digest: str) -> bytes:
        digests.append(key)
        return compute(key, content, digest)

    compute = hmac.digest
    monkeypatch.setattr(hmac, "digest", counted)
    headers = {"webhook-id": "evt_1", "webhook-timestamp": str(NOW)}
    for signature, expected in ((f"v1,{'A' * 43}=", 2), ("v1a,abc", 0), ("v9,abc", 0)):
        digests.clear()
        headers["webhook-signature"] = " ".join([signature] * MAX_SIGNATURES)
        with pytest.raises(VerificationError) as raised:
            verify(SECRETS, headers, b"{}", now=datetime.fromtimestamp(NOW, UTC))
        assert raised.value.check == "signature"
        assert len(digests) == expected
    headers["webhook-signature"] += " v1,abc"
    with pytest.raises(VerificationError, match="more than 16 signatures"):
        verify(SECRETS, headers, b"{}", now=datetime.fromtimestamp(NOW, UTC))


def test_a_used_proof_is_remembered_until_it_expires() -> None:
    used = UsedProofs(limit=3, limit_per_key=2)
    assert used.use("key", "a", NOW, NOW)
    assert used.use("key", "b", NOW + 60, NOW)
    assert not used.use("key", "c", NOW, NOW), "the key has used as many as it may"
    assert used.use("other", "a", NOW, NOW)
    assert not used.use("third", "a", NOW, NOW), "no more are remembered"
    assert not used.use("key", "a", NOW, NOW + 60), "none of them was forgotten"
    assert not used.use("key", "b", NOW + 60, NOW + 120)
    assert used.use("third", "a", NOW + 120, NOW + 120), "two have expired"
    assert used.use("key", "a", NOW + 120, NOW + 120)
    assert not used.use("key", "c", NOW + 120, NOW + 120)
    assert used.use("key", "b", NOW + 400, NOW + 400), "all have expired"
    assert used.use("key", "c", NOW + 400, NOW + 400)


@pytest.mark.parametrize("account", ["", "acc_other"])
def test_an_account_of_a_call(account: str) -> None:
    """An empty account is another account. It is not the absence of the argument."""
    case = next(case for case in TOKENS["cases"] if case["name"] == "no account")
    [authorization] = case["steps"][0]["request"]["authorization"]
    options: dict[str, Any] = json.loads(json.dumps(case["options"]))
    del options["account"]
    verifier = TokenVerifier(**options, transport=KeySets(case["key_sets"]), clock=lambda: NOW)
    assert verifier.verify(authorization).account == ""
    with pytest.raises(TokenError) as raised:
        verifier.verify(authorization, account=account)
    assert raised.value.check == "account"
