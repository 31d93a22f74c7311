"""`eventplane trace [SOURCE] ID`: the way of an event and what became of it, by archive and queues."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time
from typing import Any, Final

from eventplane.account import EVERY_INBOX, OF_ROUTER, Account, Fate
from eventplane.contract import Contract, Priority
from eventplane.ledger import TAP
from eventplane.presence import Line
from operations import system, text
from operations.archive import Days, add_days, archive_of, days_of, is_folder, json_object, say_damaged
from operations.cloud import Cloud, enter
from operations.command import (
    FAILED,
    ChoiceError,
    add_contract,
    contract_of,
    positive,
    present,
    say,
)
from operations.letters import Letter
from operations.names import Claim, names_in
from operations.places import Choice, place_of, waiting_letters
from operations.queues import PlaneQueues
from operations.reported import NOT_STORED, DeviceReport, presence_of, report_of
from operations.reported_text import connection
from operations.search import may_name, sources_of
from operations.stations import Station
from operations.text import moment
from operations.trace import Trace, traces

_MOST: Final = 4
"""Devices whose reports are read: anybody can send in the name of a `source`."""

_MOST_SOURCES: Final = 16
"""Sources of one id that are followed: for each the archive is read anew."""

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
    told = {each.thing: list(_of_report(each)) for each in known}
    idle = [
        f"{each.thing} reports nothing that waits or ended: {connection(each)}, {_backlog(each)}"
        for each in known
        if not told[each.thing]
    ]
    return [account for possible in told.values() for account in possible], idle


def _of_report(report: DeviceReport) -> Iterator[Account]:
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


_HIDDEN = ("archived_at_ms", "entered_by", "entered_at_ms", "message")
"""Facts that only the JSON has: they would make the table wider than a screen."""

_PAUSE_S: Final = 2.0
"""Between two looks of --follow, seconds: S3 reports nothing to a command, and is written after seconds."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.usage = "%(prog)s [SOURCE] ID [options]"
    parser.description = (
        "Show every step of an event, from the archive and the dead-letter queues, and its fate at each "
        "inbox. Events of several senders with the same `source` and `id` have a trace each."
    )
    parser.epilog = (
        "Exit status: 0 it was handled by each reader, in the home and in the cloud, or ended as declared "
        "(expired, dropped); 1 it was refused, given up or lost; 2 wrong usage; 3 none of these, and an end "
        "is not known: it waits, no record shows what its reader did, or records are missing."
    )
    parser.set_defaults(run=_trace)
    parser.add_argument(
        "names", nargs="+", metavar="ID", help="the event's `id`, optionally after its `source`"
    )
    add_contract(parser)
    add_days(parser)
    parser.add_argument(
        "--follow",
        action="store_true",
        help="print steps as they become known, until the end",
    )
    parser.add_argument(
        "--timeout", type=positive, metavar="S", help="seconds to follow; default: until stopped"
    )


def _trace(options: argparse.Namespace) -> int:
    if len(options.names) > 2:
        raise ChoiceError("name one event: ID, or SOURCE ID")
    if options.timeout and not options.follow:
        raise ChoiceError("--timeout goes with --follow")
    contract = contract_of(options)
    if options.follow:
        return _follow(options, contract)
    found, days, cloud = found_traces(options, contract)
    found = _with_reports(found, days, options, cloud)
    say_damaged(days)
    shown = "\n\n".join(map(_text, found))
    if len(found) > 1:
        shown = f"{len(found)} senders have sent events of these names: they are different events\n\n{shown}"
    present(options, _document(options.names, found, days), shown)
    return _status(found)


def _status(found: Sequence[Trace]) -> int:
    statuses = {each.status for each in found}
    return FAILED if FAILED in statuses else max(statuses)


def _follow(options: argparse.Namespace, contract: Contract) -> int:
    """Print the steps as they become known; with --json one object a line."""
    end = system.monotonic() + options.timeout if options.timeout else None
    printed: set[tuple[str, str]] = set()
    cloud, days = _archive(options)
    while True:
        found = _found(options, contract, cloud, days)
        for each in found:
            for station in each.stations:
                line = "  ".join(map(text.word, _row(station)))
                if (each.sender, line) not in printed:
                    printed.add((each.sender, line))
                    present(options, {"sender": each.sender, **station.document()}, line, is_line=True)
        if not any(each.is_open for each in found) or (
            end is not None and system.monotonic() + _PAUSE_S > end
        ):
            found = _with_reports(found, days, options, cloud)
            say_damaged(days)
            for each in found:
                for account in each.accounts:
                    document = {"sender": each.sender, **account.document()}
                    present(options, document, _line(account), is_line=True)
                for account in each.possible:
                    document = {"sender": each.sender, "possible": account.document()}
                    present(options, document, _possible(account), is_line=True)
                for missing in (*each.missing, *each.unknown_ends):
                    say(f"missing: {missing}")
            return _status(found)
        system.sleep(_PAUSE_S)


