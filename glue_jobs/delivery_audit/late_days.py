"""The days before an audit's that got rows after their last verdict: they are judged again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from eventplane.archive_layout import Folder, report_name
from eventplane.envelope import Envelope
from eventplane.ledger import TAP
from eventplane.written import Entry, list_of, read_entry
from glue_jobs.common import system
from glue_jobs.common.hours import GRACE, Days, hours_of
from glue_jobs.common.lines import MAX_READ_BYTES, members_of
from glue_jobs.common.listing import LINES, TOGETHER, whole_lines
from glue_jobs.common.objects import Objects
from glue_jobs.delivery_audit.audit import FOLDERS, AuditRequest
from glue_jobs.delivery_audit.chain import UNREADABLE, Past, known
from glue_jobs.delivery_audit.errors import DamagedReportError
from glue_jobs.delivery_audit.rules import LATE_DAYS, date_of, is_time
from glue_jobs.delivery_audit.verdict import revision_of, verdict_event

_MOST: Final = MAX_READ_BYTES // TOGETHER
"""The most that is read of an object, bytes; a larger one counts as damaged."""


def late_days(request: AuditRequest) -> list[str]:
    """Return the days, `YYYY-MM-DD`, of the `LATE_DAYS` before the request's with such rows, in order.

    Searched are the objects of the hours that were open at the last audit that searched, or later: its
    inventory may have some that came after its search. Each is read once, and only if its writer lists rows
    of a day before, or does not list it. Of a damaged or missing one all days count that its writer lists.
    An audit that ended before it judged the days that it names leaves them to the next.
    """
    day, output = request.window.day, request.output
    before = [str(day - timedelta(days=at)) for at in range(1, LATE_DAYS + 1)] if day else []
    last = {each: judged for each in before if (judged := _judged(Past(output, each).last))}
    if not last:
        return []
    searched = _searched(output, last)
    found = defaultdict[str, set[str]](set)
    for folder in FOLDERS:
        arrived = {
            name: entry
            for name, entry in _arrived(request.objects, folder, searched.as_of_ms).items()
            if entry is None or date_of(entry.first_ms) < str(day)
        }
        with system.pool(TOGETHER) as together:
            days = together.map(partial(_days_of, request.objects, folder, [*last]), arrived.items())
            for name, those in zip(arrived, days, strict=True):
                for each in those:
                    found[each].add(name)
    late = {each for each in last if each in searched.named and last[each].as_of_ms < searched.as_of_ms}
    for each, names in found.items():
        inventory = Past(output, each).judged(last[each].verdict)
        if inventory is None or not names <= inventory.objects.keys():
            late.add(each)
    return sorted(late)


class _Judged(NamedTuple):
    """A verdict on a day; late days are what it has `named` if it `has_searched`."""

    verdict: Envelope
    as_of_ms: int
    has_searched: bool
    named: Sequence[object]


def _judged(read: Callable[[], Envelope | None]) -> _Judged | None:
    """Return what `read` gives; None where it is nothing, or no verdict of an audit."""
    try:
        if (verdict := read()) is None:
            return None
        data = known(verdict).data()
        as_of_ms, named = data["watermark"]["as_of_ms"], data["window"].get("late_days")
    except (DamagedReportError, *UNREADABLE):
        return None
    has_searched = isinstance(named, list)
    is_verdict = isinstance(as_of_ms, int) and is_time(as_of_ms)
    return _Judged(verdict, as_of_ms, has_searched, named if has_searched else ()) if is_verdict else None


def _searched(output: Objects, last: Mapping[str, _Judged]) -> _Judged:
    """Return the verdict of the last audit that searched, the newest of the `last` ones if none did."""
    for day, judged in last.items():
        for number in range(revision_of(judged.verdict), -1, -1):
            if (body := output.read(report_name(day, number))) is None:
                break  # erased with those before it, or a number of no report
            found = _judged(partial(verdict_event, body))
            if found and found.has_searched:
                return found
    return last[max(last)]


def _arrived(objects: Objects, folder: Folder, since_ms: int) -> Mapping[str, Entry | None]:
    """Return the objects of hours that may have been written to since then, and their entries.

    Those of objects that are gone are among them.
    """
    since = datetime.fromtimestamp(since_ms / 1_000, UTC)
    days = Days((since - GRACE).date() - timedelta(days=1))

    def beneath(root: str) -> Iterator[str]:
        hours = (each for each in hours_of(objects, root, days) if not each.is_closed(since))
        return (each.name for hour in hours for each in objects.beneath(hour.raw(root)))

    # Before the objects: each of them is there before its entry.
    entries = [entry for each in beneath(list_of(folder.name)) if (entry := read_entry(each))]
    names = (each for each in beneath(folder.name) if each.endswith(LINES))
    return {**dict.fromkeys(names), **{each.key: each for each in entries}}


def _days_of(
    objects: Objects, folder: Folder, days: Sequence[str], named: tuple[str, Entry | None]
) -> set[str]:
    """Return which of the days rows of an object are of: of the tap by acceptance, of others by entry."""
    name, entry = named
    time = "accepted_at_ms" if folder.name == TAP else "entered_at_ms"
    try:
        lines, problem = whole_lines(objects.read(name) or b"", _MOST)
    except OverflowError:
        lines, problem = [], "it is too large"
    if entry and (problem or not lines):
        return {each for each in days if date_of(entry.first_ms) <= each <= date_of(entry.last_ms)}
    times = (members_of(each).get(time) for each in lines)
    return {date_of(each) for each in times if each.__class__ is int and is_time(each)}.intersection(days)
