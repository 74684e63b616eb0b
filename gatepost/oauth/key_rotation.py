"""Rotation and revocation of signing keys: applies the plan of `signing_keys`, and records every change."""

from datetime import timedelta
from typing import Any

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock
from gatepost.core.errors import NotFound, Refused
from gatepost.ledger.entries import SERVICE, Origin
from gatepost.ledger.record import record
from gatepost.oauth import key_rows, signing_keys
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import KeyChange, SigningKey
from gatepost.store.transaction import Tx

BY_SERVICE = Origin(SERVICE)


def advance(tx: Tx, service: Service, origin: Origin, *, rotate: frozenset[str] = frozenset()) -> list[KeyChange]:
    """Announce, activate, retire and purge the keys that are due. A concurrent call waits and finds nothing due."""
    return _apply(tx, service, signing_keys.plan(_lock(tx), tx.at, rotate=rotate), origin, {})


def rotate(tx: Tx, service: Service, origin: Origin, algs: frozenset[str], *, now: bool) -> list[KeyChange]:
    """Activate the announced keys. Without `now`, they must have been announced for 24 hours."""
    announced = {key.alg: key for key in _lock(tx) if key.status == "announced"}
    for alg in algs:
        key = announced.get(alg)
        ready = key.announced_at + signing_keys.ANNOUNCE if key else None
        if not now and (ready is None or ready > tx.at):
            wait = (ready - tx.at if ready else signing_keys.ANNOUNCE) + timedelta(minutes=1)
            raise Refused(
                f"the next {alg} key has not been announced for 24 h yet (wait {str(wait).split('.', maxsplit=1)[0]}); "
                "with --now, verifiers that cached the key set see an unknown kid until they fetch it again"
            )
    return advance(tx, service, origin, rotate=algs)


def revoke(tx: Tx, service: Service, key_id: str, reason: str, origin: Origin) -> list[KeyChange]:
    """Remove a compromised key from the JWKS at once."""
    keys = _lock(tx)
    compromised = [key for key in keys if key.id == key_id and key.status in signing_keys.PUBLISHED]
    if not compromised:
        raise NotFound(f"there is no key {key_id} in use; `gatepost key list` lists the keys")
    changes = signing_keys.revoke(keys, compromised, tx.at)
    return _apply(tx, service, changes, origin, {"reason": reason} if reason else {})


def revoke_all(tx: Tx, service: Service, reason: str, origin: Origin) -> list[KeyChange]:
    """Replace every signing key at once. Tokens signed before can no longer be verified."""
    keys = _lock(tx)
    published = [key for key in keys if key.status in signing_keys.PUBLISHED]
    return _apply(tx, service, signing_keys.revoke(keys, published, tx.at), origin, {"reason": reason})


def _lock(tx: Tx) -> list[SigningKey]:
    key_rows.lock(tx)
    return [stored.key for stored in key_rows.load_uncached(tx)]


def _apply(
    tx: Tx, service: Service, changes: list[KeyChange], origin: Origin, revocation_data: dict[str, Any]
) -> list[KeyChange]:
    account = account_rows.load_named(tx, accounts.OPERATOR)
    if account is None:
        raise LookupError(accounts.OPERATOR)
    for change in changes:
        if change.private is not None:
            key_rows.add(tx, change.key, service.keys.data.encrypt(change.private, change.key.id))
        else:
            key_rows.update(tx, change.key, wipe=change.wipe)
        if change.event:
            data: dict[str, Any] = {"alg": change.key.alg}
            if change.event == "oauth.key.retired" and change.key.purge_at:
                data["leaves_jwks_at"] = clock.rfc3339(change.key.purge_at)
            if change.event == "oauth.key.revoked":
                data |= revocation_data
            record(tx, account, change.event, origin, change.key.id, data)
    return changes


def render(key: SigningKey) -> dict[str, Any]:
    """The key for the operator, without key material."""
    times = {name: getattr(key, name) for name in ("announced_at", "activated_at", "retired_at", "purge_at")}
    return {
        "id": key.id,
        "alg": key.alg,
        "status": key.status,
        **{name: clock.rfc3339(at) if at else None for name, at in times.items()},
    }
