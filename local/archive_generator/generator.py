"""The archive as a stream: hour by hour, device by device, so that its size costs time and no memory."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Final

from edge.numbering import stamp
from eventplane.contract import Contract, Priority
from eventplane.delivery import Outcome
from eventplane.envelope import Envelope
from eventplane.ledger import LEDGER, TAP, to_line
from eventplane.numbering import SEQUENCE_DIGITS
from local.archive_generator.device import FRAME, HOUR_MS, NEWS_MS, REPORTS_MS, Device
from local.archive_generator.faults import FAULTS, fact, lost_before_the_tap
from local.archive_generator.flows import Flow, Routing, flows
from local.archive_generator.lines import Lines, event_of, source_of
from local.archive_generator.malformed import WAYS, malformed, refused_item
from local.archive_generator.objects import Objects
from local.archive_generator.records import Case, Passage, right_case
from local.archive_generator.truth import TRUTH, Hop, Kind, Truth, TruthTable

START_MS: Final = 1_772_323_200_000
"""2026-03-01, UTC midnight."""
OVERTAKEN_MS: Final = 3_500_000
"""When in an hour the overtaken is delivered, milliseconds: before the next hour's news."""
_IN_SERVICE_MS: Final = 30 * 24 * HOUR_MS
"""How long every device had been in service, milliseconds."""
FLEET: Final = "fleet"
"""The archive's folder of the devices that there should be."""
STALE_MS: Final = 2_700_000
"""How long a contract is in force until a decision by the one before is stale beyond doubt, and how much of
an hour has enough behind it to show that it was not withdrawn, milliseconds."""
SKEWS_MS: Final = {1: 2 * HOUR_MS, 2: -3 * HOUR_MS}
"""How far wrong clocks are, by what is wrong with the device (`Generator._trouble`)."""
NEW_EPOCH, LOST_MANIFEST, DISCARDS = 3, 4, 5
_ENDED: Final = {3: Outcome.EXPIRED, 7: Outcome.DROPPED, 9: Outcome.DEAD_LETTERED}
"""What a device of `DISCARDS` ends itself, by its place in the hour."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How large the archive is and what goes wrong: one event in `fault_every`, and five of each
    `trouble_every` devices; 0 is never. `rows` is how many an object holds at most."""

    events: int
    hours: int = 24
    events_an_hour: int = 50
    fault_every: int = 200
    trouble_every: int = 25
    rows: int = 20_000
    seed: int = 1

    @property
    def devices(self) -> int:
        return max(1, round(self.events / (self.hours * self.events_an_hour)))


