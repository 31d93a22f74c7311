"""The parts that hang on one spool, and of these the ones that hang on one contract."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from edge.counts import Counts
from edge.downlink.descent import Descent
from edge.downlink.uplink_interest import uplink_interest
from edge.handover import Handover
from edge.inbox import InboxPump
from edge.intake import RECENT_EVENTS, Intake
from edge.interest import Interest
from edge.keeper import Keeper
from edge.link import Link
from edge.local_bus import local_topics
from edge.memory_lane import Fleeting
from edge.options import Clock, ForwarderOptions
from edge.outgoing import Outgoing
from edge.pressure import Pressure
from edge.questions import Answers
from edge.recent import RecentKeys
from edge.reception import Reception
from edge.reporter import Figures, Reporter, ReportOptions
from edge.spool import Spool
from edge.uplink import Uplink
from eventplane.contract import Channel, Contract, Forward, Place

_log = logging.getLogger(__name__)


class Timer(Protocol):
    """Something that may be due without a message, at monotonic seconds."""

    def deadline(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stays whatever becomes of spool and contract."""

    options: ForwarderOptions
    local: Link
    cloud: Link
    clock: Clock
    figures: Figures
    counts: Counts
    interest: Interest


class Assembly:
    """Parts over `spool` under `contract`; `adopt` follows another contract and changes what it must.

    `image` is the contract of the device's image: what comes down is measured by it.
    """

    uplink: Uplink
    intake: Intake
    reception: Reception
    answers: Answers

    def __init__(self, around: Surroundings, spool: Spool, contract: Contract, image: Contract) -> None:
        self.spool = spool
        self.inboxes: dict[str, InboxPump] = {}
        self._around = around
        self._handover = Handover(around.counts)
        self._outgoing = Outgoing(spool, self._handover.ended)
        self._recent = RecentKeys(RECENT_EVENTS, spool.recent_keys(RECENT_EVENTS))
        self._pressure = Pressure(spool, self._outgoing)
        options, now = around.options, around.clock.monotonic()
        reports = ReportOptions(
            options.thing, options.heartbeat_s, options.manifest_interval_s, options.first_manifest_s
        )
        reporter = Reporter(reports, spool, around.counts, around.figures, now)
        self.keeper = Keeper(spool, self._outgoing, self._pressure, reporter, around.counts)
        self._make_uplink(contract.device.outbox)
        self._follow(contract, image)

    @property
    def timers(self) -> Iterator[Timer]:
        """All that may be due without a message."""
        yield from (self._around.local, self._around.cloud, self.uplink, self.keeper)
        yield from self.inboxes.values()

    def adopt(self, contract: Contract, image: Contract) -> None:
        """Work under `contract`. What goes on over a channel that is as before goes on."""
        before, now = self._contract, self._around.clock.monotonic()
        if contract.device.outbox != before.device.outbox:
            # The broker counts what is unacknowledged; a new uplink does not know of it.
            self._around.cloud.reset("the contract changed the uplink", now)
            self._outgoing.retire(before.device.outbox.address)
            self._make_uplink(contract.device.outbox)
        resubscribes = set(local_topics(contract)) != set(local_topics(before))
        if resubscribes:
            # First: what follows reads the spool, and may find it damaged.
            self._around.local.reset("the contract changed the subscriptions", now)
        self._follow(contract, image)
        if resubscribes:
            self.rewind_inboxes()

    def rewind_inboxes(self) -> None:
        """The home's broker is gone."""
        self._around.interest.forget()
        for inbox in self.inboxes.values():
            inbox.rewind()

    def send_fleeting(self, events: list[Fleeting]) -> None:
        """Hand over what nobody keeps, to lines that stand."""
        self._handover.hand_over(events, self._outgoing, self._is_up)

    def follow_uplink_interest(self) -> None:
        """Send up what the cloud wants from now on, where the contract has the device ask for that."""
        uplink = self._contract.device.outbox
        asks = uplink.forward is Forward.WANTED
        wanted = uplink_interest(self.spool) if asks else None
        if asks:
            _log.info("what goes up: %s", "all" if wanted is None else "what the cloud wants")
        self._around.interest.wanted_up(uplink.address, wanted)

    def abandon(self) -> None:
        """Other parts take over: what was in memory is given up, and counted."""
        self._outgoing.clear()

    def _follow(self, contract: Contract, image: Contract) -> None:
        around = self._around
        self._contract = contract
        self.uplink.follow(contract)
        self._make_inboxes(_local_inboxes(contract))
        self.intake = Intake(
            contract, around.options.thing, self.spool.epoch, around.clock.now, self._recent, around.interest
        )
        descent = Descent(
            contract, image, around.options.thing, self.spool, self.intake, self._pressure, self._outgoing
        )
        self.reception = Reception(
            contract,
            self.intake,
            self.inboxes,
            self._pressure,
            self._recent,
            self._outgoing,
            descent,
            around.interest,
        )
        self.answers = Answers(contract, around.options.thing, self.spool, self.intake, around.interest)
        self.follow_uplink_interest()
        self._warn_of_strangers()

    def _make_uplink(self, channel: Channel) -> None:
        around, options = self._around, self._around.options
        self._uplink_address = channel.address
        self.uplink = Uplink(
            self._outgoing, channel, around.cloud, options.topics, options.uplink, around.counts
        )

    def _make_inboxes(self, channels: list[Channel]) -> None:
        kept = {address: each for address, each in self.inboxes.items() if each.channel in channels}
        for address in self.inboxes.keys() - kept.keys():
            self._outgoing.retire(address)
        self.inboxes = {each.address: kept.get(each.address) or self._inbox(each) for each in channels}

    def _inbox(self, channel: Channel) -> InboxPump:
        options = self._around.options
        return InboxPump(
            self._outgoing, channel, self._around.local, options.inbox_window, options.receipt_timeout_s
        )

    def _is_up(self, destination: str) -> bool:
        return (self._around.cloud if destination == self._uplink_address else self._around.local).up

    def _warn_of_strangers(self) -> None:
        """Deliveries for a channel that the contract no longer routes to are kept; somebody has to know."""
        for destination, waiting in self.spool.backlog().items():
            if waiting and destination not in self.inboxes and destination != self._uplink_address:
                _log.warning(
                    "%d event(s) wait for %s, which no route leads to; restore the route",
                    waiting,
                    destination,
                )


def _local_inboxes(contract: Contract) -> list[Channel]:
    """The inboxes on this device that some route leads to."""
    addresses = dict.fromkeys(route.destination for route in contract.routes_at(Place.DEVICE))
    return [contract.channel(address) for address in addresses if address != contract.device.outbox.address]
