"""The archive's rows, as the operator's commands read them."""

import gzip
from collections.abc import Iterator
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import IO

import boto3
import pytest

from eventplane.ledger import LEDGER, LedgerRecord, to_line
from eventplane.reasons import Outcome
from operations.archive import BucketArchive, Days, FolderArchive, json_object


@pytest.mark.parametrize("line", ['{"id":"1"}', '{"decided_at_ms":"late"}', "[]", "no json"])
def test_a_row_that_is_no_record_is_named_and_hides_no_other(tmp_path: Path, line: str) -> None:
    good = LedgerRecord(
        1, 1, "c", "v", "/s", "1", "t", "low", None, None, None, Outcome.UNROUTED, "r", 1, "m"
    )
    folder = tmp_path / "ledger" / "date=2026-01-01" / "hour=00"
    folder.mkdir(parents=True)
    (folder / "1.json.gz").write_bytes(gzip.compress(f"{line}\n{to_line(good)}\n".encode()))
    days = Days(FolderArchive(tmp_path), date(2026, 1, 1), date(2026, 1, 1))
    assert [each["id"] for each in days.records(LEDGER, json_object)] == ["1"]
    assert bool(days.damaged) == (line != "[]")


class Endless:
    """An archive whose day has more objects than anybody reads; counts what it was asked for."""

    def __init__(self) -> None:
        self.named = 0

    def names(self, prefix: str) -> Iterator[str]:
        for _ in range(10_000):
            self.named += 1
            yield f"{prefix}{self.named}.json.gz"

    def open(self, name: str) -> IO[bytes]:
        return BytesIO(gzip.compress(f'"{name}"\n'.encode()))


def test_objects_are_not_read_far_ahead_of_whoever_takes_their_rows() -> None:
    archive = Endless()
    rows = Days(archive, date(2026, 1, 1), date(2026, 1, 1)).rows("tap", bytes)
    assert next(rows) == b'"tap/date=2026-01-01/1.json.gz"\n'
    assert archive.named < 20
    rows.close()  # type: ignore[attr-defined]


def test_one_contract_is_asked_for_by_its_name(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="archive")
    s3.put_object(Bucket="archive", Key="contracts/v1.json", Body=b"{}")
    archive = BucketArchive(s3, "archive")
    monkeypatch.setattr(archive, "names", pytest.fail)
    days = Days(archive, date(2026, 1, 1), date(2026, 1, 1))
    assert days.contract("v1") == b"{}"
    assert days.contract("v2") is None


def test_an_object_that_left_while_it_was_read_is_named(aws: None) -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="archive")
    archive = BucketArchive(s3, "archive")
    archive.names = lambda prefix: iter([f"{prefix}1.json.gz"])  # type: ignore[method-assign]
    days = Days(archive, date(2026, 1, 1), date(2026, 1, 1))
    assert list(days.rows("tap", bytes)) == []
    assert list(days.damaged) == ["tap/date=2026-01-01/1.json.gz"]
