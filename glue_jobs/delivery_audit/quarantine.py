"""Bad rows, each with its reason. A row is good or quarantined, never gone: in = good + quarantined."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as sf

from glue_jobs.delivery_audit.schema import CORRUPT

UNREADABLE = "unreadable_line"
"""The line is no JSON, or a member has another type than its record's."""

MAX_TEXT = 4_000
"""Most characters of a bad row that are kept as evidence. Ours: enough to see what it is."""


def fault(faults: Mapping[str, Column]) -> Column:
    """The first of `faults` (reason -> whether the row has it) that applies, or null for a good row."""
    known = {UNREADABLE: sf.col(CORRUPT).isNotNull(), **faults}
    return sf.coalesce(*(sf.when(applies, sf.lit(reason)) for reason, applies in known.items()))


def any_missing(*names: str) -> Column:
    """Whether one of these members is null."""
    return reduce(or_, (sf.col(name).isNull() for name in names))


def line(*names: str) -> Column:
    """The row's own text, as evidence: the line that could not be read, or its members written again."""
    return sf.left(sf.coalesce(sf.col(CORRUPT), sf.to_json(sf.struct(*names))), sf.lit(MAX_TEXT))
