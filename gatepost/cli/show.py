"""Output of commands: tables for people, JSON for programs, checks, and a progress bar for long work."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

T = TypeVar("T")
_WIDTH = 100_000  # columns: the terminal wraps long lines, so that an id can be copied as a whole


def document(value: Any) -> None:
    """Print a value as JSON."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def message(value: Any, text: str, *, as_json: bool) -> None:
    """Print a value as JSON, or what it means as text."""
    if as_json:
        document(value)
    else:
        click.echo(text)


def record(values: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Print one object, with a line for each member."""
    if as_json:
        document(values)
        return
    grid = Table(box=None, pad_edge=False, show_header=False)
    grid.add_column(style="bold")
    grid.add_column()
    for name, value in values.items():
        grid.add_row(name, _cell(value))
    _print(grid)


def listing(items: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool = False) -> None:
    """Print objects: all members as JSON, or a table. `columns` maps each heading to a member."""
    if as_json:
        document(items)
    else:
        table(tuple(columns), [[item[member] for member in columns.values()] for item in items])


def headings(*members: str) -> dict[str, str]:
    """Return columns whose headings are the names of the members."""
    return {member.replace("_", " "): member for member in members}


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table."""
    _print(build_table(columns, rows))


def build_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a table without lines."""
    grid = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        grid.add_row(*(_cell(value) for value in row))
    return grid


def _cell(value: Any) -> Text:
    if value is None or value == "":
        value = "–"
    elif not isinstance(value, str):
        value = msgspec.json.encode(value).decode()
    return Text(printable(value))


def printable(text: str) -> str:
    """Return text from others without control characters, which must not reach the terminal."""
    return "".join(char if char.isprintable() else "�" for char in text)


def _print(grid: Table) -> None:
    console = Console(width=_WIDTH)
    with console.capture() as captured:
        console.print(grid)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


# --- checks


Status = Literal["ok", "warning", "problem"]


class Check(NamedTuple):
    """The result of one check and, unless it is ok, what to do."""

    check: str
    status: Status
    found: str
    do: str = ""


_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def checks(results: Iterable[Check], *, as_json: bool) -> None:
    """Print each result as soon as it is known. A problem makes the command fail."""
    done: list[Check] = []
    for result in results:
        done.append(result)
        if not as_json:
            status = click.style(f"{result.status:8}", fg=_COLOURS[result.status])
            click.echo(f"{status} {result.check}: {result.found}{'; ' + result.do if result.do else ''}")
    if as_json:
        document([result._asdict() for result in done])
    if any(result.status == "problem" for result in done):
        sys.exit(1)


# --- long work


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar, if standard error is a terminal. The function that it yields advances the bar."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)
