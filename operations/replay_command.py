"""`python -m eventplane replay`: send again what an audit misses, or a past window to somebody new."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.replay import REPLAY, Order
from eventplane.resource_names import queue_name, resource_name
from operations import text
from operations.archive import Days
from operations.cloud import Cloud, enter
from operations.command import DONE, INCOMPLETE, answer, answer_json, run
from operations.errors import ChoiceError, NoReplayQueueError
from operations.options import add_archive, add_common, archive_of, contract_of, is_folder, say_damaged
from operations.queues import PlaneQueues
from operations.replay import Asked, matching, owed_by_file, owed_orders, send, window_files
from operations.subscribed import subscribed

_LATE_H: Final = 1
"""How long the tap may have taken to write what came at the window's end, hours: it takes minutes."""


def main(arguments: list[str]) -> int:
    """The exit status; see `operations.command`."""
    options = _parser().parse_args(arguments)
    return run(lambda: _replay(options))


def _replay(options: argparse.Namespace) -> int:
    asked = _asked(options)
    # What is only counted in a folder needs no cloud.
    cloud = None if options.dry_run and is_folder(options.archive) else enter()
    return _missed(options, cloud) if asked is None else _window(options, cloud, asked)


def _missed(options: argparse.Namespace, cloud: Cloud | None) -> int:
    days = Days(archive_of(options, cloud), options.date, options.date)
    owed = owed_by_file(days, options.route)
    deliveries = [each for of_file in owed.values() for each in of_file]
    orders = list(owed_orders(owed))
    document = {
        "date": options.date.isoformat(),
        "deliveries": len(deliveries),
        "events": len({each.key for each in deliveries}),
        "files": len(owed),
        "routes": dict(sorted(Counter(each.route for each in deliveries).items())),
    }
    nothing = f"nothing to send again of {options.date}: no audit of that day says that something is lost"
    what = f"{document['deliveries']} deliveries of {document['events']} events in {len(owed)} files"
    return _end(options, cloud, days, orders, document, nothing, what)


def _window(options: argparse.Namespace, cloud: Cloud | None, asked: Asked) -> int:
    contract = contract_of(options)
    if cloud is not None:
        contract = subscribed(contract, cloud.dynamodb, resource_name(options.env, SUBSCRIPTIONS_TABLE))
    asked.routes(contract)
    late = timedelta(hours=options.late_hours)
    days = Days(archive_of(options, cloud), asked.since.date(), (asked.until + late).date())
    orders = [asked.order(file) for file in window_files(days, asked, late)]
    document: dict[str, Any] = {
        "from": asked.since.isoformat(),
        "to": asked.until.isoformat(),
        "files": len(orders),
    }
    what = f"{len(orders)} files of the tap"
    if options.dry_run:
        document["routes"] = dict(sorted(matching(days, asked, contract).items()))
        what += f" with {sum(document['routes'].values())} deliveries"
    nothing = "the tap has no files of that time: its raw lines have left, or nothing came"
    return _end(options, cloud, days, orders, document, nothing, what)


def _end(
    options: argparse.Namespace,
    cloud: Cloud | None,
    days: Days,
    orders: Sequence[Order],
    document: dict[str, Any],
    nothing: str,
    what: str,
) -> int:
    say_damaged(days)
    if cloud is not None and orders and not options.dry_run:
        send(cloud.sqs, _queue(options, cloud), orders)
    if options.json:
        answer_json(document | {"orders": len(orders), "sent": bool(orders) and not options.dry_run})
    elif not orders:
        answer(nothing)
    else:
        answer(f"{what}: " + _told(len(orders), options))
        if routes := document.get("routes"):
            answer(
                text.table(["ROUTE", "DELIVERIES"], [[name, str(number)] for name, number in routes.items()])
            )
    return DONE if orders and not days.damaged else INCOMPLETE


def _told(orders: int, options: argparse.Namespace) -> str:
    if options.dry_run:
        return f"{orders} orders would be sent, nothing was changed"
    return f"{orders} orders sent; the next audit of the day tells what arrived"


def _queue(options: argparse.Namespace, cloud: Cloud) -> str:
    queues = PlaneQueues(cloud, options.env, contract_of(options))
    url = queues.urls.get(queue_name(options.env, REPLAY))
    if url is None:
        raise NoReplayQueueError(options.env)
    return url


def _asked(options: argparse.Namespace) -> Asked | None:
    """The window that is asked for; None for what an audit misses. Raises `ChoiceError`."""
    if options.late_hours < 0:
        raise ChoiceError("--late-hours counts on from --to; name none or more")
    window = options.since, options.until
    if options.date is not None:
        if options.participant or any(window):
            raise ChoiceError("--date sends what the audit of a day misses; leave out the rest but --route")
        return None
    if window[0] is None or window[1] is None or window[0] >= window[1]:
        raise ChoiceError("say what to send: --date DAY, or --from TIME --to TIME with a later --to")
    if (options.participant is None) is (options.route is None):
        raise ChoiceError("say who gets the window: --participant NAME or --route NAME")
    return Asked(*window, options.participant, options.route)


def _moment(value: str) -> datetime:
    time = datetime.fromisoformat(value)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m eventplane replay",
        description="Send again what the audit of a day misses (--date), or a past window to a participant "
        "or over a route (--from, --to). Every copy is marked by `replayedtime`.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong arguments, 3 nothing to send, or not all was read.",
    )
    add_common(parser)
    add_archive(parser)
    parser.add_argument("--date", type=date.fromisoformat, metavar="DAY", help="a UTC day that was audited")
    parser.add_argument("--route", metavar="NAME", help="only over this route")
    parser.add_argument("--participant", metavar="NAME", help="only to this one's inbox")
    parser.add_argument(
        "--from", dest="since", type=_moment, metavar="TIME", help="accepted from then, RFC 3339 or a day"
    )
    parser.add_argument("--to", dest="until", type=_moment, metavar="TIME", help="accepted before that")
    parser.add_argument(
        "--late-hours",
        type=int,
        default=_LATE_H,
        metavar="H",
        help="hours after --to in which the tap may have written it, now: %(default)s",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be sent")
    return parser
