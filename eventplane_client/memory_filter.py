"""The filter in memory, for tests and for readers that need not survive: it forgets when its process ends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from eventplane_client.ports import Verdict

WINDOW = 100_000
"""Events that a filter remembers by default. A repetition that is older comes out again."""


@dataclass(slots=True)
class Memory:
    """What is remembered, apart from the filter, so that a test can crash a reader and keep it."""

    states: OrderedDict[bytes, tuple[int, bool]] = field(default_factory=OrderedDict)
    """Session and whether it is done, the oldest claim first."""
    tries: dict[bytes, int] = field(default_factory=dict)
    """Of those that are not done."""
    epochs: dict[str, str] = field(default_factory=dict)
    session: int = 0


class MemoryFilter:
    """Remembers the last `window` events in `memory`."""

    def __init__(self, memory: Memory | None = None, window: int = WINDOW) -> None:
        self._memory = memory or Memory()
        self._memory.session += 1
        self._session = self._memory.session
        self._window = window

    def claim(
        self, keys: Sequence[bytes], done: Sequence[bytes] = (), *, force: bool = False
    ) -> list[Verdict]:
        states = self._memory.states
        for key in done:
            states[key] = (self._session, True)
            self._memory.tries.pop(key, None)
        verdicts = [self._verdict(key) for key in keys]
        for key, verdict in zip(keys, verdicts, strict=True):
            if verdict is Verdict.NEW or force:
                states[key] = (self._session, False)
                self._memory.tries[key] = self._memory.tries.get(key, 0) + 1
        while len(states) > self._window:
            oldest, _ = states.popitem(last=False)
            self._memory.tries.pop(oldest, None)
        return verdicts

    def release(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._memory.states.pop(key, None)
            self._memory.tries.pop(key, None)

    def renew(self, keys: Sequence[bytes]) -> None:
        pass  # who is gone took the memory along

    def tries(self, key: bytes) -> int:
        return self._memory.tries.get(key, 0)

    def epoch(self, source: str, epoch: str) -> str | None:
        before = self._memory.epochs.get(source)
        self._memory.epochs[source] = epoch
        return before if before != epoch else None

    def close(self) -> None:
        pass

    def _verdict(self, key: bytes) -> Verdict:
        session, is_done = self._memory.states.get(key, (None, False))
        if session is None:
            return Verdict.NEW
        if is_done:
            return Verdict.DONE
        return Verdict.MINE if session == self._session else Verdict.DOUBT
