"""The provenance of a token: what it was obtained from, and whether any of that has ended.

The ledger entry that has the token's id records it: subject tokens, consent, refresh token family, trusted issuer.
"""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from gatepost.core import clock, ids
from gatepost.core.jose import audiences
from gatepost.ledger import entry_rows
from gatepost.oauth import client_rows, consent_rows, family_rows, issuer_rows, key_rows, revoked_tokens
from gatepost.oauth.consents import Consent
from gatepost.oauth.service import Service
from gatepost.oauth.token_rules import ScopeLimit
from gatepost.store.transaction import Tx

LONGEST_CHAIN = 8  # exchanges in a row
_LONGEST_WALK = 100  # exchanges in a row that a previous release could have recorded


class SubjectToken(msgspec.Struct, frozen=True):
    """A token that was exchanged, the client it was issued to, and the key that signed it."""

    token: str
    client: str
    kid: str


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that must not have ended while the token is used. The nearest subject token comes first."""

    chain: tuple[SubjectToken, ...] = ()
    consent: str = ""
    family: str = ""
    issuer: str = ""
    issuer_entry: str = ""  # distinguishes an issuer entry from a later one of the same name

    def entry_data(self) -> dict[str, Any]:
        """Data of the ledger entry of a token that is obtained by an exchange."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


NO_PROVENANCE = Provenance()


class EntryData(msgspec.Struct, frozen=True):
    """The provenance in a ledger entry. Before chains were recorded, an exchange recorded its `subject_token` alone."""

    chain: tuple[SubjectToken, ...] = ()
    consent: str = ""
    family: str = ""
    issuer: str = ""
    issuer_entry: str = ""
    subject_token: str = ""
    kid: str = ""

    @property
    def provenance(self) -> Provenance:
        return Provenance(self.chain, self.consent, self.family, self.issuer, self.issuer_entry)


class _Issued(msgspec.Struct, frozen=True):
    """The audience and scopes in the ledger entry of a token."""

    aud: str | list[str]
    scope: str


read_entry_data = msgspec.json.Decoder(EntryData).decode
_read_issued = msgspec.json.Decoder(_Issued).decode


class RecordedProvenance(NamedTuple):
    """The provenance of a token as the ledger records it."""

    provenance: Provenance
    since: datetime  # when the token at the root of the chain was issued


class InvalidToken(NamedTuple):
    """Why a token is not valid. A disabled client may be enabled again; every other reason is final."""

    reason: str
    final: bool = True


CLIENT_DISABLED = InvalidToken("subject token's client disabled", final=False)


def load(tx: Tx, account: str, raw_id: bytes) -> RecordedProvenance | None:
    """From the entry that recorded the token; None if the entry was deleted or its data was erased."""
    entry = entry_rows.load(tx, account, raw_id)
    if entry is None or not entry.data:
        return None
    recorded = read_entry_data(entry.data)
    if recorded.chain or not recorded.subject_token:
        return RecordedProvenance(recorded.provenance, clock.from_milliseconds(entry.at))
    return _walk(tx, account, recorded)


def _walk(tx: Tx, account: str, recorded: EntryData) -> RecordedProvenance | None:
    """The chain of a token that a previous release issued: every entry names its own subject token alone."""
    chain: list[SubjectToken] = []
    consent, family, subject_token = recorded.consent, recorded.family, recorded.subject_token
    while len(chain) < _LONGEST_WALK:
        raw = ids.parse("tok", subject_token)
        entry = entry_rows.load(tx, account, raw) if raw else None
        if entry is None or not entry.data:
            return None
        recorded = read_entry_data(entry.data)
        chain.append(SubjectToken(subject_token, entry.actor, recorded.kid))
        if recorded.chain or not recorded.subject_token:
            whole = Provenance((*chain, *recorded.chain), consent, family, recorded.issuer, recorded.issuer_entry)
            return RecordedProvenance(whole, clock.from_milliseconds(entry.at))
        subject_token = recorded.subject_token
    return None


def earlier_limits(tx: Tx, account: str, provenance: Provenance) -> list[ScopeLimit] | None:
    """The audience and scopes of the tokens in the chain; None if the record of one was deleted or erased."""
    limits: list[ScopeLimit] = []
    for subject in provenance.chain:
        entry = entry_rows.load(tx, account, ids.raw(subject.token))
        if entry is None or not entry.data:
            return None
        issued = _read_issued(entry.data)
        limits.append(ScopeLimit(tuple(audiences({"aud": issued.aud})), tuple(issued.scope.split(" "))))
    return limits


def check(tx: Tx, service: Service, account: str, recorded: RecordedProvenance) -> Consent | InvalidToken | None:
    """Why the token is no longer valid, if it is not; else its consent, if it has one."""
    provenance, since = recorded
    invalid = _check_subject_tokens(tx, account, provenance.chain)
    if invalid is not None and invalid.final:
        return invalid
    if provenance.issuer and not _issuer_remains(tx, account, provenance, since):
        return InvalidToken("issuer removed")
    if provenance.family:  # a family that merely expired does not end its access tokens
        family = family_rows.load(tx, account, provenance.family)
        if family is None or family.ended_at is not None:
            return InvalidToken("family ended")
    if not provenance.consent:
        return invalid
    consent = consent_rows.load(tx, account, provenance.consent, service.keys.data)
    if consent is None or consent.ended_at is not None:
        return InvalidToken("consent ended")
    return invalid or consent


def _check_subject_tokens(tx: Tx, account: str, chain: tuple[SubjectToken, ...]) -> InvalidToken | None:
    """A subject token expires no earlier than the token obtained for it, so its revocation is still stored."""
    if not chain:
        return None
    if revoked_tokens.contains_any(tx, account, [ids.raw(subject.token) for subject in chain]):
        return InvalidToken("subject token revoked")
    if not {subject.kid for subject in chain} <= {key.id for key in key_rows.load_published(tx)}:
        return InvalidToken("subject token's key revoked")
    clients = (client_rows.load(tx, subject.client) for subject in chain)
    return None if all(client is not None and client.active for client in clients) else CLIENT_DISABLED


def _issuer_remains(tx: Tx, account: str, provenance: Provenance, since: datetime) -> bool:
    """Whether the same entry exists, not another of that name. Without an entry id, as in old records, time decides."""
    entry = next((issuer for issuer in issuer_rows.load(tx, account) if issuer.name == provenance.issuer), None)
    if entry is None:
        return False
    return provenance.issuer_entry == entry.identity if provenance.issuer_entry else entry.created_at <= since
