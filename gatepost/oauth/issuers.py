"""Trusted issuers: workloads exchange tokens of these issuers for tokens of Gatepost. RFC 7523. Model, no I/O."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting
from gatepost.oauth import scopes

NAME = re.compile(r"[a-z0-9-]{1,63}")


class Issuer(msgspec.Struct, frozen=True):
    """An issuer that an account trusts. With a matching token, the client may obtain these scopes at most."""

    account: str
    name: str
    issuer: str
    jwks_uri: str
    match: dict[str, str]
    client: str
    scope: list[str]
    created_at: datetime
    id: str = ""  # entries of earlier releases have none
    once: bool = False  # each `jti` is accepted once

    @property
    def identity(self) -> str:
        """Distinguishes this entry from a later one with the same name."""
        return self.id or clock.rfc3339(self.created_at)

    def matches(self, claims: Mapping[str, Any]) -> bool:
        return bool(self.match) and all(claims.get(name) == value for name, value in self.match.items())

    def subject(self, sub: str) -> str:
        """The `sub` of tokens for this workload. A person's `sub` has a dot after the account id, so the two differ."""
        return f"{self.account}:{self.name}:{sub}"

    def render(self) -> dict[str, Any]:
        """The entry for the operator, with the `sub` of the tokens that are issued. `<sub>` is a placeholder."""
        subject = self.subject(self.match.get("sub", "<sub>"))
        return msgspec.structs.asdict(self) | {"created_at": clock.rfc3339(self.created_at), "sub": subject}


def define(
    name: str, *, account: str, issuer: str, jwks_uri: str, match: list[str], client: str, scope: list[str],
    once: bool = False, at: datetime,
) -> Issuer:  # fmt: skip
    """The entry that the options of `gatepost issuer add` define. `match` is a list of CLAIM=VALUE."""
    if not NAME.fullmatch(name):
        raise BadSetting(f"issuer name {name!r}: use 1 to 63 of a-z, 0-9 and -")
    if not re.fullmatch(r"[!-~]{1,512}", issuer):
        raise BadSetting(
            "--issuer: must be the `iss` of its tokens, exactly as it is there, 1 to 512 printable ASCII characters"
        )
    pairs = dict(condition.partition("=")[::2] for condition in match)
    if not pairs or "" in pairs or not all(pairs.values()) or len(pairs) != len(match):
        raise BadSetting(
            "--match: send at least one CLAIM=VALUE, each claim once, such as sub=repo:acme/shop:ref:refs/heads/main"
        )
    if "*" in "".join(pairs.values()):
        raise BadSetting("--match: values are compared exactly; a * would never match")
    names = list(dict.fromkeys(name for option in scope for name in scopes.split(option) if name))
    if not names:
        raise BadSetting("--scope: name the scopes that the client may obtain with its tokens")
    return Issuer(account, name, issuer, jwks_uri, pairs, client, names, at, ids.new("iss"), once)
