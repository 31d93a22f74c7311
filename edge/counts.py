"""What the forwarder counts about itself since it started, for its figures and its reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edge.reports import NotStored
from edge.spool import Discard
from eventplane.delivery import Outcome
from eventplane.interest import NO_INTEREST

MOST_KINDS = 100
"""Different kinds of events that are told apart in `not_stored`; a report of them has to fit an event."""

MOST_CHARACTERS = 100
"""Of a channel or type in a report, for the same reason: its sender decides how long it is."""

OTHER_TYPES = "(other types)"


@dataclass(slots=True)
class Counts:
    """`dead_letters` by reason, `descended` (what came down from the cloud) by answer or reason, `discards`
    by outcome and reason, `refused` for want of room, `sent_unstored` deliveries made of such events,
    `unwanted` deliveries that a reader without interest was spared.
    Publishes to the cloud are `published`, with their events and payload bytes, repetitions included; those
    `answered` were refused or `acknowledged`.

    `not_stored` is what the next report has to tell, `untold` how much of it and of the discards is a loss.
    """

    dead_letters: Counter[str] = field(default_factory=Counter)
    descended: Counter[str] = field(default_factory=Counter)
    discards: Counter[tuple[Outcome, str]] = field(default_factory=Counter)
    refused: int = 0
    sent_unstored: int = 0
    unwanted: int = 0
    published: int = 0
    published_events: int = 0
    published_bytes: int = 0
    answered: int = 0
    acknowledged: int = 0
    not_stored: Counter[NotStored] = field(default_factory=Counter)
    untold: int = 0

    def lost(self, kind: NotStored, count: int = 1) -> None:
        """Events never got a number."""
        self._note(kind, count)
        self.untold += count

    def not_wanted(self, kinds: Mapping[NotStored, int]) -> None:
        """Nobody handles them at a reader: told in time, and no loss."""
        for kind, count in kinds.items():
            self.unwanted += count
            self._note(kind, count)

    def _note(self, kind: NotStored, count: int) -> None:
        kind = kind._replace(channel=kind.channel[:MOST_CHARACTERS], type=kind.type[:MOST_CHARACTERS])
        if kind not in self.not_stored and len(self.not_stored) >= MOST_KINDS:
            kind = kind._replace(type=OTHER_TYPES)
        self.not_stored[kind] += count

    def dropped(self, kind: NotStored) -> None:
        """An event that nobody promised to deliver was given up."""
        self.discards[Outcome.DROPPED, kind.reason] += 1
        self.lost(kind)

    def delivered_unstored(self, kind: NotStored) -> None:
        """An event that found no room was delivered from memory."""
        self.sent_unstored += 1
        self.lost(kind)

    def turned_away(self, kinds: Mapping[NotStored, int]) -> None:
        """Services were refused for want of room."""
        for kind, count in kinds.items():
            self.refused += count
            self.lost(kind, count)

    def discarded(self, discards: Iterable[Discard]) -> None:
        """Deliveries ended without being made."""
        for each in discards:
            self.discards[each.outcome, each.reason] += 1
            self.untold += 1

    def told(self, not_stored: Mapping[NotStored, int]) -> None:
        """A report is stored that tells of all discards before it, and of these."""
        self.not_stored.subtract(not_stored)
        self.not_stored = +self.not_stored
        self.untold = sum(n for kind, n in self.not_stored.items() if kind.reason != NO_INTEREST)
