"""Hidden header values of endpoints: encrypted in the store, decrypted where they are needed.

A ciphertext is bound to its endpoint, its header and the origin of the URL: if a row is altered to send a header
elsewhere, its value does not decrypt.
"""

from base64 import b64decode, b64encode
from typing import NamedTuple

import msgspec

from gatepost.accounts import account_rows
from gatepost.core import ids
from gatepost.core.secrets import Box, WrongKey
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import endpoint_rows, endpoints
from gatepost.webhooks.endpoints import Endpoint

_SLICE = 100


class DecryptedEndpoint(NamedTuple):
    """An endpoint with all header values in plaintext, never to be stored, and the headers that do not decrypt."""

    endpoint: Endpoint
    unreadable: list[str]


def plaintext(box: Box, endpoint: Endpoint) -> dict[str, str]:
    """All headers in plaintext, as they are sent."""
    return endpoint.headers | {name: _open(box, endpoint, name) for name in endpoint.sealed_headers}


def decrypted(box: Box, endpoint: Endpoint) -> DecryptedEndpoint:
    """The endpoint with its hidden header values, to be changed."""
    headers, unreadable = dict(endpoint.headers), []
    for name in endpoint.sealed_headers:
        try:
            headers[name] = _open(box, endpoint, name)
        except WrongKey:
            unreadable.append(name)
    return DecryptedEndpoint(msgspec.structs.replace(endpoint, headers=headers, sealed_headers={}), unreadable)


def encrypted(box: Box, endpoint: Endpoint) -> Endpoint:
    """The endpoint as it is stored, with the values of credential headers encrypted."""
    hidden = {name: value for name, value in endpoint.headers.items() if endpoints.is_credential(name)}
    ciphertexts = {
        name: b64encode(box.encrypt(value.encode(), _row(endpoint, name))).decode() for name, value in hidden.items()
    }
    visible = {name: value for name, value in endpoint.headers.items() if name not in hidden}
    return msgspec.structs.replace(endpoint, headers=visible, sealed_headers=endpoint.sealed_headers | ciphertexts)


def is_unencrypted(endpoint: Endpoint) -> bool:
    """Whether the endpoint was stored by a release that did not encrypt these values."""
    return any(endpoints.is_credential(name) for name in endpoint.headers)


def encrypt_slice(tx: Tx, box: Box, account: str, after: bytes) -> tuple[int, bytes | None]:
    """Encrypt a slice of an account's endpoints.

    Returns how many had plaintext values, and the last id; None at the end.
    """
    account_rows.lock(tx, account)
    page = endpoint_rows.page(tx, account, after, _SLICE)
    unencrypted = [endpoint for endpoint in page if is_unencrypted(endpoint)]
    for endpoint in unencrypted:
        endpoint_rows.update(tx, encrypted(box, endpoint))
    return len(unencrypted), ids.raw(page[-1].id) if page else None


def count_unencrypted(tx: Tx) -> int:
    """The number of endpoints of all accounts that have plaintext values."""
    count, name = 0, ""
    while accounts := account_rows.page(tx, name, _SLICE):
        name = accounts[-1].name
        for account in accounts:
            after = LOWEST
            while page := endpoint_rows.page(tx, account.id, after, _SLICE):
                after = ids.raw(page[-1].id)
                count += sum(is_unencrypted(endpoint) for endpoint in page)
    return count


def _open(box: Box, endpoint: Endpoint, name: str) -> str:
    return box.decrypt(b64decode(endpoint.sealed_headers[name]), _row(endpoint, name)).decode()


def _row(endpoint: Endpoint, name: str) -> str:
    return f"{endpoint.id} header {name.lower()} {endpoints.origin(endpoint.url)}"
