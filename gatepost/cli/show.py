"""How commands show what they found: tables and lines for people, JSON for programs, a bar for long work."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

_UNBOUNDED = 100_000  # columns: the terminal wraps long lines, so that an id can be copied whole


def document(value: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column)
    for row in rows:
        shown.add_row(*(_cell(value) for value in row))
    _print(shown)


def record(values: Mapping[str, Any]) -> None:
    """One thing, a line for each of its members."""
    shown = Table(box=None, pad_edge=False, show_header=False)
    shown.add_column(style="bold")
    shown.add_column()
    for name, value in values.items():
        shown.add_row(name, _cell(value))
    _print(shown)


def _cell(value: Any) -> Text:
    """Plain text: nothing that somebody else wrote reaches the terminal as markup or as a control character."""
    if value is None or value == "":
        value = "–"
    elif not isinstance(value, str):
        value = msgspec.json.encode(value).decode()
    return Text("".join(each if each.isprintable() else "�" for each in value))


def _print(shown: Table) -> None:
    console = Console(width=_UNBOUNDED)
    with console.capture() as captured:
        console.print(shown)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


# --- checks


class Check(NamedTuple):
    """One thing looked at: how it is, and if it is not well, what to do."""

    check: str
    status: Literal["ok", "warning", "problem"]
    found: str
    do: str = ""


_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def checks(found: Iterable[Check], *, as_json: bool) -> None:
    """Each as soon as it is known. A problem makes the command fail."""
    done: list[Check] = []
    for each in found:
        done.append(each)
        if not as_json:
            status = click.style(f"{each.status:8}", fg=_COLOURS[each.status])
            click.echo(f"{status} {each.check}: {each.found}{'; ' + each.do if each.do else ''}")
    if as_json:
        document([each._asdict() for each in done])
    if any(each.status == "problem" for each in done):
        sys.exit(1)


# --- long work


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if a person watches it; the function given moves it on."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
