"""RSA keys for all test modules of a process: generating one takes a tenth of a second of CPU, and a large one more."""

from functools import cache

from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc.jwk import KeyParameters, RSAKey


@cache
def private_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The same key for the same number."""
    return rsa.generate_private_key(65537, bits)


def rsa_key(parameters: KeyParameters | None = None, *, number: int = 0, bits: int = 2048) -> RSAKey:
    """The private key of this number as a JWK with the parameters."""
    return RSAKey.import_key(private_key(number, bits), parameters)