class Generator:
    """Writes the archive of `plan`, by the first of `contracts` until half time and then by the second."""

    def __init__(
        self, plan: Plan, contracts: Sequence[Contract], objects: Objects, truth: TruthTable
    ) -> None:
        self._plan = plan
        self._random = Random(plan.seed)
        self._routings = [Routing(each) for each in contracts]
        self._objects = objects
        self._truth = truth
        self._flows = flows(contracts[0])
        urgent = {name for name, each in contracts[0].event_types.items() if each.priority is Priority.URGENT}
        self._weights = [1 if flow.type in urgent else 8 for flow in self._flows]
        self._lines = [{flow: Lines(flow, routing) for flow in self._flows} for routing in self._routings]
        self._faults = deque(FAULTS)
        self._extras = cycle([*WAYS, *WAYS, "refused", "vanished"])
        self._since_fault = self._numbers = self._frames = self.events = 0
        uplink, self._reporter = contracts[0].device.outbox.address, contracts[0].device.name
        local = {name for lines in self._lines[0].values() for name in lines.on_device}
        self._destinations = [uplink, *sorted(local - {uplink})]

    def run(self) -> None:
        """Write it all."""
        for routing in self._routings:
            self._objects.file_contract(routing.contract)
        devices = [self._device(number) for number in range(self._plan.devices)]
        for device in devices:
            entry = {"thing": device.client, "state": "provisioned", "since_ms": START_MS - _IN_SERVICE_MS}
            self._objects.add(FLEET, START_MS, json.dumps(entry, separators=(",", ":")))
        for hour in range(self._plan.hours):
            hour_ms = START_MS + hour * HOUR_MS
            self._objects.close_before(hour_ms - HOUR_MS)
            for number, device in enumerate(devices):
                self._hour(device, self._trouble(number), hour, hour_ms)

    def _trouble(self, number: int) -> int:
        """What is wrong with a device, 0 for nothing."""
        every = self._plan.trouble_every
        return number % every if every and number % every <= DISCARDS else 0

    def _device(self, number: int) -> Device:
        client, skew_ms = f"home-{number:06d}", SKEWS_MS.get(self._trouble(number), 0)
        is_older = bool(number % 2)
        device = Device(client, self._reporter, self._destinations, self._random, skew_ms, is_older=is_older)
        if skew_ms:
            self._truth.add(Truth(Kind.CLOCK_SKEW, Hop.DEVICE_CLOUD, client, detail=str(skew_ms)))
        return device

    def _hour(self, device: Device, trouble: int, hour: int, hour_ms: int) -> None:
        later = 2 * hour >= self._plan.hours
        routing, lines = self._routings[later], self._lines[later]
        if hour == 0:
            self._report(device.started(hour_ms), device, hour_ms, routing)
        elif trouble == NEW_EPOCH and hour == self._plan.hours // 2:
            report = device.started(hour_ms, device.epoch)
            change = self._report(report, device, hour_ms, routing)
            self._truth.add(_of_store(change, Kind.EPOCH_CHANGE))
        chosen = self._random.choices(self._flows, self._weights, k=max(1, self._plan.events_an_hour - 1))
        ended = self._news(device, trouble if hour == 1 else 0, hour_ms, routing, lines, chosen)
        if ended:
            self._report(device.discarded(hour_ms + NEWS_MS, ended), device, hour_ms + NEWS_MS, routing)
        manifest = device.manifest(hour_ms + REPORTS_MS)
        lost = trouble == LOST_MANIFEST and hour == self._plan.hours // 2 and hour + 1 < self._plan.hours
        case = self._report(manifest, device, hour_ms + REPORTS_MS, routing, written=not lost)
        if lost:
            missing = _of_store(case, Kind.MISSING_MANIFEST)
            self._truth.add(missing)
            self._lose(case)

    def _news(
        self,
        device: Device,
        trouble: int,
        hour_ms: int,
        routing: Routing,
        lines: dict[Flow, Lines],
        chosen: list[Flow],
    ) -> dict[Outcome, list[int]]:
        """An hour's events; returns the numbers of those that the device ended itself."""
        sound = not device.skew_ms and not trouble
        ended: dict[Outcome, list[int]] = {}
        kept: set[int] = set()
        frame_of = self._frames
        prefix = datetime.fromtimestamp((hour_ms + device.skew_ms) / 1_000, UTC).strftime("%Y-%m-%dT%H:")
        for place, (recorded_ms, accepted_ms, frame) in enumerate(device.moments(hour_ms, len(chosen))):
            flow = chosen[place]
            past = recorded_ms - hour_ms
            recorded = f"{prefix}{past // 60_000:02d}:{past // 1_000 % 60:02d}.{past % 1_000:03d}Z"
            id = f"{self._random.getrandbits(128):032x}"
            key = (flow.service, source_of(flow, device.client), id)
            number = device.next_number(key, lines[flow].on_device)
            self.events += 1
            self._since_fault += 1
            values = {
                "client": device.client,
                "id": id,
                "epoch": device.epoch,
                "sequence": f"{number:0{SEQUENCE_DIGITS}d}",
                "recorded": recorded,
                "value": number * 7 % 997,
                "accepted": accepted_ms,
                "archived": accepted_ms + 60,
                "decided": accepted_ms + 40,
                "handed": accepted_ms + 160,
                "tap": f"t-{frame_of + frame:012x}",
                "index": place % FRAME,
                "router": f"r-{frame_of + frame:012x}",
                "states_acknowledged": not device.is_older,
            }
            if trouble == DISCARDS and place in _ENDED:
                outcome = _ENDED[place]
                ended.setdefault(outcome, []).append(number)
                self._truth.add(Truth(Kind(outcome), Hop.DEVICE_CLOUD, device.client, device.epoch, number))
                continue
            if sound and place not in kept and self._is_due():
                witness = _overtaker(place, chosen, lines)
                case = self._case(flow, values, routing, hour_ms + OVERTAKEN_MS if witness else None)
                if self._plant(case):
                    if witness:
                        kept.add(witness)
                    continue
            for row in lines[flow].fill(values):
                self._objects.add(*row)
        self._frames += -(-len(chosen) // FRAME)
        return ended

    def _is_due(self) -> bool:
        return bool(self._plan.fault_every) and self._since_fault >= self._plan.fault_every

    def _plant(self, case: Case) -> bool:
        """Plant the next fault that fits into `case` and write it; False where none does."""
        # The first waits until it fits; meanwhile the second may go before it.
        fault = next((each for each in islice(self._faults, 2) if each.fits(case)), None)
        if fault is None:
            return False
        self._faults.remove(fault)
        self._faults.append(fault)
        self._since_fault = 0
        self._extra(case)
        self._truth.add(*fault.plant(case))
        self._write(case)
        return True

    def _extra(self, case: Case) -> None:
        """Beside an event what is none, or a row that cannot be read."""
        what = next(self._extras)
        if what in WAYS:
            self._numbers += 1
            folder, at_ms, line, mark = malformed(case, what, self._numbers)
            file = self._objects.add(folder, at_ms, line)
            self._truth.add(Truth(Kind.QUARANTINED, None, archive_file=file, detail=mark))
            return
        tap, decisions, truth = refused_item(case, recorded=what == "refused")
        for tapped in tap:
            self._objects.add(TAP, tapped.archived_at_ms, to_line(tapped))
        for decision in decisions:
            self._objects.add(LEDGER, decision.decided_at_ms, to_line(decision))
        self._truth.add(truth)

    def _case(
        self, flow: Flow, values: dict[str, object], routing: Routing, overtaken_at_ms: int | None
    ) -> Case:
        event = event_of(
            flow, str(values["client"]), str(values["id"]), str(values["recorded"]), int(str(values["value"]))
        )
        names = (
            *("client", "accepted", "archived", "decided", "handed"),
            *("tap", "index", "router", "states_acknowledged"),
        )
        passage = Passage(*(values[name] for name in names))  # type: ignore[arg-type]
        stamped = stamp(event, str(values["epoch"]), int(str(values["sequence"])))
        return right_case(stamped, passage, routing, overtaken_at_ms, self._predecessor(passage))

    def _predecessor(self, passage: Passage) -> Routing | None:
        """What routers decided by before, where its successor has long been in force and goes on to be."""
        second_ms = START_MS + (self._plan.hours + 1) // 2 * HOUR_MS
        is_sure = (
            passage.accepted_at_ms - second_ms > STALE_MS and passage.accepted_at_ms % HOUR_MS < STALE_MS
        )
        return self._routings[0] if is_sure and len(self._routings) > 1 else None

    def _report(
        self, report: Envelope, device: Device, at_ms: int, routing: Routing, *, written: bool = True
    ) -> Case:
        """A report's way, in a frame of its own; without rows if it is not `written`."""
        self.events += 1
        self._frames += 1
        at = at_ms + 500
        frame = f"{self._frames - 1:012x}"
        passage = Passage(
            device.client, at, at + 60, at + 40, at + 160, f"t-{frame}", 0, f"r-{frame}", not device.is_older
        )
        case = right_case(report, passage, routing)
        if written:
            self._write(case)
        return case

    def _lose(self, case: Case) -> None:
        self._truth.add(*lost_before_the_tap(case))

    def _write(self, case: Case) -> None:
        for row in case.rows():
            self._objects.add(*row)


def _of_store(case: Case, kind: Kind) -> Truth:
    return fact(case, kind, Hop.DEVICE_CLOUD)


def _overtaker(place: int, chosen: list[Flow], lines: dict[Flow, Lines]) -> int | None:
    """The place of a later event of the same source, in a later frame, that is delivered in order as well."""
    if not lines[chosen[place]].is_ordered:
        return None
    rest: Iterator[int] = iter(range((place // FRAME + 1) * FRAME, len(chosen)))
    service = chosen[place].service
    return next(
        (each for each in rest if chosen[each].service == service and lines[chosen[each]].is_ordered), None
    )


def generate(root: Path, plan: Plan, contracts: Sequence[Contract]) -> dict[str, object]:
    """Write the archive to `root`/archive and the truth beside it; returns what was written, counted."""
    with Objects(root / "archive", plan.rows) as objects, TruthTable(root / TRUTH) as truth:
        generator = Generator(plan, contracts, objects, truth)
        generator.run()
    return {
        "plan": asdict(plan),
        "devices": plan.devices,
        "events": generator.events,
        "rows": objects.counts,
        "truth": dict(sorted(truth.counts.items())),
    }
