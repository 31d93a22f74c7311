"""The forwarder's loop: one thread decides, network threads only report.

Each turn takes what has been reported, commits all of it to the spool in one transaction, and only then
acknowledges and sends. So only what is on the disk is acknowledged, and no destination delays another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from edge.commit import GroupCommit
from edge.components import Components, Dependencies
from edge.counts import Counts
from edge.durable import can_load
from edge.errors import SpoolCorruptError, SpoolError, SpoolUnavailableError
from edge.health_status import LOST_SESSION_REMEDY
from edge.interest import Interest
from edge.planning import Batch, Plan
from edge.reports import FIRST_REPORT_S, Heartbeat
from edge.settings import Settings
from edge.spool.store import Spool
from edge.system import Host
from edge.uplink import AckResult, Uplink
from edge.without_disk import DiskWatch
from eventplane.contract import Contract
from eventplane.reasons import Reason
from eventplane.receipts import write_receipts
from eventplane.topics import receipt_topic
from eventplane_mqtt.mailbox import Acknowledged, Connected, Disconnected, LinkName, Received
from eventplane_mqtt.mailbox import Message as MqttMessage
from eventplane_mqtt.reconnection import Link

_log = logging.getLogger(__name__)

_CLOSE_S = 1.0
"""Seconds that closing one connection may take."""

_MOST_FLUSHED = 100
"""Pending deliveries to the cloud up to which a stop sends them with the last manifest. Ours: they fit into a
few payloads; a longer backlog goes after the next start."""

_MOST_RECEIPTS = 1000
"""Receipts in one message: about 100 KB."""


class Stop:
    """Shut down in good order."""


class Reload(NamedTuple):
    """Use another contract from now on; `image` is the device image's contract (None: unchanged)."""

    contract: Contract
    image: Contract | None = None


Message = MqttMessage | Reload | Stop

Wait = Callable[[float | None, float], Sequence[Message]]
"""Returns the messages so far, after at most so many seconds (None: for ever); with a second number it waits
up to so many seconds for more messages that are not urgent."""


