"""The requests of one asker that wait for replies: a state machine without clock, thread or network."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from eventplane.conversation.circuit import Circuit
from eventplane.conversation.errors import TooManyRequestsError
from eventplane.conversation.peers import PeerListener, Peers
from eventplane.conversation.reply import Replier, Reply, Status

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
