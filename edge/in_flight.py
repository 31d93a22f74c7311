"""The publishes that the cloud's broker has not acknowledged."""

from __future__ import annotations

from dataclasses import dataclass

from edge.spool import Delivery


@dataclass(frozen=True, slots=True)
class Publish:
    """One of them; a probe has no `deliveries`, and if it is a ping no `size`.

    `size` in bytes, `sent_at` in monotonic seconds.
    """

    deliveries: tuple[Delivery, ...]
    size: int
    sent_at: float
    urgent: bool


class InFlight:
    """By packet id, in the order of sending; `ordinary` counts those that are not urgent."""

    def __init__(self) -> None:
        self.ordinary = 0
        self.ordinary_bytes = 0
        self._publishes: dict[int, Publish] = {}

    def __len__(self) -> int:
        return len(self._publishes)

    @property
    def all(self) -> list[Publish]:
        """The oldest first."""
        return list(self._publishes.values())

    @property
    def oldest(self) -> Publish | None:
        """The one that was sent first."""
        return next(iter(self._publishes.values()), None)

    def add(self, mid: int, publish: Publish) -> None:
        """It was sent with packet id `mid`."""
        self._publishes[mid] = publish
        self._count(publish, 1)

    def pop(self, mid: int) -> Publish | None:
        """The publish that an acknowledgement of `mid` ends, None for an unknown one."""
        publish = self._publishes.pop(mid, None)
        if publish is not None:
            self._count(publish, -1)
        return publish

    def clear(self) -> None:
        """Their connection is gone."""
        self._publishes.clear()
        self.ordinary = self.ordinary_bytes = 0

    def _count(self, publish: Publish, sign: int) -> None:
        if not publish.urgent:
            self.ordinary += sign
            self.ordinary_bytes += sign * publish.size