class Forwarder:
    """Joins the home's broker, the `spool` and the cloud's broker under a `contract`, over `links`.

    `image` is the contract of the device's image (None: the same), which bounds what the cloud may send.

    `heartbeat` returns what a heartbeat reports; `contract_came` is called when the spool may have another
    contract. A damaged spool is opened again, which recovers it; if its disk fails, one in memory takes its
    place (`disk` has the reason). `spool` is the one in use, `contract` the one in force. What was not
    committed is not acknowledged. `run` raises `SpoolError` if another process takes the spool meanwhile.
    """

    def __init__(
        self,
        contract: Contract,
        settings: Settings,
        spool: Spool,
        links: Mapping[LinkName, Link],
        wait: Wait,
        system: Host,
        heartbeat: Heartbeat = dict,
        contract_came: Callable[[], None] = lambda: None,
        image: Contract | None = None,
        first_report_s: float = FIRST_REPORT_S,
        disk: DiskWatch | None = None,
    ) -> None:
        self.counts = Counts()
        self._system = system
        self.settings = settings
        self.links = links
        self._local, self._cloud = links[LinkName.LOCAL], links[LinkName.CLOUD]
        self._wait = wait
        self._contract_came = contract_came
        self.contract = contract
        self.image = image or contract
        self._dependencies = Dependencies(
            settings, links, system, heartbeat, self.counts, Interest(system.random_bytes), first_report_s
        )
        self._given_spool = spool
        self.disk = disk or DiskWatch(settings, system)
        self._components = self._over(spool)
        self._group_commit = GroupCommit()
        self._next: Reload | None = None
        self._stopping = False

    @property
    def spool(self) -> Spool:
        """The spool in use."""
        return self._components.spool

    @property
    def uplink(self) -> Uplink:
        """The uplink in use."""
        return self._components.uplink

    def run(self) -> None:
        """Work until a `Stop` comes, then wait for unacknowledged publishes within the grace."""
        try:
            self.turn([])
            while not self._stopping:
                self.turn(self._wait(self._timeout_s(), self._group_commit.linger_s))
            self._finish()
        finally:
            if self.spool is not self._given_spool:
                self.spool.close()

    def turn(self, messages: Sequence[Message]) -> None:
        """Commit what `messages` bring, acknowledge it, and send what is pending."""
        now = self._system.monotonic()
        if (spool := self.disk.open_again(now)) is not None:
            self._replace(spool)
            self._contract_came()  # one that came down may be stored
        batch, plan = self._commit_with_recovery(messages, now)
        with self._recovering(now):
            self._confirm(batch, plan)
            # Before a reload, whose contract may not have the asking service.
            for question in batch.questions:
                can_answer = self._local.up and can_load("edge.questions")
                if can_answer and (answer := self._components.answers().to(*question)):
                    self._local.connection.publish(*answer)
        with self._recovering(now):
            if (reload := self._next) is not None:
                # From the next turn on; stored events stay stored.
                self._next = None
                self.contract, self.image = reload.contract, reload.image or self.image
                self._components.adopt(self.contract, self.image)
            self._send(now)

    def _commit_with_recovery(self, messages: Sequence[Message], now: float) -> tuple[Batch, Plan]:
        """Commit what `messages` bring, if need be without a disk: they are reported only once."""
        try:
            return self._commit(messages, now)
        except (SpoolCorruptError, SpoolUnavailableError) as error:
            self._replace(self._after(error, self.spool, now))
        try:
            return self._commit(messages, now)
        except (SpoolCorruptError, SpoolUnavailableError) as error:
            self._replace(self.disk.without_disk(error, now))
        return self._commit(messages, now)

    def _commit(self, messages: Sequence[Message], now: float) -> tuple[Batch, Plan]:
        batch = Batch()
        for message in messages:
            self._take(message, batch, now)
        self._group_commit.note(len(batch.acknowledge), now)
        components = self._components
        return batch, components.commits.commit(batch, components.contract_parts, now)

    def _send(self, now: float) -> None:
        components = self._components
        self._local.tick(now)
        if not self._delays_urgent:
            self.links[LinkName.URGENT].tick(now)
        # The home first: an emergency call must not wait for the cloud's connection or compression.
        for inbox in components.inboxes.values():
            inbox.tick(now)
            inbox.pump(now)
        self._cloud.tick(now)
        if self._cloud.up and self.disk.failure is not None:
            decider, epoch = components.contract_parts.decider, components.spool.epoch
            heartbeat = self._dependencies.heartbeat
            components.send_volatile(self.disk.reports(decider, epoch, heartbeat, now))
        components.uplink.tick(now)
        if not self._stopping:
            components.uplink.pump(now)
        components.commits.tidy(now)

    def deadline(self) -> float | None:
        """Return when a turn is due without a message, monotonic seconds; None for never."""
        delayed = LinkName.URGENT if self._delays_urgent else None
        links = (each.deadline() for name, each in self.links.items() if name is not delayed)
        deadlines = (self.disk.deadline(), *links, *self._components.deadlines())
        return min((each for each in deadlines if each is not None), default=None)

    def _timeout_s(self) -> float | None:
        due = self.deadline()
        return None if due is None else max(0.0, due - self._system.monotonic())

    @property
    def _delays_urgent(self) -> bool:
        """Whether the urgent session waits, at a start, for the first to be up or to fail."""
        return not self._local.up and self._local.generation <= 1

    def _finish(self) -> None:
        give_up = self._system.monotonic() + self.settings.stop_grace_s
        for name in (LinkName.URGENT, LinkName.LOCAL):
            self.links[name].close(_CLOSE_S)
        # Messages at QoS 0 are not redelivered.
        while (messages := self._wait(0.0, 0.0)) and self._system.monotonic() < give_up:
            self.turn(messages)
        if self._system.monotonic() < give_up:
            self._state_last()
        while self.uplink.publisher and self._cloud.up and (left := give_up - self._system.monotonic()) > 0:
            self.turn(self._wait(left, 0.0))
        self._cloud.close(_CLOSE_S)

    def _state_last(self) -> None:
        """Store a last manifest, so that all events are stated, and send it if little waits before it."""
        if not self.spool.is_on_disk:
            return
        now, components = self._system.monotonic(), self._components
        components.reporter.report_losses(now)
        self.turn([])
        if not components.reporter.state_last(now):
            return
        self.turn([])
        address = self.contract.device.outbox.address
        if self._cloud.up and self.spool.backlog().get(address, 0) <= _MOST_FLUSHED:
            self.uplink.flush(self._system.monotonic())

    @contextmanager
    def _recovering(self, now: float) -> Iterator[None]:
        """What comes after a commit ends where the spool fails; later turns make up for it."""
        try:
            yield
        except (SpoolCorruptError, SpoolUnavailableError) as error:
            self._replace(self._after(error, self.spool, now))

    def _after(self, error: SpoolError, failed: Spool, now: float) -> Spool:
        """Close the spool that `failed`, and return the one to go on with."""
        with suppress(SpoolError):
            failed.close()
        if isinstance(error, SpoolUnavailableError):
            return self.disk.without_disk(error, now)
        _log.error("%s", error)
        return self.disk.open(now)  # sets the damaged file aside and saves what is readable

    def _replace(self, spool: Spool) -> None:
        """Work with another `spool` from now on."""
        before = self._components
        with suppress(SpoolError):
            before.spool.close()
        self._components = self._over(spool, before)
        if spool.is_on_disk:
            # What was in flight belongs to the numbers of the spool before.
            self._cloud.reset("the spool was opened again", self._system.monotonic())

    def _over(self, spool: Spool, before: Components | None = None) -> Components:
        """Return the parts over `spool`, or over another one if it fails."""
        contracts = self.contract, self.image
        try:
            return Components(self._dependencies, spool, *contracts, before)
        except (SpoolCorruptError, SpoolUnavailableError) as error:
            other = self._after(error, spool, self._system.monotonic())
            return Components(self._dependencies, other, *contracts, before)

    def _take(self, message: Message, batch: Batch, now: float) -> None:
        match message:
            case Received():
                # Whether a session was resumed matters, and is known, for the current connection only.
                link = self.links[message.link]
                resumed = message.retained and link.generation == message.generation and link.resumed
                self._components.dispatcher.take(message, batch, resumed=resumed)
            case Acknowledged():
                self._take_acknowledged(message, batch, now)
            case Connected(link, generation):
                if self.links[link].connected(generation, now):
                    self._take_connected(link, batch)
            case Disconnected(link, generation, reason):
                if self.links[link].disconnected(generation, reason, now):
                    self._rewind(link, batch)
            case Reload():
                self._next = message
            case Stop():
                self._stopping = True

    def _take_connected(self, link: LinkName, batch: Batch) -> None:
        """Count a loss of an unknown number of messages if the home's broker has forgotten our session."""
        had_one = self._local.connects > 1 or self._given_spool.origin.kind in ("resumed", "recovered")
        if link is LinkName.LOCAL and had_one and not self._local.resumed:
            batch.session_lost = True
            _log.error(
                "the home's broker had forgotten the forwarder's session: an unknown number of messages that "
                "waited there is lost, but for those with receipts, which come again; %s",
                LOST_SESSION_REMEDY,
            )
        if (mapper := self._components.dispatcher.mapper) is not None:
            mapper.topics.connected(link, self.links)

    def _take_acknowledged(self, message: Acknowledged, batch: Batch, now: float) -> None:
        if message.generation != self.links[message.link].generation:
            return
        if message.link is LinkName.CLOUD:
            self._settle(self.uplink.acknowledged(message.mid, message.failure, now), batch)
        elif message.failure is not None:
            # Not delivered: unless it can never be, it is sent again when its time is over.
            _log.warning("the home's broker refused a message for a service: %s", message.failure)
            if "packet too large" in message.failure:
                self._components.dispatcher.refuse_packet(message.mid, message.failure, batch)
        elif message.link is LinkName.LOCAL:  # the urgent session publishes nothing, and has ids of its own
            for inbox in self._components.inboxes.values():
                batch.done.extend(inbox.acknowledged(message.mid))
        if (mapper := self._components.dispatcher.mapper) is not None:
            mapper.topics.left(message.link, message.mid)

    def _confirm(self, batch: Batch, plan: Plan) -> None:
        """Send PUBACKs in the order of receiving, then the receipts of each service, and count."""
        for (link, generation), messages in groupby(batch.acknowledge, attrgetter("link", "generation")):
            self.links[link].acknowledge(generation, *(each.mid for each in messages))
        if self._local.up:
            for service, receipts in plan.receipts.items():
                for first in range(0, len(receipts), _MOST_RECEIPTS):
                    some = write_receipts(receipts[first : first + _MOST_RECEIPTS])
                    self._local.connection.publish(receipt_topic(service, "outbox"), some)
        self._components.send_volatile(plan.volatile)
        for (address, reason), count in plan.refused.items():
            self.counts.dead_letters[reason] += count
            _log.warning("%d message(s) of %s became dead letters: %s", count, address, reason)
        for (address, type_, reason), count in plan.rejected.items():
            _log.warning("%d event(s) of %s refused: %s (%s)", count, address, reason, type_)
        self.counts.downlink_outcomes.update(plan.downlink_outcomes)
        for outcome, count in plan.downlink_outcomes.items():
            from eventplane.downlink.device import AckStatus

            level = logging.DEBUG if outcome in (AckStatus.STORED, Reason.OLDER) else logging.WARNING
            _log.log(level, "%d event(s) came down: %s", count, outcome)
        if plan.contract_changed:
            self._contract_came()
        if plan.uplink_interest_changed:  # reads the spool, so last
            self._components.follow_uplink_interest()

    def _settle(self, settled: AckResult, batch: Batch) -> None:
        batch.done.extend(settled.done)
        for waiting, refusal in settled.refused:
            self._components.dispatcher.give_up(waiting, self.contract.device.outbox, refusal, batch)

    def _rewind(self, name: LinkName, batch: Batch) -> None:
        if name is LinkName.CLOUD:
            self._settle(self.uplink.disconnected(), batch)
        elif name is LinkName.LOCAL:
            self._components.rewind_inboxes()
