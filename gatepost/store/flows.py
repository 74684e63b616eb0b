"""What the authorization flows may ask of storage: issuers, pushed requests, interactions, consents, codes, families.

What is used once is used by a conditional write: its answer says who was first.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from gatepost.core import clock, ids
from gatepost.core.secrets import Box
from gatepost.oauth.consents import Consent, Said
from gatepost.oauth.issuers import Issuer
from gatepost.oauth.refresh_tokens import Family
from gatepost.store.effects import Again, Batch, Effects, Rotation

_issuer = msgspec.json.Decoder(Issuer)
_said = msgspec.json.Decoder(Said)
_encode = msgspec.json.Encoder().encode


class Connection(Protocol):
    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def write(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def rows_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...
    def write_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...


class Interaction(NamedTuple):
    """An authorization on its way through the login application. `request` is JSON."""

    account: str
    id: str
    client: str
    browser: bytes
    pushed: bytes | None
    request: bytes
    expires_at: datetime
    done_at: datetime | None = None


class Code(NamedTuple):
    client: str
    consent: str
    request: str
    expires_at: datetime
    spent_at: datetime | None = None


class Flows:
    """One unit's view of these tables."""

    def __init__(
        self, connection: Connection, at: datetime,
        cached: Callable[[str, Callable[[], Any]], Any], change: Callable[[str], None], end: Callable[[], None],
        effects: Effects, batch: Batch | None,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._at = at
        self._cached = cached
        self._change = change
        self._end = end
        self._effects = effects
        self._batch = batch

    def _one(self, statement: str, **parameters: Any) -> tuple[Any, ...] | None:
        found = self._connection.rows(statement, parameters)
        return found[0] if found else None

    def _write(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.write(statement, parameters)

    @property
    def _now(self) -> int:
        return clock.milliseconds(self._at)

    # --- trusted issuers

    def issuers(self, account: str) -> tuple[Issuer, ...]:
        def load() -> tuple[Issuer, ...]:
            rows = self._connection.rows("list_issuers", {"account": ids.raw(account)})
            return tuple(_issuer.decode(row[0]) for row in rows)

        return self._cached(f"issuers {account}", load)  # type: ignore[no-any-return]

    def add_issuer(self, issuer: Issuer) -> bool:
        """False when the name is taken."""
        document = _encode(issuer).decode()
        added = self._write("put_issuer", account=ids.raw(issuer.account), name=issuer.name, document=document)
        self._change(f"issuers {issuer.account}")
        return bool(added)

    def remove_issuer(self, account: str, name: str) -> bool:
        self._change(f"issuers {account}")
        return bool(self._write("delete_issuer", account=ids.raw(account), name=name))

    # --- pushed requests

    def push(
        self, account: str, raw_id: bytes, client: str, source: str, request: bytes, box: Box, expires_at: datetime
    ) -> None:  # fmt: skip
        self._write(
            "insert_pushed", account=ids.raw(account), id=raw_id, client=ids.raw(client), source=source,
            request=box.close(request, f"pushed {account} {raw_id.hex()}"), expires_at=clock.milliseconds(expires_at),
        )  # fmt: skip

    def evict_pushed(self, account: str, client: str, source: str, keep: int) -> int:
        """Delete the oldest of one client and address, except so many. Says how many were deleted."""
        return len(
            self._write("evict_pushed", account=ids.raw(account), client=ids.raw(client), source=source, keep=keep)
        )

    def pushed(self, account: str, raw_id: bytes, client: str, box: Box) -> bytes | None:
        """What the client pushed, while it can still be opened."""
        found = self._one("pushed", account=ids.raw(account), id=raw_id, client=ids.raw(client), at=self._now)
        return box.open(found[0], f"pushed {account} {raw_id.hex()}") if found else None

    def delete_pushed(self, account: str, raw_id: bytes) -> bool:
        return bool(self._write("delete_pushed", account=ids.raw(account), id=raw_id))

    # --- interactions

    def open_interaction(self, interaction: Interaction, source: str, box: Box, *, first_visit: bool = False) -> None:
        """`first_visit`: the browser sent no cookie, and `browser` is the hash of the one it is given."""
        self._write(
            "insert_interaction", account=ids.raw(interaction.account), id=ids.raw(interaction.id),
            client=ids.raw(interaction.client), browser=interaction.browser, source=source,
            first_visit=int(first_visit), pushed=interaction.pushed,
            request=box.close(interaction.request, interaction.id),
            expires_at=clock.milliseconds(interaction.expires_at),
        )  # fmt: skip

    def evict_interactions_of_browser(self, account: str, browser: bytes, keep: int) -> int:
        """Delete the oldest unfinished ones of one browser, except so many. Says how many were deleted."""
        return len(
            self._write("evict_interactions_of_browser", account=ids.raw(account), browser=browser, keep=keep)
        )  # fmt: skip

    def evict_interactions(self, account: str, client: str, source: str, keep: int, *, first_visit: bool) -> int:
        """The same for one client and address: of first visits, or of browsers that sent a cookie."""
        return len(
            self._write(
                "evict_interactions", account=ids.raw(account), client=ids.raw(client), source=source,
                first_visit=int(first_visit), keep=keep,
            )
        )  # fmt: skip

    def interaction(self, account: str, interaction: str, box: Box) -> Interaction | None:
        raw = ids.parse("int", interaction)
        found = self._one("interaction", account=ids.raw(account), id=raw) if raw else None
        if found is None:
            return None
        client, browser, pushed, request, expires_at, done_at = found
        return Interaction(
            account, interaction, ids.text("cli", client), browser, pushed, box.open(request, interaction),
            clock.from_milliseconds(expires_at), _when(done_at),
        )  # fmt: skip

    def end_interaction(self, account: str, interaction: str) -> bool:
        """True for the first to end it."""
        return bool(
            self._write("end_interaction", account=ids.raw(account), id=ids.raw(interaction), at=self._now)
        )  # fmt: skip

    # --- consents

    def add_consent(self, consent: Consent, person: bytes, box: Box) -> None:
        self._write(
            "insert_consent", account=ids.raw(consent.account), id=ids.raw(consent.id), client=ids.raw(consent.client),
            person=person, said=box.close(_encode(consent.said), consent.id),
            given_at=clock.milliseconds(consent.given_at), expires_at=clock.milliseconds(consent.expires_at),
        )  # fmt: skip

    def consent(self, account: str, consent: str, box: Box) -> Consent | None:
        raw = ids.parse("con", consent)
        found = self._one("consent", account=ids.raw(account), id=raw) if raw else None
        return _consent(account, found, box) if found else None

    def consents(self, account: str, after: bytes, limit: int, box: Box) -> list[Consent]:
        rows = self._connection.rows("list_consents", {"account": ids.raw(account), "after": after, "limit": limit})
        return [_consent(account, row, box) for row in rows]

    def consents_of(self, account: str, *, person: bytes | None, client: str | None, limit: int) -> list[str]:
        """Those that have not ended: of a person, of a client, or of both."""
        given: dict[str, Any] = {"account": ids.raw(account), "limit": limit}
        if person is not None and client is not None:
            statement, given = "consents_of_person_and_client", given | {"person": person, "client": ids.raw(client)}
        elif person is not None:
            statement, given = "consents_of_person", given | {"person": person}
        elif client is not None:
            statement, given = "consents_of_client", given | {"client": ids.raw(client)}
        else:
            raise TypeError("whose? a person or a client is needed")
        return [ids.text("con", row[0]) for row in self._connection.rows(statement, given)]

    def open_consents(self, account: str, after: bytes, before: datetime, limit: int) -> list[bytes]:
        """Those given before an instant that have not ended, by id."""
        given = {"account": ids.raw(account), "after": after, "before": clock.milliseconds(before), "limit": limit}
        return [row[0] for row in self._connection.rows("open_consents", given)]

    def end_consent(self, account: str, consent: str, reason: str) -> str | None:
        """The client whose it was, for the first to end it."""
        self._end()
        found = self._write("end_consent", account=ids.raw(account), id=ids.raw(consent), at=self._now, reason=reason)
        return ids.text("cli", found[0][0]) if found else None

    # --- codes

    def add_code(self, account: str, raw_id: bytes, code: Code) -> None:
        self._write(
            "insert_code", account=ids.raw(account), id=raw_id, client=ids.raw(code.client),
            consent=ids.raw(code.consent), request=code.request, expires_at=clock.milliseconds(code.expires_at),
        )  # fmt: skip

    def code(self, account: str, raw_id: bytes) -> Code | None:
        found = self._one("code", account=ids.raw(account), id=raw_id)
        if found is None:
            return None
        client, consent, request, expires_at, spent_at = found
        return Code(
            ids.text("cli", client), ids.text("con", consent), request, clock.from_milliseconds(expires_at),
            _when(spent_at),
        )  # fmt: skip

    def spend_code(self, account: str, raw_id: bytes) -> bool:
        """True for the first to spend it."""
        return bool(self._write("spend_code", account=ids.raw(account), id=raw_id, at=self._now))

    # --- families

    def add_family(self, family: Family) -> None:
        self._write(
            "insert_family", account=ids.raw(family.account), id=ids.raw(family.id), client=ids.raw(family.client),
            consent=ids.raw(family.consent), number=family.number, leaf=family.leaf, thumbprint=family.thumbprint,
            rotated_at=clock.milliseconds(family.rotated_at), idle_ends_at=clock.milliseconds(family.idle_ends_at),
            ends_at=clock.milliseconds(family.ends_at),
        )  # fmt: skip

    def family(self, account: str, family: str) -> Family | None:
        raw = ids.parse("fam", family)
        found = self._one("family", account=ids.raw(account), id=raw) if raw else None
        return _family(account, found) if found else None

    def family_and_consent(self, account: str, family: str, box: Box) -> tuple[Family, Consent] | None:
        """As it was read for all units of the commit, if it was. One that another of them rotates has to wait."""
        key = (ids.raw(account), ids.raw(family))
        if self._batch is not None and key in self._batch.taken:
            raise Again("the family is used by another unit of this commit")
        found = self._batch.families.get(key) if self._batch is not None else None
        if found is None:
            rows = self._connection.rows_given("families_and_consents", [key])
            found = rows[0] if rows else None
        if found is None:
            return None
        made = _family(account, found[1:12], family)
        return made, _consent(account, found[12:], box, made.consent, made.client if found[13] == found[2] else "")

    def rotate_family(self, family: Family, leaf: bytes, thumbprint: str, idle_ends_at: datetime) -> bool:
        """False when another request was first. Where units share a commit all are rotated at its end."""
        row = Rotation(
            ids.raw(family.account), ids.raw(family.id), family.number, leaf, thumbprint, self._now,
            clock.milliseconds(idle_ends_at),
        )  # fmt: skip
        if self._batch is not None:
            self._batch.taken.add(row[:2])
            self._effects.rotations.append(row)
            return True
        return bool(self._connection.write_given("rotate_families", [row]))

    def keep_family(self, family: Family, idle_ends_at: datetime) -> bool:
        """It was used without being rotated. False when it ended meanwhile."""
        return bool(
            self._write(
                "keep_family", account=ids.raw(family.account), id=ids.raw(family.id), number=family.number,
                idle_ends_at=clock.milliseconds(idle_ends_at),
            )
        )  # fmt: skip

    def families_of(self, account: str, consent: str) -> list[str]:
        rows = self._connection.rows(
            "families_of_consent", {"account": ids.raw(account), "consent": ids.raw(consent)}
        )  # fmt: skip
        return [ids.text("fam", row[0]) for row in rows]

    def end_family(self, account: str, family: str, reason: str) -> bool:
        """True for the first to end it."""
        self._end()
        return bool(
            self._write("end_family", account=ids.raw(account), id=ids.raw(family), at=self._now, reason=reason)
        )  # fmt: skip

    # --- revoked access tokens

    def revoke(self, account: str, token: bytes, expires_at: datetime) -> bool:
        """True for the first to revoke it."""
        self._end()
        return bool(
            self._write("revoke_token", account=ids.raw(account), id=token, expires_at=clock.milliseconds(expires_at))
        )  # fmt: skip

    def is_revoked(self, account: str, token: bytes) -> bool:
        return self._one("is_revoked", account=ids.raw(account), id=token) is not None

    def any_revoked(self, account: str, tokens: list[bytes]) -> bool:
        whose = ids.raw(account)
        return bool(self._connection.rows_given("revoked_among", sorted((whose, token) for token in tokens)))

    # --- housekeeping

    def forget_authorizations(self) -> None:
        """End every authorization that is under way."""
        self._write("forget_every_pushed")
        self._write("forget_every_interaction")

    def forget(self) -> int:
        """Delete some of what nothing can rest on any more."""
        day = 24 * 3600 * 1000
        kept = {"forget_pushed": 0, "forget_interactions": 0, "forget_codes": day}
        kept |= {"forget_consents": 0, "forget_families": day, "forget_revoked": 60_000}
        return max(len(self._write(statement, before=self._now - after)) for statement, after in kept.items())


def _when(stored: int | None) -> datetime | None:
    return None if stored is None else clock.from_milliseconds(stored)


def _consent(account: str, row: tuple[Any, ...], box: Box, name: str = "", of_client: str = "") -> Consent:
    """Its name and its client's are given where they are known."""
    raw_id, client, said, given_at, expires_at, ended_at, ended_reason = row
    name = name or ids.text("con", raw_id)
    return Consent(
        name, account, of_client or ids.text("cli", client), _said.decode(box.open(said, name)),
        clock.from_milliseconds(given_at), clock.from_milliseconds(expires_at), _when(ended_at), ended_reason,
    )  # fmt: skip


def _family(account: str, row: tuple[Any, ...], name: str = "") -> Family:
    raw_id, client, consent, number, leaf, thumbprint, rotated_at, idle_ends_at, ends_at, ended_at, reason = row
    return Family(
        account, name or ids.text("fam", raw_id), ids.text("cli", client), ids.text("con", consent), number, leaf,
        thumbprint, clock.from_milliseconds(rotated_at), clock.from_milliseconds(idle_ends_at),
        clock.from_milliseconds(ends_at), _when(ended_at), reason,
    )  # fmt: skip
