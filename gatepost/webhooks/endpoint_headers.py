"""Header values of endpoints that are not shown back: encrypted in the store, opened where they are needed.

A value is bound to its endpoint, its header and the origin of the URL: a row that was altered to lead elsewhere does
not take the value along.
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


class Opened(NamedTuple):
    """An endpoint with all values in clear, never to be stored; and the headers whose value does not decrypt."""

    endpoint: Endpoint
    unreadable: list[str]


def values(box: Box, endpoint: Endpoint) -> dict[str, str]:
    """All headers as they are sent."""
    return endpoint.headers | {name: _open(box, endpoint, name) for name in endpoint.sealed_headers}


def opened(box: Box, endpoint: Endpoint) -> Opened:
    headers, unreadable = dict(endpoint.headers), []
    for name in endpoint.sealed_headers:
        try:
            headers[name] = _open(box, endpoint, name)
        except WrongKey:
            unreadable.append(name)
    return Opened(msgspec.structs.replace(endpoint, headers=headers, sealed_headers={}), unreadable)


def sealed(box: Box, endpoint: Endpoint) -> Endpoint:
    """The endpoint as it is stored."""
    hidden = {name: value for name, value in endpoint.headers.items() if endpoints.is_credential(name)}
    closed = {
        name: b64encode(box.close(value.encode(), _row(endpoint, name))).decode() for name, value in hidden.items()
    }
    shown = {name: value for name, value in endpoint.headers.items() if name not in hidden}
    return msgspec.structs.replace(endpoint, headers=shown, sealed_headers=endpoint.sealed_headers | closed)


def in_clear(endpoint: Endpoint) -> bool:
    """Whether it was stored by a release that did not encrypt these values."""
    return any(endpoints.is_credential(name) for name in endpoint.headers)


def encrypt_some(tx: Tx, box: Box, account: str, after: bytes) -> tuple[int, bytes | None]:
    """Of a slice of the account's endpoints: how many had values in clear, and the last one; None at the end."""
    account_rows.lock(tx, account)
    found = endpoint_rows.page(tx, account, after, _SLICE)
    clear = [each for each in found if in_clear(each)]
    for each in clear:
        endpoint_rows.update(tx, sealed(box, each))
    return len(clear), ids.raw(found[-1].id) if found else None


def count_in_clear(tx: Tx) -> int:
    count, name = 0, ""
    while some := account_rows.page(tx, name, _SLICE):
        name = some[-1].name
        for account in some:
            after = LOWEST
            while found := endpoint_rows.page(tx, account.id, after, _SLICE):
                after = ids.raw(found[-1].id)
                count += sum(in_clear(each) for each in found)
    return count


def _open(box: Box, endpoint: Endpoint, name: str) -> str:
    return box.open(b64decode(endpoint.sealed_headers[name]), _row(endpoint, name)).decode()


def _row(endpoint: Endpoint, name: str) -> str:
    return f"{endpoint.id} header {name.lower()} {endpoints.origin(endpoint.url)}"
