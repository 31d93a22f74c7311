"""The traffic of the services of a home: events an hour by type, from a file or learnt from an archive."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, ParticipantKind
from eventplane.device_reports import PLANE_TYPES
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.sending import SendingRights
from parts.simulate.timeline import Draws
from parts.simulate.toml_table import TomlTable, bounded, read_table

HOUR_S: Final = 3_600.0
DAY_H: Final = 24
MOST_PER_HOUR: Final = 360_000.0
"""A hundred a second, of one type in one home: IoT Core takes no more publishes of a connection."""

BYTES: Final = 200
"""Of data, where the file says nothing. Assumed: a reading with its unit and time."""


@dataclass(frozen=True, slots=True)
class TrafficFlow:
    """Events of a `type` that the service `sender` of each home sends, `per_hour` of a day (UTC).

    `data` is theirs; None: so many `bytes` of it, of which only the size matters.
    """

    type: str
    sender: str
    per_hour: tuple[float, ...]
    bytes: int = BYTES
    data: Any = None
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    @property
    def per_day(self) -> float:
        """The events of a home in a day."""
        return sum(self.per_hour)

    def moments(self, random: Draws, ends_s: float) -> Iterator[float]:
        """Draw when a home sends one: independent of each other, as often as each hour says."""
        most, at_s = max(self.per_hour) / HOUR_S, 0.0
        while most and (at_s := at_s + random.expovariate(most)) < ends_s:
            if random.random() * most * HOUR_S < self.per_hour[int(at_s / HOUR_S) % DAY_H]:
                yield at_s

    def event(self, thing: str, number: int) -> Envelope:
        """Return the event `number` of a home."""
        named = {"id": f"e{number}", "source": f"//{thing}/{self.sender}", "type": self.type}
        data = {"data": "x" * max(0, self.bytes - len('{"data": ""}'))} if self.data is None else self.data
        return write_event({**self.attributes, **named}, data)


def read_traffic(path: Path, contract: Contract) -> tuple[TrafficFlow, ...]:
    """Return the traffic of a file, checked against `contract`. Raises `SimulationInputError`, `OSError`."""
    top = read_table(str(path), bounded(path))
    types = top.section("types")
    top.finish()
    return tuple(_flow(name, types.section(name), contract) for name in types.members)


def _flow(type: str, table: TomlTable, contract: Contract) -> TrafficFlow:
    if type not in contract.event_types and not _senders(type, contract):
        known = sorted({*contract.event_types} - PLANE_TYPES)
        table.fault(
            "", "the contract has no such type", f"use one of {', '.join(known) or 'none: it has none'}"
        )
    rate = table.raw("per_hour")
    rates = rate if isinstance(rate, list) else [rate] * DAY_H
    if rate is None or len(rates) != DAY_H:
        remedy = "give the events an hour of one home, or 24 numbers, for the hours of the day (UTC)"
        table.fault(
            "per_hour", f"there are {len(rates)} numbers" if rate is not None else "it is missing", remedy
        )
    flow = TrafficFlow(
        type,
        _sender(type, table, contract),
        tuple(table.checked("per_hour", each, 0, MOST_PER_HOUR) for each in rates),
        round(table.number("bytes", 0, MAX_SENT_EVENT_BYTES, BYTES)),
        table.raw("data"),
        table.raw("attributes") or {},
    )
    table.finish()
    try:
        size = flow.event("h" * 32, 10**9).bytes
    except (EnvelopeError, TypeError, ValueError, AttributeError) as error:
        table.fault("", f"it makes no event: {error}", "correct its `data` and `attributes`")
    if size > MAX_SENT_EVENT_BYTES:
        table.fault("", f"its events have {size} bytes", f"send at most {MAX_SENT_EVENT_BYTES}")
    return flow


def _sender(type: str, table: TomlTable, contract: Contract) -> str:
    may = _senders(type, contract)
    if not may:
        remedy = "leave it out: what cloud services and the forwarder send is not traffic of homes"
        table.fault("", "no service of a device may send it", remedy)
    sender = table.text("sender", may[0] if len(may) == 1 else "several")
    if sender == "several":
        table.fault("sender", "several services may send it", f"name one of {', '.join(may)}")
    participant = contract.participants.get(sender)
    if participant is None or participant.kind is not ParticipantKind.DEVICE_SERVICE:
        table.fault(
            "sender", f"the contract has no service {sender!r} on devices", f"name {' or '.join(may)}"
        )
    return sender


def _senders(type: str, contract: Contract) -> list[str]:
    """Return the services of devices that may send it; the plane's own types belong to none."""
    may = SendingRights(contract).senders(type) if type not in PLANE_TYPES else ()
    return sorted(each.name for each in may if each.kind is ParticipantKind.DEVICE_SERVICE)


def learnt(records: Iterable[Mapping[str, Any]]) -> tuple[list[TrafficFlow], int]:
    """Return the traffic of a day's tap `records`, in its mean home, and how many homes there were."""
    counts: Counter[tuple[str, str, int]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    homes: set[str] = set()
    for record in records:
        homes.add(record["client_id"])
        try:
            event = parse_event(record["event"] or "")
        except EnvelopeError:
            continue
        if event.type in PLANE_TYPES or not event.sender.service:
            continue
        flow = event.type, event.sender.service
        counts[*flow, int(record["accepted_at_ms"] / 1_000 // HOUR_S) % DAY_H] += 1
        sizes[flow] += event.bytes
    flows = []
    for type, sender in sorted(sizes):
        by_hour = [counts[type, sender, hour] for hour in range(DAY_H)]
        size, around = (
            sizes[type, sender] / sum(by_hour),
            TrafficFlow(type, sender, (), 0).event("h" * 12, 10**6).bytes,
        )
        per_hour = tuple(round(each / len(homes), 4) for each in by_hour)
        flows.append(TrafficFlow(type, sender, per_hour, max(0, round(size) - around)))
    return flows, len(homes)


def traffic_text(flows: Iterable[TrafficFlow], source: str) -> str:
    """Return the file of `flows`, which begins with their `source`."""
    blocks = [f"# {source}"]
    blocks += [
        f"[types.{json.dumps(each.type)}]\nsender = {json.dumps(each.sender)}\nbytes = {each.bytes}\n"
        f"per_hour = [{', '.join(f'{rate:g}' for rate in each.per_hour)}]"
        for each in flows
    ]
    return "\n\n".join(blocks) + "\n"
