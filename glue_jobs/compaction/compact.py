"""Hours of one folder: compact them, and delete its raw objects when they are old and no longer needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import Compaction, Folder
from eventplane.errors import EventPlaneError
from glue_jobs.common.archive import Archive, line_text, records, with_envelope
from glue_jobs.common.attestation import AttestationKey, refusal
from glue_jobs.common.hours import Hour
from glue_jobs.common.listing import (
    LINES,
    HourReceipt,
    publish,
    published,
    read_receipt,
    run_of,
    write_receipt,
)
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.compaction.files import (
    EMPTY,
    WANTED_BYTES,
    Content,
    Written,
    content_of,
    partition_of,
    write_files,
)

MOST_HOURS: Final = 48
"""Most hours that are compacted together. Ours: one by one they are tried again if one of them is damaged."""


class HourError(EventPlaneError):
    """One hour could not be compacted. Its raw objects stay, so nothing is lost by it."""


class ChangedHourError(HourError):
    """Objects of `hour` changed while it was read."""

    hour: str
    message = "{hour}: its objects changed meanwhile (an erasure?); run the compaction again"


class DamagedHourError(HourError):
    """Objects of `hour` cannot be read; `objects` names them with what is wrong."""

    hour: str
    objects: str
    message = (
        "{hour}: {objects:.500}; restore their old versions, or move them out of the archive once an audit "
        "has reported them"
    )


class UnverifiedError(HourError):
    """The rows written for `hour` are not those that were read: `read` and `written` rows and checksums."""

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


class UnattestedHourError(HourError):
    """The receipt of `hour` is not attested, and raw objects that it names are gone."""

    hour: str
    problem: str
    message = "{hour}: raw objects that its receipt names are gone, and {problem}"


class CompactedGoneError(HourError):
    """`files` of the compacted `hour` are gone or no longer published, so its raw objects are kept."""

    hour: str
    files: str
    message = (
        "{hour}: {files:.500} should hold its rows and are gone or not published; restore their old "
        "versions, or delete the hour's receipt to compact it again from the raw objects"
    )


def batches(objects: Objects, folder: Folder, hours: Iterable[Hour]) -> Iterator[list[Hour]]:
    """Group hours that are compacted together, the earliest first; what makes several files is alone.

    A day of small hours takes about as long as one of them: planning and starting cost more than the rows.
    """
    batch, total = list[Hour](), 0
    for hour in sorted(hours):
        size = sum(each.size for each in _inputs(objects, folder, hour))
        if batch and (total + size > WANTED_BYTES or len(batch) == MOST_HOURS):
            yield batch
            batch, total = [], 0
        batch.append(hour)
        total += size
    if batch:
        yield batch


def compact_hours(
    spark: SparkSession,
    objects: Objects,
    key: AttestationKey,
    now_ms: int,
    folder: Folder,
    compaction: Compaction,
    hours: Sequence[Hour],
) -> Iterator[tuple[Hour, HourReceipt]]:
    """Compact closed hours together and yield the receipts of those that needed it. Raises `HourError`.

    The `key` attests the receipts. The order makes it restartable at any point: what an interrupted run
    leaves either has no receipt and is done again, or has one and is published by the next run.
    """
    inputs = {hour: found for hour in hours if (found := _todo(objects, key, folder, hour))}
    if not inputs:
        return
    name = " to ".join(dict.fromkeys(_name(folder, hour) for hour in (min(inputs), max(inputs))))
    archive = Archive(spark, objects)
    runs = {hour: run_of(folder, found) for hour, found in inputs.items()}
    rows = _rows(archive, folder, [*inputs])
    raw_bytes = sum(each.size for found in inputs.values() for each in found)
    try:
        written = write_files(rows, objects, folder, compaction, runs, raw_bytes)
        contents = _verify(spark, archive, objects, folder, written, name)
    except (PySparkException, Py4JError) as error:
        # Of several hours each is tried again by itself.
        if len(inputs) == 1 and (faults := archive.damage(*inputs.values())):
            damaged = "; ".join(f"{each.name}: {each.detail}" for each in faults)
            raise DamagedHourError(name, damaged) from error
        raise
    # Spark listed the folders by itself: what came or went since then is seen here.
    if any(_inputs(objects, folder, hour) != found for hour, found in inputs.items()):
        raise ChangedHourError(name)
    for hour, found in inputs.items():
        files = written.files[hour]
        content = contents.get(hour, EMPTY)
        receipt = HourReceipt(
            version=folder.version,
            run=runs[hour],
            rows=content.rows,
            line_texts=content.line_texts,
            inputs=_digests(objects, found),
            files=_digests(objects, files),
            attested_at_ms=now_ms,
        )
        write_receipt(objects, key, folder, hour, receipt)
        _publish(objects, folder, hour, receipt)
        yield hour, receipt


def remove_raw(objects: Objects, key: AttestationKey, folder: Folder, hour: Hour) -> int:
    """Delete the raw objects of a compacted hour and return how many. Raises `HourError`.

    Only objects that the attested receipt names are deleted, so only rows that were verified and published;
    the files they are in must still be there. An object that came later stays for the next run. In a
    versioned bucket a deleted object is an old version, and can be restored, until the lifecycle removes it.
    """
    inputs = _inputs(objects, folder, hour)
    done = read_receipt(objects, key, folder, hour) if inputs else None
    if not done or not done.is_attested or not done.covers(inputs):
        return 0
    present = {each.name for each in objects.beneath(hour.compacted(folder.name))}
    missing = {*done.files} - (present & {*published(objects, folder, hour)})
    if missing:
        raise CompactedGoneError(_name(folder, hour), ", ".join(sorted(missing)))
    objects.delete(each.name for each in inputs)
    return len(inputs)


def _rows(archive: Archive, folder: Folder, hours: Sequence[Hour]) -> DataFrame:
    """Return the rows of the hours with `Folder.compacted_columns`, in no order."""
    read = records(archive.lines(folder, [hour.raw(folder.name) for hour in hours]), folder)
    rows = with_envelope(read, folder)
    rows = rows.withColumns({"archive_file": sf.col("file"), "line_text": line_text()})
    return rows.select(*(each.name for each in folder.compacted_columns))


def _todo(objects: Objects, key: AttestationKey, folder: Folder, hour: Hour) -> list[Stored]:
    """The raw objects of an hour that has to be compacted; none if there is nothing to do."""
    inputs = _inputs(objects, folder, hour)
    done = read_receipt(objects, key, folder, hour)
    if done and not done.is_attested:
        # Made anew of all its sources it is attested; of some of them rows would be lost.
        if not {*done.inputs} <= {each.name for each in inputs}:
            raise UnattestedHourError(_name(folder, hour), refusal(key, "compaction"))
        return inputs
    if done and done.covers(inputs):
        if {*published(objects, folder, hour)} != {*done.files}:
            _publish(objects, folder, hour, done)
        return []
    if done and (late := _late(done, inputs)):
        raise SourcesGoneError(_name(folder, hour), ", ".join(late))
    return inputs


def _inputs(objects: Objects, folder: Folder, hour: Hour) -> list[Stored]:
    return [each for each in objects.beneath(hour.raw(folder.name)) if each.name.endswith(LINES)]


def _digests(objects: Objects, stored: Sequence[Stored]) -> dict[str, str]:
    return {each.name: objects.digest(each) for each in stored}


def _late(done: HourReceipt, inputs: Sequence[Stored]) -> tuple[str, ...]:
    """What came after `done`, if the hour cannot be made anew because some of its sources are gone."""
    names = {each.name for each in inputs}
    return tuple(sorted(names - {*done.inputs})) if {*done.inputs} - names else ()


def _verify(
    spark: SparkSession, archive: Archive, objects: Objects, folder: Folder, written: Written, name: str
) -> dict[Hour, Content]:
    """Read both ends again, the lines that there are and the rows that are now in the files, by hour."""
    found = content_of(spark, objects, folder, written.files)
    total = reduce(Content.plus, found.values(), EMPTY)
    if total != written.content:
        raise UnverifiedError(name, written.content.sums, total.sums)
    lines = archive.lines(folder, [hour.raw(folder.name) for hour in written.files])
    rows: dict[str, int] = dict(lines.groupBy(partition_of("file", folder)).count().collect())
    if rows != {hour.partition: each.rows for hour, each in found.items()}:
        raise UnverifiedError(name, (sum(rows.values()), written.content.checksum), total.sums)
    return found


def _publish(objects: Objects, folder: Folder, hour: Hour, receipt: HourReceipt) -> None:
    """Publish the files of the receipt, and delete what earlier or interrupted runs left of this hour."""
    publish(objects, folder, hour, receipt.files)
    left = objects.beneath(hour.compacted(folder.name))
    objects.delete(each.name for each in left if each.name not in receipt.files)


def _name(folder: Folder, hour: Hour) -> str:
    return f"{folder.name}/{hour.partition}"
