"""Loads the SQL: the named statements in the `.sql` files beside the modules that use them, and the migrations.

Both stores share one text. `/*sqlite: … */` and `/*postgres: … */` mark what is for one of them. `/*python: NAME */` is
replaced with a constant of the Python module beside the file.

On Citus, a statement has the text of PostgreSQL, unless another one follows under `-- name: NAME (citus)`.
`/*reachable: account */` marks a statement about all accounts: if a database node is down, it is about the others.
`/*in days: id */` marks the key of a partitioned table in a statement about given ids: see `in_days_of`.
"""

import hashlib
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from gatepost.core import ids
from gatepost.core.errors import BadSetting

Dialect = Literal["sqlite", "postgres"]
Form = Literal["sqlite", "postgres", "citus"]

_PACKAGE = Path(__file__).parents[1]
_MIGRATIONS = Path(__file__).parent / "migrations"
_NAMED = re.compile(r"^-- name: (\w+)(?: \((citus)\))?$", re.MULTILINE)
_ONLY_FOR = re.compile(r"/\*(sqlite|postgres):\s(.*?)\s\*/", re.DOTALL)
_REACHABLE = re.compile(r"/\*reachable: (.*?) \*/")
_IN_DAYS = re.compile(r"/\*in days: (.*?) \*/")
_CONSTANT = re.compile(r"/\*python: (\w+) \*/")
_GIVEN = re.compile(r"/\*given: (.*?) \*/")
_EACH = re.compile(r"/\*each: (.*?) \*/\s*")
_INSERT = re.compile(r"/\*given: .*? \*/\s*INSERT INTO (\w+) \(([\w\s,]+)\)\s+SELECT ([\w\s,]+?)\s+FROM given")
_INSERT_GIVEN = re.compile(
    r"(?P<given>WITH given .*?)\s*INSERT INTO (?P<table>\w+) \((?P<columns>[\w\s,]+)\)\s+"
    r"SELECT (?P<selected>[\w\s,]+?)\s+FROM given(?: WHERE true)?(?P<rest>.*)",
    re.DOTALL,
)
_KIND = re.compile(r"%\((\w+)\)b::(\w+)")
_ARRAY = re.compile(_KIND.pattern + r"\[\]")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_DAY = 86_400_000  # ms


class Migration(NamedTuple):
    """A numbered change of the schema, for one dialect."""

    number: int
    name: str
    text: str
    checksum: str


@cache
def statements(form: Form) -> dict[str, str]:
    """name → text. A PostgreSQL text has psycopg's placeholders.

    A statement about many rows begins with their columns, as in `/*given: account bytea, id bytea */`, and can use them
    as the table `given`. PostgreSQL gets an array for each column, which the text may also use as `:id`; `for_rows`
    finishes SQLite's text.
    A statement that runs for several sets of parameters begins with them, as in `/*each: account bytea */`. PostgreSQL
    gets them as such a table, and the first column of a result is the number of its set, from 1.
    Citus runs such a statement for each set, and for the rows of one account at a time, which are in one shard.
    """
    texts: dict[str, str] = {}
    for name, file, text in _named(form):
        if name in texts:
            raise ValueError(f"two statements are named {name}")
        loaded = _with_constants(file, _for(form, text.strip()))
        parameters = _EACH.match(loaded)
        loaded = _EACH.sub("", loaded)
        if form == "postgres" and parameters:
            loaded = _for_each(parameters[1], loaded)
        elif form != "sqlite":
            loaded = placed(_for_given(loaded, _given_of_account if form == "citus" else _given))
        texts[name] = loaded
    return texts


def _named(form: Form) -> Iterator[tuple[str, Path, str]]:
    """All statements: name, file and text. On Citus, the text for Citus comes instead of the other one."""
    for file in sorted(_PACKAGE.rglob("*.sql")):
        if file.parent == _MIGRATIONS:
            continue
        _, *parts = _NAMED.split(file.read_text("utf-8"))
        listed = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
        for_citus = {name for name, citus, _ in listed if citus}
        for name, citus, text in listed:
            if bool(citus) == (form == "citus" and name in for_citus):
                yield name, file, text


