"""What commands share: which store they work on, `--json`, and how durations, instants and files are written."""

import functools
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from gatepost.accounts import parse_duration
from gatepost.core import clock
from gatepost.core.errors import BadSetting
from gatepost.run.app import open_for_use
from gatepost.settings import Settings, load

Command = Callable[..., Any]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
account_option = click.option("--account", "name", required=True, metavar="NAME", help="Its name or id.")


def settings_options(function: Command) -> Command:
    """--data, --database and --config: which store a command works on."""
    for option in (
        click.option("--data", metavar="DIR", help="Directory of the SQLite file and the master key."),
        click.option("--database", metavar="URL", help="PostgreSQL in place of SQLite."),
        click.option("--config", metavar="FILE", default="", help="TOML file of settings."),
    ):
        function = option(function)
    return function


def chosen(config: str, data: str | None, database: str | None) -> Settings:
    return load({"data": data, "database": database}, config=config)


def with_settings(function: Command) -> Command:
    """The options, and the settings they lead to as the command's first argument."""

    @settings_options
    @functools.wraps(function)
    def command(config: str, data: str | None, database: str | None, **rest: Any) -> None:
        function(chosen(config, data, database), **rest)

    return command


def with_store(function: Command) -> Command:
    """The same with the store open, beside a running server or alone, and closed again in the end."""

    @with_settings
    @functools.wraps(function)
    def command(settings: Settings, /, **rest: Any) -> None:
        opened = open_for_use(settings)
        try:
            function(opened, **rest)
        finally:
            opened.store.close()

    return command


# --- values. A problem is a BadSetting, which every command says in the same way.


def duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadSetting(f"{text!r}: {error}") from None


def instant(text: str) -> datetime:
    """RFC 3339, or how long ago."""
    found = clock.parse_rfc3339(text)
    if found is not None:
        return found
    try:
        if text.isdigit():
            raise ValueError(text)
        return clock.now() - parse_duration(text)
    except (ValueError, OverflowError):
        raise BadSetting(f"{text!r} is not a time; write 2026-11-15T08:00:00Z, or 1h for an hour ago") from None


def contents(text: str) -> str:
    """The text itself; with @ before it, what is in the file of that name."""
    if not text.startswith("@"):
        return text
    try:
        found = Path(text[1:]).read_text("utf-8").strip()
    except OSError as error:
        raise BadSetting(f"cannot read {text[1:]}: {error.strerror}; after @ comes the name of a file") from None
    except UnicodeDecodeError:
        raise BadSetting(f"{text[1:]} is not a text file; save it as UTF-8") from None
    if not found:
        raise BadSetting(f"{text[1:]} is empty; for the default write the setting with nothing after =")
    return found


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """`key=value` and `key=@file`, each key once."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadSetting(f"{text!r} is not a setting; write key=value, or key=@file")
        if key in found:
            raise BadSetting(f"{key} is given twice; leave one out")
        found[key] = contents(value)
    return found
