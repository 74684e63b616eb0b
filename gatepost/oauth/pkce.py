"""Proof Key for Code Exchange: RFC 7636, with the method S256 alone."""

import hashlib
import re
from hmac import compare_digest

from gatepost.core.jose import b64

VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


def matches(verifier: str, challenge: str) -> bool:
    """Whether the verifier is valid and belongs to the challenge. RFC 7636, section 4.6."""
    hashed = b64(hashlib.sha256(verifier.encode("utf-8", "surrogatepass")).digest())
    return bool(VERIFIER.fullmatch(verifier)) and compare_digest(hashed, challenge.encode())