def _with_constants(file: Path, text: str) -> str:
    """The text with the constants of the Python module beside the file."""
    module = ".".join(file.relative_to(_PACKAGE.parent).with_suffix("").parts)
    return _CONSTANT.sub(lambda match: str(getattr(importlib.import_module(module), match[1])), text)


def placed(text: str) -> str:
    """The text with psycopg's placeholders."""
    return _PARAMETER.sub(r"%(\1)s", text)


def _for_given(text: str, given: Callable[[str], str]) -> str:
    """The text with arrays in place of `given` and of the parameters that are named like its columns."""
    listed = _GIVEN.match(text)
    if listed is None:
        return text
    arrays = _arrays(listed[1])
    return _PARAMETER.sub(lambda match: arrays.get(match[1], match[0]), _GIVEN.sub(given(listed[1]), text))


def _arrays(listed: str) -> dict[str, str]:
    columns = (column.split() for column in listed.split(", "))
    return {name: f"%({name})b::{kind}[]" for name, kind in columns}


def _given(listed: str, *, numbered: bool = False) -> str:
    columns = [column.split() for column in listed.split(", ")]
    arrays = ", ".join(_arrays(listed).values())
    names = ", ".join([*(name for name, _ in columns), *(["nth"] if numbered else [])])
    return f"WITH given ({names}) AS (SELECT * FROM unnest({arrays}){' WITH ORDINALITY' if numbered else ''})"


def _given_of_account(listed: str) -> str:
    """The table `given` with rows of one account. The account is a value, from which Citus knows the shard."""
    columns = [column.split() for column in listed.split(", ")]
    if columns[0][0] != "account":
        return _given(listed)
    names = ", ".join(name for name, _ in columns)
    account = f"%(account)b::{columns[0][1]}"
    if len(columns) == 1:
        return f"WITH given ({names}) AS (SELECT {account})"
    arrays = ", ".join(f"%({name})b::{kind}[]" for name, kind in columns[1:])
    return f"WITH given ({names}) AS (SELECT {account}, listed.* FROM unnest({arrays}) listed)"


def _for_each(listed: str, text: str) -> str:
    inner = _PARAMETER.sub(r"given.\1", text)
    return f"{_given(listed, numbered=True)} SELECT given.nth, found.* FROM given CROSS JOIN LATERAL ({inner}) found"


