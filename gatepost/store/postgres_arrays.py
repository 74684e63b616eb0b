"""Columns of rows as arrays in PostgreSQL's binary format. The driver takes five times as long to encode a list.

The format: the number of dimensions, whether there are NULLs, the type of the elements, their number, the first index,
and each element after its length, or -1 for NULL.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import postgres
from psycopg.adapt import Dumper
from psycopg.pq import Format

from gatepost.store import sql_loader

_HEADER = struct.Struct("!iiIii")
_NULL = (-1).to_bytes(4, "big", signed=True)


class Array:
    """An encoded array. psycopg finds the type by the class, so each type has its own."""

    __slots__ = ("encoded",)

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded


def _of_type(kind: str) -> tuple[type[Array], type[Dumper]]:
    class OfType(Array):
        __slots__ = ()

    class OfTypeDumper(Dumper):
        format = Format.BINARY
        oid = postgres.types[kind].array_oid

        def dump(self, obj: Any) -> bytes:
            return bytes(obj.encoded)

    return OfType, OfTypeDumper


def _bytes(values: Sequence[bytes | None]) -> bytes:
    if None not in values and len(lengths := set(map(len, values))) == 1:  # type: ignore[arg-type]
        length = lengths.pop().to_bytes(4, "big")  # of all of them, as for ids
        return length + length.join(values)  # type: ignore[arg-type]
    return b"".join([_NULL if value is None else len(value).to_bytes(4, "big") + value for value in values])


def _texts(values: Sequence[str | None]) -> bytes:
    return _bytes([None if value is None else value.encode() for value in values])


def _numbers(size: int, format_: str) -> Callable[[Sequence[int | None]], bytes]:
    pack = struct.Struct(format_).pack

    def encode(values: Sequence[int | None]) -> bytes:
        return b"".join([_NULL if value is None else pack(size, value) for value in values])

    return encode


_ELEMENTS: dict[str, Callable[[Any], bytes]] = {
    "bytea": _bytes,
    "text": _texts,
    "integer": _numbers(4, "!ii"),
    "bigint": _numbers(8, "!iq"),
}
_OF_TYPE = {kind: _of_type(kind) for kind in _ELEMENTS}


def register(database: psycopg.Connection[Any]) -> None:
    """Let this connection take encoded arrays as parameters."""
    for array, dumper in _OF_TYPE.values():
        database.adapters.register_dumper(array, dumper)


def encode(kind: str, values: Sequence[Any]) -> Array:
    """Encode an array that has at least one element. `kind` is the type of the elements in SQL.

    Many columns have the same value in all rows.
    """
    encode_elements = _ELEMENTS[kind]
    try:
        if values.count(values[0]) == len(values):
            elements = encode_elements(values[:1]) * len(values)
        else:
            elements = encode_elements(values)
    except struct.error:
        raise psycopg.DataError(f"a number is too large for {kind}") from None
    header = _HEADER.pack(1, None in values, postgres.types[kind].oid, len(values), 1)
    return _OF_TYPE[kind][0](header + elements)


def columns_of(text: str, rows: list[tuple[Any, ...]], prefix: str = "") -> dict[str, Array]:
    """The columns of the rows that a statement is given, as arrays."""
    return of_columns(text, by_name(text, rows), prefix)


def by_name(text: str, rows: list[tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """The columns of the rows that a statement is given."""
    return dict(zip(sql_loader.given_columns(text), zip(*rows, strict=True), strict=True))


def of_columns(text: str, columns: Mapping[str, Sequence[Any]], prefix: str = "") -> dict[str, Array]:
    """The columns that the statement takes as arrays."""
    return {prefix + name: encode(kind, columns[name]) for name, kind in sql_loader.array_types(text).items()}
