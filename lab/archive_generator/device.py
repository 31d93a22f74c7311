"""One device of an archive: it numbers what it stores, packs it in frames, and states it every hour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from edge import reports
from edge.numbering import stamp
from edge.spool import LossReport, Manifest, SpoolOrigin
from eventplane.device_reports import KEY_BYTES, event_digest
from eventplane.envelope import Envelope, Sender
from eventplane.guarantee import BY_CHANNEL
from eventplane.reasons import Outcome, Reason
from eventplane.receipts import SPOOL_FULL
from eventplane.sending import stamp_sender
from eventplane.values import timestamp_of_ms

HOUR_MS: Final = 3_600_000
FRAME: Final = 10
"""Events a frame."""
FRAME_MS: Final = 700
"""From the last event of a frame to its acceptance by IoT Core, milliseconds; less jitter."""
NEWS_MS: Final = 3_420_000
REPORTS_MS: Final = 3_450_000
"""When in an hour the last event is recorded, and when the device says what it stored, milliseconds."""


_REASONS: Final = {
    Outcome.EXPIRED: BY_CHANNEL,
    Outcome.DROPPED: SPOOL_FULL,
    Outcome.DEAD_LETTERED: Reason.REFUSED_BY_CLOUD,
}


def pause_ms(events: int) -> float:
    """Return how long it is between two frames of a device that sends so many `events` an hour."""
    return FRAME * _step_ms(events)


def _step_ms(events: int) -> float:
    return (NEWS_MS - 10_000) / max(1, events)


class _Stated:
    """What was stored for one destination since the last manifest."""

    def __init__(self) -> None:
        self.first, self.last, self.newest, self.count, self.digest = 0, 0, 0, 0, 0

    def store(self, sequence: int, digest: bytes) -> None:
        self.first = sequence if not self.count else self.first
        self.last = self.newest = sequence
        self.count += 1
        self.digest = (self.digest + int.from_bytes(digest, "big")) % (1 << 8 * KEY_BYTES)

    def replace(self, before: bytes, after: bytes) -> None:
        change = int.from_bytes(after, "big") - int.from_bytes(before, "big")
        self.digest = (self.digest + change) % (1 << 8 * KEY_BYTES)

    def close(self, destination: str) -> Manifest:
        first, last = (self.first, self.last) if self.count else (self.newest + 1, self.newest)
        statement = Manifest(destination, first, last, self.count, self.digest)
        self.first = self.last = self.count = self.digest = 0
        return statement


class MadeDevice:
    """The device `client`, which reports as the participant `name`; its clock is `skew_ms` ahead.

    Its manifests say how far IoT Core had acknowledged, unless its forwarder `is_older` than that statement.
    """

    def __init__(
        self,
        client: str,
        name: str,
        destinations: list[str],
        random: Random,
        skew_ms: int = 0,
        *,
        is_older: bool = False,
    ) -> None:
        self.client = client
        self._itself = Sender(service=name)
        self.skew_ms = skew_ms
        self.is_older = is_older
        self._random = random
        self._destinations = destinations
        self._reports = 0
        self._begin()

    def _begin(self) -> None:
        self.epoch = f"{self._random.getrandbits(64):016x}"
        self.sequence = 0
        self._stated = {name: _Stated() for name in self._destinations}
        self.pending: dict[str, list[int]] = {name: [] for name in self._destinations}
        """The numbers that no reader takes, by destination: the lowest numbers first."""

    def next_number(self) -> int:
        """Return the number of the next event to `store`."""
        self.sequence += 1
        return self.sequence

    def store(self, text: str, destinations: list[str]) -> None:
        """Store the event with the last number."""
        digest = event_digest(text.encode())
        for name in destinations:
            self._stated[name].store(self.sequence, digest)

    def replace(self, before: str, after: str, destinations: list[str]) -> None:
        """State another event in place of the one that was just stored."""
        digests = event_digest(before.encode()), event_digest(after.encode())
        for name in destinations:
            self._stated[name].replace(*digests)

    def started(self, at_ms: int, lost_epoch: str = "") -> Envelope:
        """The report of a store's new life, which follows the loss of the one called `lost_epoch`."""
        if lost_epoch:
            self._begin()
        birth = (
            SpoolOrigin("recovered", "the file is no database", 0, lost_epoch)
            if lost_epoch
            else SpoolOrigin("created")
        )
        return self._numbered(reports.started(self._heading(at_ms), birth))

    def manifest(
        self,
        at_ms: int,
        contract: str,
        *,
        is_final: bool = False,
        change: Callable[[Any], Any] | None = None,
    ) -> Envelope:
        """Return the manifest of what was stored since the last one by a `contract`; it is the first of what
        the next one states.

        The one that `is_final` is the last. Its data is what `change` makes of it.
        """
        stated = [each.close(name) for name, each in self._stated.items()]
        to = {name: min(numbers, default=self.sequence + 1) - 1 for name, numbers in self.pending.items()}
        heading, every_s, pending = self._heading(at_ms), HOUR_MS / 1_000, self.pending
        if self.is_older:
            report = reports.manifest(heading, stated, {}, every_s, is_final=is_final)
        else:
            report = reports.manifest(
                heading, stated, to, every_s, pending=pending, contract=contract, is_final=is_final
            )
        return self._numbered(heading.write(report.type, change(report.data())) if change else report)

    def discarded(self, at_ms: int, ended: dict[tuple[str, Outcome], list[int]]) -> Envelope:
        """The report that events for a destination, by their numbers, ended on the device."""
        tallies = [
            LossReport(
                destination,
                outcome,
                _REASONS[outcome],
                len(sequences),
                tuple((each, each) for each in sequences),
            )
            for (destination, outcome), sequences in ended.items()
        ]
        return self._numbered(reports.discarded(self._heading(at_ms), tallies, {}))

    def _heading(self, at_ms: int) -> reports.Heading:
        self._reports += 1
        time = timestamp_of_ms(at_ms + self.skew_ms)
        return reports.Heading(self.client, self.epoch, self._reports, time)

    def _numbered(self, report: Envelope) -> Envelope:
        stamped = stamp(stamp_sender(report, self._itself), self.epoch, self.next_number())
        self.store(stamped.json, self._destinations[:1])
        return stamped

    def moments(self, hour_ms: int, events: int) -> Iterator[tuple[int, int, int]]:
        """When each of an hour's `events` is recorded and its frame accepted (Unix ms), and which it is."""
        step = _step_ms(events)
        for first in range(0, events, FRAME):
            places = range(first, min(first + FRAME, events))
            recorded = [hour_ms + 10_000 + int(place * step) for place in places]
            accepted = recorded[-1] + FRAME_MS - self._random.randrange(400)
            for each in recorded:
                yield each, accepted, first // FRAME
