"""The visibility timeout of an inbox: extended while a handler works, and checked against the lease."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eventplane_client.errors import ClientError, LeaseTooLongError
from eventplane_client.ports import Message, MessageFilter, Transport
from eventplane_client.system import TIMEOUT_MAX, System

_log = logging.getLogger(__name__)

_SHARE = 3
"""Extended so many times in a visibility timeout: one failure more does no harm."""

_TOGETHER_S: Final = 1.0
"""What is due within this time is extended in the same request, seconds. Ours."""


def check_lease(participant: str, transport: Transport, lease_s: float) -> None:
    """Refuse a transport that gives out nothing any more once a claim of `lease_s` seconds has ended.

    A crashed reader's claim ends with its lease; the next delivery after it asks `on_doubt`, or writes a dead
    letter. Raises `LeaseTooLongError`.
    """
    visibility_s, receives = transport.visibility_s, transport.max_receives
    if visibility_s is not None and visibility_s * receives <= lease_s:
        raise LeaseTooLongError(participant, lease_s, visibility_s, receives)


@dataclass(slots=True)
class _Held:
    """A `message` to extend at `due_s`, monotonic seconds; that `renews` the claim of its event `key` too."""

    message: Message
    key: bytes
    due_s: float
    renews: bool


class VisibilityExtender:
    """Extends the messages it holds in a thread of its own, which starts with the first."""

    def __init__(self, transport: Transport, filter: MessageFilter | None, name: str, system: System) -> None:
        self._transport = transport
        self._filter = filter
        self._name = name
        self._held: dict[int, _Held] = {}
        self._lock = system.lock()
        self._woken = system.event()
        self._system = system
        self._wakes_s = 0.0
        self._is_started = self._is_ended = False

    def hold(self, message: Message, key: bytes) -> None:
        """Keep `message`, whose event is `key`."""
        visibility_s = self._transport.visibility_s
        if visibility_s is None:
            return
        with self._lock:
            due_s = self._system.monotonic() + (message.hidden_s or visibility_s) / _SHARE
            self._held[id(message)] = _Held(message, key, due_s, message.hidden_s is None)
            if not self._is_started:
                self._is_started = True
                self._system.start_thread(
                    f"{self._name}-visibility", lambda: self._run(visibility_s / _SHARE)
                )
            elif due_s < self._wakes_s:
                self._woken.set()

    def let_go(self, message: Message) -> None:
        """It is settled."""
        with self._lock:
            self._held.pop(id(message), None)

    def close(self) -> None:
        """Extend nothing any more."""
        with self._lock:
            self._is_ended = True
            self._woken.set()

    def _run(self, every_s: float) -> None:
        while True:
            with self._lock:
                if self._is_ended:
                    return
                self._woken.clear()
                now, held = self._system.monotonic(), self._held.values()
                self._wakes_s = min((each.due_s for each in held), default=TIMEOUT_MAX)
                due = [each for each in held if self._wakes_s <= now and each.due_s <= now + _TOGETHER_S]
                keys = [each.key for each in due if each.renews]
                for each in due:
                    each.due_s, each.renews = now + every_s, True
            if due:
                self._extend([each.message for each in due], keys)
            else:
                self._woken.wait(self._wakes_s - now)

    def _extend(self, messages: Sequence[Message], keys: Sequence[bytes]) -> None:
        try:
            self._transport.extend(messages)
            if self._filter and keys:
                self._filter.renew(keys)
        except ClientError as error:
            _log.warning("%s: what is in hand may come again: %s", self._name, error)
