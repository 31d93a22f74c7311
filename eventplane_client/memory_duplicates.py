"""The filter in memory, for tests and for readers that need not survive: it forgets when its process ends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from eventplane.ordering import Stream
from eventplane_client.ports import Lease, Verdict
from eventplane_client.system import SYSTEM

WINDOW = 100_000
"""Events that a filter remembers by default. A repetition that is older comes out again."""

MOST_POSITIONS: Final = 100_000
"""Streams whose position is remembered: those that moved last. About 150 bytes each."""

LEASE_S: Final = 30.0
"""Lease of a claim by default, seconds: the visibility timeout of the plane in memory."""


@dataclass(slots=True)
class _Claim:
    session: int
    lease_until: float
    is_done: bool = False


@dataclass(slots=True)
class Memory:
    """The state of filters, apart from them, so that readers share it and a test can crash one."""

    claims: OrderedDict[bytes, _Claim] = field(default_factory=OrderedDict)
    """The oldest first."""
    tries: dict[bytes, int] = field(default_factory=dict)
    """Of those that are not done."""
    epochs: dict[str, str] = field(default_factory=dict)
    positions: dict[Stream, int] = field(default_factory=dict)
    session: int = 0


class MemoryFilter:
    """Remembers the last `window` events in `memory`.

    Without `memory` it has one of its own, which ends with it. Other readers of the same memory take a claim
    for abandoned when its `lease` has ended without renewal; `clock` returns seconds.
    """

    def __init__(
        self,
        memory: Memory | None = None,
        window: int = WINDOW,
        *,
        lease: Lease = lambda: LEASE_S,
        clock: Callable[[], float] = SYSTEM.monotonic,
    ) -> None:
        self.is_lasting = memory is not None
        self._memory = memory or Memory()
        self._memory.session += 1
        self._session = self._memory.session
        self._window = window
        self._lease = lease
        self._clock = clock

    def claim(
        self, keys: Sequence[bytes], done: Sequence[bytes] = (), *, force: bool = False
    ) -> list[Verdict]:
        memory = self._memory
        for key in done:
            memory.claims[key] = _Claim(self._session, 0.0, is_done=True)
            memory.tries.pop(key, None)
        verdicts = [self._verdict(key) for key in keys]
        wanted = (Verdict.NEW, Verdict.DOUBT) if force else (Verdict.NEW,)
        for key, verdict in zip(keys, verdicts, strict=True):
            if verdict in wanted:
                memory.claims[key] = _Claim(self._session, self._clock() + self._lease())
                memory.tries[key] = memory.tries.get(key, 0) + 1
        while len(memory.claims) > self._window:
            oldest, _ = memory.claims.popitem(last=False)
            memory.tries.pop(oldest, None)
        return verdicts

    def release(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if self._is_mine(key):
                del self._memory.claims[key]
                self._memory.tries.pop(key, None)

    def renew(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if self._is_mine(key):
                self._memory.claims[key].lease_until = self._clock() + self._lease()

    def tries(self, key: bytes) -> int:
        return self._memory.tries.get(key, 0)

    def epoch(self, source: str, epoch: str) -> str | None:
        before = self._memory.epochs.get(source)
        self._memory.epochs[source] = epoch
        return before if before != epoch else None

    def position(self, stream: Stream) -> int | None:
        return self._memory.positions.get(stream)

    def advance(self, stream: Stream, position: int) -> None:
        positions = self._memory.positions
        positions[stream] = max(position, positions.pop(stream, 0))
        if len(positions) > MOST_POSITIONS:
            del positions[next(iter(positions))]

    def close(self) -> None:
        pass

    def _is_mine(self, key: bytes) -> bool:
        claim = self._memory.claims.get(key)
        return claim is not None and claim.session == self._session and not claim.is_done

    def _verdict(self, key: bytes) -> Verdict:
        claim = self._memory.claims.get(key)
        if claim is None:
            return Verdict.NEW
        if claim.is_done:
            return Verdict.DONE
        if claim.session == self._session:
            return Verdict.MINE
        return Verdict.BUSY if claim.lease_until >= self._clock() else Verdict.DOUBT
