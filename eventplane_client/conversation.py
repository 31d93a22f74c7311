"""Requests over a backend: the interface, and what a backend without a channel for replies says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from eventplane.conversation.open_requests import Circuit, Replies
from eventplane.conversation.open_requests import CircuitChanged as CircuitChanged
from eventplane.envelope import Envelope
from eventplane_client.errors import ClientSettingsError
from eventplane_client.notices import Listener, PeerChanged

_log = logging.getLogger(__name__)


class Conversations(Protocol):
    """Asks for one participant. Thread-safe."""

    def request(self, event: Envelope, timeout_s: float, *, durable: bool, expires: bool) -> Replies:
        """See `Client.request`."""

    def peers(self) -> dict[str, Circuit]:
        """See `Client.peers`."""

    @property
    def ignored_replies(self) -> int:
        """See `Client.ignored_replies`."""

    def close(self) -> None:
        """Wake whoever waits."""


class NoConversations:
    """`problem` and `remedy` say why there are none."""

    def __init__(self, problem: str, remedy: str) -> None:
        self._problem = problem
        self._remedy = remedy

    def request(self, event: Envelope, timeout_s: float, *, durable: bool, expires: bool) -> Replies:  # noqa: ARG002
        raise ClientSettingsError("contract", self._problem, self._remedy)

    def peers(self) -> dict[str, Circuit]:
        return {}

    @property
    def ignored_replies(self) -> int:
        return 0

    def close(self) -> None:
        pass


def telling(on_notice: Listener) -> Callable[[CircuitChanged], None]:
    """Makes a notice of each change.

    They are told on the library's own threads, which must outlive a listener that raises.
    """

    def tell(change: CircuitChanged) -> None:
        try:
            on_notice(PeerChanged(str(change.peer), change.circuit))
        except Exception:  # noqa: BLE001 (other people's code)
            _log.exception("the listener of notices raised, with %s", change.peer)

    return tell
