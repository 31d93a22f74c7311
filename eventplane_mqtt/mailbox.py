"""The queues between the network threads (and signal handlers) and a loop, and the messages in them.

Control items (connected, acknowledged, the loop's own, ...) have a queue of their own, which the loop reads
first. The messages of each link wait in a share of their own, which is bounded by bytes: ADR 31 says why.

Every message about a connection carries its `generation`, which counts the connections of a link. MQTT
packet ids start again with each connection: without the generation a late acknowledgement would end the wrong
publish.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from queue import Empty, SimpleQueue
from threading import Lock
from time import monotonic
from typing import Final, Generic, NamedTuple, TypeVar

_log = logging.getLogger(__name__)

Item = TypeVar("Item")

BATCH_MESSAGES: Final = 1_000
"""Most messages of one batch. Bounds the duration of a commit and the size of the receipts that follow it."""

BATCH_BYTES: Final = 512 * 1024
"""Most memory of the messages of one batch, bytes; one larger message is a batch of its own."""

OVERHEAD_BYTES: Final = 256
"""Memory of a waiting message beyond its topic and payload, as CPython 3.11 takes it on 64 bits. It bounds
tiny messages, whose payload is nothing, by the same limit as large ones."""

_QOS_0_PART: Final = 2
"""Messages at QoS 0 fill at most this part of a share, one in so many."""

_URGENT_QOS_0_PART: Final = 8
"""The same for the urgent link, whose alarms are at QoS 1 and wait behind little. The first session has the
outboxes too, so that what is dropped here still comes there; mapped topics have one session."""

_GATHER: Final = 0.5
"""How long a connection waits between two reads while the loop lingers, as a part of that time."""

_URGENT_GATHER: Final = 0.25
"""The same for the urgent link: what a home sends much of delays an alarm by that."""

_URGENT_PART: Final = 0.75
"""The part of a batch that the urgent link may take while other links wait: its flood must not stop them."""


class LinkName(StrEnum):
    """An MQTT session: the first and the urgent one at the home's broker, and the one at the cloud's."""

    LOCAL = "local"
    URGENT = "urgent"
    CLOUD = "cloud"


class Connected(NamedTuple):
    """The connection is up and its subscriptions are confirmed."""

    link: LinkName
    generation: int


class Disconnected(NamedTuple):
    """The connection ended or could not be made. Exactly one for each generation."""

    link: LinkName
    generation: int
    reason: str


class Received(NamedTuple):
    """A message that waits for our acknowledgement; `mid` is 0 at QoS 0, which needs none.

    `retained`: the broker kept it from before we subscribed. `oversize` is the size of a payload that was too
    large to be read, bytes; `payload` then is its beginning. 0 for a complete payload. `foreign`: it waited
    in our session for another owner. `duplicate`: the broker may have sent it before, under the same `mid`.
    """

    link: LinkName
    generation: int
    mid: int
    topic: str
    payload: bytes
    retained: bool = False
    oversize: int = 0
    foreign: bool = False
    duplicate: bool = False

    @property
    def memory_bytes(self) -> int:
        """The memory that it takes while it waits."""
        return len(self.payload) + len(self.topic) + OVERHEAD_BYTES


class Acknowledged(NamedTuple):
    """The broker's answer to our publish `mid`: accepted, or refused for the reason `failure`."""

    link: LinkName
    generation: int
    mid: int
    failure: str | None = None


Message = Connected | Disconnected | Received | Acknowledged


