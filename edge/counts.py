"""What the forwarder counts about itself since it started, for its figures and its reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edge.reports import NotStored
from edge.spool import Discard
from eventplane.delivery import Outcome

MOST_KINDS = 100
"""Different kinds of events that are told apart in `not_stored`; a report of them has to fit an event."""

MOST_CHARACTERS = 100
"""Of a channel or type in a report, for the same reason: its sender decides how long it is."""

OTHER_TYPES = "(other types)"


@dataclass(slots=True)
class Counts:
    """`dead_letters` by reason, `descended` (what came down from the cloud) by answer or reason, `discards`
    by outcome and reason, `refused` for want of room, `sent_unstored` deliveries made of such events.
    Publishes to the cloud are `published`, with their events and payload bytes, repetitions included, and
    `acknowledged`.

    `not_stored` is what the next report has to tell, `untold` how much of it and of the discards there is.
    """

    dead_letters: Counter[str] = field(default_factory=Counter)
    descended: Counter[str] = field(default_factory=Counter)
    discards: Counter[tuple[Outcome, str]] = field(default_factory=Counter)
    refused: int = 0
    sent_unstored: int = 0
    published: int = 0
    published_events: int = 0
    published_bytes: int = 0
    acknowledged: int = 0
    not_stored: Counter[NotStored] = field(default_factory=Counter)
    untold: int = 0

    def lost(self, kind: NotStored, count: int = 1) -> None:
        """Events never got a number."""
        kind = kind._replace(channel=kind.channel[:MOST_CHARACTERS], type=kind.type[:MOST_CHARACTERS])
        if kind not in self.not_stored and len(self.not_stored) >= MOST_KINDS:
            kind = kind._replace(type=OTHER_TYPES)
        self.not_stored[kind] += count
        self.untold += count

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
        self.untold = self.not_stored.total()
