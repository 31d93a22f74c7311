"""The requests of one asker that wait for replies, and a circuit breaker for each peer.

State machines without clock, thread or network. A circuit is closed while requests wait for its peer, and
opens after `OPENS_AFTER` requests in a row without an answer: requests wait for it no more. When the peer is
heard again (by a late reply, or a new announcement of what it handles) the circuit is half-open: one request
waits for it, as a probe, and closes the circuit or opens it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Final

from eventplane.conversation.messages import Replier, Reply, Status
from eventplane.errors import EventPlaneError

OPENS_AFTER: Final = 10
"""Requests in a row that a peer leaves unanswered before its circuit opens. Of the plane's requirements."""

MAX_PEERS: Final = 10_000
"""Most peers that an asker remembers, services of devices counted one by one. Ours: a few megabytes; the peer
that was asked longest ago is forgotten first."""

MAX_OPEN: Final = 1_000
"""Most requests that one asker has open at once. Ours: each has its replies in memory until it ends."""

TIMEOUT_S: Final = 300.0
"""How long a request waits for its replies by default, seconds. Celix's default."""

Announcements = Mapping[Replier, Hashable]
"""The id of the last announcement of each participant that is known to have made one."""

NO_ANNOUNCEMENTS: Final[Announcements] = MappingProxyType({})

Replies = dict[str, Reply]
"""The reply or status of each participant that handles a request, by the participant's name."""


class TooManyOpenError(EventPlaneError):
    """`most` requests are open at once."""

    most: int
    message = "{most} requests are open, the most that there may be; wait for some of them"


class Circuit(StrEnum):
    """The state of a peer: requests wait for it or do not."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class CircuitChanged:
    """The circuit of `peer` is `circuit` now."""

    peer: Replier
    circuit: Circuit


PeerListener = Callable[[CircuitChanged], None]


class CircuitBreaker:
    """The circuit of one peer.

    A request that `admits` lets wait ends with exactly one other method.
    """

    __slots__ = ("_announcement", "_is_probed", "_unanswered", "state")

    def __init__(self) -> None:
        self.state = Circuit.CLOSED
        self._unanswered = 0
        self._is_probed = False
        self._announcement: Hashable = None

    def admits(self) -> bool:
        """Return whether a new request waits for the peer; a half-open circuit admits one at a time."""
        if self.state is Circuit.HALF_OPEN and not self._is_probed:
            self._is_probed = True
            return True
        return self.state is Circuit.CLOSED

    def answered(self, *, is_probe: bool) -> None:
        """Record a reply to a request that waited for the peer, as a probe or as usual."""
        self._unanswered = 0
        if is_probe:
            self._is_probed = False
            self.state = Circuit.CLOSED
        else:
            self.heard()

    def timed_out(self, *, is_probe: bool) -> None:
        """Record that a request that waited for the peer timed out."""
        if is_probe and self._is_probed:
            self._is_probed = False
            self.state = Circuit.OPEN
        elif self.state is Circuit.CLOSED:
            self._unanswered += 1
            if self._unanswered >= OPENS_AFTER:
                self.state = Circuit.OPEN

    def released(self, *, is_probe: bool) -> None:
        """Record that a request that waited for the peer ended for a reason unrelated to it."""
        if is_probe:
            self._is_probed = False

    def heard(self) -> None:
        """Record a sign of life that answers no request that waits for the peer."""
        if self.state is Circuit.OPEN:
            self.state = Circuit.HALF_OPEN

    def announced(self, announcement: Hashable) -> None:
        """Record the id of the peer's last announcement (None: unknown). Only a new one is a sign of life."""
        if announcement not in (None, self._announcement):
            self._announcement = announcement
            self.heard()


class Peers:
    """The circuits of at most `most` peers of one asker. `on_change` is called when a circuit changes."""

    def __init__(self, on_change: PeerListener, most: int = MAX_PEERS) -> None:
        self._on_change = on_change
        self._most = most
        self._circuits: OrderedDict[Replier, CircuitBreaker] = OrderedDict()

    def states(self) -> dict[str, Circuit]:
        """Return the circuit of each peer that was asked."""
        return {str(peer): each.state for peer, each in self._circuits.items()}

    def admit(self, peer: Replier, announcement: Hashable = None) -> bool | None:
        """Return how a new request waits for `peer`: as a probe (True), as usual (False), not at all (None).

        `announcement` is the id of the last announcement of `peer`.
        """
        circuit = self._circuits.setdefault(peer, CircuitBreaker())
        self._circuits.move_to_end(peer)
        if len(self._circuits) > self._most:
            self._circuits.popitem(last=False)
        self.change(peer, partial(CircuitBreaker.announced, announcement=announcement))
        is_probe = circuit.state is Circuit.HALF_OPEN
        return is_probe if circuit.admits() else None

    def change(self, peer: Replier, change: Callable[[CircuitBreaker], None]) -> None:
        """Apply `change` to the circuit of `peer`; ignore a peer that is forgotten or was never asked."""
        circuit = self._circuits.get(peer)
        if circuit is None:
            return
        before = circuit.state
        change(circuit)
        if circuit.state is not before:
            self._on_change(CircuitChanged(peer, circuit.state))


