"""Rotation and revocation of signing keys: applies the plan of `signing_keys`, and records every change."""

from datetime import timedelta
from typing import Any

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock
from gatepost.core.errors import BadSetting
from gatepost.ledger.entries import SERVICE, Origin
from gatepost.ledger.record import record
from gatepost.oauth import key_rows, signing_keys
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import Change, SigningKey
from gatepost.store.transaction import Tx


def advance(tx: Tx, service: Service, origin: Origin, *, rotate: frozenset[str] = frozenset()) -> list[Change]:
    """Announce, activate, retire and purge the keys that are due. A concurrent call waits and finds nothing due."""
    key_rows.lock(tx)
    current = [each.key for each in key_rows.load_uncached(tx)]
    return _apply(tx, service, signing_keys.plan(current, tx.at, rotate=rotate), origin, {})


def rotate(tx: Tx, service: Service, origin: Origin, algs: frozenset[str], *, now: bool) -> list[Change]:
    """Activate the announced keys. Without `now`, they must have been announced for 24 hours."""
    key_rows.lock(tx)
    announced = {each.key.alg: each.key for each in key_rows.load_uncached(tx) if each.key.status == "announced"}
    for alg in algs:
        key = announced.get(alg)
        ready = key.announced_at + signing_keys.ANNOUNCE if key else None
        if not now and (ready is None or ready > tx.at):
            wait = (ready - tx.at if ready else signing_keys.ANNOUNCE) + timedelta(minutes=1)
            raise BadSetting(
                f"the next {alg} key has not been announced for 24 h yet (wait {str(wait).split('.', maxsplit=1)[0]}); "
                "with --now, verifiers that cached the key set see an unknown kid until they fetch it again"
            )
    return advance(tx, service, origin, rotate=algs)


def revoke(tx: Tx, service: Service, key_id: str, reason: str, origin: Origin) -> list[Change]:
    """Remove a compromised key from the JWKS at once."""
    key_rows.lock(tx)
    current = [each.key for each in key_rows.load_uncached(tx)]
    found = next((key for key in current if key.id == key_id), None)
    if found is None or found.status not in signing_keys.PUBLISHED:
        raise BadSetting(f"there is no key {key_id} in use; `gatepost key list` lists the keys")
    return _apply(tx, service, signing_keys.revoke(current, found, tx.at), origin, {"reason": reason} if reason else {})


def revoke_all(tx: Tx, service: Service, reason: str, origin: Origin) -> list[Change]:
    """Replace every signing key at once. Tokens signed before can no longer be verified."""
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


def render(key: SigningKey) -> dict[str, Any]:
    def when(name: str) -> str | None:
        at = getattr(key, name)
        return clock.rfc3339(at) if at else None

    times = {name: when(name) for name in ("announced_at", "activated_at", "retired_at", "purge_at")}
    return {"id": key.id, "alg": key.alg, "status": key.status, **times}
