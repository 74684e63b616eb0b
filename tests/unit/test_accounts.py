"""Accounts: the contract's table of settings, at its defaults, its edges and just outside them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from joserfc.jwk import ECKey

from gatepost import accounts
from gatepost.accounts import SETTINGS, Account
from gatepost.core import ids
from gatepost.core.errors import BadSetting

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
ACME = Account("acc_06d8un0u5du3r3ifb9lnp3culs", "acme", NOW)
MINUTE, HOUR, DAY = 60, 3600, 86_400
SECTION_8 = [5, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR]

# The contract, section 2: setting → default, texts accepted with their values, texts refused.
TABLE: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "access_token_lifetime": (3600, {"60": 60, "60s": 60, "24h": DAY, "86400": DAY, "1d": DAY}, ["59", "86401", "25h"]),
    "id_token_lifetime": (3600, {"60": 60, "1m": 60, "24h": DAY}, ["59s", "86401s", "0", "-60"]),
    "refresh_token_lifetime": (30 * DAY, {"1h": HOUR, "365d": 365 * DAY}, ["3599", "366d", "31536001"]),
    "refresh_token_max_age": (90 * DAY, {"60m": HOUR, "365d": 365 * DAY}, ["59m", "31536001", "1y"]),
    "authorization_code_lifetime": (60, {"10": 10, "10m": 600, "10min": 600}, ["9", "601", "11m"]),
    "refresh_grace": (10, {"0": 0, "0s": 0, "60": 60, "1m": 60}, ["61", "-1", "2m"]),
    "signing_alg": ("ES256", {name: name for name in ("ES256", "RS256", "EdDSA")}, ["none", "HS256", "PS256", "es256"]),
    "login_url": (None, {"https://login.example/": "https://login.example/"}, ["http://login.example/", "login"]),
    "login_jwks": (None, {"https://login.example/jwks": "https://login.example/jwks"}, ["jwks.json", "{}", "[]"]),
    "profile": ("oauth21", {"oauth21": "oauth21", "fapi2": "fapi2"}, ["fapi1", "fapi", "FAPI2", "OAuth21", "none"]),
    "retry_schedule": (SECTION_8, {"1s": [1], "7d": [7 * DAY], "none": []}, ["0s", "604801", "8d", "5s,", ",", "x"]),
    "retention": (30 * DAY, {f"{days}d": days * DAY for days in (7, 30, 90, 400)}, ["8d", "1d", "2555d", "0"]),
    "audit_retention": (400 * DAY, {f"{days}d": days * DAY for days in (30, 90, 400, 2555)}, ["7d", "31d", "2556d"]),
    "hold_limit": (7 * DAY, {"1h": HOUR, "30d": 30 * DAY}, ["3599", "2592001", "31d", "59m"]),
    "max_clients": (1000, {"1": 1, "100000": 100_000}, ["0", "100001", "-1", "1.5", "1e3", "²", "1_000", "9" * 5000]),
    "max_scopes": (1000, {"1": 1, "100000": 100_000}, ["0", "100001", " 1", "٣"]),
    "max_endpoints": (200, {"1": 1, "10000": 10_000}, ["0", "10001", "0000000000010"]),
    "max_subscriptions": (2000, {"1": 1, "10000": 10_000}, ["0", "10001", "many"]),
    "max_tokens_per_minute": (None, {"1": 1, "1000000": 1_000_000}, ["0", "1000001", "1/s", "none"]),
    "max_concurrent_token_requests": (None, {"1": 1, "10000": 10_000}, ["0", "10001", "-1"]),
}  # fmt: skip
ACCEPTED = [(name, text, value) for name, (_, right, _) in TABLE.items() for text, value in right.items()]
REFUSED = [(name, text) for name, (_, _, wrong) in TABLE.items() for text in wrong]


def with_setting(name: str, text: str, *, dev: bool = False) -> Any:
    return accounts.change(ACME, {name: text}, dev=dev)[name]


class TestSettings:
    def test_the_table_is_the_contracts(self) -> None:
        assert {name: setting.default for name, setting in SETTINGS.items()} == {
            name: default for name, (default, _, _) in TABLE.items()
        }

    @pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.default is not None])
    def test_every_default_is_within_its_own_bounds(self, name: str) -> None:
        default = SETTINGS[name].default
        text = ",".join(map(str, default)) if isinstance(default, list) else str(default)
        assert SETTINGS[name].parse(text, False) == default

    @pytest.mark.parametrize(("name", "text", "value"), ACCEPTED)
    def test_what_is_within_the_bounds_is_accepted(self, name: str, text: str, value: Any) -> None:
        changed = accounts.change(ACME, {name: text}, dev=False)
        assert changed.settings == {name: value}
        assert changed[name] == value

    @pytest.mark.parametrize(("name", "text"), REFUSED)
    def test_what_is_outside_is_refused_with_the_bounds(self, name: str, text: str) -> None:
        with pytest.raises(BadSetting) as raised:
            with_setting(name, text)
        assert str(raised.value).startswith(f"{name}=")
        assert SETTINGS[name].bounds in str(raised.value)
        assert len(str(raised.value)) < 400

    def test_the_first_refusal_leaves_the_account_as_it_was(self) -> None:
        with pytest.raises(BadSetting):
            accounts.change(ACME, {"max_clients": "5", "max_scopes": "0"}, dev=False)
        assert ACME.settings == {}

    def test_an_unknown_setting_is_named_with_those_there_are(self) -> None:
        with pytest.raises(BadSetting, match=r"no account setting 'max_client'; there are: access_token_lifetime, .*"):
            with_setting("max_client", "5")

    @pytest.mark.parametrize("name", list(SETTINGS))
    def test_empty_is_the_default(self, name: str) -> None:
        text, value = next(iter(TABLE[name][1].items()))
        changed = accounts.change(ACME, {name: text}, dev=False)
        assert changed[name] == value
        back = accounts.change(changed, {name: ""}, dev=False)
        assert back.settings == {}
        assert back[name] == TABLE[name][0]

    def test_other_settings_stay(self) -> None:
        one = accounts.change(ACME, {"max_clients": "5"}, dev=False)
        two = accounts.change(one, {"max_scopes": "6"}, dev=False)
        assert two.settings == {"max_clients": 5, "max_scopes": 6}
        assert one.settings == {"max_clients": 5}

    def test_every_retention_class_is_one_that_pruning_knows(self) -> None:
        classes = {int(text.removesuffix("d")) for name in ("retention", "audit_retention") for text in TABLE[name][1]}
        assert set(accounts.RETENTION_DAYS) == classes

    def test_seconds_reads_what_is_set(self) -> None:
        assert ACME.seconds("access_token_lifetime") == 3600
        assert accounts.change(ACME, {"refresh_grace": "0"}, dev=False).seconds("refresh_grace") == 0

    def test_only_under_fapi2_an_account_is_strict(self) -> None:
        strict = accounts.change(ACME, {"profile": "fapi2"}, dev=False)
        assert (ACME.strict, strict.strict) == (False, True)
        for text in ("oauth21", ""):
            assert not accounts.change(strict, {"profile": text}, dev=False).strict

    def test_no_retries_is_not_the_default_schedule(self) -> None:
        assert with_setting("retry_schedule", "none") == []


@pytest.mark.parametrize(
    ("text", "delays"),
    [
        ("5s,5m,30m", [5, 300, 1800]),
        ("5, 5m, 1 h", [5, 300, 3600]),
        (",".join(["1s"] * 24), [1] * 24),
    ],
)
def test_a_schedule_keeps_its_order(text: str, delays: list[int]) -> None:
    assert with_setting("retry_schedule", text) == delays


@pytest.mark.parametrize("text", [",".join(["1s"] * 25), "5s;5m", "5s,,5m", "5s,0", "5s,8d", "[5,300]", "none,5s"])
def test_a_schedule_has_at_most_24_delays_within_bounds(text: str) -> None:
    with pytest.raises(BadSetting, match=r"^retry_schedule="):
        with_setting("retry_schedule", text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("15m", 900), ("15min", 900), ("24h", DAY), ("30d", 30 * DAY), ("0", 0),
        (" 5 m ", 300), ("999999999", 999_999_999),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: int) -> None:
    assert accounts.parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", " ", "s", "-5", "+5", "5.5h", "5 weeks", "5H", "1h30m", "1e3", "0x10", "1_000", "9999999999", "5\n5"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        accounts.parse_duration(text)


class TestNames:
    @pytest.mark.parametrize("name", ["a", "0", "-", "acme", "acme-2", "a" * 63, "default", "gatepost"])
    def test_right(self, name: str) -> None:
        made = accounts.new(name, NOW)
        assert (made.name, made.created_at, made.status, made.settings) == (name, NOW, "active", {})
        assert ids.parse("acc", made.id) is not None

    @pytest.mark.parametrize(
        "name", ["", "a" * 64, "Acme", "a b", "a_b", "a.b", "a/b", "é", "a\n", "a\0", "acme ", "../a", "а"]
    )
    def test_wrong(self, name: str) -> None:
        with pytest.raises(BadSetting, match="use 1 to 63 of a-z, 0-9 and -"):
            accounts.new(name, NOW)


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "https://login.example", "https://login.example/path?query=1", "https://login.example:8443/",
            "https://192.0.2.1/", "https://[2001:db8::1]/", "https://" + "a" * 2040,
        ],
    )  # fmt: skip
    def test_https(self, url: str) -> None:
        assert accounts.web_url(url, False) == url
        assert with_setting("login_url", url) == url

    @pytest.mark.parametrize("url", ["http://127.0.0.1:3000/login", "http://localhost/", "http://[::1]:3000/"])
    def test_http_on_loopback_is_for_ones_own_machine(self, url: str) -> None:
        assert accounts.web_url(url, True) == url
        with pytest.raises(ValueError, match="https"):
            accounts.web_url(url, False)

    @pytest.mark.parametrize("dev", [True, False])
    @pytest.mark.parametrize(
        "url",
        [
            "", "login.example", "//login.example/", "/login", "https:", "https://", "https:///path", "https://?a=b",
            "http://login.example/", "http://127.0.0.1.evil.example/", "http://localhost:80@evil.example/",
            "ftp://login.example/", "ftp://127.0.0.1/", "javascript:alert(1)", "data:text/html,x", "https://user@login.example/",
            "https://user:password@login.example/", "https://@login.example/", "https://login.example/#top",
            "https://login.example/#", "https://login.example/a b", "https://login.example/\r\nSet-Cookie: a=b",
            "https://login\n.example/", "https://login.example/\t", " https://login.example/", "https://login.example\0",
            "https://login.example:99999/", "https://login.example:port/", "https://login.example:0/", "https://[::1",
            "https://login.example\\@evil.example/", "https://login.example/a\\b", "https://lögin.example/",
            "https://" + "a" * 2041,
        ],
    )  # fmt: skip
    def test_nothing_else(self, url: str, dev: bool) -> None:
        with pytest.raises(ValueError):
            accounts.web_url(url, dev)


EC = ECKey.generate_key("P-256", {"kid": "1"}).as_dict(private=False)
WEAK = {"kty": "RSA", "e": "AQAB", "n": "AQAB"}


def key_set(*keys: Any) -> str:
    return msgspec.json.encode({"keys": keys}).decode()


class TestLoginKeys:
    def test_a_key_set_is_kept_as_it_is(self) -> None:
        assert with_setting("login_jwks", key_set(EC, EC | {"kid": "2"})) == {"keys": [EC, EC | {"kid": "2"}]}
        assert with_setting("login_jwks", "\n " + key_set(EC)) == {"keys": [EC]}

    def test_a_weak_key_is_refused(self) -> None:
        with pytest.raises(BadSetting, match="RSA of 2048 to 8192 bits"):
            with_setting("login_jwks", key_set(WEAK))

    @pytest.mark.parametrize("members", [{"use": "enc"}, {"key_ops": ["sign"]}])
    def test_a_key_that_is_not_for_verifying_is_refused(self, members: dict[str, Any]) -> None:
        with pytest.raises(BadSetting, match="the keys are only for verifying"):
            with_setting("login_jwks", key_set(EC | members))

    @pytest.mark.parametrize("part", ["d", "k", "p", "q", "dp", "dq", "qi", "oth"])
    def test_private_parts_are_refused(self, part: str) -> None:
        with pytest.raises(BadSetting, match="public keys only"):
            with_setting("login_jwks", key_set(EC, EC | {part: "AA"}))

    @pytest.mark.parametrize(
        "text",
        [
            '{"keys": []}', '{"keys": 5}', '{"keys": {}}', '{"keys": [5]}', '{"keys": [{}]}', '{"key": []}', "{",
            '{"keys": [', '{"keys":' + "[" * 100_000, "http://login.example/jwks", "https://user@login.example/jwks",
        ],
    )  # fmt: skip
    def test_what_is_no_key_set_is_refused(self, text: str) -> None:
        with pytest.raises(BadSetting, match=r"^login_jwks="):
            with_setting("login_jwks", text)


class TestShown:
    def test_every_setting_is_shown_whether_set_or_not(self) -> None:
        changed = accounts.change(ACME, {"max_clients": "5"}, dev=False)
        shown = changed.render()
        assert shown["settings"] == {name: default for name, (default, _, _) in TABLE.items()} | {"max_clients": 5}
        assert {name: shown[name] for name in ("id", "name", "status", "created_at")} == {
            "id": ACME.id,
            "name": "acme",
            "status": "active",
            "created_at": "2026-11-15T08:00:00.000Z",
        }

    def test_a_suspended_account_is_not_active(self) -> None:
        assert ACME.active
        assert not msgspec.structs.replace(ACME, status="suspended").active
