"""Consents: what a person allowed a client, as the account's login application said it. Model and rules, no I/O.

One for each completed authorization. What was said about the person is encrypted and goes when nothing rests on it.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec

from gatepost.core import clock
from gatepost.oauth.scopes import Scope

LONGEST_ACCESS = timedelta(hours=24)


class ConsentDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the login application said, and which claims the client asked for by name."""

    subject: str
    scope: list[str]
    resources: list[str] = []
    auth_time: int = 0
    acr: str | None = None
    amr: list[str] = []
    claims: dict[str, Any] = {}
    userinfo: list[str] = []
    id_token: list[str] = []


class Consent(NamedTuple):
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
        """The person's `sub` everywhere: no other account's person has it, nor a client."""
        return f"{self.account}.{self.details.subject}"

    def live(self, at: datetime) -> bool:
        return self.ended_at is None and at < self.expires_at

    def authentication(self) -> dict[str, Any]:
        """How and when the person was authenticated. RFC 9068, section 2.2.1."""
        details = self.details
        told: dict[str, Any] = {"auth_time": details.auth_time}
        if details.acr is not None:
            told["acr"] = details.acr
        if details.amr:
            told["amr"] = details.amr
        return told


def released(
    consent: Consent,
    scope: Iterable[str],
    lookup: Callable[[str], Scope | None],
    place: Literal["userinfo", "id_token"],
) -> dict[str, Any]:
    """The claims that these scopes release, and those asked for by name. OIDC Core 1.0, sections 5.4 and 5.5."""
    names: set[str] = set(consent.details.userinfo if place == "userinfo" else consent.details.id_token)
    for each in scope:
        found = lookup(each)
        names.update(found.claims if found else [])
    return {name: value for name, value in consent.details.claims.items() if name in names}


def render(consent: Consent) -> dict[str, Any]:
    """For the operator, who sees whose it is and never what was said about the person."""
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
