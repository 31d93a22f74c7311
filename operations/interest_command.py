"""`python -m eventplane interest`: show and publish which events the cloud wants of its devices."""

from __future__ import annotations

import argparse
import uuid
from datetime import UTC, datetime
from typing import Final

from eventplane.contract import Contract, Forward
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.downlink.table import TABLE as DESIRED
from eventplane.downlink.wire import ALL
from eventplane.envelope import Envelope
from eventplane.interest.table import PUBLISHED_SORT_KEY
from eventplane.interest.uplink import OPERATIONS, uplink_filters, uplink_interest_event
from eventplane.resource_names import resource_name
from eventplane.values import timestamp
from operations.cloud import Cloud, enter
from operations.command import DONE, answer, answer_json, run
from operations.desired import DesiredItems
from operations.errors import NoOutboxError, NotAskedError
from operations.options import add_common, contract_of
from operations.queues import PlaneQueues
from operations.subscribed import subscribed

_OUTBOX: Final = f"{OPERATIONS}.outbox"


def main(arguments: list[str]) -> int:
    """The exit status; see `operations.command`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.device and not options.withdraw:
        parser.error("--device goes with --withdraw")
    return run(lambda: _interest(options))


def _interest(options: argparse.Namespace) -> int:
    contract, cloud = contract_of(options), enter()
    filters = uplink_filters(
        subscribed(contract, cloud.dynamodb, resource_name(options.env, SUBSCRIPTIONS_TABLE))
    )
    if options.publish:
        _publish_again(options, cloud, contract)
    elif options.withdraw:
        now = timestamp(datetime.now(UTC))
        event = uplink_interest_event(None, id=str(uuid.uuid4()), time=now, device=options.device or ALL)
        _send(options, cloud, contract, event)
    if options.json:
        answer_json(filters)
    elif options.publish:
        answer("all devices are sent the filters within a minute; `desired` shows which have them")
    elif options.withdraw:
        answer(f"{options.device or 'all devices'} will send up everything")
    else:
        answer(f"{len(filters)} filters; --json prints them")
    return DONE


def _publish_again(options: argparse.Namespace, cloud: Cloud, contract: Contract) -> None:
    """The filters are not sent from here: only the plane knows which contract is in force."""
    if contract.device.outbox.forward is not Forward.WANTED:
        raise NotAskedError
    DesiredItems(cloud.dynamodb, resource_name(options.env, DESIRED)).remove(ALL, PUBLISHED_SORT_KEY)


def _send(options: argparse.Namespace, cloud: Cloud, contract: Contract, event: Envelope) -> None:
    url = PlaneQueues(cloud, options.env, contract).channel_urls.get(_OUTBOX)
    if url is None:
        raise NoOutboxError(_OUTBOX, options.env)
    cloud.sqs.send_message(QueueUrl=url, MessageBody=event.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m eventplane interest",
        description=__doc__,
        epilog="The plane sends changes to devices whose contract says `forward: wanted` by itself.",
    )
    add_common(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--publish", action="store_true", help="send the filters to all devices again")
    what.add_argument("--withdraw", action="store_true", help="let devices send up everything until then")
    parser.add_argument("--device", metavar="THING", help="with --withdraw: one device; default: all of them")
    return parser
