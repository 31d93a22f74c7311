"""What nobody stores, handed to lines that stand, and what became of it.

An urgent event that found no room goes this way to each of its destinations, so that no emergency waits for
a disk. Its sender is refused and repeats it: a repetition goes again only where the event has not got to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edge.counts import Counts
from edge.memory_lane import OFFLINE, UNSTORED_RANK, Fleeting
from edge.numbering import RecentKeys
from edge.outgoing import Outgoing
from edge.reports import NotStored

SENT_UNSTORED = "sent_unstored"
"""In reports, of events that were delivered although they found no room."""

MOST_REMEMBERED = 4096
"""Deliveries of unstored events that are known again: repetitions of those before them go once more."""


class Handover:
    """Counts in `counts`; remembers what is under way or delivered, as long as the process lives."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._sent = RecentKeys(MOST_REMEMBERED)

    def hand_over(self, events: Iterable[Fleeting], outgoing: Outgoing, is_up: Callable[[str], bool]) -> None:
        """Let `events` wait in their lanes where the line to the destination stands."""
        for event in events:
            if event.rank == UNSTORED_RANK:
                if _mark(event) in self._sent:
                    continue
                self._sent.add(_mark(event))
                self._sent.settle()
            if is_up(event.destination):
                outgoing.put(event)
            else:
                self.ended(event, OFFLINE)

    def ended(self, event: Fleeting, reason: str | None) -> None:
        """`event` was delivered, or given up for a `reason`."""
        if event.rank != UNSTORED_RANK:
            if reason is not None:
                self._counts.dropped(NotStored(event.destination, event.type, reason))
        elif reason is None:
            self._counts.delivered_unstored(NotStored(event.destination, event.type, SENT_UNSTORED))
        else:
            self._sent.forget(_mark(event))  # its refusal is counted, its sender comes again


def _mark(event: Fleeting) -> bytes:
    return event.key + event.destination.encode()
