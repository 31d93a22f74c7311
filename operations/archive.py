"""Reading the archive line by line, only the days that are asked for, some objects at a time."""

from __future__ import annotations

import argparse
import gzip
import json
import zlib
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import MISSING, fields
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, TypeVar

from eventplane.archive_layout import COMPACTIONS
from eventplane.contract.publication import HEADS, Head, read_head
from eventplane.ledger import CONTRACTS, HANDOVERS, LEDGER, TAP, HandoverRecord, LedgerRecord, TapRecord
from eventplane.resource_names import archive_bucket
from eventplane.values import MAX_TIME_MS, timestamp_ms, whole_number
from operations import system
from operations.command import ChoiceError, day, say
from operations.errors import ArchiveMissingError

if TYPE_CHECKING:
    from operations.cloud import Cloud

_PARALLEL: Final = 8
"""Objects read at a time: reading one mostly waits for S3."""

_S3: Final = "s3://"

T = TypeVar("T")

Hours = tuple[datetime, datetime]
"""The hours from one moment to another, both included."""

Record = dict[str, Any]
Wanted = Callable[[bytes], Record | None]
"""Gives the record of a line, or None for one that is not asked for."""


class Archive(Protocol):
    """A place where the archive lies."""

    def names(self, prefix: str) -> Iterable[str]:
        """Yield the names of the objects under `prefix`, from the archive's root."""

    def open(self, name: str) -> IO[bytes]:
        """Open the object `name` for reading. Raises `FileNotFoundError`."""


class BucketArchive:
    """The archive in an S3 `bucket`. Raises `ArchiveMissingError`."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        try:
            s3.head_bucket(Bucket=bucket)
        except s3.exceptions.ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("404", "NoSuchBucket"):
                raise ArchiveMissingError(f"s3://{bucket}") from error
            raise

    def names(self, prefix: str) -> Iterator[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        return (each["Key"] for page in pages for each in page.get("Contents", []))

    def open(self, name: str) -> IO[bytes]:
        try:
            body: IO[bytes] = self._s3.get_object(Bucket=self._bucket, Key=name)["Body"]
        except self._s3.exceptions.ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchKey":
                raise FileNotFoundError(name) from error
            raise
        return body


class FolderArchive:
    """A copy of the archive in a local folder. Raises `ArchiveMissingError`."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise ArchiveMissingError(str(root))
        self._root = root

    def names(self, prefix: str) -> Iterator[str]:
        files = (self._root / prefix).rglob("*")
        return (each.relative_to(self._root).as_posix() for each in sorted(files) if each.is_file())

    def open(self, name: str) -> IO[bytes]:
        return (self._root / name).open("rb")


def body_of(archive: Archive, name: str) -> bytes | None:
    """Return the content of an object; None where there is none of that name."""
    try:
        with closing(archive.open(name)) as file:
            return file.read()
    except FileNotFoundError:
        return None


class Days:
    """The archive's folders from `first` to `last`, UTC days by which it was written; with `hours` only those
    from the first to the last of these. `damaged` has the objects that could not be read to their end, with
    the reason."""

    def __init__(self, archive: Archive, first: date, last: date, hours: Hours | None = None) -> None:
        self._archive = archive
        self._hours = hours
        self.first, self.last = first, last
        self.damaged: dict[str, str] = {}
        self._contracts: dict[str, bytes | None] = {}
        self._found: dict[tuple[str, Hashable], dict[str, list[Any]]] = {}

    def records(self, folder: str, wanted: Wanted, about: Hashable = None) -> Iterator[Record]:
        """The records that `wanted` gives for the lines of `folder`, each with what its kind always has.

        `about` is as in `rows`.
        """

        def checked(line: bytes) -> Record | None:
            record = wanted(line)
            if record is not None:
                check_row(record, folder)
            return record

        return self.rows(folder, checked, about)

    def rows(self, folder: str, wanted: Callable[[bytes], T | None], about: Hashable = None) -> Iterator[T]:
        """Yield what `wanted` returns for the lines of `folder`. No object is in memory as a whole, and only
        what was found in the few that are read ahead. Objects do not change: what is asked for again `about`
        the same is read in new ones only, and what was found in the others is kept.
        """
        kept = None if about is None else self._found.setdefault((folder, about), {})
        read = self.rows_of if kept is None else partial(self._kept, kept)
        with system.pool(_PARALLEL) as workers:
            ahead: deque[Callable[[], list[T]]] = deque()
            for name in self.names(folder, self._hours):
                ahead.append(workers.submit(partial(read, name, wanted)).result)
                if len(ahead) > _PARALLEL:
                    yield from ahead.popleft()()
            while ahead:
                yield from ahead.popleft()()

    def contract(self, version: str) -> bytes | None:
        """The compiled contract of a version, if the archive has it; each is fetched once."""
        if version not in self._contracts:
            self._contracts[version] = body_of(self._archive, f"{CONTRACTS}/{version}.json")
        return self._contracts[version]

    def candidates(self, at_ms: int) -> set[str]:
        """Return the contracts that were rolled out at a moment, Unix ms; a damaged head counts for none."""
        latest = dict[str, Head]()
        for name in self._archive.names(f"{CONTRACTS}/{HEADS}"):
            with suppress(ValueError, RecursionError):
                head = read_head(body_of(self._archive, name) or b"")
                before = latest.get(head.base, head)
                if timestamp_ms(before.published_at) <= timestamp_ms(head.published_at) <= at_ms:
                    latest[head.base] = head
        return {each.candidate for each in latest.values() if each.candidate}

    def names(self, folder: str, hours: Hours | None = None) -> Iterator[str]:
        """The objects of `folder`; with `hours` only those that were written from the first to the last."""
        within = hours and tuple(f"{each:date=%Y-%m-%d/hour=%H}" for each in hours)
        for number in range((self.last - self.first).days + 1):
            for name in self._archive.names(f"{folder}/date={self.first + timedelta(days=number)}/"):
                # Hadoop leaves hidden files beside its own, a checksum for instance.
                if PurePosixPath(name).name.startswith((".", "_")):
                    continue
                if within is None or within[0] <= "/".join(_hour(name)) <= within[1]:
                    yield name

    def left(self, folder: str) -> str | None:
        """Up to which day raw lines of `folder` have left, in words; None if no compacted hour lacks them."""
        raw = {_hour(name) for name in self.names(folder)}
        left = {_hour(name) for name in self.names(f"{COMPACTIONS}/{folder}")} - raw
        if not left:
            return None
        until = f"raw lines up to {max(left)[0].removeprefix('date=')} have left (raw_days)"
        return f"{until}: query the table `{folder}` in Athena, or restore them"

    def _kept(self, kept: dict[str, list[T]], name: str, wanted: Callable[[bytes], T | None]) -> list[T]:
        if name in kept:
            return kept[name]
        found = self.rows_of(name, wanted)
        if name not in self.damaged:
            kept[name] = found
        return found

    def rows_of(self, name: str, wanted: Callable[[bytes], T | None]) -> list[T]:
        """Return what `wanted` returns for the lines of the object `name`."""
        found: list[T] = []
        try:
            with closing(self._archive.open(name)) as packed, gzip.GzipFile(fileobj=packed) as lines:
                for line in lines:
                    try:
                        row = wanted(line)
                    except (ValueError, LookupError, TypeError, RecursionError) as error:
                        self.damaged[name] = f"a line is no record: {error!r}"
                        continue
                    if isinstance(row, dict):
                        row["archive_file"] = name
                    if row is not None:
                        found.append(row)
        except (EOFError, OSError, zlib.error) as error:
            self.damaged[name] = str(error)
        return found


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,), "str": (str,), "Outcome": (str,), "str | None": (str, type(None)),
    "int | None": (int, type(None)), "Basis": (str,),
}  # fmt: skip
_SHAPES: Final = {
    folder: [(each.name, _KINDS[str(each.type)], each.default) for each in fields(kind)]
    for folder, kind in ((TAP, TapRecord), (LEDGER, LedgerRecord), (HANDOVERS, HandoverRecord))
}
"""Of each folder's rows the members: name, types, and what one that lacks it has."""


