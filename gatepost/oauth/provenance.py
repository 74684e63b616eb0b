"""What a token was obtained from, as the ledger entry that has its id records it. No I/O."""

from typing import Any

import msgspec

LONGEST_CHAIN = 8  # exchanges in a row


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
    issuer_entry: str = ""  # tells an entry from a later one of the same name

    def facts(self) -> dict[str, Any]:
        """For the entry of a token that is obtained by an exchange."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told


NOTHING = Provenance()


class Recorded(msgspec.Struct, frozen=True):
    """As an entry has it. Before chains were recorded, `subject_token` was all that an exchange left."""

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


recorded = msgspec.json.Decoder(Recorded).decode
