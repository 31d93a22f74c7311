"""One hour of one folder: compact it, and delete its raw objects when they are old and no longer needed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from eventplane.archive_layout import Compaction, Folder
from eventplane.errors import EventPlaneError
from glue_jobs.common.archive import Archive, line_text, records, with_envelope
from glue_jobs.common.hours import Hour
from glue_jobs.common.listing import (
    LINES,
    ObjectFault,
    Receipt,
    publish,
    published,
    read_receipt,
    run_of,
    write_receipt,
)
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.compaction.files import Content, content_of, write_files


class HourError(EventPlaneError):
    """One hour could not be compacted. Its raw objects stay, so nothing is lost by it."""


class ChangedHourError(HourError):
    """Objects of `hour` changed while it was read."""

    hour: str
    message = "{hour}: its objects changed meanwhile (an erasure?); run the compaction again"


class DamagedHourError(HourError):
    """Objects of `hour` cannot be read: `faults`."""

    hour: str
    faults: Sequence[ObjectFault]
    message = (
        "{hour}: {objects:.500}; restore their old versions, or move them out of the archive once an audit "
        "has reported them"
    )

    @property
    def objects(self) -> str:
        """The objects and what is wrong with them."""
        return "; ".join(f"{each.name}: {each.detail}" for each in self.faults)


class UnverifiedError(HourError):
    """What was written for `hour` is not what was read: `read` and `written` rows and checksums."""

    hour: str
    read: tuple[int, int]
    written: tuple[int, int]
    message = (
        "{hour}: {written[0]} rows (checksum {written[1]}) were written for {read[0]} ({read[1]}); the raw "
        "objects stay as they are, run the compaction again"
    )


class SourcesGoneError(HourError):
    """`hour` has objects that came after it was compacted, `late`, and lacks some that had been there."""

    hour: str
    late: str
    message = (
        "{hour}: {late:.500} came after the hour was compacted, and its first objects are gone; restore "
        "their old versions, or move these objects to the folder of the present hour"
    )


class CompactedGoneError(HourError):
    """`files` of the compacted `hour` are gone or no longer published, so its raw objects are kept."""

    hour: str
    files: str
    message = (
        "{hour}: {files:.500} should hold its rows and are gone or not published; restore their old "
        "versions, or delete the hour's receipt to compact it again from the raw objects"
    )


def compact_hour(
    spark: SparkSession, objects: Objects, folder: Folder, compaction: Compaction, hour: Hour
) -> Receipt | None:
    """Compact a closed hour; return None when there is nothing to do. Raises `HourError`.

    The order makes it restartable at any point: what an interrupted run leaves is either not published, or
    published and verified without a receipt, and then done again to the same end.
    """
    inputs = _inputs(objects, folder, hour)
    done = read_receipt(objects, folder, hour)
    if not inputs or (done and done.covers(inputs)):
        return None
    if done and (late := _late(done, inputs)):
        raise SourcesGoneError(_name(folder, hour), ", ".join(late))
    archive = Archive(spark, objects)
    run = run_of(folder, inputs)
    place = f"{hour.compacted(folder.name)}/run={run}"
    rows = _rows(spark, archive, folder, compaction, hour, _earlier(objects, folder, compaction, hour))
    try:
        written = write_files(rows, objects, place, compaction, sum(each.size for each in inputs))
        _verify(spark, archive, objects, folder, hour, written.content, written.files)
    except (PySparkException, Py4JError) as error:
        if faults := archive.damage(_inputs(objects, folder, hour)):
            raise DamagedHourError(_name(folder, hour), faults) from error
        raise
    # Spark listed the folder by itself: what came or went since then is seen here.
    if _inputs(objects, folder, hour) != inputs:
        raise ChangedHourError(_name(folder, hour))
    files = [each for each in objects.beneath(place) if each.name in written.files]
    publish(objects, folder, hour, written.files)
    _sweep(objects, hour.compacted(folder.name), written.files)
    receipt = Receipt(
        version=folder.version,
        run=run,
        rows=written.content.rows,
        copies=written.content.copies,
        line_texts=written.content.line_texts,
        inputs=_digests(objects, inputs),
        files=_digests(objects, files),
    )
    write_receipt(objects, folder, hour, receipt)
    return receipt


def remove_raw(objects: Objects, folder: Folder, hour: Hour) -> int:
    """Delete the raw objects of a compacted hour and return how many. Raises `HourError`.

    Only objects that the receipt names are deleted, so only rows that were verified and published; the files
    they are in must still be there. An object that came later stays for the next run. In a versioned bucket a
    deleted object is an old version, and can be restored, until the lifecycle removes it.
    """
    inputs = _inputs(objects, folder, hour)
    done = read_receipt(objects, folder, hour) if inputs else None
    if not done or not done.covers(inputs):
        return 0
    present = {each.name for each in objects.beneath(hour.compacted(folder.name))}
    missing = {*done.files} - (present & {*published(objects, folder, hour)})
    if missing:
        raise CompactedGoneError(_name(folder, hour), ", ".join(sorted(missing)))
    objects.delete(each.name for each in inputs)
    return len(inputs)


def _rows(
    spark: SparkSession,
    archive: Archive,
    folder: Folder,
    compaction: Compaction,
    hour: Hour,
    earlier: Sequence[str],
) -> DataFrame:
    """The hour's rows with `Folder.compacted_columns`, in no order.

    A row is a copy of one in the same hour, or in the compacted files `earlier` (URIs).
    """
    read = records(archive.lines(folder, [hour.raw(folder.name)]), folder)
    rows = with_envelope(read, folder)
    rows = rows.withColumns({"archive_file": sf.col("file"), "line_text": line_text()})
    # What could not be read has no identity but its text.
    same = Window.partitionBy(*compaction.identity, "line_text").orderBy("archive_file")
    is_copy = sf.row_number().over(same) > 1
    if earlier:
        known = spark.read.parquet(*earlier).select(*compaction.identity).distinct()
        rows = rows.join(known.withColumn("seen", sf.lit(True)), list(compaction.identity), "left")
        is_copy = is_copy | sf.coalesce("seen", sf.lit(False))
    return rows.withColumn("is_copy", is_copy).select(*(each.name for each in folder.compacted_columns))


def _inputs(objects: Objects, folder: Folder, hour: Hour) -> list[Stored]:
    return [each for each in objects.beneath(hour.raw(folder.name)) if each.name.endswith(LINES)]


def _digests(objects: Objects, stored: Sequence[Stored]) -> dict[str, str]:
    return {each.name: objects.digest(each) for each in stored}


def _late(done: Receipt, inputs: Sequence[Stored]) -> tuple[str, ...]:
    """What came after `done`, if the hour cannot be made anew because some of its sources are gone."""
    names = {each.name for each in inputs}
    return tuple(sorted(names - {*done.inputs})) if {*done.inputs} - names else ()


def _earlier(objects: Objects, folder: Folder, compaction: Compaction, hour: Hour) -> list[str]:
    before = (Hour(hour.start - timedelta(hours=back)) for back in range(1, compaction.look_back_h + 1))
    return [f"{objects.uri}/{name}" for each in before for name in published(objects, folder, each)]


def _verify(
    spark: SparkSession,
    archive: Archive,
    objects: Objects,
    folder: Folder,
    hour: Hour,
    content: Content,
    files: Sequence[str],
) -> None:
    """Read both ends again: the lines that there are, and the rows that are now in the files."""
    found = content_of(spark, objects, files)
    if found != content:
        raise UnverifiedError(_name(folder, hour), content.told, found.told)
    lines = archive.lines(folder, [hour.raw(folder.name)]).count()
    if lines != found.rows:
        raise UnverifiedError(_name(folder, hour), (lines, content.checksum), found.told)


def _sweep(objects: Objects, place: str, files: Sequence[str]) -> None:
    """Delete what earlier or interrupted runs left of this hour."""
    keep = set(files)
    objects.delete(each.name for each in objects.beneath(place) if each.name not in keep)


def _name(folder: Folder, hour: Hour) -> str:
    return f"{folder.name}/{hour.partition}"
