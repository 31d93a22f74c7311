"""Readers of ordered inboxes handle events in the order in which they were sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from math import inf
from typing import TYPE_CHECKING

from eventplane.envelope import parse_event
from eventplane.ordering import Stream, position_in
from eventplane.sqs_binding import split
from eventplane_client.resequencer import GAP_TIMEOUT_S
from lab.histories.oracles.delivered import letters
from lab.histories.oracles.finding import OracleFinding
from lab.histories.story import ORDERED_INBOX, WATCH
from parts.simulate.timeline import START_S

if TYPE_CHECKING:
    from lab.histories.history import History

Key = tuple[str, str]


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at the rounds of the night watch, and at each stream that is sorted."""
    if not history.story.is_ordered:
        return
    dead = letters(history, ever=True)
    rounds: defaultdict[str, list[Key]] = defaultdict(list)
    for event in history.watch.sent:
        rounds[event.source].append((event.source, event.id))
    for keys in rounds.values():
        for key in keys:
            if key not in dead and not history.handled.done.get((WATCH, *key)):
                yield OracleFinding("sent in order and not handled", f"{key}")
        yield from _overtaken(history, WATCH, [key for key in keys if key not in dead], {})
    came = _came(history)
    streams: defaultdict[Stream, dict[int, Key]] = defaultdict(dict)
    for key, (position, _) in came.items():
        if position is not None and key not in dead:
            streams[position[0]].setdefault(position[1], key)
    for numbered in streams.values():
        keys = [numbered[number] for number in sorted(numbered)]
        yield from _overtaken(history, ORDERED_INBOX, keys, {key: came[key][1] for key in keys})


def _came(history: History) -> dict[Key, tuple[tuple[Stream, int] | None, float]]:
    """Return the positions of what came into the inbox that is sorted, and until when a reader holds each.

    A router takes the position away under a contract that counts other events: then a copy goes at once.
    """
    found: dict[Key, tuple[tuple[Stream, int] | None, float]] = {}
    last = history.contract.channel(f"{ORDERED_INBOX}.inbox").max_receives - 1
    for message in history.cloud.sqs.taken[history.cloud.inboxes[f"{ORDERED_INBOX}.inbox"]]:
        # At its last receive, before the one for its dead letter, an event is never held.
        held_s = -inf if message.receives >= last else message.sent_ms / 1_000 - START_S + GAP_TIMEOUT_S
        for event in map(parse_event, split(message.body)):
            position, key = position_in(event, ORDERED_INBOX), (event.source, event.id)
            if position is None or key not in found:
                found[key] = position, held_s
    return found


def _overtaken(
    history: History, participant: str, keys: list[Key], held_s: dict[Key, float]
) -> Iterator[OracleFinding]:
    """Yield what was handled before its predecessor, while it has to be held for one that is missing."""
    handled = {key: times[0] for key in keys if (times := history.handled.done.get((participant, *key)))}
    for (at, first), (until, second) in combinations(enumerate(keys), 2):
        if not handled.get(second, inf) < handled.get(first, 0.0):
            continue
        # What waited for long enough, or is handed out at its last receive, lets those behind it go.
        if handled[second] < min(held_s.get(each, inf) for each in keys[at + 1 : until + 1]) and (
            held_s.get(first) != -inf
        ):
            yield OracleFinding(
                "handled out of order", f"{participant}: {second} at {handled[second]:.3f} before {first}"
            )
