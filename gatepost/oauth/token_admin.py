"""Issued tokens: finding them in the ledger, their states, and their revocation by the operator."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from gatepost.accounts import Account, account_rows, lookup
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, NotFound
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
from gatepost.oauth.provenance import InvalidToken, RecordedProvenance, SubjectToken
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx, Unit

T = TypeVar("T")
_ORIGIN = Origin(OPERATOR)
REASON = "revoked_by_operator"
_PAGE = 200


class Store(Protocol):
    """A store that runs units in this thread."""

    def read_now(self, unit: Unit[T]) -> T: ...
    def run_now(self, unit: Unit[T]) -> T: ...


class TokenSelector(NamedTuple):
    """Which tokens are selected. Exactly one field is set."""

    id: str = ""
    client: str = ""
    subject: str = ""
    family: str = ""


class RevocationCounts(NamedTuple):
    """How many consents, families and tokens were revoked."""

    consents: int = 0
    families: int = 0
    tokens: int = 0


def account_of(store: Store, selector: TokenSelector, name: str) -> Account:
    """The account of the selected tokens. Without a name, a token or a family is searched for in all accounts."""
    owner = store.read_now(lambda tx: _owner(tx, selector))
    named = store.read_now(lambda tx: lookup.named(tx, name or owner)) if name or owner else None
    if named is not None and owner not in ("", named.id):
        raise BadSetting(f"{selector.client or selector.subject} is not of {named.name}; leave --account out")
    for account in [named] if named else lookup.every(store):
        if owner or store.read_now(partial(_exists, account=account.id, selector=selector)):
            return account
    what = f"token {selector.id}" if selector.id else f"family {selector.family}"
    how = "by its jti, tok_…" if selector.id else "as `gatepost token show` has it, fam_…"
    raise NotFound(f"there is no {what}{f' in {named.name}' if named else ''}; name it {how}")


def _owner(tx: Tx, selector: TokenSelector) -> str:
    """The account of a client, of a person (`acc_….SUB`) or of a workload (`acc_…:NAME:SUB`). Other ids do not tell."""
    if selector.client:
        return client_admin.named(tx, selector.client).account
    subject = selector.subject
    if not subject:
        return ""
    account = re.split("[.:]", subject, maxsplit=1)[0]
    if account == subject or ids.parse("acc", account) is None:
        how = "use --client" if ids.parse("cli", subject) else f"write it as `sub` in tokens, ACCOUNT_ID.{subject}"
        raise BadSetting(f"--subject: {subject} is not a person; {how}")
    return account


def _exists(tx: Tx, account: str, selector: TokenSelector) -> bool:
    if selector.id:
        return _entry(tx, account, selector.id) is not None
    return family_rows.load(tx, account, selector.family) is not None


def _entry(tx: Tx, account: str, token: str) -> Entry | None:
    raw = ids.parse("tok", token)
    entry = entry_rows.load(tx, account, raw) if raw else None
    return entry if entry is not None and entry.type == "oauth.token.issued" else None


def find(
    store: Store, service: Service, account: Account, selector: TokenSelector, limit: int
) -> Iterator[dict[str, Any]]:
    """The selected tokens, newest first. Unless they are selected by id, only tokens of the last day are found."""
    if selector.id:
        entry = store.read_now(lambda tx: _entry(tx, account.id, selector.id))
        if entry is None:
            raise NotFound(f"there is no token {selector.id} in the ledger of {account.name}")
        yield store.read_now(partial(render, service=service, entry=entry))
        return
    consents: set[str] = set()
    if selector.subject:
        every = consent_rows.every(store, account.id, service.keys.data)
        consents = {consent.id for consent in every if consent.subject == selector.subject}
    since = store.read_now(lambda tx: tx.at) - LONGEST_ACCESS - timedelta(minutes=1)
    wanted = EntryFilter(("oauth.token.issued",), actor=selector.client, since=since)
    for entry in search.newest(store, account.id, wanted, limit=1_000_000_000):
        data = msgspec.json.decode(entry.data or "{}")
        selected = selector.client or data.get("family") == selector.family != "" or data.get("consent") in consents
        if selected or (selector.subject and data.get("sub") == selector.subject):
            yield store.read_now(partial(render, service=service, entry=entry))
            limit -= 1
        if not limit:
            return


def render(tx: Tx, service: Service, entry: Entry) -> dict[str, Any]:
    """The token that an entry records, and its state."""
    data = msgspec.json.decode(entry.data or "{}")
    recorded = provenance.load(tx, entry.account, entry.id)
    rendered: dict[str, Any] = {
        "id": ids.with_prefix("tok", entry.name),
        "state": _state(tx, service, entry, data, recorded),
        "client_id": entry.actor,
        "issued_at": clock.rfc3339(clock.from_milliseconds(entry.at)),
        "expires_at": clock.rfc3339(clock.from_milliseconds(data.get("expires_at", 0) * 1000)),
        "event": entry.name,
    }
    rendered |= {name: value for name, value in data.items() if name != "expires_at"}
    if recorded is not None and recorded.provenance.chain:
        rendered["chain"] = [_render_subject(tx, entry.account, subject) for subject in recorded.provenance.chain]
    return rendered


def _state(
    tx: Tx, service: Service, entry: Entry, data: dict[str, Any], recorded: RecordedProvenance | None
) -> str:  # fmt: skip
    """Whether the token is active, or the reason why it is not. Reasons that are final come first."""
    if data.get("expires_at", 0) <= clock.seconds(tx.at):
        return "expired"
    if revoked_tokens.contains(tx, entry.account, entry.id):
        return "revoked"
    if "kid" in data and data["kid"] not in _published(tx):
        return "key revoked"
    checked = provenance.check(tx, service, entry.account, recorded) if recorded else InvalidToken("record erased")
    if isinstance(checked, Consent) and not checked.is_active(tx.at):
        return "consent ended"
    if isinstance(checked, InvalidToken) and checked.final:
        return checked.reason
    client, account = client_rows.load(tx, entry.actor), account_rows.load(tx, entry.account)
    if client is None or not client.active:
        return "client disabled"
    if account is None or not account.active:
        return "account suspended"
    return checked.reason if isinstance(checked, InvalidToken) else "active"


def _render_subject(tx: Tx, account: str, subject: SubjectToken) -> dict[str, str]:
    """A subject token that the token was obtained from, and whether it was ended itself."""
    client = client_rows.load(tx, subject.client)
    state = "client disabled" if client is None or not client.active else "not ended"
    if subject.kid not in _published(tx):
        state = "key revoked"
    if revoked_tokens.contains(tx, account, ids.raw(subject.token)):
        state = "revoked"
    return {"token": subject.token, "client_id": subject.client, "state": state}


def _published(tx: Tx) -> set[str]:
    return {key.id for key in key_rows.load_published(tx)}


# Tokens in these states are active or may become active again.
_NOT_FINAL = ("active", "client disabled", "account suspended", provenance.CLIENT_DISABLED.reason)


def revoke(store: Store, service: Service, account: Account, selector: TokenSelector) -> RevocationCounts:
    """Revoke the selected tokens, including those of a disabled client or a suspended account."""
    if selector.family:
        return RevocationCounts(families=store.run_now(lambda tx: _end_family(tx, account, selector.family)))
    consents = 0
    prefix = f"{account.id}."
    if selector.client or selector.subject.startswith(prefix):  # workloads have no consents
        subject = selector.subject.removeprefix(prefix)
        person = revocation.person(service, account.id, subject) if subject else None
        client = selector.client or None
        while (
            ended := store.run_now(partial(_end_consents, account=account, person=person, client=client))
        ) is not None:
            consents += ended
    found = find(store, service, account, selector, limit=-1)
    tokens = [token for token in found if token["state"] in _NOT_FINAL]
    slices = [tokens[start : start + _PAGE] for start in range(0, len(tokens), _PAGE)]
    return RevocationCounts(
        consents=consents,
        tokens=sum(store.run_now(partial(_end_tokens, account=account, tokens=tokens)) for tokens in slices),
    )


def _end_family(tx: Tx, account: Account, name: str) -> int:
    family = family_rows.load(tx, account.id, name)
    client = family.client if family else ""
    return int(revocation.end_family(tx, account, name, REASON, _ORIGIN, client=client))


def _end_consents(tx: Tx, account: Account, person: bytes | None, client: str | None) -> int | None:
    return revocation.end_some_consents(tx, account, REASON, _ORIGIN, person=person, client=client)


def _end_tokens(tx: Tx, account: Account, tokens: list[dict[str, Any]]) -> int:
    return sum(
        revocation.end_token(
            tx, account, token["id"], datetime.fromisoformat(token["expires_at"]), REASON, _ORIGIN,
            client=token["client_id"],
        )
        for token in tokens
    )  # fmt: skip
