"""Recording refusals. Those of public clients are recorded up to a limit, and beyond it counted per minute.

Those because of a quota are only counted.
"""

import hashlib
import ipaddress
from datetime import timedelta
from typing import Any

from gatepost.accounts import Account, account_rows
from gatepost.ledger.entries import Origin
from gatepost.ledger.record import record
from gatepost.oauth import refusal_counts
from gatepost.oauth.clients import Client
from gatepost.oauth.quotas import RefusedRequests
from gatepost.oauth.refusal_counts import RefusalCount
from gatepost.store.transaction import Tx

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


def pair(client: str, source: str, type_: str = "") -> bytes:
    """The key of a client and an address. The client may be any text that a caller sent."""
    named = f"{client}\0{network(source)}" + (f"\0{type_}" if type_ else "")
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).digest()[:16]


def record_refusal(
    tx: Tx, account: Account, client: Client, type_: str, origin: Origin, data: dict[str, Any]
) -> str | None:
    """Record a refusal and return the id of the entry; None if the refusal was only counted.

    A public client does not authenticate: anyone can send requests in its name. Beyond the limit, one entry records
    the number of its refusals, so that nobody can fill the ledger of the account or flood its webhooks.
    """
    if client.public:
        key = pair(client.id, origin.source, type_)
        refusal = RefusalCount(key, account.id, client.id, origin.source, type_, str(data["error"]))
        counted = refusal_counts.count_refusal(tx, refusal, WINDOW)
        sum_up(tx, counted.ended)
        if counted.number > LIMIT:
            return None
    return record(tx, account, type_, origin, client.id, data).name


def count_beyond_quota(tx: Tx, refused: list[RefusedRequests]) -> None:
    """Count requests that web processes refused because of a quota."""
    for client in refused:
        key = pair(client.client, "", "quota")
        error = f"quota_exceeded {client.rule}"
        window = RefusalCount(key, client.account, client.client, "", error=error, count=client.count)
        sum_up(tx, refusal_counts.count_refusal(tx, window, WINDOW).ended)


def sum_up(tx: Tx, ended: list[RefusalCount]) -> None:
    """Write one entry with the number of refusals that have none, for each window that ended."""
    for window in ended:
        account = account_rows.load(tx, window.account) if window.account else None
        error, _, quota = window.error.partition(" ")
        count = window.count if quota else window.count - LIMIT
        if account and count > 0:
            data = {"error": error, "rule": quota or "throttled", "count": count}
            record(tx, account, window.type, Origin(window.client, "", window.source), window.client, data)
