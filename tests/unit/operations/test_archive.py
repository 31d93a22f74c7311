"""The archive's rows, as the operator's commands read them."""

import gzip
from datetime import date
from pathlib import Path

import pytest

from eventplane.delivery import Outcome
from eventplane.ledger import LEDGER, LedgerRecord, to_line
from operations.archive import Days, FolderArchive, json_object


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
