"""A device keeps what the cloud has not taken, and sends alarms before all that waits."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from edge.uplink import PROBE
from eventplane.envelope import Envelope
from eventplane.ingest import IngestFrame
from eventplane.names import EPOCH, SEQUENCE
from eventplane.topics import urgent_rule
from lab.histories.oracles.finding import OracleFinding
from parts.simulate.home import RULE
from parts.simulate.timeline import START_S

if TYPE_CHECKING:
    from lab.histories.history import History
    from parts.simulate.home import HomeModel

Number = tuple[str, int]


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at what each home stored for the cloud, published and ended."""
    taken_s: dict[Number, float] = {}
    for frame, events in history.frames:
        for number in map(_number, events):
            taken_s.setdefault(number, frame.accepted_at_ms / 1_000 - START_S)
    for thing, home in history.homes.items():
        for number, kept in home.for_cloud.items():
            # The clock of IoT Core has milliseconds.
            if kept.is_sent and kept.ended_s + 0.001 < taken_s.get(number, inf):
                yield OracleFinding(
                    "ended before the cloud had it", f"{thing}: {number} at {kept.ended_s:.3f}"
                )
        yield from _overtaken(home)


def _overtaken(home: HomeModel) -> Iterator[OracleFinding]:
    """Yield alarms that waited for the cloud while something else was sent there."""
    first_s: dict[Number, float] = {}
    others: list[float] = []
    for at_s, topic, payload in home.published:
        if f"/{urgent_rule(RULE)}/" in topic:
            for item in IngestFrame(payload, topic, home.thing, "", 0).items():
                if item.event is not None:
                    first_s.setdefault(_number(item.event), at_s)
        elif payload != PROBE:
            others.append(at_s)
    for number, kept in home.for_cloud.items():
        left_s = min(kept.ended_s, first_s.get(number, inf))
        before = [each for each in others if kept.at_s < each < left_s] if kept.is_urgent else []
        if before:
            yield OracleFinding(
                "an alarm waits behind others", f"{home.thing}: {number}, others at {before[0]:.3f}"
            )


def _number(event: Envelope) -> Number:
    return str(event.attributes.get(EPOCH)), int(str(event.attributes.get(SEQUENCE, -1)))
