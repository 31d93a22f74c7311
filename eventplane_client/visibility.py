"""The visibility timeout of an inbox: extended while a handler works, and checked against the lease."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from eventplane_client.errors import ClientError, LeaseTooLongError
from eventplane_client.ports import Message, MessageFilter, Transport
from eventplane_client.system import System

_log = logging.getLogger(__name__)

_SHARE = 3
"""Extended so many times in a visibility timeout: one failure more does no harm."""


def check_lease(participant: str, transport: Transport, lease_s: float) -> None:
    """Refuse a transport that gives out nothing any more once a claim of `lease_s` seconds has ended.

    A crashed reader's claim ends with its lease; the next delivery after it asks `on_doubt`, or writes a dead
    letter. Raises `LeaseTooLongError`.
    """
    visibility_s, receives = transport.visibility_s, transport.max_receives
    if visibility_s is not None and visibility_s * receives <= lease_s:
        raise LeaseTooLongError(participant, lease_s, visibility_s, receives)


class VisibilityExtender:
    """Extends the messages it holds in a thread of its own, which starts with the first."""

    def __init__(self, transport: Transport, filter: MessageFilter | None, name: str, system: System) -> None:
        self._transport = transport
        self._filter = filter
        self._name = name
        self._held: dict[int, tuple[Message, bytes]] = {}
        self._lock = system.lock()
        self._ending = system.event()
        self._system = system
        self._is_started = False

    def hold(self, message: Message, key: bytes) -> None:
        """Keep `message`, whose event is `key`."""
        visibility_s = self._transport.visibility_s
        if visibility_s is None:
            return
        with self._lock:
            self._held[id(message)] = message, key
            if not self._is_started:
                self._is_started = True
                self._system.start_thread(
                    f"{self._name}-visibility", lambda: self._run(visibility_s / _SHARE)
                )

    def let_go(self, message: Message) -> None:
        """It is settled."""
        with self._lock:
            self._held.pop(id(message), None)

    def close(self) -> None:
        """Extend nothing any more."""
        self._ending.set()

    def _run(self, every_s: float) -> None:
        while not self._ending.wait(every_s):
            with self._lock:
                held = list(self._held.values())
            if held:
                self._extend([message for message, _ in held], [key for _, key in held])

    def _extend(self, messages: Sequence[Message], keys: Sequence[bytes]) -> None:
        try:
            self._transport.extend(messages)
            if self._filter:
                self._filter.renew(keys)
        except ClientError as error:
            _log.warning("%s: what is in hand may come again: %s", self._name, error)
