"""The text of an operator token: what the service wrote is read, and nothing else is."""

import pytest

from gatepost.core.jose import b64
from gatepost.core.secrets import ServerKeys, mac, mask_secrets
from gatepost.oauth import operator_tokens
from gatepost.oauth.operator_tokens import Contents

KEYS = ServerKeys({"hash": b"h" * 32, "seal": b"s" * 32, "data": b"d" * 32})
CONTENTS = Contents(b"i" * 16, 1_794_700_800_000)
TOKEN = operator_tokens.write(KEYS.operator, CONTENTS).reveal()


def test_a_token_is_read() -> None:
    assert TOKEN.startswith("gpo_")
    assert operator_tokens.read(KEYS.operator, TOKEN) == CONTENTS


SIGNED = CONTENTS.id + CONTENTS.expires_at.to_bytes(8, "big")
LATER = CONTENTS.id + (CONTENTS.expires_at + 1).to_bytes(8, "big")


@pytest.mark.parametrize(
    "text",
    [
        "", "gpo_", "gpo_é", "gpo_" + "A" * 75, TOKEN[:-1], TOKEN + "A", TOKEN + "=", TOKEN[4:], "gps_" + TOKEN[4:],
        "eyJhbGciOiJub25lIn0.e30.", "gpo_gpo_" + TOKEN[4:],
        "gpo_" + b64(LATER + mac(KEYS.operator, SIGNED)).decode(),
        *("gpo_" + b64(SIGNED + mac(key, SIGNED)).decode() for key in (KEYS.hash, KEYS.refresh, KEYS.nonce, KEYS.seal)),
        "gpo_" + b64(SIGNED[:-1] + mac(KEYS.operator, SIGNED[:-1])).decode(),
    ],
)  # fmt: skip
def test_no_other_text_is_read(text: str) -> None:
    assert operator_tokens.read(KEYS.operator, text) is None


def test_a_token_never_reaches_the_ledger() -> None:
    assert mask_secrets(f"bearer {TOKEN}") == "bearer gpo_***"
