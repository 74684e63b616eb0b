"""Verification of webhooks, for receivers: checks the signature and the age of a request.

It follows Standard Webhooks, so it works with any sender that does. It imports very little, so that a receiver which
only verifies HMAC signatures starts quickly.
"""

import hmac
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from gatepost_client.errors import VerificationError

TOLERANCE = timedelta(minutes=5)
MAX_SIGNATURES = 16  # a sender adds one for each of its valid secrets, of which there are two during a rotation
_ED25519_BYTES = 64
_TIMESTAMP = re.compile(r"[0-9]{1,12}")

_IsValid = Callable[[str], bool]  # whether a signature is valid
_Verifier = Callable[[bytes], _IsValid]  # prepares the verification of signatures of this content


def verify(
    secret: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance: timedelta = TOLERANCE,
    now: datetime | None = None,
) -> Any:
    """Return the JSON of the body, if the request is recent and signed with one of the secrets.

    `secret` is a `whsec_…`, a `whpk_…` (the public key of an endpoint with `signing: v1a`), or several of them during a
    rotation. `body` must be the received bytes. JSON that was parsed and serialized again does not verify. Raises
    `VerificationError`, whose `check` is `secret`, `headers`, `id`, `timestamp`, `signature` or `body`.
    """
    verifiers = [_verifier(text) for text in ([secret] if isinstance(secret, str) else secret)]
    if not verifiers:
        raise VerificationError("no secret was given", "secret")
    event_id, timestamp, signatures = (_header(headers, name) for name in ("id", "timestamp", "signature"))
    if "." in event_id:  # otherwise the signed content could be split into id, timestamp and body in another way
        raise VerificationError("webhook-id contains a dot", "id")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise VerificationError("webhook-timestamp is not a number of seconds", "timestamp")
    age = (now or datetime.now(UTC)).timestamp() - int(timestamp)
    if abs(age) > tolerance.total_seconds():
        raise VerificationError(f"webhook-timestamp is too {'old' if age > 0 else 'new'}", "timestamp")
    if signatures.count(" ") >= MAX_SIGNATURES:
        raise VerificationError(f"webhook-signature has more than {MAX_SIGNATURES} signatures", "signature")
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    content = b"%b.%b.%b" % (event_id.encode("utf-8", "surrogatepass"), timestamp.encode(), raw)
    received = _by_version(signatures)
    if not any(
        any(map(verifier(content), received[version])) for version, verifier in verifiers if version in received
    ):
        raise VerificationError("no signature matches a secret", "signature")
    try:
        return json.loads(raw.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise VerificationError("the body is signed but is not JSON", "body") from None


def _by_version(signatures: str) -> dict[str, list[str]]:
    received: dict[str, list[str]] = {}
    for text in signatures.split(" "):
        version, _, signature = text.partition(",")
        received.setdefault(version, []).append(signature)
    return received


def _header(headers: Mapping[str, str], name: str) -> str:
    """The value of a header that is there once. Frameworks have a repeated header several times, or join its values."""
    values = [value for header, value in headers.items() if header.lower() == f"webhook-{name}"]
    value = ", ".join(values)
    if not value:
        raise VerificationError(f"the webhook-{name} header is missing", "headers")
    if len(values) > 1 or value.find(", ") > 0:
        raise VerificationError(f"the webhook-{name} header was sent several times", "headers")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _verifier(secret: str) -> tuple[str, _Verifier]:
    """Return the version of the signatures that a secret verifies, and the verifier."""
    for prefix, version in (("whsec_", "v1"), ("whpk_", "v1a")):
        if secret.startswith(prefix):
            key = _decode(secret.removeprefix(prefix))
            if not key:
                raise VerificationError(f"the secret is empty or not base64 after {prefix}")
            return version, _hmac(key) if version == "v1" else _ed25519(key)
    raise VerificationError("the secret is empty, or does not begin with whsec_ or whpk_")


def _hmac(key: bytes) -> _Verifier:
    def verifier(content: bytes) -> _IsValid:
        expected = b64encode(hmac.digest(key, content, "sha256"))  # once, however many signatures there are
        return lambda signature: hmac.compare_digest(expected, signature.encode("utf-8", "surrogatepass"))

    return verifier


def _ed25519(key: bytes) -> _Verifier:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 (heavy, and only v1a needs it)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        public = Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        raise VerificationError("the key after whpk_ is not an Ed25519 public key") from None

    def is_valid(content: bytes, signature: str) -> bool:
        raw = _decode(signature)
        if len(raw) != _ED25519_BYTES:
            return False
        try:
            public.verify(raw, content)
        except InvalidSignature:
            return False
        return True

    return lambda content: partial(is_valid, content)


def _decode(text: str) -> bytes:
    """Decode base64 text, padded or not. Return b"" if it is not base64."""
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return b""
