"""The group of all commands, and how errors are reported."""

import errno
import os
import sys
from importlib import import_module
from typing import Any

import click

from gatepost import __version__
from gatepost.cli import output
from gatepost.cli.options import load_settings, settings_options
from gatepost.core.errors import BadSetting, GatepostError, NoStore

# Each noun is a module of this package that has a command of the same name.
NOUNS = (
    "account", "audit", "client", "completion", "consent", "delivery", "doctor", "endpoint", "event", "issuer", "key",
    "listen", "operator", "outbox", "scope", "simulate", "store", "subscription", "token",
)  # fmt: skip
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Nouns(click.Group):
    """Imports the module of a noun when it is needed, so that no command waits for the imports of another."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *NOUNS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in NOUNS and cmd_name not in self.commands:
            self.add_command(getattr(import_module(f"gatepost.cli.{cmd_name}"), cmd_name))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            all_commands()  # which the error message compares with what was written
        return super().resolve_command(ctx, args)


@click.group(cls=_Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gatepost")
@click.option(
    "--remote", metavar="URL", envvar="GATEPOST_REMOTE", show_envvar=True,
    help="Use the service at this URL with a client's credentials, instead of the store.",
)  # fmt: skip
@click.option(
    "--profile", metavar="FILE", envvar="GATEPOST_PROFILE", show_envvar=True,
    help="File with the client's credentials. The default is GATEPOST_CLIENT_ID and GATEPOST_CLIENT_SECRET.",
)  # fmt: skip
def commands(**_: str | None) -> None:
    """Issue and audit tokens, and deliver webhooks."""


@commands.command()
@settings_options
@click.option("--host", help="Address of the public listener.")
@click.option("--port", type=int, help="Port of the public listener.")
@click.option("--ops-port", type=int, help="Port of the operations plane.")
@click.option("--workers", type=int, help="Number of web processes.")
@click.option("--deliverers", type=int, help="Number of delivery processes.")
@click.option("--only", type=click.Choice(["web", "deliver"]), help="Run only the web or the delivery processes.")
@click.option("--bus", help="Kafka topics to consume events from: kafka://host:port/topic.")
@click.option("--dev", is_flag=True, default=None, help="Development mode: allow http and private receivers.")
def serve(**flags: Any) -> None:
    """Run the service."""
    settings = load_settings(**flags)
    from gatepost.run import supervisor  # noqa: PLC0415 (only this command needs a server)

    supervisor.main(settings)


def all_commands() -> click.Group:
    """Return the group with every noun loaded, for documentation and tests."""
    context = click.Context(commands)
    for noun in NOUNS:
        commands.get_command(context, noun)
    return commands


def main() -> None:
    """Run the command. An expected error is printed without a traceback, and has an exit code."""
    os.umask(0o077)  # only the service's user may read what it writes
    if sys.stdout is None:  # the caller closed it
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    code = _run()
    failure = output.flush()
    if failure and failure.errno != errno.EPIPE:  # a pipe was closed by the program that read as much as it needed
        _report(f"the output cannot be written: {failure.strerror}")
    sys.exit(code or (1 if failure else 0))


def _run() -> str | int | None:
    """Run the command, and return its exit code."""
    try:
        if not all(map(_is_text, sys.argv)):
            raise BadSetting("an argument is not UTF-8; type it again, or write it in a file and pass key=@file")
        commands()
    except SystemExit as ended:
        return ended.code
    except KeyboardInterrupt:
        return GatepostError.exit_code
    except GatepostError as error:
        _report(str(error))
        return error.exit_code
    except OSError as error:
        if isinstance(error.filename, str):
            advice = "check the path and its permissions, or run the command as the user of the service"
            _report(f"cannot use {error.filename}: {error.strerror}; {advice}")
            return NoStore.exit_code
        if error.errno not in _NOT_WRITTEN:
            raise
        output.flush()
        _report(f"the output cannot be written: {error.strerror}")
        return GatepostError.exit_code
    return 0


def _is_text(argument: str) -> bool:
    """Whether an argument was UTF-8. Python has replaced each byte that was not by a surrogate."""
    return not any("\ud800" <= char <= "\udfff" for char in argument)


def _report(text: str) -> None:
    from gatepost.cli import show  # noqa: PLC0415 (serve does not need it)

    print(f"gatepost: {show.one_line(text)}", file=sys.stderr)
