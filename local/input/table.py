"""Rows of CSV files as the data sets have them: compressed or not, any line end."""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Iterator
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from local.input.errors import InputFileError, InputMissingError, InputRowError

Row = tuple[int, list[str]]
"""A row's line number, from 1, and its fields."""


def read_rows(
    path: Path, columns: int, *, delimiter: str = ",", header: list[str] | None = None
) -> Iterator[Row]:
    """The rows of a CSV file, each of `columns` fields; the first must be the `header`, if there is one.

    Raises `InputMissingError`, `InputFileError` and `InputRowError`.
    """
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), delimiter=delimiter)
    if header is not None and next(reader, None) != header:
        raise InputRowError(path, 1, f"the header is not {delimiter.join(header)!r}")
    for fields in reader:
        if len(fields) != columns:
            raise InputRowError(path, reader.line_num, f"{len(fields)} fields instead of {columns}")
        yield reader.line_num, fields


def number(path: Path, line: int, text: str) -> int | float:
    """A finite number. Raises `InputRowError`."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if type(value) not in (int, float) or not isfinite(value):
        raise InputRowError(path, line, f"{text!r} is not a number")
    return value  # type: ignore[no-any-return]


def utc_time(path: Path, line: int, text: str) -> datetime:
    """A time as `2019-04-01 07:58:18`. Raises `InputRowError`.

    The data set does not say its time zone. UTC is assumed: it keeps the order and repeats no hour.
    """
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError as error:
        raise InputRowError(path, line, f"{text!r} is not a time such as 2019-04-01 07:58:18") from error


def unix_time(path: Path, line: int, text: str) -> datetime:
    """A time in Unix seconds. Raises `InputRowError`."""
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InputRowError(path, line, f"{text!r} is not a time in Unix seconds") from error


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise InputMissingError(path, "DATA must name the folder with the complete data sets") from error
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror}") from error
    try:
        return (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8")
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise InputFileError(path, f"cannot be decoded: {error}") from error
