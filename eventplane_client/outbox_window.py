"""The messages of a service that have no receipt yet: bounded, in order, identified by their digest."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from eventplane.receipts import Receipt, digest
from eventplane_client.system import SYSTEM, System
from eventplane_mqtt.reconnection import ResendTimeout

_MOST_DOUBLINGS = 4
"""How often the timeout doubles while no receipt comes."""


@dataclass(slots=True)
class OutboxMessage:
    """One message: `awaited` callers wait for its `receipt`; `left` if a caller does not wait."""

    payload: bytes
    number: int
    sent_at: float = 0.0
    awaited: int = 0
    left: bool = False
    receipt: Receipt | None = None


class OutboxWindow:
    """At most `size` messages. Thread-safe; all times are monotonic seconds.

    A message without a receipt for `timeout_s` seconds is due again, then after twice as long, and so on,
    until a receipt comes or the connection is a new one.
    """

    def __init__(self, size: int, timeout_s: float, system: System = SYSTEM) -> None:
        self._size = size
        self._timeout = ResendTimeout(timeout_s, _MOST_DOUBLINGS)
        self._changed = system.condition()
        self._unsent: deque[str] = deque()
        self._waiting: OrderedDict[str, OutboxMessage] = OrderedDict()  # the one sent longest ago first
        self._count = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, payload: bytes, timeout_s: float, *, awaited: bool = False) -> OutboxMessage | None:
        """Add a message; None if there was no room within `timeout_s` seconds, or the window is closed.

        A payload that waits already is the same message and is not added twice. With `awaited` the caller
        calls `wait_receipt` next.
        """
        name = digest(payload)
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or name in self._waiting or len(self._waiting) < self._size, timeout_s
            )
            if not room or self._closed:
                return None
            if name not in self._waiting:
                self._waiting[name] = OutboxMessage(payload, self._count)
                self._unsent.append(name)
                self._count += 1
            message = self._waiting[name]
            message.awaited += awaited
            message.left |= not awaited
            return message

    def wait_receipt(self, message: OutboxMessage, timeout_s: float) -> Receipt | None:
        """Wait for the receipt of `message`; None after `timeout_s` seconds, or if closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or message.receipt is not None, timeout_s)
            if message.receipt is None:  # a caller that got it stays counted
                message.awaited -= 1
            return message.receipt

    def withdraw(self, message: OutboxMessage) -> bool:
        """Stop sending `message`; return whether it was sent at all."""
        name = digest(message.payload)
        with self._changed:
            if self._waiting.pop(name, None) is not None:
                if name in self._unsent:
                    self._unsent.remove(name)
                self._changed.notify_all()
            return message.sent_at > 0

    def due(self, now: float) -> list[bytes]:
        """Return the payloads to send now, and note them as sent at `now`."""
        with self._changed:
            names = list(self._unsent)
            self._unsent.clear()
            overdue = self._overdue(now, set(names))
            if overdue:
                self._timeout.double()
            names += overdue
            for name in names:
                self._waiting[name].sent_at = now
                self._waiting.move_to_end(name)
            return [self._waiting[name].payload for name in names]

    def deadline(self) -> float | None:
        """Return when a message that was sent is due again, None for never."""
        with self._changed:
            oldest = next(iter(self._waiting.values()), None)
            return oldest.sent_at + self._timeout.seconds if oldest else None

    def resend(self) -> None:
        """Make all messages due again, in the order in which they were added: the connection is a new one."""
        with self._changed:
            self._timeout.reset()
            self._unsent = deque(sorted(self._waiting, key=lambda name: self._waiting[name].number))

    def confirm(self, receipt: Receipt) -> OutboxMessage | None:
        """Remove and return the message of `receipt`, None if it is not in the window."""
        name = receipt.digest
        with self._changed:
            message = self._waiting.pop(name, None)
            if message is None:
                return None
            if name in self._unsent:
                self._unsent.remove(name)
            self._timeout.reset()
            message.receipt = receipt
            self._changed.notify_all()
            return message

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds; return whether every message has its receipt."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._waiting, timeout_s)
            return not self._waiting

    def close(self) -> None:
        """Wake the threads that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _overdue(self, now: float, unsent: set[str]) -> list[str]:
        names = []
        for name, message in self._waiting.items():
            if name not in unsent:
                if message.sent_at + self._timeout.seconds > now:
                    break
                names.append(name)
        return names
