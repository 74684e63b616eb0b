"""Parquet files: writing rows in groups of bounded size, and reading them in batches. Only this file uses pyarrow."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from gatepost.core import files

Row = tuple[Any, ...]
Kind = Literal["text", "texts", "bytes", "integer", "number", "time"]
Encoding = Literal["dictionary", "delta", "plain"]

_GROUP_ROWS = 50_000
_GROUP_BYTES = 64 * 1024 * 1024  # of text, so that large events do not fill the memory
_BATCH = 1000  # rows
_LEVEL = 9  # of zstd

_TYPES = {
    "text": pa.string(), "texts": pa.list_(pa.string()), "bytes": pa.binary(), "integer": pa.int64(),
    "number": pa.float64(), "time": pa.timestamp("ms", tz="UTC"),
}  # fmt: skip


class Column(NamedTuple):
    """A column. Values of `time` are milliseconds. `delta` suits ids and times, which follow each other closely."""

    name: str
    kind: Kind
    encoding: Encoding
    optional: bool = False


class Table(NamedTuple):
    """The table in a file."""

    name: str
    columns: tuple[Column, ...]

    @property
    def file(self) -> str:
        return f"{self.name}.parquet"


class Unreadable(Exception):
    """A file is not a Parquet file, or has other columns."""


def _schema(table: Table) -> Any:
    return pa.schema([pa.field(column.name, _TYPES[column.kind], column.optional) for column in table.columns])


class Writer:
    """Writes a new file, which only its owner can read."""

    def __init__(self, directory: Path, table: Table) -> None:
        self.path = directory / table.file
        self.rows = 0  # that were added
        self._table = table
        self._group: list[Row] = []
        self._group_bytes = 0
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        by_dictionary = [_path(column) for column in table.columns if column.encoding == "dictionary"]
        self._writer = pq.ParquetWriter(
            self._file, _schema(table), compression="zstd", compression_level=_LEVEL, use_dictionary=by_dictionary,
            column_encoding={column.name: _delta(column) for column in table.columns if column.encoding == "delta"},
        )  # fmt: skip

    def add(self, row: Row) -> None:
        self.rows += 1
        self._group.append(row)
        self._group_bytes += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(self._group) >= _GROUP_ROWS or self._group_bytes >= _GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        columns = zip(self._table.columns, zip(*self._group, strict=True), strict=True)
        arrays = [pa.array(values, _TYPES[column.kind]) for column, values in columns]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=_schema(self._table)), len(self._group))
        self._group, self._group_bytes = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Complete the file, and wait until it is on the disk. After an error, only close it."""
        with self._file:
            try:
                if self._group and error is None:
                    self._write_group()
                self._writer.close()
            finally:
                self._writer.is_open = False  # so that pyarrow does not try again after a failure
        if error is None:
            files.sync(self.path)


def _path(column: Column) -> str:
    return f"{column.name}.list.element" if column.kind == "texts" else column.name


def _delta(column: Column) -> str:
    return "DELTA_BYTE_ARRAY" if column.kind == "text" else "DELTA_BINARY_PACKED"


def read(path: Path, table: Table) -> Iterator[Row]:
    """Read the rows of a file in their order. Raises `Unreadable`.

    pyarrow gets the open file, because it accepts only paths that are valid UTF-8.
    """
    try:
        with files.open_regular(path) as opened, pq.ParquetFile(opened) as file:
            if not file.schema_arrow.equals(_schema(table)):
                raise Unreadable("it has other columns than this release writes")
            for batch in file.iter_batches(_BATCH):
                yield from zip(*(_values(values) for values in batch.columns), strict=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unreadable(str(error).splitlines()[0] if str(error) else type(error).__name__) from None


def _values(values: Any) -> list[Any]:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return values.to_pylist()  # type: ignore[no-any-return]
