from __future__ import annotations

from edge.counts import MOST_KINDS, OTHER_TYPES, Counts
from edge.reports import NotStored


def test_a_report_never_tells_more_kinds_than_fit_an_event() -> None:
    counts = Counts()
    for number in range(3 * MOST_KINDS):
        counts.lost(NotStored("sensor.outbox", f"type-{number}", "offline"))
    assert len(counts.not_stored) == MOST_KINDS + 1
    assert counts.not_stored[NotStored("sensor.outbox", OTHER_TYPES, "offline")] == 2 * MOST_KINDS
    assert counts.untold == 3 * MOST_KINDS


def test_what_happens_while_a_report_is_stored_is_left_for_the_next() -> None:
    counts, kind = Counts(), NotStored("sensor.outbox", "t", "offline")
    counts.lost(kind, 2)
    told = dict(counts.not_stored)
    counts.lost(kind)
    counts.told(told)
    assert counts.not_stored == {kind: 1}
    assert counts.untold == 1
