"""Accounts: who owns everything, and the settings an operator may change for each. Model and rules, no I/O."""

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

    def __getitem__(self, setting: str) -> Value:
        found = self.settings.get(setting)
        return SETTINGS[setting].default if found is None else found

    def seconds(self, setting: str) -> int:
        return cast(int, self[setting])

    @property
    def strict(self) -> bool:
        """Whether the FAPI 2.0 security profile holds."""
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


class Setting(NamedTuple):
    default: Value
    parse: Callable[[str, bool], Value]
    bounds: str


def new(name: str, at: datetime) -> Account:
    if not NAME.fullmatch(name):
        raise BadSetting(f"account name {name!r}: use 1 to 63 of a-z, 0-9 and -")
    return Account(ids.new("acc"), name, at)


def change(account: Account, changes: Mapping[str, str], *, dev: bool) -> Account:
    """The account with `key=value` texts applied; an empty value goes back to the default."""
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
            raise BadSetting(f"{name}={_shorten(text)}: {error} (bounds: {SETTINGS[name].bounds})") from None
    return msgspec.structs.replace(account, settings=settings)


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,9})\s*(s|m|min|h|d|)")


def parse_duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ValueError("not a duration; write 90, 90s, 15m, 24h or 30d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _duration(low: str, high: str) -> Callable[[str, bool], int]:
    def parse(text: str, _dev: bool) -> int:
        value = parse_duration(text)
        if not parse_duration(low) <= value <= parse_duration(high):
            raise ValueError("out of bounds")
        return int(value.total_seconds())

    return parse


def _number(low: int, high: int) -> Callable[[str, bool], int]:
    def parse(text: str, _dev: bool) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text[:12]) <= high or len(text) > 12:
            raise ValueError(f"not a whole number from {low} to {high}")
        return int(text)

    return parse


def _one_of(*choices: str) -> Callable[[str, bool], str]:
    def parse(text: str, _dev: bool) -> str:
        if text not in choices:
            raise ValueError("not one of those allowed")
        return text

    return parse


def _retention(*days: int) -> Callable[[str, bool], int]:
    def parse(text: str, _dev: bool) -> int:
        value = parse_duration(text)
        if value not in [timedelta(days=each) for each in days]:
            raise ValueError("not one of the retention classes")
        return int(value.total_seconds())

    return parse


def web_url(text: str, dev: bool) -> str:
    """An absolute https URL; with --dev also http on loopback."""
    url = urlsplit(text)
    loopback = url.hostname in {"127.0.0.1", "localhost", "::1"}
    allowed = url.scheme == "https" or (dev and url.scheme == "http" and loopback)
    # The text itself too: urlsplit overlooks line breaks, and this goes into a Location header.
    written = re.fullmatch(r"[!-~]{1,2048}", text) and "#" not in text and "\\" not in text
    if not allowed or not written or not url.hostname or url.username is not None or url.port == 0:
        raise ValueError("not an absolute https URL without user or fragment (http on loopback with --dev)")
    return text


def _login_jwks(text: str, dev: bool) -> Value:
    if not text.lstrip().startswith("{"):
        return web_url(text, dev)
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    problem = jwks_problem(found)
    if problem:
        raise ValueError(problem)
    return found


def _schedule(text: str, _dev: bool) -> list[int]:
    delays = [parse_duration(part) for part in text.split(",")] if text.strip() != "none" else []
    if len(delays) > 24 or any(not timedelta(seconds=1) <= delay <= timedelta(days=7) for delay in delays):
        raise ValueError("out of bounds")
    return [int(delay.total_seconds()) for delay in delays]


_LIFETIME = _duration("60s", "24h")
_REFRESH = _duration("1h", "365d")
_DAY = 86400

# setting → default, parser with its bounds, the bounds in words. The reference docs print this table.
SETTINGS: dict[str, Setting] = {
    "access_token_lifetime": Setting(3600, _LIFETIME, "60s to 24h"),
    "id_token_lifetime": Setting(3600, _LIFETIME, "60s to 24h"),
    "refresh_token_lifetime": Setting(30 * _DAY, _REFRESH, "1h to 365d"),
    "refresh_token_max_age": Setting(90 * _DAY, _REFRESH, "1h to 365d"),
    "authorization_code_lifetime": Setting(60, _duration("10s", "10m"), "10s to 10m"),
    "refresh_grace": Setting(10, _duration("0", "60s"), "0 to 60s"),
    "signing_alg": Setting("ES256", _one_of("ES256", "RS256", "EdDSA"), "ES256, RS256 or EdDSA"),
    "login_url": Setting(None, web_url, "an https URL"),
    "login_jwks": Setting(None, _login_jwks, "a JWK set of public keys, or an https URL of one"),
    "profile": Setting("oauth21", _one_of("oauth21", "fapi2"), "oauth21 or fapi2"),
    "retry_schedule": Setting(
        [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400],
        _schedule,
        "0 to 24 delays separated by commas, each 1s to 7d; none for no retries",
    ),
    "retention": Setting(30 * _DAY, _retention(7, 30, 90, 400), "7d, 30d, 90d or 400d"),
    "audit_retention": Setting(400 * _DAY, _retention(30, 90, 400, 2555), "30d, 90d, 400d or 2555d"),
    "hold_limit": Setting(7 * _DAY, _duration("1h", "30d"), "1h to 30d"),
    "max_clients": Setting(1000, _number(1, 100_000), "1 to 100000"),
    "max_scopes": Setting(1000, _number(1, 100_000), "1 to 100000"),
    "max_endpoints": Setting(200, _number(1, 10_000), "1 to 10000"),
    "max_subscriptions": Setting(2000, _number(1, 10_000), "1 to 10000"),
}