class Share:
    """The messages of one link that wait for the loop, at most about `limit_bytes` of memory.

    When it is full, the connection stops reading: the kernel and the broker keep what follows. The cloud's
    (`drops`) drops messages instead, because it must go on to read acknowledgements.

    QoS 0 messages get a part of the share, and the connection drops what exceeds that: so a flood of them
    delays no QoS 1 message. `dropped` counts the dropped messages, `pauses` how often reading stopped.
    """

    def __init__(self, link: LinkName, limit_bytes: int, notify: Callable[[bool], None]) -> None:
        self.limit_bytes = limit_bytes
        self.urgent = link is LinkName.URGENT
        self.drops = link is LinkName.CLOUD
        self._qos_0_bytes = limit_bytes // (_URGENT_QOS_0_PART if self.urgent else _QOS_0_PART)
        self._link = link
        self.dropped = 0
        self.pauses = 0
        self.waiting_bytes = 0
        self.gather_s = 0.0
        self._notify = notify
        # `put` and `take` run in different threads. No signal handler takes it.
        self._lock = Lock()
        self._messages: deque[Received] = deque()
        self._paused: dict[Callable[[], None], None] = {}

    @property
    def waiting(self) -> int:
        """The number of messages that wait."""
        return len(self._messages)

    @property
    def fills_batch(self) -> bool:
        """True if what waits is a batch, or as much as may wait: then the loop does not linger for more."""
        return self.waiting_bytes >= min(self.limit_bytes, BATCH_BYTES)

    @property
    def room(self) -> int:
        """The bytes that fit in; a message may exceed it, so that each fits in at some time."""
        return max(0, self.limit_bytes - self.waiting_bytes)

    @property
    def room_for_qos_0(self) -> int:
        """The same for QoS 0 messages."""
        return max(0, self._qos_0_bytes - self.waiting_bytes)

    def gathers(self, linger_s: float) -> None:
        """Let the connection wait after each read, while the loop lingers `linger_s` for a batch.

        The cloud's does not: acknowledgements come over it, for which the uplink waits.
        """
        self.gather_s = 0.0 if self.drops else linger_s * (_URGENT_GATHER if self.urgent else _GATHER)

    def put(self, messages: Iterable[Received]) -> None:
        """Add messages of a connection; never waits."""
        with self._lock:
            for each in messages:
                self._messages.append(each)
                self.waiting_bytes += each.memory_bytes
        self._notify(self.urgent or self.fills_batch)

    def count_dropped(self, count: int) -> None:
        """Note messages that the connection dropped."""
        with self._lock:
            before, self.dropped = self.dropped, self.dropped + count
        if not before or len(str(self.dropped)) > len(str(before)):  # the first, and each power of ten
            remedy = "at QoS 0 they get a part of the buffer; publish at QoS 1, or raise local.buffer_bytes"
            if self.drops:
                remedy = "they are unacknowledged and come again; raise cloud.buffer_bytes"
            text = "%s broker: %d message(s) dropped so far: %s"
            _log.warning(text, self._link, self.dropped, remedy)

    def may_read(self, resume: Callable[[], None]) -> bool:
        """Return whether the connection may read on; if not, `resume` is called when it may."""
        with self._lock:
            if self.drops or self.waiting_bytes < self.limit_bytes:
                return True
            self.pauses += resume not in self._paused
            self._paused[resume] = None
            return False

    def take(self, max_bytes: float, max_messages: int) -> list[Received]:
        """Return the oldest messages up to both limits, but at least one if there is any."""
        taken: list[Received] = []
        paused: dict[Callable[[], None], None] = {}
        size = 0
        with self._lock:
            messages = self._messages
            while messages and len(taken) < max_messages and size < max_bytes:
                following = messages[0].memory_bytes
                if taken and size + following > max_bytes:
                    break
                size += following
                taken.append(messages.popleft())
            self.waiting_bytes -= size
            # Not at each message: the connection's thread then reads larger pieces.
            if self._paused and self.waiting_bytes <= self.limit_bytes // 2:
                paused, self._paused = self._paused, paused
        for resume in paused:
            resume()
        return taken


