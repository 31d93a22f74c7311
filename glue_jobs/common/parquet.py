"""Small Parquet files without Spark, by DuckDB: the same rows that Spark reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final

from eventplane.archive_layout import Column, ColumnType
from glue_jobs.common.listing import ROW_SHARE

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


def read_rows(
    session: DuckDBPyConnection, content: bytes, columns: Sequence[Column], most: int
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a file, with these `columns`: null where it has no such column.

    Raises `UnreadableFileError`, maybe after some rows, and `OverflowError` if its texts have more than
    `most` bytes, or those of one row more than a `ROW_SHARE`.
    """
    import duckdb

    with NamedTemporaryFile(suffix=".parquet") as file:
        file.write(content)
        file.flush()
        try:
            # A page that is decompressed: no compaction writes one as large.
            session.execute(f"SET memory_limit = '{most}B'")
            described = session.execute("DESCRIBE SELECT * FROM read_parquet(?)", [file.name]).fetchall()
            there = {name: kind for name, kind, *_ in described}
            if any(there.get(each.name, _TYPES[each.type]) != _TYPES[each.type] for each in columns):
                raise UnreadableFileError
            names = [f'"{each.name}"' if each.name in there else "NULL" for each in columns]
            # Of few bytes there may be as many rows of a long text: they are measured before there are any.
            bytes_of_row = " + ".join(f"COALESCE(STRLEN({each}::VARCHAR), 0)" for each in names)
            measure = f"SELECT SUM(size), MAX(size) FROM (SELECT {bytes_of_row} AS size FROM read_parquet(?))"  # noqa: S608
            size, largest = session.execute(measure, [file.name]).fetchall()[0]
            if size and (size > most or largest > most // ROW_SHARE):
                raise OverflowError
            rows = session.execute(f"SELECT {', '.join(names)} FROM read_parquet(?)", [file.name])  # noqa: S608
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
