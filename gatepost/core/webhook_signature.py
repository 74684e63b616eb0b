"""Signatures of `{id}.{timestamp}.{body}`, as specified by Standard Webhooks, with each active secret of an endpoint.

`v1` is HMAC-SHA256 with a shared secret. `v1a` is Ed25519, where the receiver has only the public key.
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
    """`raw` signs and is stored encrypted. `shown` is returned once; for `v1a` it is the public key."""

    raw: bytes
    shown: str
    public: str

    def __repr__(self) -> str:
        return "***"


def new_secret(kind: Kind) -> NewSecret:
    """Generate the secret of an endpoint."""
    raw = random_bytes(_BYTES)
    match kind:
        case "v1":
            return NewSecret(raw, SECRET + b64encode(raw).decode(), "")
        case "v1a":
            public = Ed25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw()
            public_key = PUBLIC_KEY + b64encode(public).decode()
            return NewSecret(raw, public_key, public_key)
        case _:
            assert_never(kind)


def parse_secret(text: str) -> bytes:
    """Return the bytes of a `whsec_` secret. The ValueError says what is required, and never contains the secret."""
    encoded = text.removeprefix(SECRET)
    try:
        raw = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True) if text.startswith(SECRET) else b""
    except ValueError:
        raw = b""
    if not 24 <= len(raw) <= 64:
        raise ValueError(f"must be {SECRET} and the base64 of 24 to 64 bytes")
    return raw


def signer(kind: Kind, raw: bytes) -> Signer:
    """Return a function that signs with one secret. It is created once per secret, because it prepares the key."""
    match kind:
        case "v1":
            return lambda content: "v1," + b64encode(mac(raw, content)).decode()
        case "v1a":
            key = Ed25519PrivateKey.from_private_bytes(raw)
            return lambda content: "v1a," + b64encode(key.sign(content)).decode()
        case _:
            assert_never(kind)


def signature(signers: Iterable[Signer], event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the `webhook-signature` header: one signature for each secret, in the given order."""
    content = b"%b.%d.%b" % (event_id.encode(), timestamp, body)
    return " ".join([sign(content) for sign in signers])
