"""The forwarder's counts since it started, for its metrics and its reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from edge.spool import Discard
from eventplane.reasons import Outcome, Reason
from eventplane.topics import OUTBOXES

MOST_KINDS = 100
"""Different kinds of events that `not_stored` distinguishes; a report of them has to fit an event."""

MOST_OTHER_KINDS = 20
"""Then so many more of other types, by channel and reason, then only reasons. Ours: more services than a home
has."""

MOST_CHARACTERS = 100
"""Of a channel or type in a report, for the same reason: its sender decides how long it is."""

OTHER_TYPES = "(other types)"
OTHER_CHANNELS = "(other channels)"

SESSION_LOST = "session_lost"
"""Why messages in our forgotten session at the home's broker are lost: counts how often, not the messages."""


class NotStored(NamedTuple):
    """Events that never got a number: refused, or given up by a best-effort channel."""

    channel: str
    type: str
    reason: str


WAITED_FOR_ANOTHER = NotStored(OUTBOXES, "", "another_thing")
"""Messages that the home's broker kept for another device, whose card this was; an alarm in both sessions is
counted twice."""


@dataclass(slots=True)
class Counts:
    """`dead_letters` by reason, `downlink_outcomes` (events from the cloud) by answer or reason.

    `discards` by outcome and reason, `refused` for want of room, `sent_unstored` deliveries made of such
    events, `unwanted` deliveries that were left out because the reader handles no such events.
    Publishes to the cloud are `published`, with their events and payload bytes, repetitions included; those
    `answered` were refused or `acknowledged`.

    `sessions_lost` counts how often the home's broker had forgotten our session, `reloads` and
    `reloads_refused` contracts; `contract_refused` says whether the last one cannot be used.

    `not_stored` is what the next report of losses lists, `unreported` how much of it and of the discards is a
    loss.
    """

    dead_letters: Counter[str] = field(default_factory=Counter)
    downlink_outcomes: Counter[str] = field(default_factory=Counter)
    discards: Counter[tuple[Outcome, str]] = field(default_factory=Counter)
    refused: int = 0
    sent_unstored: int = 0
    unwanted: int = 0
    published: int = 0
    published_events: int = 0
    published_bytes: int = 0
    answered: int = 0
    sessions_lost: int = 0
    reloads: int = 0
    reloads_refused: int = 0
    contract_refused: bool = False
    acknowledged: int = 0
    not_stored: Counter[NotStored] = field(default_factory=Counter)
    unreported: int = 0

    def lost(self, kind: NotStored, count: int = 1) -> None:
        """Count events that never got a number."""
        self._note(kind, count)
        self.unreported += count

    def reloaded(self) -> None:
        """Count a reload that made another contract the active one."""
        self.reloads += 1
        self.contract_refused = False

    def refused_contract(self) -> None:
        """Count a contract, of the file or from the cloud, that cannot be used; another one is active."""
        self.reloads_refused += 1
        self.contract_refused = True

    def session_lost(self) -> None:
        """Count that the home's broker had forgotten our session, with an unknown number of messages."""
        self.sessions_lost += 1
        self.lost(NotStored(OUTBOXES, "", SESSION_LOST))

    def not_wanted(self, kinds: Mapping[NotStored, int]) -> None:
        """Count deliveries that were left out because no reader handles them: reported, but no loss."""
        for kind, count in kinds.items():
            self.unwanted += count
            self._note(kind, count)

    def _note(self, kind: NotStored, count: int) -> None:
        kind = kind._replace(channel=kind.channel[:MOST_CHARACTERS], type=kind.type[:MOST_CHARACTERS])
        if kind not in self.not_stored and len(self.not_stored) >= MOST_KINDS:
            kind = kind._replace(type=OTHER_TYPES)
            if kind not in self.not_stored and len(self.not_stored) >= MOST_KINDS + MOST_OTHER_KINDS:
                kind = kind._replace(channel=OTHER_CHANNELS)
        self.not_stored[kind] += count

    def dropped(self, kind: NotStored) -> None:
        """Count an event that a best-effort channel gave up."""
        self.discards[Outcome.DROPPED, kind.reason] += 1
        self.lost(kind)

    def delivered_unstored(self, kind: NotStored) -> None:
        """Count a delivery from memory of an event that found no room."""
        self.sent_unstored += 1
        self.lost(kind)

    def rejected(self, kinds: Mapping[NotStored, int]) -> None:
        """Count events that found no room and stay with their senders."""
        for kind, count in kinds.items():
            self.refused += count
            self.lost(kind, count)

    def discarded(self, discards: Iterable[Discard]) -> None:
        """Count deliveries that ended without being made."""
        for each in discards:
            self.discards[each.outcome, each.reason] += 1
            self.unreported += 1

    def reported(self, not_stored: Mapping[NotStored, int]) -> None:
        """Note that a stored report lists `not_stored` and all discards before it."""
        self.not_stored.subtract(not_stored)
        self.not_stored = +self.not_stored
        self.unreported = sum(n for kind, n in self.not_stored.items() if kind.reason != Reason.NO_INTEREST)
