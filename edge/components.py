"""Builds the forwarder's parts: those that depend on a spool, on a contract, and the links."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.commit import CommitLoop, ContractParts
from edge.counts import Counts
from edge.decision import Decider
from edge.delivery_queues import DeliveryQueues, VolatileEvent
from edge.dispatch import Dispatcher, UrgentHint, subscriptions
from edge.durable import beside, can_load
from edge.inbox import InboxPump
from edge.interest import Interest
from edge.numbering import RecentKeys
from edge.planning import Batcher, Pressure
from edge.reports import FIRST_REPORT_S, Heartbeat, Reporter
from edge.settings import Settings
from edge.spool.store import Spool
from edge.spool.tables import RECENT_EVENTS
from edge.system import Host
from edge.uplink import Uplink
from eventplane.contract import Channel, Contract, Forward, Place
from eventplane.topics import URGENT_CLIENT_SUFFIX, urgent_rule
from eventplane_mqtt import Connection, Endpoint, Login
from eventplane_mqtt.endpoint import BrokerAddress
from eventplane_mqtt.mailbox import LinkName, Mailbox, Message, Share
from eventplane_mqtt.reconnection import Backoff, BrokerConnection, Link, link_to_broker
from eventplane_mqtt.session import Skips

if TYPE_CHECKING:
    from edge.downlink import DownlinkReceiver
    from edge.questions import Answers

_log = logging.getLogger(__name__)

Connect = Callable[
    [Endpoint, LinkName, int, Callable[[Message], None], Share | None, Skips | None], BrokerConnection
]
"""Opens the connection of one generation of a link, as `eventplane_mqtt.Connection` does."""


class Dependencies(NamedTuple):
    """The dependencies of the parts, which outlive spool and contract."""

    settings: Settings
    links: Mapping[LinkName, Link]
    system: Host
    heartbeat: Heartbeat
    counts: Counts
    interest: Interest
    first_report_s: float = FIRST_REPORT_S


class Components:
    """The parts over `spool` under `contract`; `adopt` changes those that another contract concerns.

    `image` is the contract of the device's image, which bounds what the cloud may send. From the parts
    `before` come urgent events in memory and, without a disk, the keys of stored events.
    """

    recent: RecentKeys
    uplink: Uplink
    contract_parts: ContractParts
    dispatcher: Dispatcher
    answers: Callable[[], Answers]

    def __init__(
        self,
        deps: Dependencies,
        spool: Spool,
        contract: Contract,
        image: Contract,
        before: Components | None = None,
    ) -> None:
        self.spool = spool
        self.inboxes: dict[str, InboxPump] = {}
        self._dependencies = deps
        self._queues = DeliveryQueues(spool, deps.counts)
        if before is not None and not spool.is_on_disk:
            self.recent = before.recent
        else:
            self.recent = RecentKeys(RECENT_EVENTS, spool.recent_keys(RECENT_EVENTS))
        self._pressure = Pressure(spool, self._queues)
        self.reporter = Reporter(
            deps.settings,
            spool,
            deps.counts,
            deps.heartbeat,
            deps.system.monotonic(),
            deps.first_report_s,
        )
        parts = self._queues, self._pressure, self.recent, self.reporter, deps.counts
        self.commits = CommitLoop(spool, *parts)
        self._make_uplink(contract.device.outbox)
        self._follow(contract, image)
        if before is not None:
            self.send_volatile(before.abandon())

    def deadlines(self) -> list[float | None]:
        """Return when each part has work that is due without a message, monotonic seconds; None for never."""
        inboxes = (each.deadline() for each in self.inboxes.values())
        return [self.uplink.deadline(), self.commits.deadline(), *inboxes]

    def adopt(self, contract: Contract, image: Contract) -> None:
        """Work under `contract`. Deliveries over unchanged channels go on."""
        before, now = self._contract, self._dependencies.system.monotonic()
        links = self._dependencies.links
        if contract.device.outbox != before.device.outbox:
            # The broker counts unacknowledged publishes of which a new uplink does not know.
            links[LinkName.CLOUD].reset("the contract changed the uplink", now)
            urgent = self._queues.retire(before.device.outbox.address)
            self._make_uplink(contract.device.outbox)
            self.send_volatile([each._replace(destination=self._uplink_address) for each in urgent])
        sessions = (LinkName.LOCAL, LinkName.URGENT)
        changed = [each for each in sessions if subscriptions(contract, each) != subscriptions(before, each)]
        for each in changed:
            # First: what follows reads the spool, and may find it damaged.
            links[each].reset("the contract changed the subscriptions", now)
        self._follow(contract, image)
        if LinkName.LOCAL in changed:
            self.rewind_inboxes()

    def rewind_inboxes(self) -> None:
        """Send everything again over the next connection to the home's broker."""
        self._dependencies.interest.forget()
        for inbox in self.inboxes.values():
            inbox.rewind()

    def send_volatile(self, events: list[VolatileEvent]) -> None:
        """Queue events that are not stored."""
        self._queues.send_volatile(events, self._is_up)

    def follow_uplink_interest(self) -> None:
        """Forward what the cloud wants, if the contract says that the device asks for that."""
        uplink, wanted = self._contract.device.outbox, None
        if uplink.forward is Forward.WANTED and can_load("edge.downlink"):
            from edge.downlink import uplink_interest

            wanted = uplink_interest(self.spool)
            _log.info("forwarded to the cloud: %s", "everything" if wanted is None else "what it wants")
        self._dependencies.interest.wanted_up(uplink.address, wanted)

    def abandon(self) -> list[VolatileEvent]:
        """Give up and count what is in memory, except urgent events, which are returned."""
        urgent = self._queues.take_unstored()
        self._queues.clear()
        return urgent

    def _follow(self, contract: Contract, image: Contract) -> None:
        deps = self._dependencies
        self._contract = contract
        self.uplink.follow(contract)
        # The inboxes on this device that some route leads to.
        addresses = dict.fromkeys(route.destination for route in contract.routes_at(Place.DEVICE))
        addresses.pop(contract.device.outbox.address, None)
        self._make_inboxes([contract.channel(each) for each in addresses])
        thing = deps.settings.thing
        of_device = thing, self.spool.epoch, deps.system.now, self.recent, deps.interest
        decider = Decider(contract, *of_device, is_sent=contract.version != image.version)

        @cache
        def receiver() -> DownlinkReceiver:
            from edge.downlink import DownlinkReceiver

            parts = decider, self._pressure, self._queues
            return DownlinkReceiver(contract, image, thing, self.spool, *parts)

        @cache
        def answers() -> Answers:
            from edge.questions import Answers

            return Answers(contract, thing, self.spool, decider, deps.interest)

        self.contract_parts = ContractParts(decider, Batcher(decider, contract.device.outbox), receiver)
        self.answers = answers
        mapper, topics = None, beside(deps.settings.spool, ".topics")
        if (contract.mappings or os.access(topics, os.F_OK)) and can_load("edge.mapping"):
            from edge.mapping import Mapper

            mapper = Mapper(contract, thing, decider.timestamp, deps.system.random_bytes, topics)
        self.dispatcher = Dispatcher(contract, self.inboxes, self._queues, deps.interest, mapper)
        self.follow_uplink_interest()
        self._warn_of_unrouted()

    def _make_uplink(self, channel: Channel) -> None:
        deps, settings = self._dependencies, self._dependencies.settings
        self._uplink_address = channel.address
        self.uplink = Uplink(
            self._queues, channel, deps.links[LinkName.CLOUD], _topics(settings), settings.cloud, deps.counts
        )

    def _make_inboxes(self, channels: list[Channel]) -> None:
        kept = {address: each for address, each in self.inboxes.items() if each.channel in channels}
        urgent: list[VolatileEvent] = []
        for address in self.inboxes:
            if address not in kept:
                urgent += self._queues.retire(address)
        self.inboxes = {each.address: kept.get(each.address) or self._inbox(each) for each in channels}
        # To an inbox without a route nothing goes any more, until the sender repeats it under other routes.
        self.send_volatile([each for each in urgent if each.destination in self.inboxes])

    def _inbox(self, channel: Channel) -> InboxPump:
        deps = self._dependencies
        return InboxPump(self._queues, channel, deps.links[LinkName.LOCAL], deps.settings.local)

    def _is_up(self, destination: str) -> bool:
        name = LinkName.CLOUD if destination == self._uplink_address else LinkName.LOCAL
        # Events wait, within their bounds, while a connection is being made: that takes about a second.
        return self._dependencies.links[name].is_dialling

    def _warn_of_unrouted(self) -> None:
        """Log the destinations of pending deliveries that no route leads to; they are kept."""
        for destination, waiting in self.spool.backlog().items():
            if waiting and destination not in self.inboxes and destination != self._uplink_address:
                _log.warning(
                    "%d event(s) wait for %s, which no route leads to; restore the route",
                    waiting,
                    destination,
                )


