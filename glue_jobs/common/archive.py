"""The one reader of the archive: raw lines and compacted Parquet as typed rows, damaged objects isolated.

A closed hour is read from its compacted files, as the receipt of its compaction says; raw objects that the
compaction has not seen, and hours that are not compacted, are read as lines. Only the folders of the days
asked for are listed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from eventplane.archive_layout import COMPACTED, DIGEST, TAP_ATTRIBUTES, Column, ColumnType, Folder
from eventplane.attributes import STRINGS
from eventplane.device_reports import DISCARDED, MANIFEST, STARTED
from eventplane.ledger import TAP
from eventplane.written import Entry
from glue_jobs.common import system
from glue_jobs.common.attestation import AttestationKey
from glue_jobs.common.hours import Days, Hour, hour_of
from glue_jobs.common.listing import (
    LINES,
    PARQUET,
    TOGETHER,
    Gone,
    HourReceipt,
    Listing,
    ObjectFault,
    whole_lines,
)
from glue_jobs.common.objects import Objects, Stored

CORRUPT: Final = "_corrupt_record"
"""Where Spark's JSON reader puts a line that does not fit the schema."""

REPORTS: Final = (STARTED, DISCARDED, MANIFEST)
"""Types of the device reports whose text the audit reads: column `report`."""

_NONE: Final[Mapping[str, int]] = MappingProxyType({})

T = TypeVar("T")
_Ask = Mapping[str, Collection[str]]
"""The attributes of events that a reader asks for, by the struct that is to have them."""

_TYPES: Final[dict[ColumnType, DataType]] = {
    ColumnType.TEXT: StringType(),
    ColumnType.WHOLE_NUMBER: LongType(),
    ColumnType.TRUTH: BooleanType(),
}

# With an option set, Spark's optimizer leaves the schema alone. Otherwise it parses the text once for each
# member that is used (OptimizeCsvJsonExprs). By default it reads more than JSON.
_PARSE_ONCE: Final = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}

_KINDS: Final[dict[str, DataType]] = {
    "texts": StringType(),
    "integers": IntegerType(),
    "booleans": BooleanType(),
}
_TYPED_KINDS: Final = ("integers", "booleans")

_TYPED: Final = r"^(?:-?(?:0|[1-9][0-9]*)|true|false)$"
"""The text of a value that JSON may have written without quotes."""

_GLOB: Final = re.compile(r"([\\\[\]{}*?])")
_ESCAPED: Final = r"\\\1"
_LINE: Final = "value string, file string"

_PARQUET_MAGIC: Final = b"PAR1"
"""What a Parquet file begins and ends with (Apache Parquet, "File format")."""

_EVENT: Final = "event"
"""The column of the tap that holds an event's text."""

_DATA: Final = ("data", "data_base64")
"""Where an event has its data."""


@dataclass(frozen=True)
class ArchivePart:
    """The rows of one folder and of some days, the objects that they were read from, and their faults.

    `hours` are those for which the archive has at least one object, raw or compacted; `receipts` the attested
    ones of their compactions. `gone` is what writers list and is not there, `entries` all that they list;
    without any only hours without an object are missed.
    """

    rows: Any
    objects: tuple[Stored, ...]
    faults: tuple[ObjectFault, ...]
    hours: frozenset[Hour]
    receipts: tuple[HourReceipt, ...] = ()
    gone: tuple[Gone, ...] = ()
    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, rows: Any, listing: Listing, held: Mapping[str, int] = _NONE) -> ArchivePart:
        """Return `rows` that were read as `listing` says: a `DataFrame`, or a list read without Spark.

        `held` are the rows of gone objects in files of compactions that are not attested
        (`has_unattested_files`). They are judged, so that they are not missing: a wrong key excuses no loss.
        """
        faults = (
            replace(each, rows=held[each.name]) if each.kind == "gone" and each.name in held else each
            for each in listing.faults
        )
        return cls(
            rows,
            tuple(listing.objects),
            tuple(faults),
            frozenset(listing.plans),
            tuple(plan.receipt for plan in listing.plans.values() if plan.receipt),
            tuple(each._replace(rows=max(0, each.rows - held.get(each.name, 0))) for each in listing.gone),
            tuple(listing.entries),
        )


