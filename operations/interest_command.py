"""`python -m eventplane interest`: what the cloud wants of its devices, by its routes and subscriptions."""

from __future__ import annotations

import argparse
import uuid
from datetime import UTC, datetime
from typing import Final

from eventplane.contract import Contract
from eventplane.contract.interest import uplink_filters
from eventplane.contract.subscription import TABLE
from eventplane.downlink.addressing import ALL
from eventplane.envelope import Envelope
from eventplane.limits import MAX_DOWNLINK_EVENT_BYTES
from eventplane.resource_names import resource_name
from eventplane.uplink_interest import uplink_interest_event
from operations.cloud import Cloud, enter
from operations.command import DONE, answer, answer_json, run
from operations.errors import NoOutboxError, TooManyFiltersError
from operations.options import add_common, contract_of
from operations.queues import PlaneQueues
from operations.subscribed import subscribed

_OUTBOX: Final = "operations.outbox"


def main(arguments: list[str]) -> int:
    """The exit status; see `operations.command`."""
    options = _parser().parse_args(arguments)
    return run(lambda: _interest(options))


def _interest(options: argparse.Namespace) -> int:
    contract, cloud = contract_of(options), enter()
    filters = uplink_filters(subscribed(contract, cloud.dynamodb, resource_name(options.env, TABLE)))
    if options.publish or options.withdraw:
        told = filters if options.publish else None
        _send(options, cloud, contract, _event(told, options.device))
    if options.json:
        answer_json(filters)
    elif options.publish:
        answer(f"{len(filters)} filters are on their way to {_whom(options)}; `desired` says who has them")
    elif options.withdraw:
        answer(f"{_whom(options)} will send up everything")
    else:
        answer(f"{len(filters)} filters; --json prints them, --publish tells the devices")
    return DONE


def _event(filters: list[object] | None, device: str) -> Envelope:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    event = uplink_interest_event(filters, id=str(uuid.uuid4()), time=now, device=device)
    size = len(event.json.encode())
    if size > MAX_DOWNLINK_EVENT_BYTES:
        raise TooManyFiltersError(size, MAX_DOWNLINK_EVENT_BYTES)
    return event


def _send(options: argparse.Namespace, cloud: Cloud, contract: Contract, event: Envelope) -> None:
    url = PlaneQueues(cloud, options.env, contract).channel_urls.get(_OUTBOX)
    if url is None:
        raise NoOutboxError(_OUTBOX, options.env)
    cloud.sqs.send_message(QueueUrl=url, MessageBody=event.json)


def _whom(options: argparse.Namespace) -> str:
    return "all devices" if options.device == ALL else str(options.device)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m eventplane interest",
        description=__doc__,
        epilog="Devices whose contract says `forward: wanted` leave the rest out. Publish again after each "
        "change of contract or subscriptions: until then they do not send what only the new routes want.",
    )
    add_common(parser)
    parser.add_argument("--device", default=ALL, metavar="THING", help="one device; default: all of them")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--publish", action="store_true", help="send it down")
    what.add_argument("--withdraw", action="store_true", help="let devices send up everything again")
    return parser