def _topics(settings: Settings) -> dict[bool, str]:
    """Return where urgent events go, and others."""
    cloud = settings.cloud
    template, rule = cloud.topic.replace("{thing}", settings.thing), cloud.rule or ""
    rules = {True: urgent_rule(rule), False: rule}
    return {urgent: template.replace("{rule}", name) for urgent, name in rules.items()}


def make_links(
    settings: Settings,
    contract: Callable[[], Contract],
    mailbox: Mailbox[Any],
    system: Host,
    connect: Connect = Connection,
) -> dict[LinkName, Link]:
    """Return the two sessions at the home's broker and the one at IoT Core.

    Each connection, which `connect` dials, subscribes to what the `contract` says then.
    """
    hint = UrgentHint(contract)
    # Of messages that waited for another thing, whose card this was, none is ours. Four digits in any case.
    owner = zlib.crc32(settings.thing.encode()) >> 5 | 1 << 27
    links: dict[LinkName, Link] = {}

    def skips(topic: str, payload: bytes) -> bool:
        return first_session_has_it(links) and not hint.may_be_urgent(topic, payload)

    def local_link(session: LinkName) -> Link:
        local, share = settings.local, mailbox.share(session, settings.local.buffer_bytes)
        is_urgent = session is LinkName.URGENT
        # A broker may be set to take a client's user name for its id, so each session is a user of its own.
        suffix = URGENT_CLIENT_SUFFIX if is_urgent else ""
        login = local.login and Login(local.login.username + suffix, local.login.password_file)

        def dial(address: BrokerAddress, generation: int) -> BrokerConnection:
            endpoint = Endpoint(
                host=address.host,
                port=address.port,
                client_id=local.client_id + suffix,
                clean_session=False,  # the broker keeps our messages while we restart
                keepalive_s=local.keepalive_s,
                connect_timeout_s=local.connect_timeout_s,
                subscriptions=subscriptions(contract(), session),
                tls=address.tls,
                login=login,
                protocol=local.protocol,
                owner=owner,
            )
            return connect(endpoint, session, generation, mailbox.put, share, skips if is_urgent else None)

        link = link_to_broker(
            BrokerAddress(local.host, local.port),
            local.profile,
            dial,
            Backoff(local.reconnect_min_s, local.reconnect_max_s, system.share),
            local.connect_timeout_s,
            has_login=local.login is not None,
            name=session,
        )
        link.share = share
        return link

    for each in (LinkName.LOCAL, LinkName.URGENT):
        links[each] = local_link(each)
    links[LinkName.CLOUD] = _cloud_link(settings, mailbox, system, connect)
    return links


