"""The requests of one asker that wait for replies: a state machine without clock, thread or network."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from eventplane.conversation.messages import Replier, Reply, Status
from eventplane.errors import EventPlaneError


class TooManyRequestsError(EventPlaneError):
    """`most` requests are open at once."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} requests are open, the most that there may be; wait for some of them")
        self.most = most


OPENS_AFTER: Final = 10
"""Requests in a row that a peer leaves unanswered before nobody waits for it. Of the plane's requirements."""


class Circuit(StrEnum):
    """Whether requests wait for a peer."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Of one peer. A request asks `admits`; if so, it ends with exactly one of the others."""

    __slots__ = ("_announcement", "_is_probed", "_unanswered", "state")

    def __init__(self) -> None:
        self.state = Circuit.CLOSED
        self._unanswered = 0
        self._is_probed = False
        self._announcement: Hashable = None

    @property
    def unanswered(self) -> int:
        """Requests in a row without an answer."""
        return self._unanswered

    def admits(self) -> bool:
        """Whether a new request waits for the peer; a half-open circuit admits one at a time."""
        if self.state is Circuit.HALF_OPEN and not self._is_probed:
            self._is_probed = True
            return True
        return self.state is Circuit.CLOSED

    def answered(self, *, is_probe: bool) -> None:
        """A reply came to a request that waited for it, as a probe or before the circuit opened."""
        self._unanswered = 0
        if is_probe:
            self._is_probed = False
            self.state = Circuit.CLOSED
        else:
            self.heard()

    def left_unanswered(self, *, is_probe: bool) -> None:
        """A request that waited for it timed out."""
        if is_probe and self._is_probed:
            self._is_probed = False
            self.state = Circuit.OPEN
        elif self.state is Circuit.CLOSED:
            self._unanswered += 1
            if self._unanswered >= OPENS_AFTER:
                self.state = Circuit.OPEN

    def released(self, *, is_probe: bool) -> None:
        """A request that waited for it ended for another reason, which says nothing of the peer."""
        if is_probe:
            self._is_probed = False

    def heard(self) -> None:
        """The peer gave a sign of life that answers no request that waits for it."""
        if self.state is Circuit.OPEN:
            self.state = Circuit.HALF_OPEN

    def announced(self, announcement: Hashable) -> None:
        """Take the peer's last announcement, by a name that no other one has (None: unknown).

        Only a new one is a sign of life: the same one is read again at every look.
        """
        if announcement not in (None, self._announcement):
            self._announcement = announcement
            self.heard()


MAX_PEERS: Final = 10_000
"""Most peers that an asker remembers, services of devices counted one by one. Ours: a few megabytes; the peer
that was asked longest ago is forgotten first."""


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """The circuit of `peer` is `circuit` now."""

    peer: Replier
    circuit: Circuit


PeerListener = Callable[[PeerChanged], None]


class Peers:
    """Everything that a request does to its peers, by name. `on_change` is told when a circuit changes."""

    def __init__(self, on_change: PeerListener, most: int = MAX_PEERS) -> None:
        self._on_change = on_change
        self._most = most
        self._circuits: OrderedDict[Replier, CircuitBreaker] = OrderedDict()

    def states(self) -> dict[str, Circuit]:
        """The circuit of each peer that was asked."""
        return {str(peer): each.state for peer, each in self._circuits.items()}

    def admit(self, peer: Replier, announcement: Hashable = None) -> bool | None:
        """How a new request waits for `peer`: as a probe (True), as usual (False), or not at all (None).

        `announcement` is as for `announced`.
        """
        circuit = self._circuits.setdefault(peer, CircuitBreaker())
        self._circuits.move_to_end(peer)
        if len(self._circuits) > self._most:
            self._circuits.popitem(last=False)
        self.announced(peer, announcement)
        is_probe = circuit.state is Circuit.HALF_OPEN
        return is_probe if circuit.admits() else None

    def answered(self, peer: Replier, *, is_probe: bool) -> None:
        self._change(peer, lambda each: each.answered(is_probe=is_probe))

    def left_unanswered(self, peer: Replier, *, is_probe: bool) -> None:
        self._change(peer, lambda each: each.left_unanswered(is_probe=is_probe))

    def released(self, peer: Replier, *, is_probe: bool) -> None:
        self._change(peer, lambda each: each.released(is_probe=is_probe))

    def heard(self, peer: Replier) -> None:
        self._change(peer, CircuitBreaker.heard)

    def announced(self, peer: Replier, announcement: Hashable) -> None:
        """Take the last announcement of `peer`; see `CircuitBreaker.announced`."""
        self._change(peer, lambda each: each.announced(announcement))

    def _change(self, peer: Replier, change: Callable[[CircuitBreaker], None]) -> None:
        circuit = self._circuits.get(peer)
        if circuit is None:
            return  # forgotten, or never asked: the next request begins anew
        before = circuit.state
        change(circuit)
        if circuit.state is not before:
            self._on_change(PeerChanged(peer, circuit.state))