@dataclass(slots=True)
class _Open:
    """An open request: `waits` has the peers that it waits for, and whether as a probe."""

    waits: dict[Replier, bool]
    replies: dict[Replier, Reply] = field(default_factory=dict)


class OpenRequests:
    """At most `most` open requests of one asker. `on_change` is called when the circuit of a peer changes."""

    def __init__(self, on_change: PeerListener = lambda _: None, most: int = MAX_OPEN) -> None:
        self._peers = Peers(on_change)
        self._most = most
        self._open: dict[str, _Open] = {}
        self.ignored = 0
        """Replies that did not count. The owner adds those that could not be read."""

    def __len__(self) -> int:
        return len(self._open)

    def peers(self) -> dict[str, Circuit]:
        """Return the circuit of each peer that was asked, by its name."""
        return self._peers.states()

    def open(
        self,
        correlation_id: str,
        expected: Iterable[Replier],
        announced: Announcements = NO_ANNOUNCEMENTS,
    ) -> None:
        """Add a request, which waits for those of `expected` whose circuit admits it.

        A new announcement of one of them is a sign of life. Raises `TooManyOpenError`.
        """
        if len(self._open) >= self._most:
            raise TooManyOpenError(self._most)
        request = self._open[correlation_id] = _Open({})
        for peer in expected:
            is_probe = self._peers.admit(peer, announced.get(peer))
            if is_probe is None:
                request.replies[peer] = Reply(peer, Status.NOT_AWAITED)
            else:
                request.waits[peer] = is_probe

    def replied(self, correlation_id: str, reply: Reply) -> bool:
        """Record a reply, whose replier is its sender; return False if that one was not asked.

        The first reply of each peer counts; a late one is a sign of life. The reply of a participant that was
        not asked is ignored, and counted in `ignored`.
        """
        request, peer = self._open.get(correlation_id), reply.replier
        if request is not None and peer in request.waits:
            is_probe = request.waits.pop(peer)
            self._peers.change(peer, partial(CircuitBreaker.answered, is_probe=is_probe))
            request.replies[peer] = reply
            return True
        self._peers.change(peer, CircuitBreaker.heard)
        if request is not None and peer not in request.replies:
            self.ignored += 1
            return False
        if request is not None and request.replies[peer].status is Status.NOT_AWAITED:
            request.replies[peer] = reply
        return True

    def update_handlers(
        self,
        correlation_id: str,
        handlers: Collection[Replier],
        announced: Announcements = NO_ANNOUNCEMENTS,
    ) -> None:
        """Stop waiting for peers that are not among `handlers`, who handle the event by now.

        A new announcement of one of them is a sign of life.
        """
        for peer in handlers:
            self._peers.change(peer, partial(CircuitBreaker.announced, announcement=announced.get(peer)))
        request = self._open.get(correlation_id)
        if request is None:
            return
        for peer in [each for each in request.waits if each not in handlers]:
            self._release(peer, request.waits.pop(peer))
            request.replies[peer] = Reply(peer, Status.UNHANDLED)

    def is_answered(self, correlation_id: str) -> bool:
        """Return whether the request waits for no peer any more."""
        request = self._open.get(correlation_id)
        return request is None or not request.waits

    def end(self, correlation_id: str, *, timed_out: bool) -> tuple[Replies, list[str]]:
        """Close the request; return the replies and the names of the missing peers.

        Only if it `timed_out`, the missing ones count as unanswered in their circuits.
        """
        request = self._open.pop(correlation_id)
        for peer, is_probe in request.waits.items():
            if timed_out:
                self._peers.change(peer, partial(CircuitBreaker.timed_out, is_probe=is_probe))
            else:
                self._release(peer, is_probe)
        replies = {peer.participant: reply for peer, reply in request.replies.items()}
        return replies, sorted(str(each) for each in request.waits)

    def _release(self, peer: Replier, is_probe: bool) -> None:
        self._peers.change(peer, partial(CircuitBreaker.released, is_probe=is_probe))
