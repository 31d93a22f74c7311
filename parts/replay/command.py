"""`eventplane replay`: send again what an audit misses, or a past window to somebody new."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from eventplane.contract import Contract
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.reasons import REPLAY
from eventplane.resource_names import queue_name, resource_name
from operations import text
from operations.archive import Days, add_archive, archive_of, is_folder, say_damaged
from operations.cloud import Cloud, enter
from operations.command import DONE, FAILED, ChoiceError, add_contract, contract_of, day, present
from operations.errors import NoReplayQueueError
from operations.queues import PlaneQueues
from operations.subscribed import subscribed
from parts.replay.order import Order
from parts.replay.orders import Asked, matching, owed_by_file, owed_orders, send, window_files

_LATE_H: Final = 1
"""How long the tap may have taken to write what came at the window's end, hours: it takes minutes."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Send again what the audit of a day reports lost (--date), or a past window to a participant or over "
        "a route (--from, --to). Every copy is marked by `replayedtime`."
    )
    parser.set_defaults(run=_replay)
    add_contract(parser)
    add_archive(parser)
    parser.add_argument("--date", type=day, metavar="DAY", help="a UTC day that was audited")
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
        help="hours after --to in which the tap may have written it; default: %(default)s",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be sent")


def _replay(options: argparse.Namespace) -> int:
    asked = _asked(options)
    contract = contract_of(options)
    # What is only counted in a folder needs no cloud.
    cloud = None if options.dry_run and is_folder(options.archive) else enter(options.env)
    return _missed(options, cloud, contract) if asked is None else _window(options, cloud, contract, asked)


def _missed(options: argparse.Namespace, cloud: Cloud | None, contract: Contract) -> int:
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
    nothing = f"nothing to send again of {options.date}: no audit of that day reports a loss"
    what = f"{document['deliveries']} deliveries of {document['events']} events in {len(owed)} files"
    return _end(options, cloud, contract, days, orders, document, nothing, what)


def _window(options: argparse.Namespace, cloud: Cloud | None, contract: Contract, asked: Asked) -> int:
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
    return _end(options, cloud, contract, days, orders, document, nothing, what)


def _end(
    options: argparse.Namespace,
    cloud: Cloud | None,
    contract: Contract,
    days: Days,
    orders: Sequence[Order],
    document: dict[str, Any],
    nothing: str,
    what: str,
) -> int:
    say_damaged(days)
    if cloud is not None and orders and not options.dry_run:
        send(cloud.sqs, _queue(options.env, cloud, contract), orders)
    lines = [f"{what}: {_told(len(orders), options)}"] if orders else [nothing]
    if orders and (routes := document.get("routes")):
        lines.append(text.table(["ROUTE", "DELIVERIES"], list(routes.items())))
    sent = bool(orders) and not options.dry_run
    present(options, document | {"orders": len(orders), "sent": sent}, "\n".join(lines))
    return DONE if orders and not days.damaged else FAILED


def _told(orders: int, options: argparse.Namespace) -> str:
    if options.dry_run:
        return f"{orders} orders would be sent, nothing was changed"
    return f"{orders} orders sent; the next audit of the day reports what arrived"


def _queue(environment: str, cloud: Cloud, contract: Contract) -> str:
    url = PlaneQueues(cloud, environment, contract).urls.get(queue_name(environment, REPLAY))
    if url is None:
        raise NoReplayQueueError(environment)
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
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{value!r} is no time; write 2026-03-01T14:00:00Z, or a day"
        ) from None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
