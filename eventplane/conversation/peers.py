"""The peers of one asker: the circuit of each, bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from eventplane.conversation.circuit import Circuit, CircuitBreaker
from eventplane.conversation.reply import Replier

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
