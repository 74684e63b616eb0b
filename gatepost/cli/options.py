"""Options and values that commands share: the store to use, `--json`, accounts, durations, instants and files."""

import functools
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import SplitResult, unquote, urlsplit

import click
from click.core import ParameterSource

from gatepost.accounts import Account, lookup, parse_duration
from gatepost.core import clock
from gatepost.core.errors import BadSetting
from gatepost.run.app import Runtime, open_for_use
from gatepost.settings import Settings, load

Command = Callable[..., Any]
_MAX_LISTED = 1_000_000_000

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only the id.")
_account = functools.partial(click.option, "--account", "name", metavar="NAME", envvar="GATEPOST_ACCOUNT")
account_option = _account(required=True, help="Name or id of the account. The default is GATEPOST_ACCOUNT.")
optional_account = _account(
    default="", help="Name or id of the account. The default is GATEPOST_ACCOUNT, or else the account of the id."
)


def settings_options(function: Command) -> Command:
    """Add --data, --database and --config: the store that a command works on."""
    for option in (
        click.option("--data", metavar="DIR", help="Directory of the SQLite file and the master key."),
        click.option("--database", metavar="URL", help="PostgreSQL database to use instead of SQLite."),
        click.option("--config", metavar="FILE", default="", help="TOML file with settings."),
    ):
        function = option(function)
    return function


def remote_options(function: Command) -> Command:
    """Add --remote and --profile. Their environment variables belong to the group of all commands."""
    for option in (
        click.option("--profile", metavar="FILE", help="File with a client's credentials, as --save writes it."),
        click.option("--remote", metavar="URL", help="Use the service at this URL with a client's credentials."),
    ):
        function = option(function)
    return function


def remote_values(remote: str | None = None, profile: str | None = None) -> tuple[str, str]:
    """Return --remote and --profile of the command, or else those that were given before the command."""
    context = click.get_current_context(silent=True)
    given = context.find_root().params if context else {}
    return remote or given.get("remote") or "", profile or given.get("profile") or ""


def load_settings(config: str, data: str | None, database: str | None, **flags: Any) -> Settings:
    """Load the settings with the values of the settings options, for a command that works on the store."""
    if any(remote_values()):
        raise click.UsageError(
            f"`{click.get_current_context().command_path}` needs the store: run it where the store is, "
            "without --remote and --profile (or GATEPOST_REMOTE and GATEPOST_PROFILE)."
        )
    return load({"data": data, "database": database} | flags, config=config)


def with_settings(function: Command) -> Command:
    """Add the settings options, and pass the settings as the command's first argument."""

    @settings_options
    @functools.wraps(function)
    def command(config: str, data: str | None, database: str | None, **rest: Any) -> None:
        function(load_settings(config, data, database), **rest)

    return command


def with_runtime(function: Command) -> Command:
    """Add the settings options, and pass a `Runtime` with the open store, also beside a running server."""

    @with_settings
    @functools.wraps(function)
    def command(settings: Settings, /, **rest: Any) -> None:
        runtime = open_for_use(settings)
        with closing(runtime.store):
            function(runtime, **rest)

    return command


def with_store(function: Command) -> Command:
    """Do the same as `with_runtime`, and add --json."""
    return with_runtime(json_option(function))


def account_named(runtime: Runtime, name: str) -> Account:
    """Return the account with this name or id."""
    return runtime.store.read_now(lambda tx: lookup.named(tx, name))


# --- values. An invalid one raises BadSetting, which every command reports in the same way.


def duration(text: str) -> timedelta:
    """Parse a duration, such as 24h."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadSetting(f"{text!r}: {error}") from None


def instant(text: str) -> datetime:
    """Parse an RFC 3339 timestamp, or a duration before now."""
    parsed = clock.parse_rfc3339(text)
    if parsed is not None:
        return parsed
    try:
        if text.isdigit():
            raise ValueError(text)
        return clock.now() - parse_duration(text)
    except (ValueError, OverflowError):
        raise BadSetting(f"{text!r} is not a time; write 2026-11-15T08:00:00Z, or 1h for an hour ago") from None


def http_url(text: str) -> SplitResult | None:
    """Parse the URL of an http or https server. None if no request can be sent to it."""
    try:
        url = urlsplit(text)
        host = unquote(url.hostname or "")  # as urllib does
        host.encode("idna")  # raises for a label that is empty or too long
        is_http = url.scheme in ("http", "https") and host and url.port != 0
    except ValueError:
        return None
    return url if is_http and all(part.isprintable() and " " not in part for part in (text, host)) else None


since_option = click.option(
    "--since", type=instant, metavar="TIME", help="From this time on: RFC 3339, or 1h for an hour ago."
)
until_option = click.option("--until", type=instant, metavar="TIME", help="Before this time.")


def filter_option(*names: str, **attributes: Any) -> Command:
    """An option of a command that lists something. An empty value is refused: it may come from an unset variable."""

    def check(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value == "" and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            raise click.BadParameter("the value is empty", context, parameter)
        return value

    return click.option(*names, callback=check, **attributes)


def limit_option(default: int, what: str) -> Command:
    """The option --limit of a command that lists something."""
    return click.option(
        "--limit", type=click.IntRange(1, _MAX_LISTED), default=default, show_default=True,
        help=f"Maximum number of {what}.",
    )  # fmt: skip


def read_text(file: TextIO) -> str:
    """Return the content of a file that is given as an argument."""
    try:
        return file.read()
    except UnicodeDecodeError:
        raise BadSetting(f"{file.name} is not a text file; save it as UTF-8") from None


def contents(text: str) -> str:
    """Return the text itself, or the content of a file if the text is @ and the name of the file."""
    if not text.startswith("@"):
        return text
    try:
        content = Path(text[1:]).read_text("utf-8").strip()
    except OSError as error:
        raise BadSetting(f"cannot read {text[1:]}: {error.strerror}; write the name of a file after @") from None
    except UnicodeDecodeError:
        raise BadSetting(f"{text[1:]} is not a text file; save it as UTF-8") from None
    if not content:
        raise BadSetting(f"{text[1:]} is empty; to restore the default, write the setting with nothing after =")
    return content


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Parse `key=value` and `key=@file`. Each key may be given once."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadSetting(f"{text!r} is not a setting; write key=value, or key=@file")
        if key in values:
            raise BadSetting(f"{key} is given twice; remove one of them")
        values[key] = contents(value)
    return values