class Mailbox(Generic[Item]):
    """Thread-safe; `put` also from a signal handler, because `SimpleQueue.put` is reentrant.

    `shares` are those of the links.
    """

    def __init__(self) -> None:
        self._control: SimpleQueue[Item | None] = SimpleQueue()
        self.shares: dict[LinkName, Share] = {}
        # A None in the control queue wakes the loop for messages; True while one is in it.
        self._woken = False
        self._lingers = False
        self._first = 0

    def put(self, item: Item) -> None:
        """Add a control item, which the loop reads before all messages; never waits."""
        self._control.put(item)

    def share(self, link: LinkName, limit_bytes: int) -> Share:
        """Make the share of a link."""
        share = self.shares[link] = Share(link, limit_bytes, self._wake)
        return share

    def wait(self, timeout_s: float | None, linger_s: float = 0.0) -> list[Item | Received]:
        """Return a batch: control items, the urgent link's messages, then the other links' in equal parts.

        Waits up to `timeout_s` seconds (None: for ever) for the first. With `linger_s` it waits up to so many
        seconds for more, unless there is an urgent message, a full batch or a control item other than
        `Acknowledged`. The order of each link's messages is kept. A connection's end can come before its last
        messages, which still count.
        """
        for share in self.shares.values():
            share.gathers(linger_s)
        items = self._take_control([])
        give_up = None if timeout_s is None else monotonic() + timeout_s
        while not (items or any(each.waiting for each in self.shares.values())):
            left = None if give_up is None else give_up - monotonic()
            if not self._wait_for_control(items, left):
                return []
        if linger_s and _can_wait(items):
            self._linger(items, linger_s)
        return [*items, *self._take_messages()]

    def _linger(self, items: list[Item], linger_s: float) -> None:
        until = monotonic() + linger_s
        self._lingers = True
        while _can_wait(items) and self._may_linger():
            if not self._wait_for_control(items, until - monotonic()):
                break
        self._lingers = False

    def _wake(self, eager: bool) -> None:
        """Wake the loop, which while it lingers is woken for `eager` messages only."""
        if not self._woken and (eager or not self._lingers):
            self._woken = True
            self._control.put(None)

    def _wait_for_control(self, items: list[Item], timeout_s: float | None) -> bool:
        """Wait for an item or a wake-up; False when the time is over."""
        if timeout_s is not None and timeout_s <= 0:
            return False
        try:
            item = self._control.get(timeout=timeout_s)
        except Empty:
            return False
        self._note(item, items)
        self._take_control(items)
        return True

    def _take_control(self, items: list[Item]) -> list[Item]:
        try:
            while len(items) < BATCH_MESSAGES:
                self._note(self._control.get_nowait(), items)
        except Empty:
            pass
        return items

    def _note(self, item: Item | None, items: list[Item]) -> None:
        if item is None:
            # Before the messages are looked at: what comes later wakes again.
            self._woken = False
        else:
            items.append(item)

    def _may_linger(self) -> bool:
        urgent = self.shares.get(LinkName.URGENT)
        if urgent is not None and urgent.waiting:
            return False
        return not any(each.fills_batch for each in self.shares.values())

    def _take_messages(self) -> list[Received]:
        shares = self._in_turn()
        parts = [1 / (len(shares) - index) for index in range(len(shares))]
        if len(shares) > 1 and shares[0].urgent:
            parts[0] = _URGENT_PART
        taken: list[Received] = []
        bytes_left = BATCH_BYTES
        # Each gets its part of what is left, then more if others did not need theirs.
        for share, part in [*zip(shares, parts, strict=True), *((each, 1.0) for each in shares)]:
            some = share.take(bytes_left * part, int((BATCH_MESSAGES - len(taken)) * part))
            bytes_left -= sum(each.memory_bytes for each in some)
            taken += some
        return taken

    def _in_turn(self) -> list[Share]:
        """Return the shares with messages: the urgent one first, then the others in turns."""
        waiting = [each for each in self.shares.values() if each.waiting]
        if len(waiting) > 1:
            self._first += 1
            first = self._first % len(waiting)
            waiting = waiting[first:] + waiting[:first]
        return sorted(waiting, key=lambda each: not each.urgent)


def _can_wait(items: Sequence[object]) -> bool:
    return len(items) < BATCH_MESSAGES and all(isinstance(each, Acknowledged) for each in items)
