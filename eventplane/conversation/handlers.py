"""Who is expected to answer a request: whose inbox the routes lead it to."""

from __future__ import annotations

from collections.abc import Callable

from eventplane.contract import Contract, ParticipantKind, Place, Route
from eventplane.contract.replies import REPLIES
from eventplane.conversation.errors import NotAskingError, NotOneDeviceError
from eventplane.conversation.reply import Replier
from eventplane.downlink.addressing import ALL
from eventplane.envelope import Envelope
from eventplane.own_services import OWN_SERVICES
from eventplane.router import Router

Expects = Callable[[Route, Envelope], bool]
"""Whether who reads the route's destination, and did not say otherwise, handles the event."""


class Handlers:
    """Of events under one `contract`; `expects` is asked of each route that takes one."""

    def __init__(self, contract: Contract, expects: Expects = lambda _route, _event: True) -> None:
        self._contract = contract
        self._expects = expects
        self._device = Router(contract, Place.DEVICE)
        self._cloud = Router(contract, Place.CLOUD)

    def of(self, event: Envelope, asker: str) -> frozenset[Replier]:
        """Who handles `event` when `asker` sends it, itself left out.

        For a service on a device: services there, and in the cloud. For one in the cloud: services there, and
        on the device that the event names. Functions of the plane and webhooks do not answer. Raises
        `NotAskingError`, `NotOneDeviceError`.
        """
        participant = self._contract.participants.get(asker)
        if participant is None or not participant.may_ask(event.type):
            raise NotAskingError(asker, event.type)
        on_device, in_cloud = self._readers(self._device, event), self._readers(self._cloud, event)
        device = self._contract.device.name
        found: set[Replier] = set()
        if participant.kind is ParticipantKind.DEVICE_SERVICE:
            found.update(Replier(each) for each in on_device)
            if device in on_device:
                found.update(Replier(each) for each in in_cloud)
        else:
            found.update(Replier(each) for each in in_cloud)
            if device in in_cloud:
                thing = _thing(event, asker)
                found.update(Replier(each, thing) for each in on_device)
        return frozenset(each for each in found if each.participant not in {asker, device, *OWN_SERVICES})

    def _readers(self, router: Router, event: Envelope) -> set[str]:
        """Whose channel `router` leads the event to; the device stands for the way to the other place."""
        routes = (each for each in router.route(event) if self._expects(each, event))
        channels = (self._contract.channel(each.destination) for each in routes)
        return {each.participant for each in channels if each.box != REPLIES and each.webhook is None}


def _thing(event: Envelope, asker: str) -> str:
    thing = event.attributes.get("todevice")
    if not isinstance(thing, str) or thing == ALL:
        raise NotOneDeviceError(asker)
    return thing
