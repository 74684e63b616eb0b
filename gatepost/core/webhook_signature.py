"""Signatures as Standard Webhooks has them: of `{id}.{timestamp}.{body}`, by each live secret of the endpoint.

`v1` is HMAC-SHA256 with a secret that both sides hold; `v1a` is Ed25519, where the receiver holds a public key only.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, assert_never

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gatepost.core.secrets import mac, random_bytes

Kind = Literal["v1", "v1a"]
Signer = Callable[[bytes], str]

SECRET = "whsec_"  # noqa: S105 (a prefix, not a secret)
PUBLIC_KEY = "whpk_"
_BYTES = 32


class NewSecret(NamedTuple):
    """`raw` signs and is stored encrypted; `shown` is told once: for `v1a` it is the public key."""

    raw: bytes
    shown: str
    public: str

    def __repr__(self) -> str:
        return "***"


def new_secret(kind: Kind) -> NewSecret:
    raw = random_bytes(_BYTES)
    match kind:
        case "v1":
            return NewSecret(raw, SECRET + b64encode(raw).decode(), "")
        case "v1a":
            public = Ed25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw()
            told = PUBLIC_KEY + b64encode(public).decode()
            return NewSecret(raw, told, told)
        case _:
            assert_never(kind)


def parse_secret(text: str) -> bytes:
    """The bytes of a `whsec_` secret; ValueError says what would be right, and never the secret."""
    encoded = text.removeprefix(SECRET)
    try:
        raw = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True) if text.startswith(SECRET) else b""
    except ValueError:
        raw = b""
    if not 24 <= len(raw) <= 64:
        raise ValueError(f"must be {SECRET} and the base64 of 24 to 64 bytes")
    return raw


def signer(kind: Kind, raw: bytes) -> Signer:
    """Signs with one secret. Made once per secret and used for every attempt: the key is set up here."""
    match kind:
        case "v1":
            return lambda content: "v1," + b64encode(mac(raw, content)).decode()
        case "v1a":
            key = Ed25519PrivateKey.from_private_bytes(raw)
            return lambda content: "v1a," + b64encode(key.sign(content)).decode()
        case _:
            assert_never(kind)


def signature(signers: Iterable[Signer], event_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each secret, in the order given."""
    content = b"%b.%d.%b" % (event_id.encode(), timestamp, body)
    return " ".join([sign(content) for sign in signers])
