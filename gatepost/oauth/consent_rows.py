"""The rows of consents. The details of a consent are encrypted."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from gatepost.core import clock, ids
from gatepost.core.secrets import Box
from gatepost.oauth.consents import Consent, ConsentDetails
from gatepost.store.interface import Reader
from gatepost.store.transaction import LOWEST, Tx

_PAGE = 200

_details = msgspec.json.Decoder(ConsentDetails)
_encode = msgspec.json.Encoder().encode


def add(tx: Tx, consent: Consent, person: bytes, box: Box) -> None:
    """Store a consent. `person` is the hash by which the consents of one person are found."""
    tx.write(
        "insert_consent", account=ids.raw(consent.account), id=ids.raw(consent.id), client=ids.raw(consent.client),
        person=person, said=box.encrypt(_encode(consent.details), consent.id),
        given_at=clock.milliseconds(consent.given_at), expires_at=clock.milliseconds(consent.expires_at),
    )  # fmt: skip


def load(tx: Tx, account: str, consent: str, box: Box) -> Consent | None:
    """The consent, also if it has ended or expired."""
    raw = ids.parse("con", consent)
    row = tx.one("consent", account=ids.raw(account), id=raw) if raw else None
    return consent_from(account, row, box) if row else None


def page(tx: Tx, account: str, after: bytes, limit: int, box: Box) -> list[Consent]:
    """Some of the account's consents, the oldest first."""
    rows = tx.rows("list_consents", account=ids.raw(account), after=after, limit=limit)
    return [consent_from(account, row, box) for row in rows]


def every(store: Reader, account: str, box: Box) -> Iterator[Consent]:
    """All consents of an account, including those that have ended, the oldest first."""
    after = LOWEST
    while consents := store.read_now(lambda tx, after=after: page(tx, account, after, _PAGE, box)):  # type: ignore[misc]
        yield from consents
        after = ids.raw(consents[-1].id)


def active_of(tx: Tx, account: str, *, person: bytes | None, client: str | None, limit: int) -> list[str]:
    """Ids of consents that have not ended: of a person, of a client, or of a person for a client."""
    values: dict[str, Any] = {"account": ids.raw(account), "limit": limit}
    if person is not None and client is not None:
        rows = tx.rows("consents_of_person_and_client", **values, person=person, client=ids.raw(client))
    elif person is not None:
        rows = tx.rows("consents_of_person", **values, person=person)
    elif client is not None:
        rows = tx.rows("consents_of_client", **values, client=ids.raw(client))
    else:
        raise TypeError("a person or a client is required")
    return [ids.text("con", row[0]) for row in rows]


def active_given_before(tx: Tx, account: str, after: bytes, before: datetime, limit: int) -> list[bytes]:
    """Ids of consents that were given before an instant and have not ended."""
    rows = tx.rows(
        "active_consents", account=ids.raw(account), after=after, before=clock.milliseconds(before), limit=limit
    )
    return [row[0] for row in rows]


def end(tx: Tx, account: str, consent: str, reason: str) -> str | None:
    """End a consent. Returns its client to the first request that ends it, and None to any other."""
    tx.end()
    rows = tx.write("end_consent", account=ids.raw(account), id=ids.raw(consent), at=tx.now, reason=reason)
    return ids.text("cli", rows[0][0]) if rows else None


def consent_from(account: str, row: tuple[Any, ...], box: Box, name: str = "", of_client: str = "") -> Consent:
    """The consent in a row. The ids of the consent and of its client may be given where they are known."""
    raw_id, client, details, given_at, expires_at, ended_at, ended_reason = row
    name = name or ids.text("con", raw_id)
    return Consent(
        name, account, of_client or ids.text("cli", client), _details.decode(box.decrypt(details, name)),
        clock.from_milliseconds(given_at), clock.from_milliseconds(expires_at),
        clock.optional_from_milliseconds(ended_at), ended_reason,
    )  # fmt: skip
