"""The backends as one contract suite sees them: clients come, crash and come again; the plane stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from eventplane.envelope import Envelope, write_event
from eventplane_client import Client, Mode
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_filter import Memory, MemoryFilter
from eventplane_client.memory_subscriptions import MemorySubscriptions
from eventplane_client.notices import Notice
from eventplane_client.ports import MessageFilter, Transport
from eventplane_client.sqlite_filter import SqliteFilter

READER = "alarm-centre"
SENDER = "family-app"
MAX_RECEIVES = 3
VISIBILITY_S = 3_600

_numbers = itertools.count(1)


def event(id: str | None = None, source: str = "/homes/1/voice", **attributes: str) -> Envelope:
    """An event that every world leads to the reader."""
    attributes = {"type": "org.eventplane.alarm.keyword.v1", **attributes}
    return write_event(
        {"id": id or f"event-{next(_numbers)}", "source": source, **attributes}, {"keyword": "help"}
    )


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Counts the calls to whatever it wraps, and crashes before or after the one numbered `at`."""

    def __init__(self, at: int | None = None, *, after: bool = False) -> None:
        self.at = at
        self.after = after
        self.taken = 0

    def around(self, wrapped: Any) -> Any:
        return _Stepping(wrapped, self)


class _Stepping:
    def __init__(self, wrapped: Any, steps: Steps) -> None:
        self._wrapped = wrapped
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if not callable(found) or name == "close":
            return found

        def step(*arguments: Any, **options: Any) -> Any:
            steps = self._steps
            steps.taken += 1
            if steps.taken == steps.at and not steps.after:
                raise Crash
            answer = found(*arguments, **options)
            if steps.taken == steps.at:
                raise Crash
            return answer

        return step


class World(Protocol):
    """A plane with a `reader` and a `sender`, whose events come there within `idle_s` seconds."""

    reader: str
    sender: str
    idle_s: float

    def client(
        self,
        participant: str,
        *,
        mode: Mode = Mode.EXACTLY_ONCE,
        steps: Steps | None = None,
        on_notice: Callable[[Notice], None] = lambda _: None,
        gap_timeout_s: float | None = None,
    ) -> Client: ...

    def crash(self) -> None:
        """Every client's process ends, and what they had in hand comes again."""

    def deliver(self, body: Envelope | bytes) -> None:
        """To the reader, as a transport does that delivers twice."""

    def hurry(self) -> None:
        """What waits to come again comes now; nobody crashed."""

    def pending(self) -> int: ...

    def letters(self, least: int = 0) -> list[Envelope]:
        """The dead letters that were put, once there are `least`."""

    def close(self) -> None: ...


T = TypeVar("T")


class MemoryWorld:
    """In memory; the filter is in memory too, or on the disk."""

    reader = READER
    sender = SENDER
    idle_s = 0.0

    def __init__(self, directory: Path | None = None, max_receives: int = MAX_RECEIVES) -> None:
        self._plane = MemoryPlane(visibility_s=VISIBILITY_S, max_receives=max_receives)
        self._memories: dict[str, Memory] = {}
        self._directory = directory
        self._open: list[SqliteFilter] = []
        self._plane.subscribe(READER, "contract", None)

    def client(
        self,
        participant: str,
        *,
        mode: Mode = Mode.EXACTLY_ONCE,
        steps: Steps | None = None,
        on_notice: Callable[[Notice], None] = lambda _: None,
        gap_timeout_s: float | None = None,
    ) -> Client:
        around = steps.around if steps else lambda wrapped: wrapped
        transport: Transport = around(MemoryTransport(self._plane, participant))
        return Client(
            participant,
            transport,
            lambda: around(self._filter(participant)),
            MemorySubscriptions(self._plane, participant),
            mode=mode,
            on_notice=on_notice,
            gap_timeout_s=gap_timeout_s,
        )

    def crash(self) -> None:
        for each in self._open:
            each.close()  # what the system does for a process that ends
        self._open.clear()
        self.hurry()

    def hurry(self) -> None:
        self._plane.expire()

    def deliver(self, body: Envelope | bytes) -> None:
        self._plane.deliver_raw(READER, body.json.encode() if isinstance(body, Envelope) else body)

    def pending(self) -> int:
        return self._plane.pending(READER)

    def letters(self, least: int = 0) -> list[Envelope]:
        return [each for each in self._plane.events if each.type == "org.eventplane.deadletter.v1"]

    def close(self) -> None:
        self.crash()

    def _filter(self, participant: str) -> MessageFilter:
        if self._directory is None:
            return MemoryFilter(self._memories.setdefault(participant, Memory()))
        found = SqliteFilter(self._directory / f"{participant}.db", on_notice=lambda _: None)
        self._open.append(found)
        return found