MAX_OPEN: Final = 1_000
"""Most requests that one asker has open at once. Ours: each has its replies in memory until it ends."""

TIMEOUT_S: Final = 300.0
"""How long a request waits for its replies unless told otherwise, seconds. Celix's default."""

Announcements = Mapping[Replier, Hashable]
"""Names the last announcement of each participant that is known to have made one; each has its own name."""

NO_ANNOUNCEMENTS: Final[Announcements] = MappingProxyType({})

Replies = dict[str, Reply]
"""What became of a request at each participant that handles it, by the participant's name."""


@dataclass(slots=True)
class _Open:
    """`waits` has whom it waits for, and whether as a probe."""

    waits: dict[Replier, bool]
    replies: dict[Replier, Reply] = field(default_factory=dict)


class OpenRequests:
    """At most `most` at once. `on_change` is told when the circuit of a peer changes."""

    def __init__(self, on_change: PeerListener = lambda _: None, most: int = MAX_OPEN) -> None:
        self._peers = Peers(on_change)
        self._most = most
        self._open: dict[str, _Open] = {}
        self.ignored = 0
        """Replies that did not count. Its owner adds those that could not be read."""

    def __len__(self) -> int:
        return len(self._open)

    def peers(self) -> dict[str, Circuit]:
        """The circuit of each peer that was asked, by its name."""
        return self._peers.states()

    def open(
        self,
        correlation_id: str,
        expected: Iterable[Replier],
        announced: Announcements = NO_ANNOUNCEMENTS,
    ) -> None:
        """A new request, which waits for those of `expected` whose circuit lets it.

        A new announcement of one of them is a sign of life. Raises `TooManyRequestsError`.
        """
        if len(self._open) >= self._most:
            raise TooManyRequestsError(self._most)
        request = self._open[correlation_id] = _Open({})
        for peer in expected:
            is_probe = self._peers.admit(peer, announced.get(peer))
            if is_probe is None:
                request.replies[peer] = Reply(peer, Status.NOT_AWAITED)
            else:
                request.waits[peer] = is_probe

    def replied(self, correlation_id: str, reply: Reply) -> bool:
        """Take a reply, whose replier is its sender; return False if that one was not asked.

        The first of each peer counts; a late one is a sign of life. That of a participant that was not asked
        is ignored, and counted in `ignored`.
        """
        request, peer = self._open.get(correlation_id), reply.replier
        if request is not None and peer in request.waits:
            self._peers.answered(peer, is_probe=request.waits.pop(peer))
            request.replies[peer] = reply
            return True
        self._peers.heard(peer)
        if request is not None and peer not in request.replies:
            self.ignored += 1
            return False
        if request is not None and request.replies[peer].status is Status.NOT_AWAITED:
            request.replies[peer] = reply
        return True

    def handlers_are(
        self,
        correlation_id: str,
        handlers: Collection[Replier],
        announced: Announcements = NO_ANNOUNCEMENTS,
    ) -> None:
        """Only `handlers` handle the event by now: whoever else is waited for is waited for no more.

        A new announcement of one of them is a sign of life.
        """
        for peer in handlers:
            self._peers.announced(peer, announced.get(peer))
        request = self._open.get(correlation_id)
        for peer in [each for each in request.waits if each not in handlers] if request else ():
            self._release(correlation_id, peer)

    def is_answered(self, correlation_id: str) -> bool:
        """Whether nobody is waited for any more."""
        request = self._open.get(correlation_id)
        return request is None or not request.waits

    def end(self, correlation_id: str, *, timed_out: bool) -> tuple[Replies, list[str]]:
        """Close the request: the replies, and who is missing.

        Only if it `timed_out` that is held against those who are.
        """
        request = self._open.pop(correlation_id)
        tell = self._peers.left_unanswered if timed_out else self._peers.released
        for peer, is_probe in request.waits.items():
            tell(peer, is_probe=is_probe)
        replies = {peer.participant: reply for peer, reply in request.replies.items()}
        return replies, sorted(str(each) for each in request.waits)

    def _release(self, correlation_id: str, peer: Replier) -> None:
        request = self._open[correlation_id]
        self._peers.released(peer, is_probe=request.waits.pop(peer))
        request.replies[peer] = Reply(peer, Status.UNHANDLED)