class Archive:
    """Reads the archive in `objects` with `spark`.

    The rows that `read` returns are lazy. Run what uses them by `isolating`, so that a damaged object becomes
    a fault of the next reading instead of the end of the job.
    """

    def __init__(self, spark: SparkSession, objects: Objects) -> None:
        self._spark = spark
        self._objects = objects
        self._read: dict[str, Stored] = {}
        self._damaged: dict[str, ObjectFault] = {}

    def listed(self, folder: Folder, days: Days, key: AttestationKey) -> Listing:
        """List what `folder` holds of the days (UTC days of writing), for `read`.

        Receipts count that `key` attested.
        """
        listing = Listing(self._objects, key, folder, days, self._damaged)
        self._read.update((each.name, each) for each in listing.objects)
        return listing

    def read(
        self,
        listing: Listing,
        *,
        texts: Collection[str] = (),
        integers: Collection[str] = (),
        booleans: Collection[str] = (),
    ) -> ArchivePart:
        """Return what the archive holds of a folder and some days.

        The rows have the folder's columns and `date` (of the folder), `file` (the raw object's name), `line`
        (the text of a line that is no such record, else null) and `unknown_members` (whether the line has
        members that no column holds). Rows of the tap also have the structs `texts`, `integers` and
        `booleans`, with the event's attributes that are asked for, each null where the event has none or one
        of another JSON type (`texts` has the canonical text of any type); `data_digest`, equal for equal
        data; `event_digest`; `event_bytes`; and `report`, the event's text if it is one of `REPORTS`.
        """
        ask = {"texts": texts, "integers": integers, "booleans": booleans}
        compacted = [*self._compacted(listing)]
        frames = [(self._records(listing), False), *compacted]
        held = _unattested_rows(listing, [rows for rows, _ in compacted])
        shaped = [_shaped(rows, listing.folder, ask, has_envelope) for rows, has_envelope in frames]
        return ArchivePart.of(reduce(DataFrame.unionByName, shaped), listing, held)

    def isolating(self, work: Callable[[], T]) -> T:
        """Return what `work` returns. If it fails over damaged objects, find them, and run it again.

        `work` has to read anew: then `read` goes around the damage, and has a fault for each such object.
        """
        while True:
            try:
                return work()
            except (PySparkException, Py4JError):
                # Only what was read before the failure is checked: the next folder may make it fail again.
                if not self.find_damage():
                    raise

    def find_damage(self) -> bool:
        """Check every object that was read, and return whether more are damaged than were known."""
        before = {name for name in self._read if name not in self._damaged}
        names = self._present(before)
        found = self.damage(self._read[name] for name in names)
        self._damaged |= {each.name: each for each in found}
        for gone in before - names:
            # A compaction or an erasure ran meanwhile: the next reading lists what there is now.
            del self._read[gone]
        return bool(found) or names != before

    def _present(self, names: Collection[str]) -> set[str]:
        folders = {name.rpartition("/")[0] for name in names}
        with system.pool(TOGETHER) as together:
            listed = together.map(self._objects.beneath, folders)
        return {each.name for found in listed for each in found} & {*names}

    def lines(self, folder: Folder, roots: Iterable[str]) -> DataFrame:
        """Return the lines of raw objects that are not blank: `value` and `file`, the object's name.

        `roots` are names of objects and of folders, in which all are read. S3 lists a thousand objects for
        the price of looking one up by its name.
        """
        uris = self._uris(roots)
        if not uris:
            return self._spark.createDataFrame([], _LINE)
        reader = self._spark.read.option("pathGlobFilter", f"*{LINES}")
        found = reader.option("recursiveFileLookup", "true").text(uris)
        return found.select("value", _name(folder).alias("file")).where(sf.trim("value") != "")

    def damage(self, stored: Iterable[Stored]) -> list[ObjectFault]:
        """Read objects to their ends, in the executors, and return those that cannot be."""
        names = [each.name for each in stored if each.size]
        return [*self._damaged_lines(names), *self._damaged_files(names)]

    def _records(self, listing: Listing) -> DataFrame:
        """The lines of raw objects as records."""
        lines = self.lines(listing.folder, listing.roots())
        if damaged := self._uris(listing.damaged()):
            content = self._spark.read.format("binaryFile").load(damaged).select("path", "content")
            name, folder = _name_of, listing.folder.name
            recovered = content.rdd.flatMap(
                lambda row: [(line, name(folder, row[0])) for line in whole_lines(bytes(row[1]))[0]]
            )
            lines = lines.unionByName(self._spark.createDataFrame(recovered, _LINE))
        return records(lines, listing.folder)

    def _uris(self, names: Iterable[str]) -> list[str]:
        # Spark takes a path for a pattern.
        return [f"{self._objects.uri}/{_GLOB.sub(_ESCAPED, each)}" for each in names]

    def _compacted(self, listing: Listing) -> Iterator[tuple[DataFrame, bool]]:
        """The rows of compacted files: those with the columns of the envelope, and those without."""
        for has_envelope in (True, False):
            plans = [each for each in listing.plans.values() if each.files]
            plans = [each for each in plans if each.has_envelope(listing.folder) == has_envelope]
            for is_damaged in (False, True):
                names = [
                    each.name
                    for plan in plans
                    for each in plan.files
                    if (each.name in self._damaged) == is_damaged
                ]
                if not names:
                    continue
                reader = self._spark.read.schema(struct_of(listing.folder.compacted_columns))
                reader = reader.option("ignoreCorruptFiles", str(is_damaged).lower())
                rows = reader.parquet(*(f"{self._objects.uri}/{name}" for name in names))
                if present := sorted({name for plan in plans for name in plan.present}):
                    rows = rows.where(~sf.col("archive_file").isin(present))
                yield _as_records(rows, listing.folder, has_envelope), has_envelope

    def _damaged_lines(self, names: Collection[str]) -> Iterator[ObjectFault]:
        found = sorted(name for name in names if name.endswith(LINES))
        if not found:
            return
        content = self._spark.read.format("binaryFile").load(self._uris(found)).select("path", "content")
        for path, problem, rows in content.rdd.flatMap(_problems).collect():
            name = next(name for name in found if path.endswith(f"/{name}"))
            yield lines_fault(name, problem, rows)

    def _damaged_files(self, names: Collection[str]) -> Iterator[ObjectFault]:
        files = [name for name in names if name.endswith(PARQUET)]
        with system.pool(TOGETHER) as together:
            for name, is_readable in zip(files, together.map(self._is_readable, files), strict=True):
                if not is_readable:
                    # How many rows an intact part of the file still gives depends on who reads it.
                    yield file_fault(name, self._objects.read(name) or b"")

    def _is_readable(self, name: str) -> bool:
        try:
            rows = self._spark.read.parquet(f"{self._objects.uri}/{name}")
            rows.agg(sf.sum(sf.xxhash64(*rows.columns))).collect()
        except (PySparkException, Py4JError):
            return False
        return True


