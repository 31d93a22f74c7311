"""The archive's rows, as the operator's commands read them."""

import gzip
from collections.abc import Iterator
from datetime import date
from io import BytesIO
from typing import IO

import pytest

from eventplane.ledger import LEDGER
from eventplane.reasons import Outcome
from operations.archive import BucketArchive, Days, json_object
from tests.fakes.aws import FakeAws
from tests.unit.operations.support import MemoryArchive, ledger_line

DAY = date(2026, 1, 1)


@pytest.mark.parametrize("line", ['{"id":"1"}', '{"decided_at_ms":"late"}', "[]", "no json"])
def test_a_row_that_is_no_record_is_named_and_hides_no_other(line: str) -> None:
    archive = MemoryArchive()
    archive.write(f"ledger/date={DAY}/1.json.gz", line, ledger_line(None, Outcome.UNROUTED, reason="r"))
    days = Days(archive, DAY, DAY)
    assert [each["reason"] for each in days.records(LEDGER, json_object)] == ["r"]
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
    rows = Days(archive, DAY, DAY).rows("tap", bytes)
    assert next(rows) == b'"tap/date=2026-01-01/1.json.gz"\n'
    assert archive.named < 20
    rows.close()  # type: ignore[attr-defined]


@pytest.mark.lost_answers
def test_a_bucket_gives_one_contract_by_its_name_and_names_an_object_that_left_meanwhile(
    fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = fake_aws.s3
    s3.create_bucket(Bucket="archive")
    s3.put_object(Bucket="archive", Key="contracts/v1.json", Body=b"{}")
    archive = BucketArchive(s3, "archive")
    monkeypatch.setattr(archive, "names", pytest.fail)
    days = Days(archive, DAY, DAY)
    assert (days.contract("v1"), days.contract("v2")) == (b"{}", None)
    monkeypatch.setattr(archive, "names", lambda prefix: iter([f"{prefix}1.json.gz"]))
    assert list(days.rows("tap", bytes)) == []
    assert list(days.damaged) == ["tap/date=2026-01-01/1.json.gz"]
