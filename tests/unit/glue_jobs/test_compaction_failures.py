"""What one hour of the compaction cannot do holds up no other; without Spark, which judges none of it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from eventplane.archive_layout import TAP_FOLDER
from glue_jobs.common.attestation import attest, open_key
from glue_jobs.common.hours import Hour
from glue_jobs.common.listing import HourReceipt, UnreadableReceiptError, publish, read_receipt, write_receipt
from glue_jobs.common.objects import FolderObjects
from glue_jobs.compaction import main as job
from glue_jobs.compaction.compact import CompactedGoneError, remove_raw
from glue_jobs.compaction.main import CompactionError

HOUR = Hour(datetime(2026, 3, 1, 12, tzinfo=UTC))
LATER = Hour(datetime(2026, 3, 1, 13, tzinfo=UTC))
RECEIPT = HourReceipt(
    version=1,
    run="r",
    rows=1,
    line_texts=0,
    inputs={"a": "sha256:1"},
    files={"b": "sha256:2"},
    attested_at_ms=1,
)
NEWER = json.dumps({**asdict(RECEIPT), "format": 2})


@pytest.mark.parametrize(
    "text",
    ["{", "[" * 99_999, "[]", "{}", NEWER, '{"inputs": 1, "files": []}', NEWER.replace('"sha256:1"', "[]")],
)
def test_a_receipt_that_cannot_be_read_is_named_and_is_not_none(text: str, tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    objects.write(HOUR.receipt("tap"), text.encode())
    with pytest.raises(UnreadableReceiptError, match=HOUR.receipt("tap")):
        read_receipt(objects, open_key(None), TAP_FOLDER, HOUR)


def test_a_receipt_is_read_as_it_was_written(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    write_receipt(objects, open_key(None), TAP_FOLDER, HOUR, RECEIPT)
    assert read_receipt(objects, open_key(None), TAP_FOLDER, HOUR) == RECEIPT
    # As of a compaction that marked copies.
    name = HOUR.receipt("tap")
    objects.write(name, attest(open_key(None), name, {**asdict(RECEIPT), "copies": 3}))
    assert read_receipt(objects, open_key(None), TAP_FOLDER, HOUR) == RECEIPT


@pytest.mark.parametrize(
    "error",
    [
        UnreadableReceiptError("receipt.json", "odd"),
        ClientError({"Error": {"Code": "SlowDown"}}, "PutObject"),
        ReadTimeoutError(endpoint_url="https://s3"),
    ],
    ids=["receipt", "refused", "no-answer"],
)
def test_the_hours_after_one_that_failed_are_done(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for hour in (HOUR, LATER):
        (tmp_path / hour.raw("tap")).mkdir(parents=True)

    def compact(*arguments: Any) -> Iterator[tuple[Hour, HourReceipt]]:
        if HOUR in arguments[-1]:
            raise error
        yield from ((hour, RECEIPT) for hour in arguments[-1])

    monkeypatch.setattr(job, "compact_hours", compact)
    monkeypatch.setattr(job, "job_session", lambda: None)
    began = datetime(2026, 3, 2, tzinfo=UTC)
    with pytest.raises(CompactionError) as told:
        job.main(["--INPUT", str(tmp_path), "--DATE", "all", "--METRICS", "compaction:failed"], began)
    assert list(told.value.failures) == [f"tap/{HOUR.partition}"]
    line = json.loads(capsys.readouterr().out)
    totals = line["compaction_totals"]
    assert (totals["hours"], totals["failed"], line["failed"]) == (1, 1, 1)
    # Of the end of the run: a longer run is not silence.
    assert line["_aws"]["Timestamp"] > 1_000 * began.timestamp()


RAW = [f"{HOUR.raw('tap')}/{name}.json.gz" for name in ("a", "b", "c")]
FILES = tuple(f"{HOUR.compacted('tap')}/run=r/{number}.parquet" for number in (0, 1))


class CountedObjects(FolderObjects):
    """A folder that ends the process, so to speak, after `left` deletions."""

    left = 1_000

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            if not self.left:
                raise ReadTimeoutError(endpoint_url="https://s3")
            self.left -= 1
            super().delete([name])


@pytest.fixture
def hour_compacted(tmp_path: Path) -> CountedObjects:
    objects = CountedObjects(tmp_path)
    for name in (*RAW, *FILES):
        objects.write(name, name.encode())
    publish(objects, TAP_FOLDER, HOUR, FILES)
    write_receipt(
        objects,
        open_key(None),
        TAP_FOLDER,
        HOUR,
        replace(RECEIPT, inputs=dict.fromkeys(RAW, ""), files=dict.fromkeys(FILES, "")),
    )
    return objects


def left(objects: FolderObjects) -> list[str]:
    return [each.name for each in objects.beneath(HOUR.raw("tap"))]


def test_an_interrupted_removal_goes_on(hour_compacted: CountedObjects) -> None:
    later = f"{LATER.raw('tap')}/a.json.gz"
    hour_compacted.write(later, b"")
    hour_compacted.left = 2
    with pytest.raises(ReadTimeoutError):
        remove_raw(hour_compacted, open_key(None), TAP_FOLDER, HOUR)
    assert left(hour_compacted) == RAW[2:]
    hour_compacted.left = 1_000
    assert remove_raw(hour_compacted, open_key(None), TAP_FOLDER, HOUR) == 1
    assert remove_raw(hour_compacted, open_key(None), TAP_FOLDER, HOUR) == 0
    names = {each.name for each in hour_compacted.beneath("")}
    assert names == {*FILES, later, HOUR.published("tap"), HOUR.receipt("tap")}


def test_an_unreceipted_hour_keeps_all(hour_compacted: CountedObjects) -> None:
    late = f"{HOUR.raw('tap')}/late.json.gz"
    hour_compacted.write(late, b"")
    assert remove_raw(hour_compacted, open_key(None), TAP_FOLDER, HOUR) == 0
    hour_compacted.delete([late, HOUR.receipt("tap")])
    assert remove_raw(hour_compacted, open_key(None), TAP_FOLDER, HOUR) == 0
    assert left(hour_compacted) == RAW


@pytest.mark.parametrize("gone", [FILES[1], HOUR.published("tap")], ids=["file", "list of files"])
def test_raw_objects_stay_when_the_compacted_rows_are_gone(gone: str, hour_compacted: CountedObjects) -> None:
    hour_compacted.delete([gone])
    with pytest.raises(CompactedGoneError, match="restore") as refused:
        remove_raw(hour_compacted, open_key(None), TAP_FOLDER, HOUR)
    assert FILES[1] in refused.value.files
    assert left(hour_compacted) == RAW


def test_old_hours(hour_compacted: CountedObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Hour]()

    def compact(*arguments: Any) -> Iterator[tuple[Hour, HourReceipt]]:
        seen.extend(arguments[-1])
        return iter(())

    monkeypatch.setattr(job, "compact_hours", compact)
    monkeypatch.setattr(job, "job_session", lambda: None)
    hour_compacted.write(f"{LATER.raw('tap')}/a.json.gz", b"")
    due = LATER.start + timedelta(days=20)
    arguments = ["--INPUT", str(tmp_path), "--RAW_DAYS", "20"]
    job.main(arguments, due - timedelta(minutes=1))
    assert left(hour_compacted) == RAW
    job.main(arguments, due)
    assert left(hour_compacted) == []
    # By age, not by `--DATE`; and compacted first, so that a job that was down for weeks catches up.
    assert set(seen) == {HOUR, LATER}


@pytest.mark.parametrize("days", ["15", "-20", "soon"])
def test_objects_in_use_are_not_deleted(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        job.read_arguments(["--INPUT", "a", f"--RAW_DAYS={days}"], datetime(2026, 3, 2, tzinfo=UTC))
    assert "16 days or more" in capsys.readouterr().err
