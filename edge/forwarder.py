"""The forwarder's loop: one thread decides, network threads only report.

Each turn takes what has been reported, commits all of it to the spool in one transaction, and only then
acknowledges and sends. So nothing is acknowledged that is not on the disk, and nothing on the disk waits
for anything but its own destination.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Protocol

from edge.inbox import InboxPump
from edge.intake import RECENT_EVENTS, Intake
from edge.link import Link
from edge.messages import Acknowledged, Connected, Disconnected, LinkName, Message, Received, Stop
from edge.reception import Reception, Turn
from edge.spool import Spool
from edge.uplink import Uplink, UplinkLimits
from eventplane.contract import Channel, Contract, Place, Priority
from eventplane.receipts import write_receipts
from eventplane.topics import basic_ingest_topic, receipt_topic

_log = logging.getLogger(__name__)

_CLOSE_S = 1.0
"""How long saying goodbye to one broker may take, seconds."""


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic` seconds for every interval, the wall clock's `now` only for time stamps."""

    monotonic: Callable[[], float] = monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class ForwarderOptions:
    """Who we are and how much may be under way; see `edge.settings` for each."""

    thing: str
    rule: str
    uplink: UplinkLimits
    inbox_window: int
    receipt_timeout_s: float
    stop_grace_s: float


class _Part(Protocol):
    """Something with a timer; times are monotonic seconds."""

    def tick(self, now: float) -> None: ...

    def deadline(self) -> float | None: ...


class Forwarder:
    """Joins the home's broker (`local`), the `spool` and the `cloud`'s broker under a `contract`.

    `wait` gives the messages reported so far, after at most the seconds it is given (None: for ever).
    Raises `SpoolError` from `run` when the disk fails; what was not committed was not acknowledged.
    """

    def __init__(
        self,
        contract: Contract,
        options: ForwarderOptions,
        spool: Spool,
        local: Link,
        cloud: Link,
        wait: Callable[[float | None], Sequence[Message]],
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._options = options
        self._spool = spool
        self._local = local
        self._cloud = cloud
        self._wait = wait
        topic = basic_ingest_topic(options.rule, options.thing)
        self._uplink = Uplink(spool, contract.device.outbox, cloud, topic, options.uplink)
        self._inboxes = {
            channel.address: InboxPump(spool, channel, local, options.inbox_window, options.receipt_timeout_s)
            for channel in _local_inboxes(contract)
        }
        intake = Intake(
            contract, options.thing, spool.epoch, self._clock.now, spool.recent_keys(RECENT_EVENTS)
        )
        self._reception = Reception(contract, intake, self._inboxes)
        self._parts: tuple[_Part, ...] = (local, cloud, *self._inboxes.values(), self._uplink)
        self._stopping = False
        _warn_of_strangers(spool, {*self._inboxes, contract.device.outbox.address})

    def run(self) -> None:
        """Work until a `Stop` is reported, then let unacknowledged publishes end within the grace."""
        self.turn([])
        while not self._stopping:
            self.turn(self._wait(self._patience()))
        self._finish()

    def turn(self, messages: Sequence[Message]) -> None:
        """One round: take in, commit, acknowledge, send."""
        now = self._clock.monotonic()
        turn = Turn(self._spool.next_sequence)
        for message in messages:
            self._take(message, turn, now)
        if turn.arrivals or turn.done:
            self._spool.commit(turn.arrivals, turn.done, life_ms=self._spool.life())
        self._confirm(turn)
        for part in self._parts:
            part.tick(now)
        # The home first: an emergency call must not wait for the cloud's compression.
        for inbox in self._inboxes.values():
            inbox.pump(now)
        if not self._stopping:
            self._uplink.pump(now)

    def _patience(self) -> float | None:
        """Seconds until something is due without a message, None for never."""
        due = [each for each in (part.deadline() for part in self._parts) if each is not None]
        return max(0.0, min(due) - self._clock.monotonic()) if due else None

    def _finish(self) -> None:
        give_up = self._clock.monotonic() + self._options.stop_grace_s
        self._local.close(_CLOSE_S)
        while not self._uplink.idle and self._cloud.up:
            left = give_up - self._clock.monotonic()
            if left <= 0:
                break
            self.turn(self._wait(left))
        self._cloud.close(_CLOSE_S)

    def _take(self, message: Message, turn: Turn, now: float) -> None:
        match message:
            case Received():
                self._reception.take(message, turn)
            case Acknowledged():
                self._take_acknowledged(message, turn, now)
            case Connected(link, generation):
                self._link(link).connected(generation)
            case Disconnected(link, generation, reason):
                if self._link(link).disconnected(generation, reason, now):
                    self._rewind(link)
            case Stop():
                self._stopping = True

    def _take_acknowledged(self, message: Acknowledged, turn: Turn, now: float) -> None:
        if message.generation != self._link(message.link).generation:
            return
        if message.link is LinkName.CLOUD:
            turn.done.extend(self._uplink.acknowledged(message.mid, message.failure, now))
        else:
            for inbox in self._inboxes.values():
                turn.done.extend(inbox.acknowledged(message.mid))

    def _confirm(self, turn: Turn) -> None:
        """After the commit: PUBACK in the order of receiving, then one message of receipts a service."""
        for received in turn.acknowledge:
            self._local.acknowledge(received.generation, received.mid)
        if self._local.up:
            for service, receipts in turn.receipts.items():
                self._local.publish(receipt_topic(service, "outbox"), write_receipts(receipts))
        for (address, reason), count in turn.refused.items():
            _log.warning("%d message(s) of %s became dead letters: %s", count, address, reason)

    def _link(self, name: LinkName) -> Link:
        return self._local if name is LinkName.LOCAL else self._cloud

    def _rewind(self, name: LinkName) -> None:
        if name is LinkName.CLOUD:
            self._uplink.rewind()
        else:
            for inbox in self._inboxes.values():
                inbox.rewind()


def _local_inboxes(contract: Contract) -> list[Channel]:
    """The inboxes on this device that some route leads to."""
    addresses = dict.fromkeys(route.destination for route in contract.routes_at(Place.DEVICE))
    return [contract.channel(address) for address in addresses if address != contract.device.outbox.address]


def _warn_of_strangers(spool: Spool, known: set[str]) -> None:
    """Deliveries for a channel that the contract no longer routes to are kept; somebody has to know."""
    for destination in spool.destinations():
        if destination not in known and any(spool.pending(destination, each.rank) for each in Priority):
            _log.warning("events wait for %s, which no route leads to; restore the route", destination)
