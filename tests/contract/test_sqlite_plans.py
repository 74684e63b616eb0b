"""Plans of SQLite: a statement reads rows in the order of an index, and does not sort all that it finds."""

import re
from pathlib import Path

import apsw
import pytest

from gatepost.core import clock
from gatepost.store import sql_loader
from gatepost.store.sqlite import BUSY
from gatepost.store.sqlite_file import SqliteFile

TEXTS = sql_loader.statements("sqlite")
SORTING = {
    "nodes": "the nodes are few",
    "attempts_given": "attempts of given deliveries",
    "deliveries_since": "counts of one account",
    "count_queue": "a limited number of rows",
    "retention_classes": "the retentions that accounts have",
    "tallied": "counts of one account",
    "endpoint_tallies_given": "counts of given endpoints",
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    path = tmp_path_factory.mktemp("plans") / "gatepost.db"
    file = SqliteFile(Path(path), clock.now, BUSY, 2**20)
    file.migrate()
    return file.open()


def plan(database: apsw.Connection, text: str) -> list[str]:
    """The plan of a statement, for two rows if it is given rows."""
    if text.startswith("/*given:"):
        values = [None] * (2 * len(sql_loader.given_columns(text)))
        return [row[3] for row in database.execute("EXPLAIN QUERY PLAN " + sql_loader.for_rows(text, 2), values)]
    parameters = dict.fromkeys(re.findall(r"(?<![:\w]):([a-z_]+)", text))
    return [row[3] for row in database.execute("EXPLAIN QUERY PLAN " + text, parameters)]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_statement_sorts_few_rows_or_none(database: apsw.Connection, name: str) -> None:
    sorts = [line for line in plan(database, TEXTS[name]) if "TEMP B-TREE" in line]
    assert bool(sorts) == (name in SORTING), sorts
