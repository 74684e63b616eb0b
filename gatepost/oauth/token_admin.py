"""Tokens that were issued, found again in the ledger: what became of them, and ending them at the operator's wish."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from gatepost.accounts import Account, account_rows, lookup
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting
from gatepost.ledger import entry_rows, search
from gatepost.ledger.entries import OPERATOR, Entry, Origin
from gatepost.ledger.search import EntryFilter
from gatepost.oauth import (
    client_admin,
    client_rows,
    consent_rows,
    family_rows,
    key_rows,
    provenance,
    revocation,
    revoked_tokens,
)
from gatepost.oauth.consents import LONGEST_ACCESS, Consent
from gatepost.oauth.service import Service
from gatepost.store.transaction import LOWEST, Tx, Unit

T = TypeVar("T")
_ORIGIN = Origin(OPERATOR)
REASON = "revoked_by_operator"
_PAGE = 200


class Store(Protocol):
    def read_now(self, unit: Unit[T]) -> T: ...
    def run_now(self, unit: Unit[T]) -> T: ...


class TokenSelector(NamedTuple):
    """Which tokens are meant; one of these is given."""

    id: str = ""
    client: str = ""
    subject: str = ""
    family: str = ""


class RevocationCounts(NamedTuple):
    """How many of each ended by it."""

    consents: int = 0
    families: int = 0
    tokens: int = 0


def account_of(store: Store, selector: TokenSelector, name: str) -> Account:
    """The account that it is about. The id of a token or a family does not tell: then it is looked for in all."""
    owner = store.read_now(lambda tx: _owner(tx, selector))
    named = store.read_now(lambda tx: lookup.named(tx, name or owner)) if name or owner else None
    if named is not None and owner not in ("", named.id):
        raise BadSetting(f"{selector.client or selector.subject} is not of {named.name}; leave --account out")
    for account in [named] if named else lookup.every(store):
        if owner or store.read_now(_has(account, selector)):
            return account
    what = f"token {selector.id}" if selector.id else f"family {selector.family}"
    how = "by its jti, tok_…" if selector.id else "as `gatepost token show` has it, fam_…"
    raise BadSetting(f"there is no {what}{f' in {named.name}' if named else ''}; name it {how}")


def _owner(tx: Tx, selector: TokenSelector) -> str:
    if selector.client:
        return client_admin.named(tx, selector.client).account
    if selector.subject:
        return account_in(selector.subject)
    return ""


def account_in(subject: str) -> str:
    """The account that the `sub` of a person (`acc_….SUB`) or of a workload (`acc_…:NAME:SUB`) begins with."""
    account = re.split("[.:]", subject, maxsplit=1)[0]
    if account == subject or ids.parse("acc", account) is None:
        how = "use --client" if ids.parse("cli", subject) else f"write it as `sub` in tokens, ACCOUNT_ID.{subject}"
        raise BadSetting(f"--subject: {subject} is not a person; {how}")
    return account


def _has(account: Account, selector: TokenSelector) -> Callable[[Tx], bool]:
    return lambda tx: (
        _entry(tx, account, selector.id) is not None
        if selector.id
        else family_rows.load(tx, account.id, selector.family) is not None
    )


def _entry(tx: Tx, account: Account, token: str) -> Entry | None:
    raw = ids.parse("tok", token)
    found = entry_rows.load(tx, account.id, raw) if raw else None
    return found if found is not None and found.type == "oauth.token.issued" else None


def find(
    store: Store, service: Service, account: Account, selector: TokenSelector, limit: int
) -> Iterator[dict[str, Any]]:
    """What was issued and is meant, newest first; of a day for those that are not asked for by id."""
    if selector.id:
        entry = store.read_now(lambda tx: _entry(tx, account, selector.id))
        if entry is None:
            raise BadSetting(f"there is no token {selector.id} in the ledger of {account.name}")
        yield store.read_now(_rendering(service, entry))
        return
    consents: set[str] = set()
    if selector.subject:
        consents = {each.id for each in consents_of(store, service, account) if each.subject == selector.subject}
    for entry in _issued(store, account, selector):
        data = msgspec.json.decode(entry.data or "{}")
        meant = selector.client or data.get("family") == selector.family != "" or data.get("consent") in consents
        if meant or (selector.subject and data.get("sub") == selector.subject):
            yield store.read_now(_rendering(service, entry))
            limit -= 1
        if not limit:
            return


def _issued(store: Store, account: Account, selector: TokenSelector) -> Iterator[Entry]:
    since = store.read_now(lambda tx: tx.at) - LONGEST_ACCESS - timedelta(minutes=1)
    wanted = EntryFilter(("oauth.token.issued",), actor=selector.client, since=since)
    return search.newest(store, account.id, wanted, limit=1_000_000_000)


def consents_of(store: Store, service: Service, account: Account) -> Iterator[Consent]:
    """All consents of an account, ended ones too, oldest first."""
    box, after = service.keys.data, LOWEST
    while page := store.read_now(lambda tx, after=after: consent_rows.page(tx, account.id, after, _PAGE, box)):  # type: ignore[misc]
        yield from page
        after = ids.raw(page[-1].id)


def _rendering(service: Service, entry: Entry) -> Callable[[Tx], dict[str, Any]]:
    return lambda tx: _render(tx, service, entry)


def _render(tx: Tx, service: Service, entry: Entry) -> dict[str, Any]:
    data = msgspec.json.decode(entry.data or "{}")
    expires_at = clock.from_milliseconds(data.get("expires_at", 0) * 1000)
    shown = {
        "id": ids.with_prefix("tok", entry.name),
        "state": _state(tx, service, entry, data),
        "client_id": entry.actor,
        "issued_at": clock.rfc3339(clock.from_milliseconds(entry.at)),
        "expires_at": clock.rfc3339(expires_at),
        "event": entry.name,
    }
    shown |= {name: value for name, value in data.items() if name != "expires_at"}
    chain = _chain(tx, entry.account, entry)
    return shown | ({"chain": chain} if chain else {})


def _state(tx: Tx, service: Service, entry: Entry, data: dict[str, Any]) -> str:
    """Why the token would not work now, or that it would."""
    account, client = account_rows.load(tx, entry.account), client_rows.load(tx, entry.actor)
    if data.get("expires_at", 0) <= clock.seconds(tx.at):
        return "expired"
    if revoked_tokens.contains(tx, entry.account, entry.id):
        return "revoked"
    if "kid" in data and data["kid"] not in _published(tx):
        return "key revoked"
    found = provenance.load(tx, entry.account, entry.id)
    checked = provenance.check(tx, service, entry.account, found) if found else provenance.InvalidToken("record erased")
    if isinstance(checked, Consent) and not checked.live(tx.at):
        return "consent ended"
    if isinstance(checked, provenance.InvalidToken) and checked.final:
        return checked.reason
    if client is None or not client.active:
        return "client disabled"
    if account is None or not account.active:
        return "account suspended"
    return checked.reason if isinstance(checked, provenance.InvalidToken) else "active"


def _published(tx: Tx) -> set[str]:
    return {key.id for key in key_rows.load_published(tx)}


def _chain(tx: Tx, account: str, entry: Entry) -> list[dict[str, str]]:
    """The subject tokens that it was obtained from, the nearest first, and whether each was ended by itself."""
    found = provenance.load(tx, account, entry.id)
    told = []
    for each in found.provenance.chain if found else ():
        client = client_rows.load(tx, each.client)
        state = "client disabled" if client is None or not client.active else "not ended"
        if each.kid not in _published(tx):
            state = "key revoked"
        if revoked_tokens.contains(tx, account, ids.raw(each.token)):
            state = "revoked"
        told.append({"token": each.token, "client_id": each.client, "state": state})
    return told


# States that a token may leave again. It leaves none of the others.
_PASSING = ("active", "client disabled", "account suspended", provenance.CLIENT_DISABLED.reason)


def revoke(store: Store, service: Service, account: Account, selector: TokenSelector) -> RevocationCounts:
    """End them, also those of a client or an account that is stopped for now."""
    if selector.family:
        return RevocationCounts(families=store.run_now(lambda tx: _end_family(tx, account, selector.family)))
    consents = 0
    prefix = f"{account.id}."
    if selector.client or selector.subject.startswith(prefix):  # a workload gave no consent
        own = selector.subject.removeprefix(prefix)
        person = revocation.person(service, account.id, own) if selector.subject else None
        unit = _ending_consents(account, person, selector.client or None)
        while (some := store.run_now(unit)) is not None:
            consents += some
    live_ones = [each for each in find(store, service, account, selector, limit=-1) if each["state"] in _PASSING]
    slices = [live_ones[start : start + _PAGE] for start in range(0, len(live_ones), _PAGE)]
    return RevocationCounts(consents=consents, tokens=sum(store.run_now(_ending(account, each)) for each in slices))


def _end_family(tx: Tx, account: Account, name: str) -> int:
    family = family_rows.load(tx, account.id, name)
    client = family.client if family else ""
    return int(revocation.end_family(tx, account, name, REASON, _ORIGIN, client=client))


def _ending_consents(account: Account, person: bytes | None, client: str | None) -> Callable[[Tx], int | None]:
    return lambda tx: revocation.end_some(tx, account, REASON, _ORIGIN, person=person, client=client)


def _ending(account: Account, tokens: list[dict[str, Any]]) -> Callable[[Tx], int]:
    return lambda tx: sum(
        revocation.end_token(tx, account, each["id"], _until(each), REASON, _ORIGIN, client=each["client_id"])
        for each in tokens
    )


def _until(shown: dict[str, Any]) -> datetime:
    expires_at = clock.parse_rfc3339(shown["expires_at"])
    if expires_at is None:
        raise TypeError(shown["expires_at"])
    return expires_at
