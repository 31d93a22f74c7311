"""What a device says of itself, put into a test's archive as its forwarder would."""

from __future__ import annotations

from typing import Any

from eventplane.device_reports import DISCARDED, MANIFEST, STARTED, forwarder_source
from eventplane.envelope import Envelope
from tests.spark.small_archive import NOON_MS, SmallArchive

UPLINK = "device.outbox"


class Device:
    """The numbers and reports of one `home`; what `lose` numbers never comes to the tap."""

    def __init__(self, archive: SmallArchive, home: str) -> None:
        self._archive = archive
        self._home = home
        self._stated = 0

    def send(self, count: int = 1, at_ms: int = NOON_MS) -> None:
        for _ in range(count):
            self._archive.send(home=self._home, at_ms=at_ms)

    def lose(self, count: int = 1) -> None:
        for _ in range(count):
            self._archive.event(home=self._home)

    @property
    def epoch(self) -> str:
        return self._archive.epoch_of(self._home)

    def started(self, birth: str = "created", lost_epoch: str = "") -> Envelope:
        return self._report(STARTED, {"birth": birth, "epoch": self.epoch, "lost_epoch": lost_epoch})

    def manifest(
        self,
        last: int,
        at_ms: int = NOON_MS,
        count: int | None = None,
        seen: bool = True,
        acknowledged_to: int | None = None,
    ) -> None:
        """State every number behind the last manifest up to `last`; one that is not `seen` is lost.

        Without `acknowledged_to` it is the manifest of an older forwarder.
        """
        first, self._stated = self._stated + 1, last
        count = last - first + 1 if count is None else count
        stated = {"destination": UPLINK, "first": first, "last": last, "count": count, "digest": "0" * 32}
        if acknowledged_to is not None:
            stated["acknowledged_to"] = acknowledged_to
        local = {**stated, "destination": "call.inbox", "count": 0}
        self._report(MANIFEST, {"epoch": self.epoch, "statements": [stated, local]}, at_ms, seen=seen)

    def discarded(self, outcome: str, *ranges: tuple[int, int], refused: int = 0) -> None:
        deliveries = [
            {"destination": where, "outcome": outcome, "reason": "because", "count": 1, "ranges": [*ranges]}
            for where in (UPLINK, "call.inbox")
            if ranges
        ]
        full = {"channel": "voice.outbox", "type": "org.example.alarm.v1", "count": refused}
        entries = [{**full, "reason": "spool_full"}, {**full, "reason": "sent_unstored"}] if refused else []
        self._report(DISCARDED, {"deliveries": deliveries, "not_stored": entries})

    def report_as(self, other: str) -> None:
        """A manifest in the name of another device."""
        self._report(MANIFEST, {"epoch": self.epoch, "statements": []}, source=forwarder_source(other))

    def _report(
        self,
        type: str,
        data: dict[str, Any],
        at_ms: int = NOON_MS,
        *,
        seen: bool = True,
        source: str | None = None,
    ) -> Envelope:
        source = source or forwarder_source(self._home)
        event = self._archive.event(type, self._home, at_ms, data=data, source=source)
        if seen:
            self._archive.accept(event, self._home, at_ms)
            self._archive.route(event, self._home, at_ms)
        return event
