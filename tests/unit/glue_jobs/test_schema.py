from dataclasses import fields
from typing import get_type_hints

import pytest
from pyspark.sql.types import LongType, StringType

from eventplane.archive_layout import DIGEST, HANDOVERS_FOLDER, LEDGER_FOLDER, TAP_FOLDER, Folder
from eventplane.ledger import Basis, HandoverRecord, LedgerRecord, TapRecord
from eventplane.reasons import Outcome
from glue_jobs.common.archive import CORRUPT, row_of
from glue_jobs.delivery_audit.event_group import HandoverRow, LedgerRow

SPARK_TYPES = {
    int: LongType(),
    str: StringType(),
    str | None: StringType(),
    int | None: LongType(),
    Outcome: StringType(),
    Basis: StringType(),
}


@pytest.mark.parametrize(
    ("folder", "record"),
    [(TAP_FOLDER, TapRecord), (LEDGER_FOLDER, LedgerRecord), (HANDOVERS_FOLDER, HandoverRecord)],
)
def test_a_row_has_exactly_the_members_of_the_core_s_record(
    folder: Folder, record: type[TapRecord] | type[LedgerRecord] | type[HandoverRecord]
) -> None:
    hints = get_type_hints(record)
    expected = {each.name: SPARK_TYPES[hints[each.name]] for each in fields(record)}
    if folder is TAP_FOLDER:
        expected[DIGEST.name] = StringType()  # only a redacted row has it
    assert {field.name: field.dataType for field in row_of(folder)} == {**expected, CORRUPT: StringType()}


@pytest.mark.parametrize(("row", "record"), [(LedgerRow, LedgerRecord), (HandoverRow, HandoverRecord)])
def test_a_judged_row_begins_with_the_record_s_members(
    row: type[LedgerRow] | type[HandoverRow], record: type[LedgerRecord] | type[HandoverRecord]
) -> None:
    """Spark's rows become these by position."""
    assert row._fields == (*(each.name for each in fields(record)), "file", "unknown_members", "within")