def in_days_of(statement: str, raw_ids: Sequence[bytes]) -> str:
    """PostgreSQL's text of a statement with the bounds of the days in which the ids were made.

    They are part of the text, so that PostgreSQL knows the partitions when it plans the statement, and can use the plan
    again for other ids of these days.
    """
    return _in_days(statement, *(int.from_bytes(raw_id[:6], "big") // _DAY for raw_id in (min(raw_ids), max(raw_ids))))


@lru_cache(maxsize=512)
def _in_days(statement: str, first: int, last: int) -> str:
    lowest, highest = bounds(first, last)
    return statement.replace("%(lowest_id)s", _literal(lowest)).replace("%(highest_id)s", _literal(highest))


def _literal(value: bytes) -> str:
    return f"'\\x{value.hex()}'::bytea"


def bounds(first: int, last: int) -> tuple[bytes, bytes]:
    """The lowest and the highest id of these days, which are numbered from 1970.

    The lowest and the highest of the given ids would be worse bounds: if the statistics are older than the ids,
    PostgreSQL expects few rows between them, and reads all of these instead of looking up each id. It would do the
    same, or look up each id once for every value of another column, with all ids in a condition such as
    `id = ANY(:id)`. Without statistics it expects few rows between any two bounds, but not if each of them is in an
    array.
    """
    return ids.lowest_at(first * _DAY), ids.lowest_at((last + 1) * _DAY - 1)[:6] + b"\xff" * 10


@cache
def is_about_days(statement: str) -> bool:
    """Whether the statement has to be completed by `in_days_of`."""
    return "%(lowest_id)s" in statement


@cache
def given_columns(statement: str) -> list[str]:
    """The columns of the table `given`, from the text of the statement."""
    match = _GIVEN.search(statement) or re.search(r"WITH given \((.*?)\)", statement)
    if match is None:
        raise ValueError(f"this statement is given no rows: {statement}")
    return [column.split()[0] for column in match[1].split(", ")]


@cache
def array_types(statement: str) -> dict[str, str]:
    """The parameters of a PostgreSQL statement that are arrays: name → type of their elements."""
    return dict(_ARRAY.findall(statement))


@cache
def is_insert(statement: str) -> bool:
    """Whether an SQLite statement only inserts the rows that it is given."""
    return _INSERT.fullmatch(statement) is not None


@cache
def for_rows(statement: str, count: int) -> str:
    """SQLite's text of a statement for a number of rows."""
    columns = given_columns(statement)
    row = f"({', '.join('?' * len(columns))})"
    rows = f"VALUES {', '.join([row] * count)}"
    if is_insert(statement):  # which is faster without the table
        return f"INSERT INTO {_INSERT.fullmatch(statement)[1]} ({', '.join(columns)}) {rows}"  # type: ignore[index]
    return _GIVEN.sub(lambda _: f"WITH given ({', '.join(columns)}) AS ({rows})", statement)


@cache
def inserts_given(statement: str) -> bool:
    """Whether a statement for Citus inserts the rows that it is given."""
    return _INSERT_GIVEN.fullmatch(statement) is not None


@cache
def with_values(statement: str, count: int) -> str:
    """The text for Citus of an insert of a number of rows. Citus sends VALUES of one shard to its node as they are."""
    match = _INSERT_GIVEN.fullmatch(statement)
    columns = given_columns(statement)
    if match is None or re.split(r",\s+", match["columns"]) != columns:
        raise ValueError(f"this statement does not insert the rows that it is given: {statement}")
    kinds = dict(_KIND.findall(match["given"]))
    row = f"({', '.join(f'%b::{kinds[column]}' for column in columns)})"
    return f"INSERT INTO {match['table']} ({match['columns']}) VALUES {', '.join([row] * count)} {match['rest']}"


@cache
def for_each(statement: str, names: tuple[str, ...], count: int) -> str:
    """SQLite's text for several sets of parameters. The first column of a result is the number of its set, from 0."""
    numbered = _PARAMETER.sub(lambda match: f"?{{{match[1]}}}", statement)
    parts = []
    for nth in range(count):
        places = {name: nth * len(names) + place for place, name in enumerate(names, 1)}
        parts.append(f"SELECT {nth}, * FROM ({numbered.format(**places)})")
    return " UNION ALL ".join(parts)


def migrations(dialect: Dialect) -> list[Migration]:
    """All migrations of this release, in their order."""
    found = []
    for file in sorted(_MIGRATIONS.glob("*.sql")):
        text = file.read_text("utf-8")
        number, _, name = file.name.removesuffix(".sql").partition("_")
        checksum = hashlib.sha256(text.encode()).hexdigest()
        found.append(Migration(int(number), name, _for(dialect, text), checksum))
    return found


def missing(dialect: Dialect, done: Mapping[int, str]) -> list[Migration]:
    """The migrations that a store lacks, given those it has (number → checksum). Raises `BadSetting` on a mismatch."""
    known = migrations(dialect)
    newest = max(migration.number for migration in known)
    if max(done, default=0) > newest:
        raise BadSetting(f"the store is at schema {max(done)}, newer than this release knows ({newest})")
    for migration in known:
        if done.get(migration.number, migration.checksum) != migration.checksum:
            raise BadSetting(f"migration {migration.number} was changed after it was applied")
    return [migration for migration in known if migration.number not in done]


def _for(form: Form, text: str) -> str:
    dialect = "sqlite" if form == "sqlite" else "postgres"
    reachable = r"AND (:reachable::bytea[] IS NULL OR \1 = ANY (:reachable::bytea[]))" if form == "citus" else ""
    in_days = r"AND \1 >= ALL (ARRAY[:lowest_id]) AND \1 <= ALL (ARRAY[:highest_id])" if form == "postgres" else ""
    text = _ONLY_FOR.sub(lambda match: match[2] if match[1] == dialect else "", text)
    return _IN_DAYS.sub(in_days, _REACHABLE.sub(reachable, text))