def has_unattested_files(listing: Listing) -> bool:
    """Return whether rows of gone objects may be in files of compactions that are not attested."""
    plans = (plan for each in listing.gone if (plan := listing.plans.get(each.hour)))
    return any(plan.files and not plan.receipt for plan in plans)


def _unattested_rows(listing: Listing, compacted: Iterable[DataFrame]) -> Mapping[str, int]:
    """Count the rows of compacted files by their raw objects, equal rows once, if `has_unattested_files`."""
    if listing.folder.compaction is None or not has_unattested_files(listing):
        return {}
    row = sf.struct(*listing.folder.compaction.identity)
    counts = Counter[str]()
    for rows in compacted:
        counts.update(dict(rows.groupBy("file").agg(sf.count_distinct(row)).collect()))
    return counts


def file_fault(name: str, content: bytes) -> ObjectFault:
    """Return the fault of a Parquet file that cannot be read."""
    problem = "a page of it, or its footer, was altered: its checksum does not fit, or it cannot be decoded"
    if not content.startswith(_PARQUET_MAGIC):
        problem = "it is not Parquet"
    elif not content.endswith(_PARQUET_MAGIC):
        problem = "it is cut short: a Parquet file ends with a footer, and this one does not"
    return _fault(name, problem, None)


def columns_of(row: type[NamedTuple]) -> list[Column]:
    """Return the columns of rows of texts and whole numbers, by their annotations."""
    kinds = ((name, {kind, *get_args(kind)}) for name, kind in get_type_hints(row).items())
    return [Column(name, ColumnType.WHOLE_NUMBER if int in of else ColumnType.TEXT) for name, of in kinds]


