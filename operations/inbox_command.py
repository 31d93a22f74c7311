"""`eventplane inbox NAME`: count the events in a participant's inbox, or take and print them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from eventplane.contract import Contract
from eventplane.envelope import Envelope, parse_event, sender_of
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.sqs_binding import hint_of, split
from eventplane.topics import local_topic
from operations import system, text
from operations.cloud import Cloud, enter
from operations.command import (
    DONE,
    FAILED,
    ChoiceError,
    add_contract,
    contract_of,
    count,
    positive,
    present,
    say,
)
from operations.errors import NoQueueError
from operations.queues import PlaneQueues
from operations.reading import Message, Peek

if TYPE_CHECKING:
    from eventplane_client.delivery import Delivery

_DATA_SHOWN: Final = 100
"""Characters of the data in a line; --json has all."""


class NotForTakingError(EventPlaneError):
    """People read what is in the inboxes of `environment`, and --follow would take it."""

    environment: str
    message = (
        "{environment} keeps its data: --follow removes the events that it shows, and the inbox's reader "
        "never gets them; leave out --follow, or add --take"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Count the events in a cloud service's inbox. Only --follow receives events: in the place of the "
        "service, which does not get them."
    )
    parser.set_defaults(run=_inbox)
    parser.add_argument("name", metavar="NAME", help="the participant")
    parser.add_argument("--follow", action="store_true", help="take and print events as they arrive")
    parser.add_argument(
        "--take", action="store_true", help="needed with --follow in an environment that keeps its data"
    )
    parser.add_argument("--most", type=count, metavar="N", help="end after N events")
    parser.add_argument(
        "--timeout", type=positive, metavar="S", help="seconds to follow; default: until stopped"
    )
    add_contract(parser)


def _inbox(options: argparse.Namespace) -> int:
    if (options.most or options.timeout or options.take) and not options.follow:
        raise ChoiceError("--most, --timeout and --take go with --follow")
    contract = contract_of(options)
    address = _address(contract, options.name)
    cloud = enter(options.env)
    if options.follow and not options.take and cloud.keeps_data(options.env):
        raise NotForTakingError(options.env)
    queues = PlaneQueues(cloud, options.env, contract)
    url = queues.channel_urls.get(address)
    if url is None:
        raise NoQueueError(address, options.env)
    if options.follow:
        return _follow(options, cloud, url)
    waiting, hidden = queues.counts(url)
    document = {"inbox": address, "waiting": waiting, "in_hand": hidden}
    present(options, document, f"{address}: {waiting} events wait, its reader has {hidden} in hand")
    return DONE


def _address(contract: Contract, name: str) -> str:
    """The inbox of the service `name`. Raises `ChoiceError` for one that has no queue."""
    service = contract.participants.get(name)
    if service is None:
        known = [each.name for each in contract.participants.values() if not each.kind.is_on_device]
        raise ChoiceError(f"no participant is called {name!r}; name one of: {', '.join(known)}")
    if service.kind.is_on_device:
        topic = local_topic(name, service.inbox.box)
        raise ChoiceError(
            f"{name} is on a device, its inbox is no queue; read it from the home's broker: "
            f"mosquitto_sub -q 1 -t {topic}"
        )
    return service.inbox.address


def _follow(options: argparse.Namespace, cloud: Cloud, url: str) -> int:
    # Only here: operations need no client library.
    from eventplane_client.receipts import Receipts
    from eventplane_client.system import SYSTEM

    receipts = Receipts(options.name, options.env, cloud.sqs, SYSTEM)
    say(f"taking the events in the inbox of {options.name}; end it with Ctrl-C")
    end = system.monotonic() + (options.timeout or inf)
    left: int | None = options.most
    while system.monotonic() < end:
        with Peek(cloud.sqs, url) as reading:
            for page in reading.pages():
                taken = page[:left]
                for message in taken:
                    for shown in _print(options, message):
                        receipts.add(shown)
                if receipts.send():
                    reading.delete(taken)  # only what was shown; the rest goes back
                left = None if left is None else left - len(taken)
                if left == 0:
                    return DONE
                if system.monotonic() >= end:
                    break
    return DONE if left is None else FAILED


def _print(options: argparse.Namespace, message: Message) -> Iterator[Delivery]:
    """Print each event of a message, and yield what a receipt of it is made from."""
    from eventplane_client.delivery import Delivery
    from eventplane_client.ports import Message as Delivered
    from eventplane_client.sqs import hints_of

    attributes, hints = message["Attributes"], hints_of(partial(hint_of, message))
    sent_ms = int(attributes["SentTimestamp"])
    attempt = int(attributes["ApproximateReceiveCount"])
    said = Delivered(b"", attempt, None, sent_at_ms=sent_ms, id=message["MessageId"], **hints)
    try:
        events: list[Envelope | None] = [parse_event(each) for each in split(message["Body"])]
    except EnvelopeError:
        events = [None]
    for event in events:
        sender = str(sender_of(event.attributes)) if event else ""
        document: dict[str, Any] = {
            "arrived_at_ms": sent_ms,
            "route": said.route,
            "sender": sender or None,
            "event": json.loads(event.json) if event else None,
            "message": None if event else message["Body"],
        }
        line = [text.moment(sent_ms), f"route {said.route}" if said.route else "no route"]
        line += (
            [f"{event.type}, id {event.id} of {event.source}", f"from {sender or 'an unknown sender'}"]
            if event
            else []
        )
        line.append(_shown(str(document["event"].get("data", "")) if event else message["Body"]))
        present(options, document, "  ".join(map(text.word, filter(None, line))), is_line=True)
        if event:
            yield Delivery(event, said, b"", received_s=system.monotonic())


def _shown(data: str) -> str:
    return data if len(data) <= _DATA_SHOWN else f"{data[:_DATA_SHOWN]}..."
