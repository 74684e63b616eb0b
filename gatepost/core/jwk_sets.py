"""JWK sets of other parties (RFC 7517): which sets are accepted, and which of their keys can be used."""

from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from gatepost.core.jose import PRIVATE_PARTS, RSA_KEYS, is_rsa_key
from gatepost.core.json_schema import Json, array, response_object

ASSERTION_ALGORITHMS = ("ES256", "RS256", "PS256", "EdDSA", "Ed25519")
STRICT_ALGORITHMS = tuple(name for name in ASSERTION_ALGORITHMS if name != "RS256")
KEYS = f"EC P-256, OKP Ed25519 or {RSA_KEYS}"


def assertion_algorithms(*, strict: bool) -> tuple[str, ...]:
    """Return the algorithms of assertions. An account with the profile fapi2 is strict."""
    return STRICT_ALGORITHMS if strict else ASSERTION_ALGORITHMS


def jwks_problem(value: Any) -> str:
    """Return what is wrong with a set of public keys, or "" if nothing is."""
    keys = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(keys, list) or not 1 <= len(keys) <= 20 or not all(isinstance(key, dict) for key in keys):
        return "must be a JWK set with 1 to 20 keys"
    if any(part in key for key in keys for part in PRIVATE_PARTS):
        return "must hold public keys only"
    for key in keys:
        curve = (key.get("kty"), key.get("crv")) in (("EC", "P-256"), ("OKP", "Ed25519"))
        if not curve and not is_rsa_key(key):
            return f"keys must be {KEYS}"
        if key.get("alg") not in (None, *ASSERTION_ALGORITHMS):
            return f"alg must be one of {', '.join(ASSERTION_ALGORITHMS)}"
        if key.get("use", "sig") != "sig":
            return "use must be sig, or left out: the keys are only for verifying"
        operations = key.get("key_ops", ["verify"])
        if not isinstance(operations, list) or "verify" not in operations:
            return "key_ops must contain verify, or be left out: the keys are only for verifying"
    kids = [key["kid"] for key in keys if "kid" in key]
    if len(keys) > 1 and (len(kids) != len(keys) or len({str(kid) for kid in kids}) != len(kids)):
        return "several keys need a kid each, all different"
    try:
        KeySet.import_key_set(value)
    except (JoseError, ValueError, TypeError, KeyError) as error:
        return f"has a key that cannot be read ({type(error).__name__})"
    return ""


def usable_keys(jwks: Any) -> list[dict[str, Any]] | None:
    """Return the keys of a published set that can verify (RFC 7517, section 5), or None if it is not a key set."""
    keys = jwks.get("keys") if isinstance(jwks, dict) else None
    if not isinstance(keys, list):
        return None
    return [key for key in keys[:100] if not jwks_problem({"keys": [key]})]


def jwks_schema() -> Json:
    """Return the part of the rules above that JSON Schema can express."""
    part = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}
    modulus = part | {"minLength": 342, "maxLength": 1366}
    kinds = [
        _kind("P-256", ["crv", "x", "y"], kty={"const": "EC"}, crv={"const": "P-256"}, x=part, y=part),
        _kind("Ed25519", ["crv", "x"], kty={"const": "OKP"}, crv={"const": "Ed25519"}, x=part),
        _kind(RSA_KEYS, ["n", "e"], kty={"const": "RSA"}, n=modulus, e=part),
    ]
    key: Json = {
        "type": "object",
        "required": ["kty"],
        "properties": {
            "kid": {"type": "string"},
            "alg": {"enum": [None, *ASSERTION_ALGORITHMS]},
            "use": {"const": "sig"},
            "key_ops": array({"type": "string"}, contains={"const": "verify"}),
        },
        "anyOf": kinds,
        "not": {"anyOf": [{"required": [member]} for member in PRIVATE_PARTS]},
    }
    keys = array(key, minItems=1, maxItems=20)
    return response_object({"keys": keys}, description="A JWK set of public keys. Several keys need a kid each.")


def _kind(description: str, required: list[str], **members: Json) -> Json:
    return {"description": description, "required": required, "properties": members}