def struct_of(columns: Iterable[Column]) -> StructType:
    """Return `columns` as a Spark schema."""
    return StructType([StructField(each.name, _TYPES[each.type]) for each in columns])


def row_of(folder: Folder) -> StructType:
    """Return a record of `folder` as Spark's JSON reader wants it: with a place for what does not fit."""
    return StructType([*struct_of(folder.columns).fields, StructField(CORRUPT, StringType())])


def records(lines: DataFrame, folder: Folder) -> DataFrame:
    """Return `lines` (`value`, `file`) as records, with the folder's columns.

    And with `file`; `value`, the line; `line`, the same where it is no such record; and `unknown_members`,
    whether it has members of a later version, or one twice.
    """
    names = [each.name for each in folder.columns]
    record = sf.from_json("value", row_of(folder), {**_PARSE_ONCE, "columnNameOfCorruptRecord": CORRUPT})
    # A column, as Spark would list them anew for each use.
    members = sf.json_object_keys("value").alias("members")
    read = lines.select("value", "file", record.alias("record"), members)
    has_others = ~_has_exactly_the_columns(folder)
    line = _no_record(folder, sf.when(has_others, sf.col("value")))
    return read.select(
        *(sf.col("record")[name].alias(name) for name in names),
        "file",
        "value",
        line.alias("line"),
        (has_others & line.isNull()).alias("unknown_members"),
    )


def _no_record(folder: Folder, text: SparkColumn) -> SparkColumn:
    """The text of a line that is no record of `folder`: it does not fit, or is a record of another folder.

    `text` is null where the columns hold the whole line.
    """
    # Every record begins with a time; what has members of its own and not this one was put into the folder.
    is_other = sf.col("record")[folder.columns[0].name].isNull()
    return sf.coalesce(sf.col("record")[CORRUPT], sf.when(is_other, text))


def line_text() -> SparkColumn:
    """Return the line of `records` where the columns do not hold all of it: so nothing is lost."""
    return sf.when(sf.col("line").isNotNull() | sf.col("unknown_members"), sf.col("value"))


def _has_exactly_the_columns(folder: Folder) -> SparkColumn:
    """Whether the columns hold every member of the line, each of which is there once."""
    members, names = sf.col("members"), [each.name for each in folder.columns]
    # As writers have them, which leave a digest to erasures: sets of names cost as much as listing these.
    known, written = (
        sf.array(*map(sf.lit, those)) for those in (names, [each for each in names if each != DIGEST.name])
    )
    is_known = sf.size(sf.array_except(members, known)) == 0
    is_once = sf.size(members) == sf.size(sf.array_distinct(members))
    is_as_written = (members == known) | (members == written)
    return sf.when(is_as_written, sf.lit(True)).otherwise(sf.coalesce(is_known & is_once, sf.lit(False)))


