"""Trusted issuers: whose tokens a workload may show to obtain one of ours. RFC 7523; model and rules, no I/O."""

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
    """Tokens of this issuer that match stand for this client, and get these scopes at most."""

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
        """What tells this entry from one that takes its name after it was removed."""
        return self.id or clock.rfc3339(self.created_at)

    def matches(self, claims: Mapping[str, Any]) -> bool:
        return bool(self.match) and all(claims.get(name) == value for name, value in self.match.items())

    def subject(self, sub: str) -> str:
        """The `sub` of tokens for this workload. A person's has a dot after the account id, so the two never meet."""
        return f"{self.account}:{self.name}:{sub}"

    def render(self) -> dict[str, Any]:
        """For the operator. `sub` is that of the tokens obtained; `<sub>` stands for one that the entry leaves open."""
        told = msgspec.structs.asdict(self) | {"created_at": clock.rfc3339(self.created_at)}
        return told | {"sub": self.subject(self.match.get("sub", "<sub>"))}


def define(
    name: str, *, account: str, issuer: str, jwks_uri: str, match: list[str], client: str, scope: list[str],
    once: bool = False, at: datetime,
) -> Issuer:  # fmt: skip
    """From what the operator typed, checked; `match` as NAME=VALUE."""
    if not NAME.fullmatch(name):
        raise BadSetting(f"issuer name {name!r}: use 1 to 63 of a-z, 0-9 and -")
    if not re.fullmatch(r"[!-~]{1,512}", issuer):
        raise BadSetting("--issuer: write the `iss` of its tokens exactly, 1 to 512 characters")
    pairs = dict(each.partition("=")[::2] for each in match)
    if not pairs or "" in pairs or not all(pairs.values()) or len(pairs) != len(match):
        raise BadSetting("--match: at least one, each as CLAIM=VALUE, such as sub=repo:acme/shop:ref:refs/heads/main")
    if "*" in "".join(pairs.values()):
        raise BadSetting("--match: values are compared exactly; a * would never match")
    wanted = [part for each in scope for part in scopes.split(each)]
    if not wanted:
        raise BadSetting("--scope: name the scopes its tokens may obtain")
    return Issuer(account, name, issuer, jwks_uri, pairs, client, list(dict.fromkeys(wanted)), at, ids.new("iss"), once)
