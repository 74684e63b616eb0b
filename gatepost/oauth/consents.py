"""Consents: what a person allowed a client, as stated by the account's login application. Model and rules, no I/O.

Every completed authorization creates one. The claims about the person are encrypted, and deleted when the consent
and everything that depends on it has expired.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gatepost.core import clock
from gatepost.oauth.scopes import Scope

LONGEST_ACCESS = timedelta(hours=24)


class ConsentDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the login application stated, and which claims the client requested by name."""

    subject: str
    scope: list[str]
    resources: list[str] = []
    auth_time: int = 0
    acr: str | None = None
    amr: list[str] = []
    claims: dict[str, Any] = {}
    userinfo: list[str] = []
    id_token: list[str] = []
    refused: list[str] = []  # scopes that were requested and not granted


class Consent(NamedTuple):
    """A consent, which may have ended or expired."""

    id: str
    account: str
    client: str
    details: ConsentDetails
    given_at: datetime
    expires_at: datetime
    ended_at: datetime | None = None
    ended_reason: str | None = None

    @property
    def subject(self) -> str:
        """The `sub` of the person. It is unique among the persons and clients of all accounts."""
        return f"{self.account}.{self.details.subject}"

    def is_active(self, at: datetime) -> bool:
        return self.ended_at is None and at < self.expires_at

    def authentication(self) -> dict[str, Any]:
        """How and when the person was authenticated. RFC 9068, section 2.2.1."""
        details = self.details
        claims: dict[str, Any] = {"auth_time": details.auth_time}
        if details.acr is not None:
            claims["acr"] = details.acr
        if details.amr:
            claims["amr"] = details.amr
        return claims


def released_claims(
    consent: Consent, requested: Iterable[str], scope_names: Iterable[str], lookup: Callable[[str], Scope | None]
) -> dict[str, Any]:
    """The claims that are requested by name or released by scopes. OIDC Core 1.0, sections 5.4 and 5.5."""
    names = set(requested)
    for scope in map(lookup, scope_names):
        names.update(scope.claims if scope else [])
    return {name: value for name, value in consent.details.claims.items() if name in names}


def render(consent: Consent) -> dict[str, Any]:
    """The consent for the operator, without the claims about the person."""
    return {
        "id": consent.id,
        "account": consent.account,
        "client_id": consent.client,
        "sub": consent.subject,
        "scope": " ".join(consent.details.scope),
        "given_at": clock.rfc3339(consent.given_at),
        "expires_at": clock.rfc3339(consent.expires_at),
        "ended_at": clock.rfc3339(consent.ended_at) if consent.ended_at else None,
        "ended_reason": consent.ended_reason,
    }
