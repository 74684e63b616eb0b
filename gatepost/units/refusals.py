"""Refusals of callers that did not authenticate: ledgered one by one up to a limit, then counted by the minute."""

import hashlib
import ipaddress
from datetime import timedelta

from gatepost.ledger.entries import Origin
from gatepost.store.refusals import Failure
from gatepost.store.tx import Tx
from gatepost.units.service import record

LIMIT = 10  # for one client and address in a window
WINDOW = timedelta(minutes=1)


def network(source: str) -> str:
    """The address as limits count it. An IPv6 caller usually has a whole /64 network, so that counts as one."""
    try:
        address = ipaddress.ip_address(source.partition("%")[0])
    except ValueError:
        return source
    if isinstance(address, ipaddress.IPv4Address):
        return source
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def pair(client: str, source: str) -> bytes:
    """The key of a client and an address. The client may be any text that a caller sent."""
    return hashlib.sha256(f"{client}\0{network(source)}".encode("utf-8", "surrogatepass")).digest()[:16]


def sum_up_failures(tx: Tx, ended: list[Failure]) -> None:
    """Write one entry with the number of failed authentications beyond the limit of each window that ended."""
    for failure in ended:
        account = tx.account(failure.account) if failure.account else None
        if account and failure.count > LIMIT:
            data = {"error": "too_many_failures", "rule": "throttled", "count": failure.count - LIMIT}
            record(tx, account, "oauth.token.refused", Origin(failure.client, "", failure.source), failure.client, data)
