"""Whether anything that a token was obtained from has ended: its subject tokens, its consent, its issuer entry."""

from datetime import datetime
from typing import NamedTuple

from gatepost.core import clock, ids
from gatepost.ledger import entry_rows
from gatepost.oauth import client_rows, consent_rows, family_rows, issuer_rows, key_rows, revoked_tokens
from gatepost.oauth.consents import Consent
from gatepost.oauth.provenance import Provenance, SubjectToken, recorded
from gatepost.oauth.refresh_tokens import Family
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import PUBLISHED
from gatepost.store.transaction import Tx

_LONGEST_WALK = 100  # exchanges in a row that a previous release could have recorded


class Ended(NamedTuple):
    """What ended. A client that is disabled may be enabled again; everything else is final."""

    reason: str
    final: bool = True


CLIENT_DISABLED = Ended("subject token's client disabled", final=False)


class Origins(NamedTuple):
    """A token's provenance, and when the token at the root of its chain was issued."""

    provenance: Provenance
    since: datetime


def load(tx: Tx, account: str, raw_id: bytes) -> Origins | None:
    """From the entry that recorded the token; None where that is gone or its data was erased."""
    entry = entry_rows.load(tx, account, raw_id)
    if entry is None or not entry.data:
        return None
    found = recorded(entry.data)
    since = clock.from_milliseconds(entry.at)
    if found.chain or not found.subject_token:
        return Origins(found.provenance, since)
    return _walk(tx, account, found.subject_token, consent=found.consent, family=found.family)


def _walk(tx: Tx, account: str, subject_token: str, *, consent: str, family: str) -> Origins | None:
    """The chain of a token that a previous release issued: each entry names the subject token alone."""
    chain: list[SubjectToken] = []
    while len(chain) < _LONGEST_WALK:
        raw = ids.parse("tok", subject_token)
        entry = entry_rows.load(tx, account, raw) if raw else None
        if entry is None or not entry.data:
            return None
        found = recorded(entry.data)
        chain.append(SubjectToken(subject_token, entry.actor, found.kid))
        if found.chain or not found.subject_token:
            whole = Provenance((*chain, *found.chain), consent, family, found.issuer, found.issuer_entry)
            return Origins(whole, clock.from_milliseconds(entry.at))
        subject_token = found.subject_token
    return None


def check(tx: Tx, service: Service, account: str, origins: Origins) -> Consent | Ended | None:
    """What has ended, if anything has; else the consent, where there is one."""
    provenance, since = origins
    ended = _subject_tokens(tx, account, provenance.chain)
    if ended is not None and ended.final:
        return ended
    if provenance.issuer and not _issuer_remains(tx, account, provenance, since):
        return Ended("issuer removed")
    if provenance.family and not is_open(family_rows.load(tx, account, provenance.family)):
        return Ended("family ended")
    if not provenance.consent:
        return ended
    consent = consent_rows.load(tx, account, provenance.consent, service.keys.data)
    if consent is None or consent.ended_at is not None:
        return Ended("consent ended")
    return ended or consent


def is_open(family: Family | None) -> bool:
    """Whether it was not ended. A family that merely expired takes no access token with it."""
    return family is not None and family.ended_at is None


def _subject_tokens(tx: Tx, account: str, chain: tuple[SubjectToken, ...]) -> Ended | None:
    """A subject token expires no earlier than what it was exchanged for, so its row is kept for long enough."""
    if not chain:
        return None
    if revoked_tokens.contains_any(tx, account, [ids.raw(each.token) for each in chain]):
        return Ended("subject token revoked")
    if not {each.kid for each in chain} <= published_keys(tx):
        return Ended("subject token's key revoked")
    clients = (client_rows.load(tx, each.client) for each in chain)
    return None if all(client is not None and client.active for client in clients) else CLIENT_DISABLED


def published_keys(tx: Tx) -> set[str]:
    return {each.key.id for each in key_rows.load(tx) if each.key.status in PUBLISHED}


def _issuer_remains(tx: Tx, account: str, provenance: Provenance, since: datetime) -> bool:
    """The same entry, not another of that name. Records of a previous release name no entry: the time decides."""
    entry = next((each for each in issuer_rows.load(tx, account) if each.name == provenance.issuer), None)
    if entry is None:
        return False
    return provenance.issuer_entry == entry.identity if provenance.issuer_entry else entry.created_at <= since