def _as_records(rows: DataFrame, folder: Folder, has_envelope: bool) -> DataFrame:
    """Rows of compacted files as records.

    A line that the columns of an older file did not hold is read again: the columns may be more by now.
    """
    names = [each.name for each in folder.columns]
    again = sf.from_json("line_text", row_of(folder), {**_PARSE_ONCE, "columnNameOfCorruptRecord": CORRUPT})
    # A row without such a line, which is almost every one, is not to make a record of nulls.
    read = rows.withColumn("record", sf.when(sf.col("line_text").isNotNull(), again))
    line = _no_record(folder, sf.col("line_text"))
    held = [name if has_envelope else sf.coalesce(name, sf.col("record")[name]).alias(name) for name in names]
    return read.select(
        *held,
        *(each for each in rows.columns if each not in names),
        sf.col("archive_file").alias("file"),
        line.alias("line"),
        (sf.col("line_text").isNotNull() & line.isNull()).alias("unknown_members"),
    )


def _shaped(rows: DataFrame, folder: Folder, ask: _Ask, has_envelope: bool) -> DataFrame:
    """Give records the columns that `Archive.read` returns."""
    columns: list[str | SparkColumn] = [each.name for each in folder.columns]
    columns += [
        ascii_part(sf.col("file"), len(folder.name) + len("/date=") + 1, len("YYYY-MM-DD")).alias("date"),
        "file",
        "line",
        "unknown_members",
    ]
    if folder.name == TAP:
        rows = _with_attributes(rows, ask, TAP_ATTRIBUTES if has_envelope else ())
        columns += ["texts", "integers", "booleans", "data_digest", "event_digest", "event_bytes", "report"]
    return rows.select(*columns)


def _with_attributes(rows: DataFrame, ask: _Ask, held: Collection[str]) -> DataFrame:
    """Add `texts`, `integers` and `booleans`, and what is derived of an event where no column holds it.

    `held` are the attributes that have a column already.
    """
    # An event always has a type; without any name there would be nothing to parse into.
    names = {each: sorted({"type", *chosen}) for each, chosen in ask.items()}
    typed = {*ask["integers"], *ask["booleans"]}
    wanted = {
        name for each in ("texts", *_TYPED_KINDS) if ask[each] or each == "texts" for name in names[each]
    }
    if not wanted <= {*held}:
        rows = _parsed(rows, wanted - {*held}, typed - {*held})

    def value(each: str, name: str) -> SparkColumn:
        if name in held:
            return _held(each, name)
        if each in _TYPED_KINDS and name not in typed:
            return sf.lit(None).cast(_KINDS[each])
        return sf.col(f"parsed_{each}")[name]

    attributes = {each: sf.struct(*(value(each, name).alias(name) for name in names[each])) for each in ask}
    return rows.withColumns(attributes if held else {**attributes, **_derived()})


def _held(kind: str, name: str) -> SparkColumn:
    """The attribute `name` by its column in a compacted file."""
    if kind == "texts":
        return sf.col(name)
    marks = sf.concat(
        sf.lit(" "), "integer_attributes" if kind == "integers" else "boolean_attributes", sf.lit(" ")
    )
    return sf.when(marks.contains(f" {name} "), sf.col(name).cast(_KINDS[kind]))


def _parsed(rows: DataFrame, names: Collection[str], typed: Collection[str]) -> DataFrame:
    """Add the attributes `names` of the event and its data, parsed once, as `parsed_texts`.

    And those that are `typed` as `parsed_integers` and `parsed_booleans`. These are columns, and not members
    of one struct: Spark would parse the event anew for each use of a member.
    """
    rows = rows.withColumn("parsed_texts", _parse({*names, *_DATA}, StringType()))
    if not typed:
        return rows
    texts = sf.col("parsed_texts")
    # Only the reader knows how a value was written; it is not asked where all look like text.
    is_typed = reduce(or_, (sf.coalesce(texts[name].rlike(_TYPED), sf.lit(False)) for name in sorted(typed)))
    return rows.withColumns(
        {f"parsed_{each}": sf.when(is_typed, _parse(typed, _KINDS[each])) for each in _TYPED_KINDS}
    )


