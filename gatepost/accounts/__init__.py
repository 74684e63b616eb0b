"""Accounts: the tenants that own everything else, and their settings. The model and its rules, no I/O."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting
from gatepost.core.jwk_sets import jwks_problem

OPERATOR = "gatepost"
FIRST = "default"
RETENTION_DAYS = (7, 30, 90, 400, 2555)
MAX_TOKENS_PER_MINUTE = 1_000_000  # the largest quota; also of a client
MAX_CONCURRENT_TOKEN_REQUESTS = 10_000
NAME = re.compile(r"[a-z0-9-]{1,63}")

Value = Any


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tenant. `settings` holds only what differs from the defaults."""

    id: str
    name: str
    created_at: datetime
    status: Literal["active", "suspended"] = "active"
    settings: dict[str, Value] = {}
    suspended_at: datetime | None = None
    resumed_at: datetime | None = None

    def __getitem__(self, setting: str) -> Value:
        value = self.settings.get(setting)
        return SETTINGS[setting].default if value is None else value

    def seconds(self, setting: str) -> int:
        return cast(int, self[setting])

    @property
    def strict(self) -> bool:
        """Whether the FAPI 2.0 security profile applies."""
        return bool(self["profile"] == "fapi2")

    @property
    def active(self) -> bool:
        return self.status == "active"

    def render(self) -> dict[str, Value]:
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "created_at": clock.rfc3339(self.created_at),
            "settings": {name: self[name] for name in SETTINGS},
        }


def new(name: str, at: datetime) -> Account:
    """A new account with default settings. Raises `BadSetting` if the name is malformed."""
    if not NAME.fullmatch(name):
        raise BadSetting(f"account name {name!r}: use 1 to 63 of a-z, 0-9 and -")
    return Account(ids.new("acc"), name, at)


def change(account: Account, changes: Mapping[str, str], *, dev: bool) -> Account:
    """The account with settings changed as an operator writes them. An empty text restores the default."""
    settings = dict(account.settings)
    for name, text in changes.items():
        if name not in SETTINGS:
            raise BadSetting(f"there is no account setting {name!r}; there are: {', '.join(SETTINGS)}")
        if text == "":
            settings.pop(name, None)
            continue
        try:
            settings[name] = SETTINGS[name].parse(text, dev)
        except ValueError as error:
            shortened = text if len(text) <= 60 else text[:57] + "..."
            raise BadSetting(f"{name}={shortened}: {error} (bounds: {SETTINGS[name].bounds})") from None
    return msgspec.structs.replace(account, settings=settings)


class Setting(NamedTuple):
    """A setting: its default, the parser of its texts, which raises ValueError, its bounds in words, and its text."""

    default: Value
    parse: Callable[[str, bool], Value]  # the text, and whether the service runs with --dev
    bounds: str
    write: Callable[[Value], str] = str  # the inverse of `parse`


_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,9})\s*(s|m|min|h|d|)")


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as 90, 90s, 15m, 24h or 30d. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise ValueError("not a duration; write 90, 90s, 15m, 24h or 30d")
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def _seconds(text: str) -> int:
    return int(parse_duration(text).total_seconds())


def _write_seconds(seconds: int) -> str:
    """Write a duration in the largest unit that fits."""
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % _UNITS[unit] == 0) if seconds else "s"
    return f"{seconds // _UNITS[unit]}{unit}"


def _duration(default: str, low: str, high: str) -> Setting:
    def parse(text: str, _dev: bool) -> int:
        value = _seconds(text)
        if not _seconds(low) <= value <= _seconds(high):
            raise ValueError("out of bounds")
        return value

    return Setting(_seconds(default), parse, f"{low} to {high}", _write_seconds)


def _number(default: int | None, high: int) -> Setting:
    def parse(text: str, _dev: bool) -> int:
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= high or len(text) > 12:
            raise ValueError(f"not a whole number from 1 to {high}")
        return int(text)

    return Setting(default, parse, f"1 to {high}")