def found_traces(options: argparse.Namespace, contract: Contract) -> tuple[list[Trace], Days, Cloud | None]:
    """The traces of the event that is named, of which days they are, and the cloud that has the archive."""
    cloud, days = _archive(options)
    return _found(options, contract, cloud, days), days, cloud


def _archive(options: argparse.Namespace) -> tuple[Cloud | None, Days]:
    cloud = None if is_folder(options.archive) else enter(options.env)
    return cloud, days_of(options, cloud)


def _found(options: argparse.Namespace, contract: Contract, cloud: Cloud | None, days: Days) -> list[Trace]:
    letters = list(_letters(options, cloud, contract)) if cloud else []
    claims = _claims(options.names, days, letters)
    return [each for claim in claims for each in traces(claim, days, letters, contract)]


def _with_reports(
    found: list[Trace], days: Days, options: argparse.Namespace, cloud: Cloud | None
) -> list[Trace]:
    """Return the traces, one without a record with what the reports of its device leave possible."""
    archive, end = archive_of(options, cloud), datetime.combine(days.last, time.max, UTC)
    presences = presence_of(cloud, options.env) if cloud else None
    hours = 24 * ((days.last - days.first).days + 1)

    def asked(trace: Trace) -> Trace:
        source, (account, *others) = trace.claim[0], trace.accounts
        if trace.stations or days.left(TAP) or not source:
            return trace
        possible, idle = accounts_of_unsent(
            source, days, lambda thing: report_of(thing, presences, archive, hours, min(end, system.now()))
        )
        why = "; ".join([account.why, *idle])
        return replace(trace, possible=possible, accounts=(replace(account, why=why), *others))

    return [asked(each) for each in found]


def _claims(names: Sequence[str], days: Days, letters: Sequence[Letter]) -> list[Claim]:
    *named, id = names
    sources = set(named) or sources_of(id, days) | {
        source for letter in letters for source, each in letter.claims if each == id
    }
    if len(sources) > _MOST_SOURCES:
        some = ", ".join(sorted(sources)[:_MOST])
        raise ChoiceError(f"{len(sources):,} sources have an event of this id ({some}, ...): name its SOURCE")
    return [(source, id) for source in sorted(sources) or [""]]


def _letters(options: argparse.Namespace, cloud: Cloud, contract: Contract) -> Iterator[Letter]:
    """What waits in the dead-letter queues and carries the event; other queues have readers."""
    queues = PlaneQueues(cloud, options.env, contract)
    for place in map(place_of, queues.dead_letter_queues):
        if queues.counts(place.url)[0]:
            yield from waiting_letters(cloud.sqs, place, Choice(options.names[-1]))


def _text(found: Trace) -> str:
    trace_id = f", trace {found.trace_id}" if found.trace_id else ""
    sender = f", sent by {text.word(found.sender)}" if found.sender else ""
    source = f" of {text.word(found.claim[0])}" if found.claim[0] else ""
    head = f"id {text.word(found.claim[1])}{source}{sender}{trace_id}"
    rows = [_row(each) for each in found.stations]
    lines = [head, *([text.table(["TIME (UTC)", "WHERE", "WHAT", "DETAIL"], rows)] if rows else [])]
    lines += [*map(_line, found.accounts), *map(_possible, found.possible)]
    return "\n".join(
        [*lines, *(f"missing: {text.word(each)}" for each in (*found.missing, *found.unknown_ends))]
    )


def _line(account: Account) -> str:
    return f"{text.word(account.inbox or 'every inbox')}: {text.word(str(account))}"


def _possible(account: Account) -> str:
    return f"perhaps {text.word(str(account))}"


def _row(station: Station) -> list[str]:
    return [text.moment(station.at_ms), station.where, station.what, _detail(station)]


def _detail(station: Station) -> str:
    facts = {
        name: value for name, value in station.facts.items() if value is not None and name not in _HIDDEN
    }
    way = [f"{facts.pop('route')} -> {facts.pop('destination')}"] if "route" in facts else []
    return ", ".join([*way, *(f"{name} {value}" for name, value in facts.items())])


def _document(names: Sequence[str], found: list[Trace], days: Days) -> dict[str, Any]:
    return {
        "id": names[-1],
        "from": days.first.isoformat(),
        "to": days.last.isoformat(),
        "events": [
            {
                "source": each.claim[0] or None,
                "sender": each.sender,
                "trace_id": each.trace_id,
                "stations": [station.document() for station in each.stations],
                "accounts": [account.document() for account in each.accounts],
                "possible": [account.document() for account in each.possible],
                "missing": each.missing,
                "unknown_ends": each.unknown_ends,
            }
            for each in found
        ],
        "damaged": days.damaged,
    }
