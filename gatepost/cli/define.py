"""The commands `create`, `set` and `rotate-secret` of clients, scopes, endpoints and subscriptions."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from gatepost.cli import output, profiles, show
from gatepost.cli.kinds import SCOPE, Kind
from gatepost.cli.operations import Operations, Record, change, with_operations
from gatepost.cli.options import Command, duration, pairs, quiet_option
from gatepost.core.errors import BadSetting, Refusal
from gatepost.core.json_schema import Json
from gatepost.core.members import Member
from gatepost.core.strict_json import read_json
from gatepost.oauth.clients import SECRET_METHODS


def _check_file(_context: click.Context, _option: click.Parameter, file: Path | None) -> Path | None:
    """Refuse a file that could not be written before anything is created: its secret would be lost."""
    if file is None:
        return None
    if not file.name or (file.exists() and not file.is_file()):  # such as a device, which would be replaced
        raise click.BadParameter(f"{str(file) if file.name else 'an empty name'!r} is not a file")
    if not os.access(file.parent, os.W_OK):
        raise click.BadParameter(f"{file.parent} is not a directory in which files can be written")
    return file


save_option = click.option(
    "--save", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", callback=_check_file,
    help="Write the secret to FILE, which only its owner can read, instead of printing it.",
)  # fmt: skip
overlap_option = click.option(
    "--overlap", type=duration, default="24h", help="How long the previous secret stays valid; 0 ends it now."
)
SECRET_WOULD_BE_LOST = "--quiet needs --save FILE: the secret is shown only once, and would be lost"  # noqa: S105
_HOW = (
    "Write MEMBER=@FILE for the content of a file, MEMBER= for the default, commas between the items of a list, and "
    "JSON for an object."
)


def add_commands(group: click.Group, kind: Kind) -> None:
    """Add `create`, `set` and, if the resource has a secret, `rotate-secret` to the group of a noun."""
    identifier = click.argument("identifier", metavar="NAME" if kind is SCOPE else f"{kind.noun.upper()}_ID")
    members = click.argument("members", nargs=-1, metavar="[MEMBER=VALUE]...")

    def create(
        operations: Operations, members: tuple[str, ...], as_json: bool, quiet: bool, identifier: str = "",
        save: Path | None = None, if_missing: bool = False,
    ) -> None:  # fmt: skip
        if identifier.partition("=")[0] in kind.table.request:
            raise BadSetting(f"write the name alone before the members: gatepost {kind.noun} create NAME …")
        body = ({kind.id: identifier} if identifier else {}) | parse_members(kind, members, "create")
        if quiet and save is None and _gets_secret(kind, body):
            raise BadSetting(SECRET_WOULD_BE_LOST)
        defined = operations.define(kind, body, if_missing=if_missing)
        if save is not None:
            defined = save_secret(save, operations.url, kind, defined)
        if quiet:
            print(defined[kind.id])
        else:
            print_definition(kind, defined, as_json=as_json)

    def set_members(operations: Operations, identifier: str, members: tuple[str, ...], as_json: bool) -> None:
        body = {kind.id: identifier} | ({"redefine": True} if kind is SCOPE else {})
        body |= parse_members(kind, members, "change")
        print_definition(kind, operations.define(kind, body), as_json=as_json)

    if_missing = click.option(
        "--if-missing", is_flag=True, help=f"Do nothing if there is one with the same {' and '.join(kind.names)}."
    )
    secret = " Its secret is shown only once." if kind.secret else ""
    _add(
        group, "create", create, f"Create {kind.table.noun}.{secret}\n\n{_describe(kind, 'create')}",
        *([identifier] if kind is SCOPE else []), members, *([if_missing] if kind.names else []),
        *([save_option] if kind.secret else []), quiet_option,
    )  # fmt: skip
    changes = f"Change members of {kind.table.noun}. Members that are not given stay as they are."
    if kind is SCOPE:  # the service has no operation that only reads a scope
        changes += " With --remote, a scope that does not exist is created."
    _add(group, "set", set_members, f"{changes}\n\n{_describe(kind, 'change')}", identifier, members)
    if kind.secret:
        rotate = f"Create a new secret for {kind.table.noun} and print it. It is shown only once."
        _add(
            group, "rotate-secret", partial(_rotate_secret, kind=kind), rotate, identifier, overlap_option, save_option
        )


def _add(group: click.Group, name: str, function: Command, text: str, *parameters: Command) -> None:
    """Add a command with these parameters, in this order."""
    decorated = with_operations(function)
    for parameter in reversed(parameters):
        decorated = parameter(decorated)
    group.command(name, help=text)(decorated)


def _describe(kind: Kind, occasion: str) -> str:
    return f"The members are {', '.join(_members(kind, occasion))}. {_HOW}"


def _members(kind: Kind, occasion: str) -> dict[str, Member]:
    """The members that a command may set: not the id, which is an argument or made by the service."""
    return {
        name: member
        for name, member in kind.table.request.items()
        if member.occasion in ("any", occasion) and name not in (kind.id, "redefine")
    }


def _rotate_secret(
    operations: Operations, identifier: str, overlap: timedelta, save: Path | None, as_json: bool, kind: Kind
) -> None:
    if overlap > kind.max_overlap:
        raise BadSetting(f"--overlap: must be from 0 to {kind.max_overlap.days}d")
    body = {kind.id: identifier, "rotate_secret": {"overlap": int(overlap.total_seconds())}}
    definition = change(operations, kind, body)
    if save is not None:
        definition = save_secret(save, operations.url, kind, definition)
    with _showing_secret(kind, definition):
        if as_json:
            show.document(definition)
            return
        show.record({name: definition[name] for name in (kind.id, kind.secret, "saved") if name in definition})
        ends = [secret["expires_at"] for secret in definition.get("secrets", []) if secret["expires_at"]]
        validity = f"is valid until {ends[-1]}" if ends else "is not valid any more"
        print(f"{'' if save else 'This secret is shown only once. '}The previous one {validity}.")


def _showing_secret(kind: Kind, defined: Record) -> AbstractContextManager[None]:
    if kind.secret not in defined:
        return nullcontext()
    return output.showing_secret(f"create a new one: gatepost {kind.noun} rotate-secret {defined[kind.id]}")


def _gets_secret(kind: Kind, body: Record) -> bool:
    """Whether the service makes a secret for a resource with these members."""
    authentication = body.get("token_endpoint_auth_method") or SECRET_METHODS[0]
    return bool(kind.secret) and kind.secret not in body and authentication in SECRET_METHODS


def parse_members(kind: Kind, texts: Iterable[str], occasion: str) -> Record:
    """Parse MEMBER=VALUE by the member's schema. The operation checks the values."""
    members = _members(kind, occasion)
    values: Record = {}
    for name, text in pairs(texts).items():
        if name not in members:
            raise BadSetting(f"{name!r} is not a member to set; the members are {', '.join(members)}")
        values[name] = _value(members[name].schema, text)
    return values


def _value(schema: Json, text: str) -> Any:
    if text == "":
        return None
    if schema.get("type") == "string":
        return text
    if schema.get("type") == "array" and not text.startswith("["):
        return [_value(schema["items"], item.strip()) for item in text.split(",")]
    parsed = read_json(text)
    return text if isinstance(parsed, Refusal) else parsed.value


def save_secret(file: Path, url: str, kind: Kind, defined: Record) -> Record:
    """Write the secret to the file, and return the definition without it. For an old resource, check the file."""
    identifier = defined[kind.id]
    if kind.secret not in defined and defined.get("secrets"):
        rotate = f"give it a new one: gatepost {kind.noun} rotate-secret {identifier} --save {file}"
        profiles.check_saved(file, kind.id, identifier, rotate)
        return defined
    profiles.save(file, {"remote": url, kind.id: identifier, kind.secret: defined.pop(kind.secret, None)})
    return defined | {"saved": str(file)}


def print_definition(kind: Kind, defined: Record, *, as_json: bool) -> None:
    """Print a definition."""
    with _showing_secret(kind, defined):
        show.record(defined, as_json=as_json)
        if kind.secret in defined and not as_json:
            print("This secret is shown only once.")
