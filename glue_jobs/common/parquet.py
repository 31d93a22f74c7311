"""Small Parquet files without Spark, by DuckDB: the same rows that Spark reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final

from eventplane.archive_layout import Column, ColumnType

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TYPES: Final = {
    ColumnType.TEXT: "VARCHAR",
    ColumnType.WHOLE_NUMBER: "BIGINT",
    ColumnType.TRUTH: "BOOLEAN",
}
_TOGETHER: Final = 1_000
"""Rows that are fetched at a time."""


class UnreadableFileError(Exception):
    """Some content is not Parquet, or cannot be read to its end."""


def open_session() -> DuckDBPyConnection:
    """Return what reads and writes; it takes 20 ms to open."""
    # Only here: Glue has no DuckDB, and an audit of raw lines without tables needs none.
    import duckdb

    # Extensions would be downloaded.
    return duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False})


def read_rows(session: DuckDBPyConnection, content: bytes, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a file, with the columns `names`: null where it has no such column.

    Raises `UnreadableFileError`, maybe after some rows.
    """
    import duckdb

    with NamedTemporaryFile(suffix=".parquet") as file:
        file.write(content)
        file.flush()
        try:
            found = session.execute("SELECT name FROM parquet_schema(?)", [file.name]).fetchall()
            there = {name for (name,) in found}
            columns = ", ".join(f'"{each}"' if each in there else "NULL" for each in names)
            rows = session.execute(f"SELECT {columns} FROM read_parquet(?)", [file.name])  # noqa: S608
            while some := rows.fetchmany(_TOGETHER):
                yield from some
        except duckdb.Error as error:
            raise UnreadableFileError from error


def file_of(session: DuckDBPyConnection, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> bytes:
    """Return a file with these `rows`, at least one."""
    values = [[*each] for each in zip(*rows, strict=True)]
    lists = ", ".join(
        f'unnest(${place}::{_TYPES[each.type]}[]) AS "{each.name}"'
        for place, each in enumerate(columns, start=1)
    )
    with NamedTemporaryFile(suffix=".parquet") as file:
        session.execute(f"COPY (SELECT {lists}) TO '{file.name}' (FORMAT parquet)", values)
        # It is another file of that name.
        return Path(file.name).read_bytes()
