"""Families: a refresh token and its descendants. How such a token looks, and what showing one means. No I/O.

A token holds its family, its number, a secret and a tag that only we can make. The successor's secret is derived from
the token that it replaces, so the same token shown again inside the grace gets the same successor, though only a hash
of the live secret is kept. A token with a right tag that is not the live one was ours once: that is reuse.
"""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from datetime import datetime, timedelta
from typing import NamedTuple

from gatepost.core import ids
from gatepost.core.secrets import mac, same

PREFIX = "gpr_"
_SECRET, _NUMBER, _TAG = 32, 3, 12
_LENGTH = 16 + _NUMBER + _SECRET + _TAG  # 63 bytes: base64 has one spelling for them
MOST = (1 << 8 * _NUMBER) - 2


class Family(NamedTuple):
    """One row: `number` and `leaf` are of the live token."""

    account: str
    id: str
    client: str
    consent: str
    number: int
    leaf: bytes
    thumbprint: str
    rotated_at: datetime
    idle_ends_at: datetime
    ends_at: datetime
    ended_at: datetime | None = None
    ended_reason: str | None = None

    def live(self, at: datetime) -> bool:
        return self.ended_at is None and at < min(self.idle_ends_at, self.ends_at)


class Shown(NamedTuple):
    """A refresh token of ours, read."""

    family: str
    number: int
    secret: bytes


class Rotate(NamedTuple):
    """The live token: it is replaced."""

    successor: Shown


class Repeat(NamedTuple):
    """The one just replaced, shown again inside the grace: the same successor once more."""

    successor: Shown


class Stay(NamedTuple):
    """The live token, where tokens are not rotated."""


class Reused(NamedTuple):
    """One that was replaced before: somebody has a copy."""


class Ended(NamedTuple):
    """The family is over."""


Decision = Rotate | Repeat | Stay | Reused | Ended


def decide(
    family: Family, shown: Shown, key: bytes, *, thumbprint: str, grace: timedelta, rotates: bool, at: datetime
) -> Decision:
    """What showing this token means. No grace once the successor was used, or for another DPoP key."""
    if not family.live(at):
        return Ended()
    if shown.number == family.number and same(leaf(shown), family.leaf):
        if not rotates or family.number >= MOST:
            return Stay()
        return Rotate(successor(key, shown))
    following = successor(key, shown)
    just_before = shown.number + 1 == family.number and same(leaf(following), family.leaf)
    if just_before and at < family.rotated_at + grace and thumbprint == family.thumbprint:
        return Repeat(following)
    return Reused()


def first(family: str, secret: bytes) -> Shown:
    return Shown(family, 0, secret)


def successor(key: bytes, shown: Shown) -> Shown:
    number = min(shown.number + 1, MOST + 1)
    return Shown(shown.family, number, mac(key, b"next" + _plain(shown)))


def leaf(shown: Shown) -> bytes:
    """What is kept of a live token."""
    return hashlib.sha256(_plain(shown)).digest()


def text(key: bytes, shown: Shown) -> str:
    plain = _plain(shown)
    return PREFIX + urlsafe_b64encode(plain + _tag(key, plain)).decode()


def read(key: bytes, token: str) -> Shown | None:
    """The token, if we made it."""
    try:
        raw = urlsafe_b64decode(token.removeprefix(PREFIX).encode("ascii"))
    except (Error, ValueError):
        return None
    plain, tag = raw[:-_TAG], raw[-_TAG:]
    if len(raw) != _LENGTH or not same(tag, _tag(key, plain)):
        return None
    if PREFIX + urlsafe_b64encode(raw).decode() != token:  # another spelling of it
        return None
    return Shown(ids.text("fam", plain[:16]), int.from_bytes(plain[16 : 16 + _NUMBER], "big"), plain[-_SECRET:])


def family_in(token: str) -> bytes | None:
    """The family that it names, whoever made it: good enough to look for that in time."""
    try:
        raw = urlsafe_b64decode(token.removeprefix(PREFIX).encode("ascii"))
    except (Error, ValueError):
        return None
    return raw[:16] if len(raw) == _LENGTH else None


def _plain(shown: Shown) -> bytes:
    return ids.raw(shown.family) + shown.number.to_bytes(_NUMBER, "big") + shown.secret


def _tag(key: bytes, plain: bytes) -> bytes:
    return mac(key, b"tag" + plain)[:_TAG]