def _hour(name: str) -> tuple[str, ...]:
    """The partition of an object: its `date=` and `hour=`."""
    return PurePosixPath(name).parent.parts[-2:]


def check_row(row: Record, folder: str) -> None:
    """Raise TypeError, LookupError or ValueError for a row that lacks what `folder` has in each."""
    for name, kinds, default in _SHAPES[folder]:
        value = row[name] if default is MISSING else row.get(name, default)
        if not isinstance(value, kinds):
            raise TypeError(f"{name} is {value!r:.100}")
        if isinstance(value, int):
            whole_number(value, MAX_TIME_MS)
        elif isinstance(value, str):
            value.encode()  # half a surrogate pair is no text


def json_object(line: bytes) -> Record | None:
    """The JSON object of a line; None for other JSON. Raises ValueError for what is no JSON."""
    value = json.loads(line)
    return value if isinstance(value, dict) else None


def add_archive(parser: argparse.ArgumentParser) -> None:
    """Add `--archive`."""
    parser.add_argument(
        "--archive",
        metavar="PLACE",
        help="s3://BUCKET, or a folder with a copy; default: the environment's bucket",
    )


def add_days(parser: argparse.ArgumentParser) -> None:
    """Add `--archive`, and `--from` and `--to` for its days."""
    today = system.now().date()
    parser.add_argument(
        "--from",
        dest="first",
        type=day,
        default=today - timedelta(days=1),
        metavar="DATE",
        help="first day of the archive that is read (UTC, by the hour of writing); default: yesterday",
    )
    parser.add_argument(
        "--to", dest="last", type=day, default=today, metavar="DATE", help="last day; default: today"
    )
    add_archive(parser)


def is_folder(place: str | None) -> bool:
    """Return whether the archive at `place` is a folder on this machine, which needs no cloud."""
    return place is not None and not place.startswith(_S3)


def archive_of(options: argparse.Namespace, cloud: Cloud | None = None) -> Archive:
    """Return the archive that is named; a bucket is in `cloud`, by default entered now.

    Raises `ArchiveMissingError`, what `enter` raises.
    """
    place: str | None = options.archive
    if place is not None and is_folder(place):
        return FolderArchive(Path(place))
    if cloud is None:
        from operations.cloud import enter  # what reads a folder needs no AWS

        cloud = enter(options.env)
    bucket = place.removeprefix(_S3) if place else archive_bucket(options.env, cloud.account, cloud.region)
    return BucketArchive(cloud.s3, bucket.rstrip("/"))


def check_days(options: argparse.Namespace) -> None:
    """Raise `ChoiceError` where the named days are none."""
    if options.first > options.last:
        raise ChoiceError(f"no day is from {options.first} to {options.last}; name the earlier one by --from")


def days_of(options: argparse.Namespace, cloud: Cloud | None = None) -> Days:
    """Return the days that are named, as `archive_of` the archive. Raises `ChoiceError` as well."""
    check_days(options)
    return Days(archive_of(options, cloud), options.first, options.last)


def say_damaged(days: Days) -> None:
    """Report what of the archive could not be read; known once all of it was read."""
    for name, problem in days.damaged.items():
        say(f"{name} could not be read to its end: {problem}")
