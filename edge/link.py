"""Keeps one connection to one broker alive: dials, counts generations, waits between attempts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from edge.messages import LinkName

_log = logging.getLogger(__name__)


class Wire(Protocol):
    """One connection; see `edge.mqtt.Connection`."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int: ...

    def ping(self) -> int: ...

    def acknowledge(self, mid: int) -> None: ...

    def close(self, timeout_s: float) -> None: ...

    def abandon(self) -> None: ...


Dial = Callable[[int], Wire]
"""Opens the connection of a generation, without waiting for it."""


@dataclass(frozen=True)
class Backoff:
    """How long to wait between attempts: at least `first_s` (a CONNECT budget), at most `max_s` more.

    Full jitter: a region's devices, all cut off at once, must not come back at once.
    """

    first_s: float
    max_s: float
    random: Random = field(default_factory=Random)

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after `failures` attempts in a row, from 1."""
        ceiling = min(self.max_s, self.first_s * 2.0 ** min(failures, 32))
        return self.first_s + self.random.uniform(0, ceiling)


class Link:
    """The line to one broker. All times are seconds of one monotonic clock.

    `up_since` is when the connection that stands was made, `connects` how many have been.
    """

    def __init__(self, name: LinkName, dial: Dial, backoff: Backoff, connect_timeout_s: float) -> None:
        self.name = name
        self.generation = 0
        self.up = False
        self.up_since = 0.0
        self.connects = 0
        self._dial = dial
        self._backoff = backoff
        # The connection has timeouts of its own; this one does not trust them.
        self._patience_s = 2 * connect_timeout_s
        self._wire: Wire | None = None
        self._closed = False
        self._failures = 0
        self._act_at = 0.0
        self._last_reason = ""

    @property
    def complaint(self) -> str | None:
        """What is wrong with how the way to the broker was found, whether the line stands or not."""
        return None

    def deadline(self) -> float | None:
        """When `tick` has something to do, None for never."""
        return None if self.up or self._closed else self._act_at

    @property
    def is_dialling(self) -> bool:
        """Whether there is a connection, standing or not."""
        return self._wire is not None

    def tick(self, now: float) -> None:
        """Dial when it is time to, give up an attempt that hangs."""
        if self.up or self._closed or now < self._act_at:
            return
        if self._wire is not None:
            self.reset("no answer to CONNECT", now)
            return
        self.generation += 1
        self._act_at = now + self._patience_s
        self._wire = self._dial(self.generation)

    def connected(self, generation: int, now: float) -> bool:
        """Note that a connection stands; False when it is a bygone one."""
        if not self._is_current(generation):
            return False
        self.up = True
        self.up_since = now
        self.connects += 1
        _log.info("%s broker connected (connection %d)", self.name, generation)
        return True

    def disconnected(self, generation: int, reason: str, now: float) -> bool:
        """Note that a connection ended; False when it is a bygone one."""
        if not self._is_current(generation):
            return False
        self._drop(reason, now)
        return True

    def reset(self, reason: str, now: float) -> None:
        """Cut the connection, for a broker that no longer answers, and dial again after the backoff."""
        if self._wire is not None:
            self._wire.abandon()
            self._drop(reason, now)

    def leave(self) -> None:
        """Cut the connection; its end is reported as if the broker had cut it."""
        if self._wire is not None:
            self._wire.abandon()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        """Send at QoS 1 over the standing connection; its packet id. Only while `up`.

        With `retain` the broker keeps it for who subscribes later; an empty payload ends that.
        """
        return self._standing().publish(topic, payload, retain=retain)

    def ping(self) -> int:
        """Ask the broker for an answer, which is reported like that to a publish. Only while `up`."""
        return self._standing().ping()

    def acknowledge(self, generation: int, mid: int) -> None:
        """Send PUBACK, unless the connection that the message came over is gone: then it comes again."""
        if self._wire is not None and generation == self.generation and mid:
            self._wire.acknowledge(mid)

    def close(self, timeout_s: float) -> None:
        """End the line for good, in good order, within `timeout_s` seconds."""
        if self._wire is not None:
            if self.up:
                self._wire.close(timeout_s)
            else:
                self._wire.abandon()
        self._wire = None
        self._closed = True
        self.up = False

    def _standing(self) -> Wire:
        if self._wire is None:
            raise RuntimeError(f"something to send on the {self.name} link, which is down")
        return self._wire

    def _is_current(self, generation: int) -> bool:
        return self._wire is not None and generation == self.generation

    def _drop(self, reason: str, now: float) -> None:
        # A line that connects and drops at once fails like one that does not connect.
        if self.up and now - self.up_since >= self._backoff.max_s:
            self._failures = 0
            self._last_reason = ""
        self.up = False
        self._wire = None
        self._failures += 1
        delay = self._backoff.delay_s(self._failures)
        self._act_at = now + delay
        # The same complaint over and over says nothing new.
        level = logging.DEBUG if reason == self._last_reason else logging.WARNING
        self._last_reason = reason
        _log.log(level, "%s broker: %s; next attempt in %.1f s", self.name, reason, delay)
