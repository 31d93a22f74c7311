from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from eventplane.delivery import Outcome
from eventplane.handover import HandoverRecord
from eventplane.ledger import Basis, LedgerRecord, TapRecord
from glue_jobs.delivery_audit.schema import CORRUPT, HANDOVER_ROW, LEDGER_ROW, TAP_ROW

SPARK_TYPES = {
    int: LongType(),
    str: StringType(),
    str | None: StringType(),
    int | None: LongType(),
    Outcome: StringType(),
    Basis: StringType(),
}


@pytest.mark.parametrize(
    ("row", "record"), [(TAP_ROW, TapRecord), (LEDGER_ROW, LedgerRecord), (HANDOVER_ROW, HandoverRecord)]
)
def test_a_row_has_exactly_the_members_of_the_core_s_record(
    row: StructType, record: type[TapRecord] | type[LedgerRecord] | type[HandoverRecord]
) -> None:
    hints = get_type_hints(record)
    expected = {each.name: SPARK_TYPES[hints[each.name]] for each in fields(record)}
    assert {field.name: field.dataType for field in row} == {**expected, CORRUPT: StringType()}
