"""One hour of one folder: compact it, and delete its raw objects when they are old and no longer needed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import SparkSession

from eventplane.archive_layout import Compaction, Folder
from glue_jobs.common import rows as records
from glue_jobs.common.hours import Hour
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.common.receipts import (
    Receipt,
    publish,
    published,
    read_receipt,
    run_of,
    write_receipt,
)
from glue_jobs.compaction.errors import (
    ChangedHourError,
    CompactedGoneError,
    SourcesGoneError,
    UnverifiedError,
)
from glue_jobs.compaction.files import Content, content_of, write_files
from glue_jobs.compaction.rows import hour_rows


def compact_hour(
    spark: SparkSession, objects: Objects, folder: Folder, compaction: Compaction, hour: Hour
) -> Receipt | None:
    """Compact a closed hour; None when there is nothing to do. Raises `HourError`.

    The order makes it restartable at any point: what an interrupted run leaves is either not published, or
    published and verified without a receipt, and then done again to the same end.
    """
    inputs = _inputs(objects, folder, hour)
    done = read_receipt(objects, folder, hour)
    if not inputs or (done and done.covers(inputs)):
        return None
    if done and (late := _late(done, inputs)):
        raise SourcesGoneError(_name(folder, hour), late)
    run = run_of(folder, inputs)
    place = f"{hour.compacted(folder.name)}/run={run}"
    earlier = _earlier(objects, folder, compaction, hour)
    raw = hour.raw(folder.name)
    rows = hour_rows(spark, objects, folder, compaction, raw, earlier)
    written = write_files(rows, objects, place, compaction, sum(each.size for each in inputs))
    _verify(spark, objects, _name(folder, hour), raw, written.content, written.files)
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
        raise CompactedGoneError(_name(folder, hour), tuple(sorted(missing)))
    objects.delete(each.name for each in inputs)
    return len(inputs)


def _inputs(objects: Objects, folder: Folder, hour: Hour) -> list[Stored]:
    return [each for each in objects.beneath(hour.raw(folder.name)) if each.name.endswith(records.LINES)]


def _digests(objects: Objects, stored: Sequence[Stored]) -> dict[str, str]:
    return {each.name: objects.digest(each) for each in stored}


def _late(done: Receipt, inputs: Sequence[Stored]) -> tuple[str, ...]:
    """What came after `done`, if the hour cannot be made anew because some of its sources are gone."""
    names = {each.name for each in inputs}
    return tuple(sorted(names - set(done.inputs))) if set(done.inputs) - names else ()


def _earlier(objects: Objects, folder: Folder, compaction: Compaction, hour: Hour) -> list[str]:
    before = (Hour(hour.start - timedelta(hours=back)) for back in range(1, compaction.look_back_h + 1))
    return [name for each in before for name in published(objects, folder, each)]


def _verify(
    spark: SparkSession,
    objects: Objects,
    name: str,
    raw: str,
    content: Content,
    files: Sequence[str],
) -> None:
    """Read both ends again: the lines that there are, and the rows that now stand in the files."""
    found = content_of(spark, objects, files)
    if found != content:
        raise UnverifiedError(name, content.told, found.told)
    lines = records.lines_beneath(spark, f"{objects.uri}/{raw}").count()
    if lines != found.rows:
        raise UnverifiedError(name, (lines, content.checksum), found.told)


def _sweep(objects: Objects, place: str, files: Sequence[str]) -> None:
    """Delete what earlier or interrupted runs left of this hour."""
    keep = set(files)
    objects.delete(each.name for each in objects.beneath(place) if each.name not in keep)


def _name(folder: Folder, hour: Hour) -> str:
    return f"{folder.name}/{hour.partition}"
