"""What one hour of the compaction cannot do holds up no other; without Spark, which judges none of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from eventplane.archive_layout import TAP_FOLDER
from glue_jobs.common.folder_objects import FolderObjects
from glue_jobs.common.hours import Hour
from glue_jobs.compaction import main as job
from glue_jobs.compaction.errors import CompactionError, UnreadableReceiptError
from glue_jobs.compaction.receipt import Receipt, read_receipt, write_receipt

HOUR = Hour(datetime(2026, 3, 1, 12, tzinfo=UTC))
LATER = Hour(datetime(2026, 3, 1, 13, tzinfo=UTC))
RECEIPT = Receipt(version=1, run="r", rows=1, copies=0, line_texts=0, inputs=("a",), files=("b",))
NEWER = json.dumps({**asdict(RECEIPT), "format": 2})


@pytest.mark.parametrize("text", ["{", "[]", "{}", NEWER, '{"inputs": 1, "files": []}'])
def test_a_receipt_that_cannot_be_read_is_named_and_is_not_none(text: str, tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    objects.write(HOUR.receipt("tap"), text.encode())
    with pytest.raises(UnreadableReceiptError, match=HOUR.receipt("tap")):
        read_receipt(objects, TAP_FOLDER, HOUR)


def test_a_receipt_is_read_as_it_was_written(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    write_receipt(objects, TAP_FOLDER, HOUR, RECEIPT)
    assert read_receipt(objects, TAP_FOLDER, HOUR) == RECEIPT


@pytest.mark.parametrize(
    "error",
    [
        UnreadableReceiptError("receipt.json", "odd"),
        ClientError({"Error": {"Code": "SlowDown"}}, "PutObjectTagging"),
        ReadTimeoutError(endpoint_url="https://s3"),
    ],
    ids=["receipt", "refused", "no-answer"],
)
def test_the_hours_after_one_that_failed_are_done(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for hour in (HOUR, LATER):
        (tmp_path / hour.raw("tap")).mkdir(parents=True)

    def compact(*arguments: Any) -> Receipt:
        if arguments[-1] == HOUR:
            raise error
        return RECEIPT

    monkeypatch.setattr(job, "compact_hour", compact)
    monkeypatch.setattr(job, "job_session", lambda: None)
    with pytest.raises(CompactionError) as told:
        job.main(["--INPUT", str(tmp_path), "--DATE", "all"], datetime(2026, 3, 2, tzinfo=UTC))
    assert list(told.value.failures) == [f"tap/{HOUR.partition}"]
    totals = json.loads(capsys.readouterr().out)["compaction_totals"]
    assert (totals["hours"], totals["failed"]) == (1, 1)
