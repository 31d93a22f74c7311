"""The archive's rows as Spark reads them, by the layout that the core declares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType

from eventplane.archive_layout import Column, ColumnType, Folder

CORRUPT = "_corrupt_record"
"""Where Spark's reader puts a line that does not fit the schema."""

_TYPES: dict[ColumnType, DataType] = {
    ColumnType.TEXT: StringType(),
    ColumnType.WHOLE_NUMBER: LongType(),
    ColumnType.TRUTH: BooleanType(),
}


def struct_of(columns: Iterable[Column]) -> StructType:
    """`columns` as a Spark schema."""
    return StructType([StructField(each.name, _TYPES[each.type]) for each in columns])


def row_of(folder: Folder) -> StructType:
    """A record of `folder` as Spark's JSON reader wants it: with a place for what does not fit."""
    return StructType([*struct_of(folder.columns).fields, StructField(CORRUPT, StringType())])


LINES = ".json.gz"
"""What the names of raw objects end with."""


def lines_beneath(spark: SparkSession, folder: str) -> DataFrame:
    """The lines as `lines` has them, of all raw objects in `folder`, a URI.

    S3 lists a thousand objects for the price of looking one up by its name.
    """
    return _lines(spark.read.option("pathGlobFilter", f"*{LINES}").text(folder))


def lines(spark: SparkSession, uris: Sequence[str]) -> DataFrame:
    """The lines of the objects `uris` that are not blank: `value` and `file`, the object's whole URI."""
    return _lines(spark.read.text(list(uris)))


def _lines(found: DataFrame) -> DataFrame:
    rows = found.select("value", sf.col("_metadata.file_path").alias("file"))
    return rows.where(sf.trim("value") != "")


def parsed(rows: DataFrame, folder: Folder) -> DataFrame:
    """`rows` of `lines` as records of `folder`: its columns, `file`, `value` (the line), and `line_text`.

    `line_text` is the line itself where the columns do not hold all of it: it is no such record, or it has
    members of a later version, or one twice. So nothing is lost, whatever wrote the line.
    """
    names = [each.name for each in folder.columns]
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    record = sf.from_json("value", row_of(folder), options)
    read = rows.select("value", "file", record.alias("record"), sf.json_object_keys("value").alias("members"))
    return read.select(
        *(sf.col("record")[name].alias(name) for name in names),
        "file",
        "value",
        sf.when(~_holds_all(names), sf.col("value")).alias("line_text"),
    )


def _holds_all(names: Sequence[str]) -> SparkColumn:
    members = sf.col("members")
    known = sf.size(sf.array_except(members, sf.array(*map(sf.lit, names)))) == 0
    once = sf.size(members) == sf.size(sf.array_distinct(members))
    return sf.coalesce(sf.col("record")[CORRUPT].isNull() & known & once, sf.lit(False))
