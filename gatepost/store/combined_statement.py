"""The one statement that makes all writes that units leave for the end of a commit on PostgreSQL."""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from gatepost.store.cache import Cache
from gatepost.store.pending import PendingWrites
from gatepost.store.postgres_arrays import Array, columns_of

_UNCHANGED = """(SELECT value FROM counters WHERE name = 'changes') = %(changes)b::bigint
  AND (SELECT value FROM counters WHERE name = 'ends') = %(ends)b::bigint"""
# A server that could not run for a while executes what was sent to it before, even after the callers have given up.
_IN_TIME = "extract(epoch FROM clock_timestamp()) * 1000 < %(deadline)b::bigint"
_NAME = re.compile(r"%\((\w+)\)[bs]")
_GIVEN = re.compile(
    r"WITH given \((?P<columns>.*?)\) AS \(SELECT \* FROM (?P<unnest>unnest\(.*?\))\)\s*(?P<text>.*)", re.DOTALL
)


class CombinedStatement(NamedTuple):
    """A statement with numbered parameters, and their values. It returns whether it wrote anything."""

    text: str
    values: list[Array | int]


def combine(
    statements: Mapping[str, str], pending: PendingWrites, unless_changed: Cache | None, deadline: int | None
) -> CombinedStatement:  # fmt: skip
    """The statement for these writes. It writes nothing if a conditional write is not possible.

    With `unless_changed`, nor does it if the store has changed since the cache was refreshed. With a deadline, in
    milliseconds of the server's time, nor does it if the server begins later.
    """
    parameters: dict[str, Array | int] = {}
    if unless_changed is not None:
        parameters |= {"changes": unless_changed.changes, "ends": unless_changed.ends}
    if deadline is not None:
        parameters["deadline"] = deadline
    conditional = [(statements[name], statements[check]) for name, check in pending.conditional]
    for number, ((text, _), rows) in enumerate(zip(conditional, pending.conditional.values(), strict=True)):
        parameters |= columns_of(text, sorted(rows), f"c{number}_") | {f"c{number}": len(rows)}
    appended = [(statements[name], rows) for name, rows in pending.statements()]
    for number, (text, rows) in enumerate(appended):
        parameters |= columns_of(text, rows, f"a{number}_")
    preconditions = [_UNCHANGED] * (unless_changed is not None) + [_IN_TIME] * (deadline is not None)
    text = _combined(tuple(conditional), tuple(text for text, _ in appended), tuple(preconditions))
    numbered, names = _numbered(text)
    return CombinedStatement(numbered, [parameters[name] for name in names])


@cache
def _combined(
    conditional: tuple[tuple[str, str], ...], appended: tuple[str, ...], preconditions: tuple[str, ...]
) -> str:  # fmt: skip
    """One statement that runs all of these, or none of them. It returns whether it ran them.

    The check of a conditional write returns the rows that can be written, so their number decides. If it is too small,
    every statement is given no rows.
    """
    parts: list[str] = []
    conditions = [*preconditions]
    updates: list[str] = []
    for number, (update, check) in enumerate(conditional):
        columns, unnest, text = _split(update, f"c{number}_")
        parts += [
            f"all{number} ({columns}) AS (SELECT * FROM {unnest})",
            f"locked{number} AS ({_with_table(_split(check, f'c{number}_')[2], f'all{number}')})",
        ]
        conditions.append(f"(SELECT count(*) FROM locked{number}) = %(c{number})b::bigint")
        updates += [
            f"if{number} AS (SELECT * FROM all{number} WHERE (SELECT met FROM condition))",
            f"updated{number} AS ({_with_table(text, f'if{number}')})",
        ]
    parts += [f"condition AS (SELECT {' AND '.join(conditions) or 'true'} AS met)", *updates]
    for number, statement in enumerate(appended):
        columns, unnest, text = _split(statement, f"a{number}_")
        parts += [
            f"rows{number} ({columns}) AS (SELECT * FROM {unnest} WHERE (SELECT met FROM condition))",
            f"appended{number} AS ({_with_table(text, f'rows{number}')})",
        ]
    return f"WITH {', '.join(parts)} SELECT met FROM condition"


@cache
def _numbered(text: str) -> tuple[str, list[str]]:
    """The text with numbered parameters, and their names in this order.

    For a text with so many parameters, the driver would do this each time.
    """
    names = list(dict.fromkeys(_NAME.findall(text)))
    return _NAME.sub(lambda match: f"${names.index(match[1]) + 1}", text).replace("%%", "%"), names


def _split(statement: str, prefix: str) -> tuple[str, str, str]:
    """The columns of `given`, the arrays that it is made of, and the text that uses it."""
    match = _GIVEN.fullmatch(statement.replace("%(", f"%({prefix}"))
    if match is None:
        raise ValueError(f"this statement is given no rows: {statement}")
    return match["columns"], match["unnest"], match["text"]


def _with_table(text: str, name: str) -> str:
    return re.sub(r"\bgiven\b", name, text)
