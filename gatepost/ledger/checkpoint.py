"""Checkpoints of an account's tree, and proofs that an entry is in it, in the formats of C2SP. No I/O.

The formats are signed-note, tlog-checkpoint and tlog-proof of c2sp.org. The signature is Ed25519 (type 0x01).
"""

import base64
import binascii
import hashlib
import re
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gatepost.core.errors import Altered, BadSetting
from gatepost.ledger.merkle import HASH

ED25519 = b"\x01"
MAX_NOTE = 64 * 1024  # bytes, with room for countersignatures
PROOF = "c2sp.org/tlog-proof@v1"
_SIGNATURE_LINE = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/]+={0,2})")


class Checkpoint(NamedTuple):
    """The head of a tree: its origin, its number of leaves, and its root."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"


class Verifier(NamedTuple):
    """A public key with the name that its signatures carry."""

    name: str
    public: bytes

    @property
    def id(self) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n" + ED25519 + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{_base64(ED25519 + self.public)}"


class Signer:
    """Signs the checkpoints of all accounts. A signature's name is the checkpoint's origin."""

    __slots__ = ("_key", "public")

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return "Signer(***)"

    def verifier(self, origin: str) -> Verifier:
        return Verifier(origin, self.public)

    def sign(self, checkpoint: Checkpoint) -> str:
        """The checkpoint as a signed note."""
        text = checkpoint.text()
        signature = self.verifier(checkpoint.origin).id + self._key.sign(text.encode())
        return f"{text}\n— {checkpoint.origin} {_base64(signature)}\n"


def origin(base_url: str, account: str) -> str:
    """A URL without its scheme, as recommended by tlog-checkpoint."""
    return f"{base_url.partition('://')[2]}/accounts/{account}"


def parse_verifier(text: str) -> Verifier:
    """Parse a verifier key in the format of signed-note: NAME+ID+KEY."""
    name, _, rest = text.strip().partition("+")
    key_id, _, encoded = rest.partition("+")
    key = _decoded(encoded)
    if not name or key is None or key[:1] != ED25519 or len(key) != 33:
        raise BadSetting("the key must be an Ed25519 verifier key, NAME+ID+KEY; `gatepost audit key` prints it")
    verifier = Verifier(name, key[1:])
    if verifier.id.hex() != key_id:
        raise BadSetting("the key's id does not match its name and value: copy the whole key")
    return verifier


def open_note(note: str, key: Verifier) -> Checkpoint:
    """The checkpoint in a note that this key has signed. Signatures of other keys are ignored. Raises `BadSetting`."""
    if len(note) > MAX_NOTE or re.search(r"[\x00-\x09\x0b-\x1f]", note):
        raise BadSetting("this is not a checkpoint: it is too long, or has control characters")
    text, blank, signatures = note.rpartition("\n\n")
    if not blank or not signatures.endswith("\n"):
        raise BadSetting("this is not a checkpoint: the blank line before the signatures is missing")
    text += "\n"
    if True not in [_is_signed(text, line, key) for line in signatures[:-1].split("\n")]:
        raise BadSetting(f"the checkpoint is not signed by {key.name} with the key {key.id.hex()}")
    checkpoint = _parse(text)
    if checkpoint.origin != key.name:
        raise BadSetting(f"the checkpoint belongs to {checkpoint.origin}, but the key to {key.name}")
    return checkpoint


def parse_unverified(note: str) -> Checkpoint:
    """The checkpoint in a note whose signature is not verified, because an HMAC authenticates the stored note."""
    return _parse(note.partition("\n\n")[0] + "\n")


def _is_signed(text: str, line: str, key: Verifier) -> bool:
    match = _SIGNATURE_LINE.fullmatch(line)
    signature = _decoded(match[2]) if match else None
    if match is None or signature is None:
        raise BadSetting("this is not a checkpoint: a signature line is malformed")
    if match[1] != key.name or signature[:4] != key.id:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature[4:], text.encode())
    except InvalidSignature:
        raise Altered(f"the signature of {key.name} is invalid: the checkpoint was altered") from None
    return True


def _parse(text: str) -> Checkpoint:
    lines = text.split("\n")[:-1]
    if len(lines) < 3 or not all(lines) or not re.fullmatch(r"0|[1-9][0-9]{0,17}", lines[1]):
        raise BadSetting("this is not a checkpoint: it must have an origin, a tree size and a root hash")
    root = _decoded(lines[2])
    if root is None or len(root) != HASH:
        raise BadSetting("this is not a checkpoint: the root hash is not 32 bytes of base64")
    return Checkpoint(lines[0], int(lines[1]), root)


class Proof(NamedTuple):
    """A proof that a leaf is in the tree of a checkpoint. `extra` is not covered by the proof."""

    extra: bytes
    leaf: int  # its index
    path: list[bytes]
    note: str

    def text(self) -> str:
        hashes = "".join(f"{_base64(node)}\n" for node in self.path)
        return f"{PROOF}\nextra {_base64(self.extra)}\nindex {self.leaf}\n{hashes}\n{self.note}"


def parse_proof(text: str) -> Proof:
    """Parse a proof in the format of tlog-proof. Raises `BadSetting` if it is malformed."""
    head, blank, note = text.partition("\n\n")
    lines = head.split("\n")
    wrong = BadSetting(f"this is not a proof: it must begin with {PROOF}, extra and index")
    if not blank or len(lines) < 3 or lines[0] != PROOF:
        raise wrong
    extra = _decoded(lines[1].removeprefix("extra ")) if lines[1].startswith("extra ") else None
    index = re.fullmatch(r"index (0|[1-9][0-9]{0,17})", lines[2])
    path = [_decoded(line) for line in lines[3:]]
    if extra is None or index is None or len(path) > 64:
        raise wrong
    hashes = [node for node in path if node is not None and len(node) == HASH]
    if len(hashes) != len(path):
        raise BadSetting("this is not a proof: a hash is not 32 bytes of base64")
    return Proof(extra, int(index[1]), hashes, note)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
