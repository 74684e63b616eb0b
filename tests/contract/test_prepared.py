"""SQLite: a statement is prepared only once for all values."""

import re
from collections.abc import Iterator
from contextlib import closing

import apsw
import pytest

from gatepost.core import clock
from gatepost.store import sql_loader
from gatepost.store.sqlite import SqliteStore
from gatepost.webhooks.fanout import create_deliveries

STATEMENTS = sql_loader.statements("sqlite")
NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    with closing(
        SqliteStore(tmp_path_factory.mktemp("prepared") / "gatepost.db", clock.now, create_deliveries)
    ) as store:
        store.migrate()
        yield store


@pytest.fixture
def database(migrated: SqliteStore) -> Iterator[apsw.Connection]:
    """A connection of its own, which has prepared nothing yet. Everything that is done is rolled back."""
    with closing(migrated._file.open()) as opened:
        yield opened


def execute(database: apsw.Connection, statement: str, value: "apsw.SQLiteValue") -> None:
    """With one value for all parameters: what no table takes is refused, but only when it is run."""
    database.execute("BEGIN IMMEDIATE")
    try:
        names = set(NAMED.findall(statement))
        values = dict.fromkeys(names, value) if names else [value] * statement.count("?")
        database.execute(statement, values).fetchall()
    except (apsw.ConstraintError, apsw.MismatchError):
        pass
    finally:
        database.execute("ROLLBACK")


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_value_has_a_statement_prepared_again(database: apsw.Connection, name: str) -> None:
    statement = STATEMENTS[name]
    if "/*given:" in statement:
        statement = sql_loader.for_rows(statement, 3)
    asked: list[int] = []

    def authorize(operation: int, *_about: object) -> int:
        asked.append(operation)
        return apsw.SQLITE_OK

    database.authorizer = authorize  # who is asked when a statement is prepared
    execute(database, statement, b"a")
    assert asked
    asked.clear()
    for value in (b"a", b"b", 1, 0, None):
        execute(database, statement, value)
    assert asked == []
