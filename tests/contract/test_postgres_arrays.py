"""PostgreSQL reads encoded arrays as the values that they were made of."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatepost.store import postgres_arrays
from gatepost.store.postgres_connection import Database, open_database

ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "bytea": st.binary(max_size=2000) | st.binary(min_size=16, max_size=16),
    "text": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=500),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
}


@pytest.fixture(scope="module")
def database(shared_database: str) -> Iterator[Database]:
    with open_database(shared_database) as opened:
        yield opened


def read(database: Database, kind: str, values: list[Any]) -> list[Any]:
    text = f"SELECT %(values)b::{kind}[]"
    return list(database.execute(text, {"values": postgres_arrays.encode(kind, values)}).fetchall()[0][0])


@pytest.mark.parametrize("kind", ELEMENTS)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_values_and_nulls_arrive_as_they_are(database: Database, kind: str, data: st.DataObject) -> None:
    elements = st.none() | ELEMENTS[kind]
    repeated = st.builds(lambda value, count: [value] * count, elements, st.integers(1, 20))
    values = data.draw(repeated | st.lists(elements, min_size=1, max_size=20))
    assert read(database, kind, values) == values


@pytest.mark.parametrize(("kind", "value"), [("integer", 2**31), ("bigint", -(2**63) - 1), ("text", "a\0b")])
def test_a_value_that_the_type_does_not_allow_is_an_error_in_the_data(
    database: Database, kind: str, value: Any
) -> None:  # fmt: skip
    with pytest.raises(psycopg.DataError):
        read(database, kind, [value])
