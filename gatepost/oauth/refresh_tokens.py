"""Refresh tokens and their families: the format of a token, and the rules of rotation and reuse. No I/O.

A family is a refresh token and its successors. A token contains its family, its number, a secret and a MAC. The secret
of a successor is derived from the token that it replaces. So a token that is presented again during the grace period
gets the same successor, although only a hash of the current token is stored. A token with a valid MAC that is not the
current one was issued and replaced before: presenting it is reuse.
"""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import NamedTuple

from gatepost.accounts import Account
from gatepost.core import ids
from gatepost.core.secrets import mac
from gatepost.oauth.clients import Client

PREFIX = "gpr_"
_SECRET, _NUMBER, _TAG = 32, 3, 12
_LENGTH = 16 + _NUMBER + _SECRET + _TAG  # 63 bytes: base64 encodes them in one way only
_TOKEN = re.compile(f"{PREFIX}[A-Za-z0-9_-]{{{_LENGTH * 4 // 3}}}")
MAX_NUMBER = (1 << 8 * _NUMBER) - 2


class Family(NamedTuple):
    """A row. `number` and `leaf` belong to the current token."""

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

    def is_active(self, at: datetime) -> bool:
        return self.ended_at is None and at < min(self.idle_ends_at, self.ends_at)


class RefreshToken(NamedTuple):
    """The contents of a refresh token."""

    family: str
    number: int
    secret: bytes


class Rotate(NamedTuple):
    """The current token was presented; it is replaced."""

    successor: RefreshToken


class Repeat(NamedTuple):
    """The previous token was presented again during the grace period; it gets the same successor."""

    successor: RefreshToken


class Stay(NamedTuple):
    """The current token was presented, and tokens are not rotated."""


class Reused(NamedTuple):
    """A token that was replaced before was presented: it may have been stolen."""


class Inactive(NamedTuple):
    """The family has expired or was ended."""


Decision = Rotate | Repeat | Stay | Reused | Inactive


def decide(
    family: Family, token: RefreshToken, key: bytes, *, thumbprint: str, grace: timedelta, rotates: bool, at: datetime,
    may_be_done: bool = False,
) -> Decision:  # fmt: skip
    """What presenting this token means. There is no grace once the successor was used, or for another DPoP key.

    `may_be_done`: this request may have replaced the token already, when the outcome of a commit was lost.
    """
    if not family.is_active(at):
        return Inactive()
    if token.number == family.number and compare_digest(leaf(token), family.leaf):
        if not rotates or family.number >= MAX_NUMBER:
            return Stay()
        return Rotate(successor(key, token))
    following = successor(key, token)
    is_previous = token.number + 1 == family.number and compare_digest(leaf(following), family.leaf)
    in_grace = may_be_done or at < family.rotated_at + grace
    if is_previous and in_grace and thumbprint == family.thumbprint:
        return Repeat(following)
    return Reused()


def idle_end(account: Account, client: Client, ends_at: datetime, at: datetime) -> datetime:
    """When an unused family expires: the shortest lifetime of account, client and grants, and at most `ends_at`."""
    grants = (client.grant("authorization_code"), client.grant("refresh_token"))
    lifetimes = [grant.refresh_token_lifetime for grant in grants if grant]
    lifetimes += [account.seconds("refresh_token_lifetime"), client.refresh_token_lifetime]
    return min(ends_at, at + timedelta(seconds=min(filter(None, lifetimes))))


def first(family: str, secret: bytes) -> RefreshToken:
    """The first token of a new family."""
    return RefreshToken(family, 0, secret)


def successor(key: bytes, token: RefreshToken) -> RefreshToken:
    """The token that replaces this one. It is always the same."""
    number = min(token.number + 1, MAX_NUMBER + 1)
    return RefreshToken(token.family, number, mac(key, b"next" + _plain(token)))


def leaf(token: RefreshToken) -> bytes:
    """The hash of the current token, which its family stores."""
    return hashlib.sha256(_plain(token)).digest()


def serialize(key: bytes, token: RefreshToken) -> str:
    """The token as the client receives it, with its MAC."""
    plain = _plain(token)
    return PREFIX + urlsafe_b64encode(plain + _tag(key, plain)).decode()


def read(key: bytes, text: str) -> RefreshToken | None:
    """The token, or None if the service did not issue it."""
    raw = _decode(text)
    if raw is None or not compare_digest(raw[-_TAG:], _tag(key, raw[:-_TAG])):
        return None
    number, secret = raw[16 : 16 + _NUMBER], raw[16 + _NUMBER : -_TAG]
    return RefreshToken(ids.text("fam", raw[:16]), int.from_bytes(number, "big"), secret)


def family_in(text: str) -> bytes | None:
    """The family that a token names. The MAC is not checked, so this serves to prefetch its row and nothing else."""
    raw = _decode(text)
    return raw[:16] if raw else None


def _decode(text: str) -> bytes | None:
    return urlsafe_b64decode(text[len(PREFIX) :]) if _TOKEN.fullmatch(text) else None


def _plain(token: RefreshToken) -> bytes:
    return ids.raw(token.family) + token.number.to_bytes(_NUMBER, "big") + token.secret


def _tag(key: bytes, plain: bytes) -> bytes:
    return mac(key, b"tag" + plain)[:_TAG]
