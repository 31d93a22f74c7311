"""The line between a forwarder and a broker: bytes in order, late, or never, and its two ends.

`Dialled` stands in for `eventplane_mqtt.Connection`: the same session, without a socket and a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final, Protocol

from eventplane_mqtt.endpoint import Endpoint
from eventplane_mqtt.mailbox import Connected, Disconnected, LinkName, Received, Share
from eventplane_mqtt.reconnection import Sending
from eventplane_mqtt.session import Session, Skips
from parts.simulate.broker import ModelLink, Peer
from parts.simulate.timeline import Timeline, Wakeup


class LineEnd(Protocol):
    """The far end of a line: a broker, or what lets clients in to one."""

    def open(self, peer: Peer) -> ModelLink | None:
        """See `BrokerModel.open`."""


class LineModel:
    """A network path to a `broker`, `delay_s` each way, on which `bytes_per_s` go up.

    While it is not `is_up` nothing connects; while it `is_silent` what is sent vanishes without a sign,
    as with a router that forgot the connection. `loses_answers` is how many PUBACKs vanish, each with
    all that follows on its connection.
    """

    def __init__(self, engine: Timeline, broker: LineEnd, delay_s: float) -> None:
        self.broker = broker
        self.delay_s = delay_s
        self.bytes_per_s = inf
        self.is_up = True
        self.is_silent = False
        self.loses_answers = 0
        self.stalls_s = 0.0
        self.stalled: Dialled | None = None
        self.open: list[Dialled] = []
        self.engine = engine

    def cut(self) -> None:
        """Both ends learn at once that the connections are gone."""
        self.is_up = False
        for each in list(self.open):
            each.cut("the line was cut")

    def go_silent(self) -> None:
        """Neither end learns anything."""
        self.is_silent = True
        for each in self.open:
            each.is_deaf = True

    def heal(self) -> None:
        """New connections work; those that went silent stay so."""
        self.is_up, self.is_silent = True, False

    def stall(self, seconds: float) -> None:
        """Break the connections; the next one, once it is up, reports so late to the forwarder's loop.

        If another follows it before, it reports while that waits for its first PUBACK.
        """
        self.cut()
        self.heal()
        self.stalls_s = seconds

    def go_on(self) -> None:
        """End a stall."""
        self.stalls_s = 0.0
        if self.stalled is not None:
            self.stalled.go_on()

    def note_up(self, dialled: Dialled) -> None:
        """A connection is up."""
        if self.stalls_s:
            self.stalled = dialled
            dialled.is_stalled, seconds = True, self.stalls_s
            self.stalls_s = 0.0
            self.engine.after(seconds, dialled.go_on)

    def note_publish(self, dialled: Dialled) -> None:
        """A connection publishes."""
        if self.stalled not in (None, dialled):
            self.engine.after(self.delay_s / 2, self.stalled.go_on)
            self.stalled = None


class Dialled:
    """One connection of a forwarder's link; see `eventplane_mqtt.Connection`, whose methods it has."""

    def __init__(
        self,
        line: LineModel,
        endpoint: Endpoint,
        link: LinkName,
        generation: int,
        emit: Callable[[Any], None],
        share: Share | None = None,
        skips: Skips | None = None,
        step: Callable[[str], None] = lambda _: None,
        published: Callable[[str, bytes], object] | None = None,
    ) -> None:
        self.is_deaf = line.is_silent
        self._line = line
        self._engine = line.engine
        self._name, self._generation = link, generation
        self._emit = self._late(emit)
        self._put = self._late(share.put) if share is not None else None
        self.is_stalled = False
        self._unreported: list[Callable[[], object]] = []
        self._arrives_at = {True: 0.0, False: 0.0}
        self._free_s = 0.0
        self._share = share
        self._step = step
        self._published = published
        self._session = Session(endpoint, link, generation, drops=bool(share and share.drops), skips=skips)
        self._remote: ModelLink | None = None
        self._over = self._is_cut = False
        self._alarm: Wakeup | None = None
        self._flushes = False
        line.open.append(self)
        self._engine.after(2 * line.delay_s, self._connect)

    @property
    def resumed(self) -> bool:
        return self._session.resumed

    @property
    def queued_bytes(self) -> int:
        return self._session.queued_bytes

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> int:
        self._step("publish")
        self._line.note_publish(self)
        mid = self._session.publish(topic, payload, qos, retain=retain)
        if self._published is not None:
            self._published(topic, payload)
        self._flush_soon()
        return mid

    def sending(self, now: float) -> Sending:
        session, left_s = self._session, max(0.0, self._free_s - now)
        waiting = int(min(session.taken_bytes, left_s * self._line.bytes_per_s)) if left_s else 0
        return Sending(session.taken_bytes - waiting, self._free_s - left_s)

    def ping(self) -> int:
        mid = self._session.ping()
        self._flush_soon()
        return mid

    def unsubscribe(self, *filters: str) -> int:
        mid = self._session.unsubscribe(filters)
        self._flush_soon()
        return mid

    def acknowledge(self, *mids: int) -> None:
        self._step("acknowledge")
        for mid in mids:
            self._session.acknowledge(mid)
        self._flush()  # the connection's thread may be faster than the next step of the loop

    def close(self, timeout_s: float) -> None:  # noqa: ARG002 - of the connection's shape
        self._session.close()
        self._flush()

    def abandon(self) -> None:
        self._session.end("abandoned")
        self._engine.after(0.0, self._settle)

    def die(self) -> None:
        """Drop what was not reported: the program that dialled is gone."""
        self._over = True
        self._unreported.clear()  # its successor's connections have the same generations
        self._leave()

    def go_on(self) -> None:
        """Report what it could not while it was stalled."""
        self.is_stalled = False
        unreported, self._unreported = self._unreported, []
        for each in unreported:
            each()

    def cut(self, reason: str) -> None:
        """The connection breaks, with what is on its way, and this end learns it."""
        if not self._over:
            self._is_cut = True
            self._session.lost(reason)
            self._settle()

    # What the broker sees and says: `parts.simulate.broker.Peer`.

    def take(self, data: bytes) -> None:
        if self._over or self.is_deaf:
            return
        if self._line.loses_answers and data[0] >> 4 == 4:
            # A PUBACK is lost, and TCP delivers nothing after it.
            self._line.loses_answers -= 1
            self.is_deaf = True
            return
        self._after_delay(lambda: self._receive(data), is_up=False)

    def hung_up(self) -> None:
        if not self._over and not self.is_deaf:
            self._after_delay(lambda: self.cut("the broker hung up"), is_up=False)

    # Within.

    def _connect(self) -> None:
        if self._over:
            return
        if not self._line.is_up or (remote := self._line.broker.open(self)) is None:
            self._session.end("cannot connect")
            self._settle()
            return
        self._remote = remote
        self._session.start(self._engine.now_s)
        self._flush()

    def _receive(self, data: bytes) -> None:
        if self._over or self.is_deaf or self._session.ended is not None:
            return
        self._session.receive(data, self._engine.now_s, *self._room())
        self._go_on()

    def _room(self) -> tuple[float, float]:
        return (inf, inf) if self._share is None else (self._share.room, self._share.room_for_qos_0)

    def _go_on(self) -> None:
        if self._over:
            return
        self._report()
        while self._session.has_undecoded and self._session.ended is None:
            if self._share is not None and not self._share.may_read(self._resume):
                break
            self._session.decode(*self._room())
            self._report()
        self._flush()

    def _resume(self) -> None:
        self._engine.after(0.0, self._go_on)

    def _flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            self._engine.after(0.0, self._flush)

    def _flush(self) -> None:
        self._flushes = False
        if self._over:
            return
        if data := self._session.take_bytes(1 << 30):
            self._session.sent(self._engine.now_s)
            self._free_s = max(self._free_s, self._engine.now_s) + len(data) / self._line.bytes_per_s
            remote = self._remote
            if remote is not None and not self.is_deaf:
                self._after_delay(lambda: None if self._is_cut else remote.take(data), is_up=True)
        self._settle()

    def _settle(self) -> None:
        """Report what there is, and end or wait for the next deadline."""
        if self._over:
            return
        self._report()
        if self._session.ended is not None:
            self._over = True
            self._leave()
            self._emit(Disconnected(self._name, self._generation, self._session.ended))
            return
        if self._alarm is not None:
            self._alarm.is_off = True
        if self._remote is not None and (at := self._session.deadline()) is not None:
            self._alarm = self._engine.at(max(at, self._engine.now_s + 0.001), self._tick)

    def _tick(self) -> None:
        if not self._over:
            self._session.tick(self._engine.now_s)
            self._flush()

    def _report(self) -> None:
        received: list[Received] = []
        for message in self._session.take_messages():
            if isinstance(message, Received) and self._put is not None:
                received.append(message)
            else:
                self._emit(message)
        if received and self._put is not None:
            self._put(received)

    def _late(self, report: Callable[[Any], object]) -> Callable[[Any], None]:
        def take(what: Any) -> None:
            if self.is_stalled:
                self._unreported.append(lambda: report(what))
            else:
                report(what)
                if isinstance(what, Connected):
                    self._line.note_up(self)

        return take

    def _leave(self) -> None:
        if self in self._line.open:
            self._line.open.remove(self)
        if self._remote is not None and not self.is_deaf:
            self._after_delay(self._remote.lost, is_up=True)

    def _after_delay(self, act: Callable[[], object], *, is_up: bool) -> None:
        """Let `act` happen at the other end, after all that is on its way there."""
        sent_s = max(self._engine.now_s, self._free_s if is_up else 0.0)
        at_s = max(sent_s + self._line.delay_s, self._arrives_at[is_up])
        self._arrives_at[is_up] = at_s
        self._engine.at(at_s, act)


SLOW_BYTES_PER_S: Final = 2_000
CLOUD_DELAY_S: Final = 0.05
HOME_DELAY_S: Final = 0.001
