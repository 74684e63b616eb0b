"""The keys at rest: the server keys under the master key, and the signing keys through their lives."""

from datetime import timedelta
from typing import Any

from gatepost import accounts
from gatepost.accounts import account_rows, server_keys
from gatepost.core import clock
from gatepost.core.errors import BadSetting
from gatepost.core.secrets import SERVER_KEYS, Box, ServerKeys, WrongKey, random_bytes
from gatepost.ledger.entries import SERVICE, Origin
from gatepost.ledger.record import record
from gatepost.oauth import key_rows, signing_keys
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import Change, SigningKey
from gatepost.store.transaction import Tx


def open_server_keys(tx: Tx, master: Box, *, make: bool) -> ServerKeys:
    """The server keys, made at the first start. A master key that does not open them is refused.

    A key that is missing from a store in use is not made again: a new seal key would let its history be rewritten.
    """
    if make and not server_keys.load(tx) and not account_rows.page(tx, "", 1):
        for name in SERVER_KEYS:
            server_keys.add(tx, name, master.close(random_bytes(32), f"server key {name}"))
    found = server_keys.load(tx)
    missing = sorted(set(SERVER_KEYS) - set(found))
    if missing and (found or account_rows.page(tx, "", 1)):
        raise BadSetting(f"the server key {missing[0]} was removed from the store; restore it from a backup")
    if missing:
        raise BadSetting("the store has no keys yet; start the service once, or run: gatepost store migrate")
    try:
        return ServerKeys({name: master.open(wrapped, f"server key {name}") for name, wrapped in found.items()})
    except WrongKey as error:
        raise BadSetting(f"the master key given does not open this store ({error}); give the one it is under") from None


def rewrap(tx: Tx, master: Box) -> int:
    """Encrypt the server keys under the first master key; say how many were under another."""
    count = 0
    for name, wrapped in server_keys.load(tx).items():
        if master.closed_by(wrapped) != master.first:
            server_keys.update(tx, name, master.close(master.open(wrapped, f"server key {name}"), f"server key {name}"))
            count += 1
    return count


def keep(tx: Tx, service: Service, origin: Origin, *, rotate: frozenset[str] = frozenset()) -> list[Change]:
    """Do what is due with the signing keys. Whoever else keeps them waits, then finds nothing due."""
    key_rows.lock(tx)
    current = [each.key for each in key_rows.load_uncached(tx)]
    return _apply(tx, service, signing_keys.plan(current, tx.at, rotate=rotate), origin, {})


def rotate(tx: Tx, service: Service, origin: Origin, algs: frozenset[str], *, now: bool) -> list[Change]:
    """Let the announced keys take over. Without `now`, only keys announced long enough for every cache to know."""
    key_rows.lock(tx)
    announced = {each.key.alg: each.key for each in key_rows.load_uncached(tx) if each.key.status == "announced"}
    for alg in algs:
        key = announced.get(alg)
        ready = key.announced_at + signing_keys.ANNOUNCE if key else None
        if not now and (ready is None or ready > tx.at):
            wait = (ready - tx.at if ready else signing_keys.ANNOUNCE) + timedelta(minutes=1)
            raise BadSetting(
                f"the next {alg} key is not announced for 24 h yet (wait {str(wait).split('.', maxsplit=1)[0]}); "
                "with --now, verifiers that cached the key set see an unknown kid until they fetch it again"
            )
    return keep(tx, service, origin, rotate=algs)


def revoke(tx: Tx, service: Service, key_id: str, reason: str, origin: Origin) -> list[Change]:
    """Take a compromised key out of JWKS at once."""
    key_rows.lock(tx)
    current = [each.key for each in key_rows.load_uncached(tx)]
    found = next((key for key in current if key.id == key_id), None)
    if found is None or found.status not in signing_keys.PUBLISHED:
        raise BadSetting(f"there is no key {key_id} in use; `gatepost key list` shows those there are")
    return _apply(tx, service, signing_keys.revoke(current, found, tx.at), origin, {"reason": reason} if reason else {})


def revoke_all(tx: Tx, service: Service, reason: str, origin: Origin) -> list[Change]:
    """Replace every signing key at once: no token that was signed before verifies any more."""
    key_rows.lock(tx)
    current = [each.key for each in key_rows.load_uncached(tx)]
    return _apply(tx, service, signing_keys.revoke_all(current, tx.at), origin, {"reason": reason})


def _apply(tx: Tx, service: Service, changes: list[Change], origin: Origin, why: dict[str, Any]) -> list[Change]:
    account = account_rows.load_named(tx, accounts.OPERATOR)
    if account is None:
        raise LookupError(accounts.OPERATOR)
    for change in changes:
        if change.private is not None:
            key_rows.add(tx, change.key, service.keys.data.close(change.private, change.key.id))
        else:
            key_rows.update(tx, change.key, wipe=change.wipe)
        if change.event:
            data: dict[str, Any] = {"alg": change.key.alg}
            if change.event == "oauth.key.retired" and change.key.purge_at:
                data["leaves_jwks_at"] = clock.rfc3339(change.key.purge_at)
            if change.event == "oauth.key.revoked":
                data |= why
            record(tx, account, change.event, origin, change.key.id, data)
    return changes


def by_service() -> Origin:
    return Origin(SERVICE)


def shown(key: SigningKey) -> dict[str, Any]:
    def when(name: str) -> str | None:
        at = getattr(key, name)
        return clock.rfc3339(at) if at else None

    times = {name: when(name) for name in ("announced_at", "activated_at", "retired_at", "purge_at")}
    return {"id": key.id, "alg": key.alg, "status": key.status, **times}
