"""The participants expected to answer a request: those whose inboxes the routes lead it to."""

from __future__ import annotations

from collections.abc import Callable

from eventplane.contract import REPLIES, Contract, ParticipantKind, Place, Priority
from eventplane.contract.participants import leads_down
from eventplane.conversation.messages import Replier
from eventplane.downlink.wire import ALL
from eventplane.envelope import Envelope, Sender
from eventplane.errors import EventPlaneError
from eventplane.interest import is_wanted
from eventplane.names import OWN_SERVICES
from eventplane.router import Router


class NoAskerError(EventPlaneError):
    """The contract gives `asker` no channel for replies to events of `event_type`."""

    asker: str
    event_type: str
    message = (
        "{asker} may not send requests of type {event_type!r}; "
        "add the type to `asks` of participants.{asker} in the contract"
    )


class NotOneDeviceError(EventPlaneError):
    """A request goes down to devices, and not to exactly one: missing replies could not be determined."""

    asker: str
    message = "{asker}: a request to devices must name one device in `todevice`"


Wants = Callable[[str, Envelope, Priority], bool]
"""Returns whether the reader of the channel at an address handles an event, by what it announced."""


class Handlers:
    """Finds the handlers of events under one `contract`, by the interest in its routes and by `wants`."""

    def __init__(self, contract: Contract, wants: Wants = lambda _address, _event, _priority: True) -> None:
        self._contract = contract
        self._wants = wants
        self._device = Router(contract, Place.DEVICE)
        self._cloud = Router(contract, Place.CLOUD)

    def of(self, event: Envelope, asker: str, thing: str = "") -> frozenset[Replier]:
        """Return the participants that handle `event` when `asker` sends it, other than the asker.

        For a service on the device `thing`: services there, and in the cloud. For one in the cloud, without a
        `thing`: services there, and on the device that the event names. Functions of the plane and webhooks
        do not answer. Raises `NoAskerError`, `NotOneDeviceError`.
        """
        participant = self._contract.participants.get(asker)
        if participant is None or not participant.may_ask(event.type):
            raise NoAskerError(asker, event.type)
        priority = self._contract.priority(event, participant.outbox)
        # As the routers stamp it: a filter may read the sender.
        sent = event.with_attributes(Sender(service=asker).attributes)
        sent_up = sent.with_attributes(Sender(device=thing).attributes)
        on_device = self._readers(self._device, sent, sent_up, priority)
        in_cloud = self._readers(self._cloud, sent_up, sent_up, priority)
        device = self._contract.device.name
        found: set[Replier] = set()
        if participant.kind is ParticipantKind.DEVICE_SERVICE:
            found.update(Replier(each) for each in on_device)
            # Without a route down no reply from the cloud arrives.
            if device in on_device and leads_down(self._contract.participants):
                found.update(Replier(each) for each in in_cloud)
        else:
            found.update(Replier(each) for each in in_cloud)
            if device in in_cloud:
                target = _target(event, asker)
                found.update(Replier(each, target) for each in on_device)
        return frozenset(each for each in found if each.participant not in {asker, device, *OWN_SERVICES})

    def _readers(self, router: Router, event: Envelope, sent_up: Envelope, priority: Priority) -> set[str]:
        """Return the participants to whose channels `router` leads the event.

        The device stands for the route to the other place; in the cloud the event is as `sent_up`.
        """
        up = self._contract.device.outbox.address
        addresses = (
            each.destination
            for each in router.route(event)
            if is_wanted(each.interest, event, priority)
            and self._wants(each.destination, sent_up if each.destination == up else event, priority)
        )
        channels = map(self._contract.channel, addresses)
        return {each.participant for each in channels if each.box != REPLIES and each.webhook is None}


def _target(event: Envelope, asker: str) -> str:
    target = event.attributes.get("todevice")
    if not isinstance(target, str) or target == ALL:
        raise NotOneDeviceError(asker)
    return target
