"""`python -m eventplane trace SOURCE ID`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from eventplane.contract import Contract
from operations import text
from operations.archive import Days
from operations.cloud import Cloud, enter
from operations.command import DONE, INCOMPLETE, answer, answer_json, run, say
from operations.letters import Letter
from operations.options import add_common, add_days, contract_of, days_of, is_folder, say_damaged
from operations.places import LOOK, Choice, Place, place_of, waiting_letters
from operations.queues import PlaneQueues
from operations.stations import Station
from operations.trace import Trace, traces

_HIDDEN = ("archived_at_ms", "entered_by", "entered_at_ms", "message")
"""Facts that only the JSON has: they would make the table wider than a screen."""


def main(arguments: list[str]) -> int:
    """The exit status; see `operations.command`."""
    options = _parser().parse_args(arguments)
    return run(lambda: _trace(options))


def _trace(options: argparse.Namespace) -> int:
    contract = contract_of(options)
    cloud = None if is_folder(options.archive) else enter()
    days = days_of(options, cloud)
    letters = _letters(options, cloud, contract) if cloud else iter(())
    found = traces((options.source, options.id), days, letters, contract)
    say_damaged(days)
    if options.json:
        answer_json(_document(found, days))
    else:
        if len(found) > 1:
            answer(f"{len(found)} senders have sent events of these names: they are different events\n")
        answer("\n\n".join(map(_text, found)))
    return INCOMPLETE if any(each.missing or not each.stations for each in found) else DONE


def _letters(options: argparse.Namespace, cloud: Cloud, contract: Contract) -> Iterator[Letter]:
    """What waits in the dead-letter queues, and on demand in all others, that carries the event."""
    queues = PlaneQueues(cloud, options.env, contract)
    places = [place_of(each) for each in queues.dead_letter_queues]
    if options.live:
        behind = {each.url for each in places}
        places += [
            Place(name, name, url, None, None) for name, url in queues.urls.items() if url not in behind
        ]
    for place in places:
        if queues.counts(place.url)[0] == 0:
            continue

        def more(title: str = place.title) -> None:
            say(f"{title}: only the first {LOOK} messages were looked at")

        yield from waiting_letters(cloud.sqs, place, Choice(options.id), more)


def _text(found: Trace) -> str:
    trace_id = f", trace {found.trace_id}" if found.trace_id else ""
    sender = f", sent by {text.word(found.sender)}" if found.sender else ""
    head = f"id {text.word(found.claim[1])} of {text.word(found.claim[0])}{sender}{trace_id}"
    rows = [[text.moment(each.at_ms), each.where, each.what, _detail(each)] for each in found.stations]
    lines = [head, *([text.table(["TIME (UTC)", "WHERE", "WHAT", "DETAIL"], rows)] if rows else [])]
    return "\n".join([*lines, *(f"missing: {each}" for each in found.missing)])


def _detail(station: Station) -> str:
    facts = {
        name: value for name, value in station.facts.items() if value is not None and name not in _HIDDEN
    }
    way = [f"{facts.pop('route')} -> {facts.pop('destination')}"] if "route" in facts else []
    return ", ".join([*way, *(f"{name} {value}" for name, value in facts.items())])


def _document(found: list[Trace], days: Days) -> dict[str, Any]:
    source, id = found[0].claim
    return {
        "source": source,
        "id": id,
        "from": days.first.isoformat(),
        "to": days.last.isoformat(),
        "events": [
            {
                "sender": each.sender,
                "trace_id": each.trace_id,
                "stations": [station.document() for station in each.stations],
                "missing": each.missing,
            }
            for each in found
        ],
        "damaged": days.damaged,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m eventplane trace",
        description="Every station of one event, from the archive and the dead-letter queues. Where several "
        "senders use the same names, each one's event has a trace.",
        epilog="Exit status: 0 the whole way is known, 1 failed, 2 wrong arguments, 3 something is missing.",
    )
    parser.add_argument("source", metavar="SOURCE", help="the event's `source`")
    parser.add_argument("id", metavar="ID", help="the event's `id`")
    add_common(parser)
    add_days(parser)
    parser.add_argument(
        "--live",
        action="store_true",
        help="look into inboxes, outboxes and the ways in as well: it costs each message there one of its "
        "receives, and hides it from its reader until the look is over",
    )
    return parser
