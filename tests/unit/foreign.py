"""Foreign tokens, right and forged: made by hand, since no library would make most of them."""

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc.jwk import ECKey, OKPKey, RSAKey

from tests.rsa_keys import private_key

Private = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey

EC = ec.generate_private_key(ec.SECP256R1())
OTHER_EC = ec.generate_private_key(ec.SECP256R1())
RSA = private_key()
ED = ed25519.Ed25519PrivateKey.generate()
CLAIMS = {"iss": "cli_1", "sub": "cli_1", "exp": 2_000_000_000}


def pem(private: Private) -> bytes:
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def public(private: Private, **members: Any) -> dict[str, Any]:
    kind: Any = {ec: ECKey, rsa: RSAKey, ed25519: OKPKey}[
        ec
        if isinstance(private, ec.EllipticCurvePrivateKey)
        else rsa
        if isinstance(private, rsa.RSAPrivateKey)
        else ed25519
    ]
    return dict(kind.import_key(pem(private)).as_dict(private=False)) | members


def encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def signature(alg: str, private: Private | bytes, signed: bytes) -> bytes:
    match private:
        case bytes():
            return hmac.new(private, signed, hashlib.sha256).digest() if private else b""
        case ec.EllipticCurvePrivateKey():
            one, two = decode_dss_signature(private.sign(signed, ec.ECDSA(hashes.SHA256())))
            return one.to_bytes(32, "big") + two.to_bytes(32, "big")
        case rsa.RSAPrivateKey() if alg.startswith("PS"):
            return private.sign(signed, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())
        case rsa.RSAPrivateKey():
            return private.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        case ed25519.Ed25519PrivateKey():
            return private.sign(signed)


def token(header: dict[str, Any] | bytes, payload: Any = CLAIMS, key: Private | bytes = EC) -> str:
    """Sign with the key, independent of the header. A payload of bytes is used unchanged."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    alg = "" if isinstance(header, bytes) else str(header.get("alg"))
    signed = f"{encoded(head)}.{encoded(body)}"
    return f"{signed}.{encoded(signature(alg, key, signed.encode()))}"
