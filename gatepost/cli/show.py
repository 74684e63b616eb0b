"""Output of commands: tables for people, JSON for programs, checks, and a progress bar for long work.

Tables fit the width of the terminal. An id is never broken, so that it can be copied. Without a terminal, no line is
broken.
"""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

T = TypeVar("T")
_UNLIMITED = 100_000  # columns
_WHOLE = 30  # characters: ids, times and states are shorter, and are not broken
_GAP = "  "  # between columns
_NARROW = 16  # characters: the least width of a column with longer values


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
    else:
        print("\n".join(record_lines(values, _width())))


def record_lines(values: Mapping[str, Any], width: int) -> list[str]:
    """Return a line for each member. Values are broken at spaces only, and continue below their first word."""
    indent = max((len(name) for name in values), default=0) + 1
    lines = []
    for name, value in values.items():
        text, room = _text(value), max(width - indent, _NARROW)
        if cell_len(text) > room:
            text = textwrap.fill(text, room, break_long_words=False, break_on_hyphens=False)
        lines.append(f"{name:{indent}}{text}".replace("\n", "\n" + " " * indent))
    return "\n".join(lines).split("\n")


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
    """Print a table, or the rows as records if the terminal is too narrow for it."""
    print(format_table(columns, rows))


def format_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return the table that `table` prints."""
    return "\n".join(table_lines(columns, [[_text(value) for value in row] for row in rows], _width()))


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of a table without rules, in which long values are broken if the width requires it."""
    widest = [max(cell_len(text) for text in column) for column in zip(columns, *rows, strict=True)]
    least = [size if size <= _WHOLE else _NARROW for size in widest]
    if rows and sum(least) + len(_GAP) * (len(least) - 1) > width:
        records = ["\n".join(record_lines(dict(zip(columns, row, strict=True)), width)) for row in rows]
        return "\n\n".join(records).split("\n")
    grid = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="bold")
    for name, size in zip(columns, widest, strict=True):
        grid.add_column(name, no_wrap=size <= _WHOLE, overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    console = Console(width=width)
    with console.capture() as captured:
        console.print(grid)
    return [line.rstrip() for line in captured.get().splitlines()]


def _text(value: Any) -> str:
    if value is None or value == "":
        value = "–"
    elif not isinstance(value, str):
        value = msgspec.json.encode(value).decode()
    return printable(value)


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _UNLIMITED


def printable(text: str) -> str:
    """Return text from others without control characters, which must not reach the terminal."""
    return "".join(char if char.isprintable() else "�" for char in text)


def one_line(text: str) -> str:
    """Return text without control characters as one line. Errors of databases have several."""
    return printable(" ".join(text.split()))


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
            text = f"{result.check}: {result.found}{'; ' + result.do if result.do else ''}"
            click.echo(f"{status} {one_line(text)}")
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