def _choice(
    *choices: str, default: str, read: Callable[[str], Value] = str, write: Callable[[Value], str] = str
) -> Setting:
    def parse(text: str, _dev: bool) -> Value:
        value = read(text)
        if value not in [read(choice) for choice in choices]:
            raise ValueError("not one of the allowed values")
        return value

    return Setting(read(default), parse, f"{', '.join(choices[:-1])} or {choices[-1]}", write)


def web_url(text: str, dev: bool) -> str:
    """Check an absolute https URL, or with `dev` an http URL on loopback. Raises ValueError."""
    url = urlsplit(text)
    loopback = url.hostname in {"127.0.0.1", "localhost", "::1"}
    allowed = url.scheme == "https" or (dev and url.scheme == "http" and loopback)
    # The text itself is checked too: urlsplit ignores line breaks, and the URL is sent in a Location header.
    safe = re.fullmatch(r"[!-~]{1,2048}", text) and "#" not in text and "\\" not in text
    if not allowed or not safe or not url.hostname or url.username is not None or url.port == 0:
        raise ValueError("not an absolute https URL without user or fragment (http on loopback with --dev)")
    return text


def _login_jwks(text: str, dev: bool) -> Value:
    if not text.lstrip().startswith("{"):
        return web_url(text, dev)
    try:
        key_set = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    problem = jwks_problem(key_set)
    if problem:
        raise ValueError(problem)
    return key_set


def _schedule(text: str, _dev: bool) -> list[int]:
    delays = [_seconds(part) for part in text.split(",")] if text.strip() != "none" else []
    if len(delays) > 24 or any(not 1 <= delay <= 7 * 86400 for delay in delays):
        raise ValueError("out of bounds")
    return delays


_RETENTION = [f"{days}d" for days in RETENTION_DAYS]

# The bounds in words come from the same values as the checks. The reference page prints this table.
SETTINGS: dict[str, Setting] = {
    "access_token_lifetime": _duration("1h", "60s", "24h"),
    "id_token_lifetime": _duration("1h", "60s", "24h"),
    "refresh_token_lifetime": _duration("30d", "1h", "365d"),
    "refresh_token_max_age": _duration("90d", "1h", "365d"),
    "authorization_code_lifetime": _duration("60s", "10s", "10m"),
    "refresh_grace": _duration("10s", "0", "60s"),
    "signing_alg": _choice("ES256", "RS256", "EdDSA", default="ES256"),
    "login_url": Setting(None, web_url, "an https URL"),
    "login_jwks": Setting(
        None,
        _login_jwks,
        "a JWK set of public keys, or an https URL of one",
        lambda keys: keys if isinstance(keys, str) else msgspec.json.encode(keys).decode(),
    ),
    "profile": _choice("oauth21", "fapi2", default="oauth21"),
    "retry_schedule": Setting(
        _schedule("5s,5m,30m,2h,5h,10h,14h,20h,24h", False),
        _schedule,
        "0 to 24 delays separated by commas, each 1s to 7d; none for no retries",
        lambda delays: ",".join(map(_write_seconds, delays)) or "none",
    ),
    "retention": _choice(*_RETENTION[:4], default="30d", read=_seconds, write=_write_seconds),
    "audit_retention": _choice(*_RETENTION[1:], default="400d", read=_seconds, write=_write_seconds),
    "hold_limit": _duration("7d", "1h", "30d"),
    "max_clients": _number(1000, 100_000),
    "max_scopes": _number(1000, 100_000),
    "max_endpoints": _number(200, 10_000),
    "max_subscriptions": _number(2000, 10_000),
    "max_tokens_per_minute": _number(None, MAX_TOKENS_PER_MINUTE),
    "max_concurrent_token_requests": _number(None, MAX_CONCURRENT_TOKEN_REQUESTS),
}
