"""The rows of families: a refresh token and its successors."""

from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from gatepost.core import clock, ids
from gatepost.core.secrets import Box
from gatepost.oauth.consent_rows import consent_from
from gatepost.oauth.consents import Consent
from gatepost.oauth.refresh_tokens import Family
from gatepost.store.transaction import Prefetch, Tx

_client_id = lru_cache(4096)(partial(ids.text, "cli"))  # cached, because many families have the same client


def add(tx: Tx, family: Family) -> None:
    """Store a new family."""
    tx.write(
        "insert_family", account=ids.raw(family.account), id=ids.raw(family.id), client=ids.raw(family.client),
        consent=ids.raw(family.consent), number=family.number, leaf=family.leaf, thumbprint=family.thumbprint,
        rotated_at=clock.milliseconds(family.rotated_at), idle_ends_at=clock.milliseconds(family.idle_ends_at),
        ends_at=clock.milliseconds(family.ends_at),
    )  # fmt: skip


def load(tx: Tx, account: str, family: str) -> Family | None:
    """The family, also if it has ended or expired."""
    raw = ids.parse("fam", family)
    row = tx.one("family", account=ids.raw(account), id=raw) if raw else None
    return _family(account, row) if row else None


def prefetch(account: str, family: bytes) -> Prefetch:
    """The row that `load_with_consent` reads. It can be read together with those of other requests."""
    return Prefetch("families_and_consents", (ids.raw(account), family))


def load_with_consent(tx: Tx, account: str, family: str, box: Box) -> tuple[Family, Consent] | None:
    """The family and its consent, read together."""
    key = prefetch(account, ids.raw(family))
    row = tx.prefetched(key)
    if row is None:
        rows = tx.rows_given(key.statement, [key.key])
        row = rows[0] if rows else None
    if row is None:
        return None
    loaded = _family(account, row[1:12], family)
    return loaded, consent_from(account, row[12:], box, loaded.consent, loaded.client if row[13] == row[2] else "")


def rotate(tx: Tx, family: Family, leaf: bytes, thumbprint: str, idle_ends_at: datetime) -> bool:
    """Replace the current token. False if another request was first. Units that share a commit rotate at its end."""
    idle_until = clock.milliseconds(idle_ends_at)
    row = (ids.raw(family.account), ids.raw(family.id), family.number, leaf, thumbprint, tx.now, idle_until)
    if tx.write_later("rotate_families", "lock_families_to_rotate", row):
        return True
    return bool(tx.write_given("rotate_families", [row]))


def restart_grace(tx: Tx, family: Family) -> None:
    """Let the grace period of the current token begin now."""
    tx.pending.append("restart_grace", [(ids.raw(family.account), ids.raw(family.id), family.number, tx.now)])


def extend(tx: Tx, family: Family, idle_ends_at: datetime) -> bool:
    """Extend the idle time of a family whose token is not replaced. False if the family has ended."""
    updated = tx.write(
        "keep_family", account=ids.raw(family.account), id=ids.raw(family.id), number=family.number,
        idle_ends_at=clock.milliseconds(idle_ends_at),
    )  # fmt: skip
    return bool(updated)


def of_consent(tx: Tx, account: str, consent: str) -> list[str]:
    """Ids of the families of a consent that have not ended."""
    rows = tx.rows("families_of_consent", account=ids.raw(account), consent=ids.raw(consent))
    return [ids.text("fam", row[0]) for row in rows]


def end(tx: Tx, account: str, family: str, reason: str) -> bool:
    """End a family. True for the first request that ends it."""
    tx.end()
    return bool(tx.write("end_family", account=ids.raw(account), id=ids.raw(family), at=tx.now, reason=reason))


def _family(account: str, row: tuple[Any, ...], name: str = "") -> Family:
    raw_id, client, consent, number, leaf, thumbprint, rotated_at, idle_ends_at, ends_at, ended_at, reason = row
    return Family(
        account, name or ids.text("fam", raw_id), _client_id(client), ids.text("con", consent), number, leaf,
        thumbprint, clock.from_milliseconds(rotated_at), clock.from_milliseconds(idle_ends_at),
        clock.from_milliseconds(ends_at), clock.optional_from_milliseconds(ended_at), reason,
    )  # fmt: skip
