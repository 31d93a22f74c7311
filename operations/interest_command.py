"""`eventplane interest VERB`: which events the cloud wants of its devices."""

from __future__ import annotations

import argparse
from typing import Final

from eventplane.contract import Forward
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.downlink.wire import ALL
from eventplane.interest.table import PUBLISHED_SORT_KEY
from eventplane.interest.uplink import OPERATIONS, uplink_filters, uplink_interest_event
from eventplane.resource_names import resource_name
from eventplane.sqs_binding import send_request
from eventplane.values import timestamp
from operations import system
from operations.cloud import enter
from operations.command import DONE, add_contract, add_verbs, contract_of, present
from operations.desired import desired_items
from operations.errors import NoQueueError, NotAskedError
from operations.queues import PlaneQueues
from operations.subscribed import subscribed

_OUTBOX: Final = f"{OPERATIONS}.outbox"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_verbs(parser)
    showing = verb("show", _show, "show the filters that devices are sent")
    publishing = verb("publish", _publish, "send the filters to all devices again")
    withdrawing = verb("withdraw", _withdraw, "let devices send up everything until the next change")
    withdrawing.add_argument("--device", metavar="THING", help="one device; default: all of them")
    for each in (showing, publishing, withdrawing):
        add_contract(each)


def _show(options: argparse.Namespace) -> int:
    contract, cloud = contract_of(options), enter(options.env)
    filters = uplink_filters(
        subscribed(contract, cloud.dynamodb, resource_name(options.env, SUBSCRIPTIONS_TABLE))
    )
    present(options, filters, f"{len(filters)} filters; --json prints them")
    return DONE


def _publish(options: argparse.Namespace) -> int:
    """The filters are not sent from here: only the plane knows which contract is in force."""
    if contract_of(options).device.outbox.forward is not Forward.WANTED:
        raise NotAskedError
    desired_items(enter(options.env), options.env).discard(ALL, PUBLISHED_SORT_KEY)
    done = "all devices are sent the filters within a minute; `desired show` shows which have them"
    present(options, {"published": True}, done)
    return DONE


def _withdraw(options: argparse.Namespace) -> int:
    contract, cloud = contract_of(options), enter(options.env)
    id, now = system.random_bytes(16).hex(), timestamp(system.now())
    event = uplink_interest_event(None, id=id, time=now, device=options.device or ALL)
    url = PlaneQueues(cloud, options.env, contract).channel_urls.get(_OUTBOX)
    if url is None:
        raise NoQueueError(_OUTBOX, options.env)
    cloud.sqs.send_message(**send_request(url, event))
    done = f"{options.device or 'all devices'} will send up everything"
    present(options, {"withdrawn": True, "device": options.device}, done)
    return DONE
