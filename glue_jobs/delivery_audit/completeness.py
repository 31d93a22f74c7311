"""Device to cloud: what a device says it stored for the cloud, against what the tap has seen. Pure.

A manifest states how many events a device stored for its uplink between two numbers. Numbers that the tap
has not seen are missing as far as the manifest counts them; the device's reports of what it gave up explain
some of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from glue_jobs.delivery_audit.device_reports import Birth, Discard, Statement, Told
from glue_jobs.delivery_audit.numbers import Range, length, merged, overlap, without

_NOTHING: Final = -(2**62)
"""Lower than any number."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A manifest of the window: `missing` was stated and not seen; the device gave up the `explained`.

    `open` is too young to be judged. `lost` are the numbers, None where nobody can tell which. IoT Core had
    acknowledged the numbers up to `acknowledged_to`, and so at least `acknowledged` of the unexplained.
    """

    statement: Statement
    missing: int
    explained: int
    open: bool
    lost: list[Range] | None
    acknowledged_to: int
    acknowledged: int

    @property
    def unexplained(self) -> int:
        """How many are missing for no reason that is known."""
        return self.missing - self.explained


class Completeness:
    """One device: the numbers `seen` by epoch, and what it `told`.

    `sees_all` is whether the audit reads the whole archive: else numbers before the first seen one may have
    come on a day that was not read, unless the store began in view.
    """

    def __init__(
        self, seen: Mapping[str, list[Range]], told: Told, *, sees_all: bool, watermark_ms: int
    ) -> None:
        self._told = told
        self._watermark_ms = watermark_ms
        newest: dict[str, int] = defaultdict(int)
        for each in told.statements:
            newest[each.epoch] = max(newest[each.epoch], each.span[1])
        self._holes: dict[str, list[Range]] = {}
        self._in_view: dict[str, list[Range]] = {}
        began = {each.epoch for each in told.births}
        for epoch in {*seen, *newest}:
            numbers = merged(seen.get(epoch, ()))
            greatest = max(newest[epoch], numbers[-1][1] if numbers else 0)
            holes = without([(1, greatest)], numbers) if greatest > 0 else []
            first_seen = numbers[0][0] if numbers else 1
            self._holes[epoch] = holes
            is_known = sees_all or epoch in began
            self._in_view[epoch] = [each for each in holes if is_known or each[0] >= first_seen]

    def judged(self) -> Iterator[Judged]:
        """Each manifest of the window."""
        explaining: dict[str, list[Range]] = defaultdict(list)
        for discard, pieces in self.given_up():
            explaining[discard.epoch] += pieces
        for each in self._told.statements:
            if not each.report.within:
                continue
            unseen = overlap(self._in_view[each.epoch], [each.span])
            # Of the numbers in between, those that the manifest does not count had no route to the cloud.
            missing = max(0, length(unseen) - (length([each.span]) - each.count))
            given_up = overlap(explaining[each.epoch], [each.span])
            explained = min(missing, length(given_up))
            certain = length(unseen) == missing
            candidates = without(unseen, given_up)
            to = self._told.acknowledged_to.get(each.epoch, _NOTHING)
            behind = length(without(candidates, [(_NOTHING, to)]))
            yield Judged(
                each,
                missing,
                explained,
                self._is_open(each.report.accepted_at_ms),
                candidates if certain else None,
                to,
                max(0, missing - explained - behind),
            )

    def given_up(self) -> Iterator[tuple[Discard, list[Range]]]:
        """The numbers that the device gave up and that were not seen all the same."""
        for each in self._told.discards:
            # What was given up for want of an answer may have arrived.
            if pieces := overlap(self._holes.get(each.epoch, []), [each.span]):
                yield each, pieces

    def gone(self) -> Iterator[tuple[Statement, int]]:
        """Manifests before which another one is missing, and the number of the report before.

        A manifest is stored in the commit that closes it, so the next one states it too; likewise the first
        manifest states the report of the store's birth. One that begins later has lost its predecessor.
        """
        chains: dict[str, list[tuple[int, int, Statement | None]]] = defaultdict(list)
        for place, each in enumerate(self._told.statements):
            if each.report.sequence is not None:
                chains[each.epoch].append((each.report.sequence, place, each))
        for birth in self._told.births:
            if birth.report.sequence is not None:
                chains[birth.epoch].append((birth.report.sequence, -1, None))
        for chain in chains.values():
            for (after, _, _), (_, _, stated) in pairwise(sorted(chain, key=lambda link: link[:2])):
                if stated is None or not stated.report.within or stated.span[0] <= after:
                    continue
                # One that is missing may still come, as what it states may.
                if not self._is_open(stated.report.accepted_at_ms):
                    yield stated, after

    def _is_open(self, accepted_at_ms: int) -> bool:
        return accepted_at_ms > self._watermark_ms


@dataclass(frozen=True, slots=True)
class Life:
    """An epoch of a device as the tap first saw it, Unix milliseconds, with its least number."""

    epoch: str
    date: str
    accepted_at_ms: int
    file: str
    sequence: int | None


def new_lives(lives: list[Life], births: list[Birth]) -> Iterator[tuple[Life, str | None, str | None]]:
    """Each new epoch: `birth` and `lost_epoch` as the device reports them, None where it does not.

    A device's first epoch in the window is a change only if the device says that it recovered.
    """
    told = {each.epoch: each for each in births}
    # What was saved of a lost epoch can arrive after the news of the new one.
    ended = {each.lost_epoch for each in births}
    order = sorted(lives, key=lambda each: (each.epoch not in ended, each.accepted_at_ms, each.epoch))
    for place, each in enumerate(order):
        birth = told.get(each.epoch)
        if place or (birth and birth.birth == "recovered"):
            yield each, birth.birth if birth else None, birth.lost_epoch if birth else None
