"""Links to the brokers: each keeps one connection up, and waits between attempts to connect."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from eventplane_mqtt.endpoint import BrokerAddress, longest_connect_s
from eventplane_mqtt.mailbox import LinkName, Share
from eventplane_mqtt.reasons import HUNG_UP

_log = logging.getLogger(__name__)


class Sending(NamedTuple):
    """The bytes of a connection that have left this machine.

    `moved_at` is when the last of them left, monotonic seconds: not later, by what could be seen.
    """

    left: int
    moved_at: float


class BrokerConnection(Protocol):
    """One connection; see `eventplane_mqtt.Connection`."""

    @property
    def resumed(self) -> bool: ...

    @property
    def queued_bytes(self) -> int: ...

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int: ...

    def unsubscribe(self, *filters: str) -> int: ...

    def ping(self) -> int: ...

    def sending(self, now: float) -> Sending: ...

    def acknowledge(self, *mids: int) -> None: ...

    def close(self, timeout_s: float) -> None: ...

    def abandon(self) -> None: ...


Dial = Callable[[int], BrokerConnection]
"""Opens the connection of a generation, without waiting for it."""

DialAddress = Callable[[BrokerAddress, int], BrokerConnection]
"""Opens the connection of a generation to an address, without waiting for it."""

_HURRIED_FAILURES = 2
"""Failures in a row after which the delay no longer grows while something urgent waits: 1 to 5 s to IoT Core,
which accepts one CONNECT a second from a device. Ours."""

_TAKEOVERS = 3
_TAKEOVERS_S = 60.0
"""So many ends without a reason within so many seconds look like a second program with our client id. Ours:
two that take the session from each other do it about once a second."""


class Backoff(NamedTuple):
    """The delay between attempts: at least `first_s` (a CONNECT budget), at most `max_s` more.

    Full jitter, by a random `share`: devices of a region that were cut off together must not reconnect
    together.
    """

    first_s: float
    max_s: float
    share: Callable[[], float]

    def delay_s(self, failures: int) -> float:
        """Return the delay in seconds after `failures` attempts in a row, from 1."""
        ceiling = min(self.max_s, self.first_s * 2.0 ** min(failures, 32))
        return self.first_s + self.share() * ceiling


class ResendTimeout:
    """The wait for a confirmation before sending again: `seconds`, doubled by each repetition.

    The broker keeps what is sent for a reader that is away, so a copy every few seconds would bury it. But a
    broker that was killed drops what comes before the reader subscribes again, so the first repetitions over
    a new connection must follow each other closely: `reset` then, and when a confirmation comes.
    """

    def __init__(self, first_s: float, max_doublings: int) -> None:
        self.seconds = first_s
        self._first_s = first_s
        self._max_s = first_s * 2.0**max_doublings

    def double(self) -> None:
        """Note a repetition."""
        self.seconds = min(2 * self.seconds, self._max_s)

    def reset(self) -> None:
        """Begin anew."""
        self.seconds = self._first_s


class Link:
    """The link to one broker. All times are seconds of one monotonic clock.

    `up_since` is when the current connection came up, `connects` counts the connections that came up. `share`
    has the received messages that wait for the loop, if they are bounded. `complaint` is what is wrong with
    how the broker's address was found, whether the link is up or not.
    """

    def __init__(self, name: LinkName, dial: Dial, backoff: Backoff, connect_timeout_s: float) -> None:
        self.name = name
        self.generation = 0
        self.up = False
        self.up_since = 0.0
        self.dialled_at = float("-inf")
        self.connects = 0
        self.share: Share | None = None
        self.complaint: str | None = None
        self._dial = dial
        self._backoff = backoff
        # The connection has timeouts of its own, one for each step: this one comes after them.
        self._give_up_s = longest_connect_s(connect_timeout_s)
        self._connection: BrokerConnection | None = None
        self._closed = False
        self._failures = 0
        self._act_at = 0.0
        self._hurried_at = 0.0
        self._last_reason = ""
        self._hung_up: deque[float] = deque(maxlen=_TAKEOVERS)

    def deadline(self) -> float | None:
        """Return when `tick` has something to do, None for never."""
        return None if self.up or self._closed else self._act_at

    @property
    def resumed(self) -> bool:
        """True if the connection resumed a session that the broker had kept."""
        connection = self._connection
        return connection is not None and connection.resumed

    @property
    def is_dialling(self) -> bool:
        """True if there is a connection, up or not."""
        return self._connection is not None

    def tick(self, now: float) -> None:
        """Dial when it is time to, and give up an attempt that hangs."""
        if self.up or self._closed or now < self._act_at:
            return
        if self._connection is not None:
            self.reset(f"neither connected nor refused within {self._give_up_s:g} s", now)
            return
        self.generation += 1
        self._act_at = now + self._give_up_s
        self.dialled_at = now
        self._connection = self._dial(self.generation)

    def connected(self, generation: int, now: float) -> bool:
        """Note that a connection is up, once or again; False for an earlier one."""
        if not self._is_current(generation):
            return False
        if not self.up:
            self.up = True
            self.up_since = now
            self.connects += 1
            _log.info("%s broker connected (connection %d)", self.name, generation)
        return True

    def disconnected(self, generation: int, reason: str, now: float) -> bool:
        """Note that a connection ended; False for an earlier one."""
        if not self._is_current(generation):
            return False
        self._drop(reason, now)
        return True

    def hurry(self) -> None:
        """Dial after a short delay, however many attempts have failed: something urgent waits."""
        if self._connection is None:
            self._act_at = min(self._act_at, self._hurried_at)

    def reset(self, reason: str, now: float) -> None:
        """Cut the connection to a broker that no longer answers, and dial again after the backoff."""
        if self._connection is not None:
            self._connection.abandon()
            self._drop(reason, now)

    def leave(self) -> None:
        """Cut the connection; its end is reported as if the broker had cut it."""
        if self._connection is not None:
            self._connection.abandon()

    @property
    def connection(self) -> BrokerConnection:
        """The connection, to send over. Only while `up`."""
        if self._connection is None:
            raise RuntimeError(f"cannot send on the {self.name} link, which is down")
        return self._connection

    def acknowledge(self, generation: int, *mids: int) -> None:
        """Send PUBACKs, unless the connection of the messages ended: then the broker redelivers them.

        An id of 0, of a message at QoS 0, is ignored.
        """
        if self._connection is not None and generation == self.generation and any(mids):
            self._connection.acknowledge(*filter(None, mids))

    def close(self, timeout_s: float) -> None:
        """Close the link permanently and in good order, within `timeout_s` seconds."""
        if self._connection is not None:
            if self.up:
                self._connection.close(timeout_s)
            else:
                self._connection.abandon()
        self._connection = None
        self._closed = True
        self.up = False

    def _is_current(self, generation: int) -> bool:
        return self._connection is not None and generation == self.generation

    def _drop(self, reason: str, now: float) -> None:
        if self.up and HUNG_UP in reason:
            self._hung_up.append(now)
            if len(self._hung_up) == _TAKEOVERS and now - self._hung_up[0] <= _TAKEOVERS_S:
                reason += (
                    f", {_TAKEOVERS} times within {_TAKEOVERS_S:.0f} s: as if another program connects with "
                    "the same client id; give each copy of a service its id, and each device its certificate"
                )
        # A connection that drops at once counts as a failed attempt.
        if self.up and now - self.up_since >= self._backoff.max_s:
            self._failures = 0
            self._last_reason = ""
        self.up = False
        self._connection = None
        self._failures += 1
        delay = self._backoff.delay_s(self._failures)
        self._act_at = now + delay
        self._hurried_at = now + self._backoff.delay_s(min(self._failures, _HURRIED_FAILURES))
        # A repeated reason is logged at DEBUG only.
        level = logging.DEBUG if reason == self._last_reason else logging.WARNING
        self._last_reason = reason
        _log.log(level, "%s broker: %s; next attempt in %.1f s", self.name, reason, delay)


class DnsSd(NamedTuple):
    """The broker that `thing` ('': any) announces, over one of `interfaces` (none: all of the home)."""

    thing: str = ""
    interfaces: tuple[str, ...] = ()


def link_to_broker(
    address: BrokerAddress,
    found_by: Path | DnsSd | None,
    dial: DialAddress,
    backoff: Backoff,
    connect_timeout_s: float,
    *,
    has_login: bool,
    name: LinkName = LinkName.LOCAL,
    wake: Callable[[], None] = lambda: None,
) -> Link:
    """Return a link to `address`, or to the broker that a profile of Mosquitto or an announcement names.

    An announced broker is verified by the certificate of `address`. `wake` is called by another thread when
    another broker is announced. Raises `LibraryMissingError`.
    """
    if found_by is None:
        return Link(name, partial(dial, address), backoff, connect_timeout_s)
    from parts import load  # only where used: it takes memory

    if isinstance(found_by, DnsSd):
        dns_sd = load("discovery", "dns_sd")
        wanted = dns_sd.AnnouncedBroker(found_by.thing, address.tls, has_login)
        browse = partial(dns_sd.BrokerBrowser, found_by.interfaces)
        link: Link = dns_sd.AnnouncedLink(wanted, browse, dial, backoff, connect_timeout_s, wake)
        return link
    follow: Callable[..., Link] = load("discovery", "broker").ProfileLink
    return follow(found_by, address, dial, backoff, connect_timeout_s, has_login=has_login, name=name)
