"""Where an event may be that never reached the tap, by the reports of its device.

A device reports how many events wait there and how many it ended, and names none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from eventplane.account import EVERY_INBOX, OF_ROUTER, Account, Fate
from eventplane.contract import Priority
from eventplane.ledger import TAP
from eventplane.presence import Line
from operations.archive import Days, json_object
from operations.names import names_in
from operations.reported import NOT_STORED, DeviceReport
from operations.reported_text import connection
from operations.search import may_name
from operations.text import moment

_MOST: Final = 4
"""Devices whose reports are read: anybody can send in the name of a `source`."""

_FATES: Final = {**OF_ROUTER, NOT_STORED: Fate.REFUSED}


def accounts_of_unsent(
    source: str, days: Days, report_of: Callable[[str], DeviceReport]
) -> tuple[list[Account], list[str]]:
    """Return what may have become of an event of `source`, and what devices that have none of it report.

    Asked for are the devices that sent as `source` in `days`, otherwise those whose name is in it.
    """
    is_near = may_name(source)

    def client(line: bytes) -> str | None:
        record = json_object(line) if is_near(line) else None
        claim = names_in(record["event"] or "") if record else None
        return str(record["client_id"]) if record and claim and claim[0] == source else None

    found = sorted({*days.rows(TAP, client)})
    reports = map(report_of, (found or [each for each in source.split("/") if each])[:_MOST])
    known = [each for each in reports if each.presence or each.lost is not None]
    told = {each.thing: list(_possible(each)) for each in known}
    idle = [
        f"{each.thing} reports nothing that waits or ended: {connection(each)}, {_backlog(each)}"
        for each in known
        if not told[each.thing]
    ]
    return [account for possible in told.values() for account in possible], idle


def _possible(report: DeviceReport) -> Iterator[Account]:
    seen, quiet = (report.presence.sighting, report.presence.quiet) if report.presence else (None, None)
    is_away = bool(quiet or (seen and seen.line is Line.DISCONNECTED))
    oldest = min(filter(None, map(report.oldest_ms, Priority)), default=None)
    if is_away or oldest or report.number("pending"):
        words = f"{connection(report)}, {_backlog(report)}"
        yield Account(EVERY_INBOX, Fate.WAITING, report.thing, words, oldest)
    hours = f"{report.since:%Y-%m-%d %H:%M} to {report.until:%Y-%m-%d %H:%M}"
    for loss, count in (report.lost or {}).items():
        # What ended on its way to a service in the home went up all the same.
        if loss.where.endswith(".outbox") and (fate := _FATES.get(loss.outcome)):
            yield Account(EVERY_INBOX, fate, report.thing, f"{loss.reason}, {count} at {loss.where}, {hours}")


def _backlog(report: DeviceReport) -> str:
    if report.heartbeat_ms is None:
        return "backlog not reported"
    words = [f"{report.number('pending') or 0:.0f} pending at {moment(report.heartbeat_ms)}"]
    for priority in Priority:
        if since_ms := report.oldest_ms(priority):
            number = report.number(f"pending_{priority}")
            counted = "" if number is None else f"{number:.0f} "
            words.append(f"{counted}{priority} since {moment(since_ms)}")
    return ", ".join(words)
