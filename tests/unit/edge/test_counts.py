from __future__ import annotations

from edge import reports
from edge.counts import MOST_KINDS, OTHER_TYPES, Counts, NotStored
from edge.numbering import stamp
from edge.reports import Heading
from edge.spool import LossReport
from edge.spool.tables import MOST_RANGES
from eventplane.reasons import Outcome


def test_the_largest_report_fits_an_event() -> None:
    counts = Counts()
    for number in range(2 * MOST_KINDS):
        counts.lost(NotStored("c" * 5_000, f"{number:04}" + "\N{OLD PERSIAN SIGN A}" * 90_000, "spool_full"))
    ranges = tuple((-(1 << 40) + 3 * n, -(1 << 40) + 3 * n + 1) for n in range(MOST_RANGES))
    tally = LossReport("device.outbox", Outcome.DROPPED, "spool_full", 2 * MOST_RANGES, ranges)
    heading = Heading("t" * 128, "e" * 16, 10**11, "2024-01-01T00:00:00.000Z")
    report = reports.discarded(heading, [tally], counts.not_stored)
    assert len(stamp(report, "e" * 16, 10**11).json) > 50_000


def test_a_report_never_tells_more_kinds_than_fit_an_event() -> None:
    counts = Counts()
    for number in range(3 * MOST_KINDS):
        counts.lost(NotStored("sensor.outbox", f"type-{number}", "offline"))
    assert len(counts.not_stored) == MOST_KINDS + 1
    assert counts.not_stored[NotStored("sensor.outbox", OTHER_TYPES, "offline")] == 2 * MOST_KINDS
    assert counts.unreported == 3 * MOST_KINDS


def test_what_happens_while_a_report_is_stored_is_left_for_the_next() -> None:
    counts, kind = Counts(), NotStored("sensor.outbox", "t", "offline")
    counts.lost(kind, 2)
    told = dict(counts.not_stored)
    counts.lost(kind)
    counts.reported(told)
    assert counts.not_stored == {kind: 1}
    assert counts.unreported == 1