def _parse(names: Collection[str], kind: DataType) -> SparkColumn:
    schema = StructType([StructField(name, kind) for name in sorted(names)])
    return sf.from_json(_EVENT, schema, _PARSE_ONCE)


def _derived() -> dict[str, SparkColumn]:
    """What else is made of an event that is `_parsed`."""
    event, texts = sf.col(_EVENT), sf.col("parsed_texts")
    is_trimmed = event.startswith("{") & event.endswith("}")
    trimmed = sf.when(is_trimmed, event).otherwise(sf.btrim(event, sf.lit(" \t\n\r")))
    return {
        # As `eventplane.device_reports.short_digest`.
        "event_digest": ascii_part(sf.sha2(trimmed, 256), 17, 16),
        "data_digest": sf.when(event.isNotNull(), sf.xxhash64(*(texts[name] for name in _DATA))),
        "event_bytes": sf.octet_length(event).cast("bigint"),
        "report": sf.when(texts["type"].isin(*REPORTS), event),
    }


def with_envelope(rows: DataFrame, folder: Folder) -> DataFrame:
    """Add to records the columns that a compacted file has of their events."""
    if not (folder.compaction and folder.compaction.attributes):
        return rows
    names = folder.compaction.attributes
    parsed = _parsed(rows, names, {*names} - STRINGS)

    def marks(kind: str) -> SparkColumn:
        typed = sorted({*names} - STRINGS, key=names.index)
        values = ((name, sf.col(f"parsed_{kind}")[name]) for name in typed)
        held = sf.concat_ws(" ", *(sf.when(value.isNotNull(), sf.lit(name)) for name, value in values))
        return sf.when(held != "", held)

    return parsed.select(
        *rows.columns,
        *(sf.col("parsed_texts")[name].alias(name) for name in names),
        marks("integers").alias("integer_attributes"),
        marks("booleans").alias("boolean_attributes"),
        *(column.alias(name) for name, column in _derived().items()),
    )


def ascii_part(text: SparkColumn, first: int, length: int) -> SparkColumn:
    """Return `length` characters of an ASCII text, the `first` counted from 1.

    Of bytes: of a text Spark counts all characters each time.
    """
    return sf.substring(text.cast("binary"), first, length).cast("string")


def _name(folder: Folder) -> SparkColumn:
    """The name of the object that a row was read from."""
    start = f"{folder.name}/date="
    name = sf.concat(sf.lit(start), sf.substring_index("_metadata.file_path", f"/{start}", -1))
    # Spark encodes it as a URI; the writers' names have nothing to encode.
    decoded = sf.url_decode(sf.replace(name, sf.lit("+"), sf.lit("%2B")))
    return sf.when(name.contains("%"), decoded).otherwise(name)


def _name_of(folder: str, path: str) -> str:
    return f"{folder}/date={path.rpartition(f'/{folder}/date=')[2]}"


def lines_fault(name: str, problem: str, rows: int) -> ObjectFault:
    """Return the fault of a raw object of which `whole_lines` gives `rows` lines and a `problem`."""
    return _fault(name, f"it cannot be read to its end: {problem}", rows)


def _fault(name: str, detail: str, rows: int | None) -> ObjectFault:
    folder = name.removeprefix(f"{COMPACTED}/").partition("/date=")[0]
    return ObjectFault("unreadable", name, hour_of(name), folder, detail, rows)


def _problems(row: tuple[str, bytes]) -> Iterator[tuple[str, str, int]]:
    path, content = row
    lines, problem = whole_lines(bytes(content))
    if problem:
        yield path, problem, len(lines)