def first_session_has_it(links: Mapping[LinkName, Link]) -> bool:
    """Return whether the first session has, unacknowledged, what the urgent one receives now.

    The first has every outbox. It lacks what was published before it existed, which only the backlog of an
    older urgent session, or one that was opened at the same time, can hold.
    """
    first, urgent = links[LinkName.LOCAL], links[LinkName.URGENT]
    if not first.up:
        return False
    return first.resumed or (not urgent.resumed and urgent.dialled_at >= first.up_since)


def _cloud_link(settings: Settings, mailbox: Mailbox[Any], system: Host, connect: Connect) -> Link:
    cloud = settings.cloud
    share = mailbox.share(LinkName.CLOUD, cloud.buffer_bytes)
    inbox = cloud.inbox_topic.replace("{thing}", settings.thing)
    # The spool remembers what was sent, and the cloud what was not answered: no session to keep. One that is
    # kept would bring states that newer ones have followed.
    endpoint = replace(
        cloud.endpoint(settings.thing, (inbox,) if cloud.subscribes else (), cloud.identity),
        # Alarms must go up even if the cloud's policy lacks the downlink topic.
        needs_subscriptions=False,
        protocol=cloud.protocol,
    )

    def dial(generation: int) -> BrokerConnection:
        return connect(endpoint, LinkName.CLOUD, generation, mailbox.put, share, None)

    backoff = Backoff(cloud.reconnect_min_s, cloud.reconnect_max_s, system.share)
    link = Link(LinkName.CLOUD, dial, backoff, cloud.connect_timeout_s)
    link.share = share
    return link
