"""`python -m lab.benchmarks.interest`: bytes not sent, on real data; writes build/bench/interest.json.

The real readings and alerts of 62 homes (EVENTPLANE_SHARED names the folder), as their forwarders would send
them, and a plane whose analytics charts a part of them: medical readings, temperature and humidity of rooms.
"""

import os
import sys
from argparse import Namespace
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from contract.loader import load_contract
from edge.publishing import wire_size
from eventplane.batch import pack
from eventplane.contract import Contract, Place, Priority, compile_contract, contract_document
from eventplane.envelope import Envelope
from eventplane.interest import is_wanted
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.interest.uplink import uplink_filters
from eventplane.router import Router
from eventplane.topics import basic_ingest_topic, urgent_rule
from lab.benchmarks.results import Benchmark, Figure
from lab.input import open_input

CHARTED = [
    {"prefix": {"type": "org.eventplane.health."}},
    {"exact": {"type": "org.eventplane.alarm.clinical.v1"}},
    {"all": [{"suffix": {"subject": "/temperature"}}, {"prefix": {"type": "org.eventplane.climate."}}]},
    {"suffix": {"subject": "/relative-humidity"}},
]
"""What the analytics handles."""

DATA = Path(os.environ.get("EVENTPLANE_SHARED", "../shared")) / "data"

_READER = "care-analytics"
_RULE = "eventplane_prod_ingest"


@dataclass(slots=True)
class SentEvents:
    """The publishes of devices: `wire` bytes with topic, MQTT and TLS; `alarms` among the `events`."""

    events: int = 0
    alarms: int = 0
    publishes: int = 0
    wire: int = 0

    def publish(self, thing: str, events: list[Envelope], *, urgent: bool) -> None:
        """Add one batch of events that came within the batching delay; an empty one is not sent."""
        if events:
            topic = basic_ingest_topic(urgent_rule(_RULE) if urgent else _RULE, thing)
            self.events += len(events)
            self.alarms += len(events) if urgent else 0
            self.publishes += 1
            self.wire += wire_size(topic, pack(events))


def figures(data: Path, homes: int | None = None, events: int | None = None) -> list[Figure]:
    """Measure so many homes, events (None: all) of the data sets in `data`. Raises `InputError`."""
    by_home: defaultdict[str, list[Envelope]] = defaultdict(list)
    for each in open_input(data, homes=homes, events=events):
        by_home[each.home].append(each.event)
    return [*_uplink(by_home), _inbox(by_home)]


def _uplink(by_home: dict[str, list[Envelope]]) -> list[Figure]:
    """What devices send, without interest and with it."""
    contract = load_contract()
    # Routes by which the cloud takes no more than the analytics charts; devices learn that.
    interest = new_announcement("device", uplink_filters(_narrow(contract))).interest
    plain, wanted = SentEvents(), SentEvents()
    for home, sent in by_home.items():
        # The batching delay is shorter than the second that the data's times have.
        for _, company in groupby(sent, key=lambda each: each.attributes["time"]):
            together = list(company)
            for urgent in (True, False):
                chosen = [
                    each for each in together if (_priority(contract, each) is Priority.URGENT) is urgent
                ]
                plain.publish(home, chosen, urgent=urgent)
                chosen = [each for each in chosen if is_wanted(interest, each, _priority(contract, each))]
                wanted.publish(home, chosen, urgent=urgent)
    saved, publishes = plain.wire - wanted.wire, plain.publishes - wanted.publishes
    note = f"{plain.events} events, {plain.publishes} publishes"
    fewer = f"{plain.events - wanted.events} events, {publishes} publishes"
    return [
        Figure("uplink_bytes_all", plain.wire, "B", note=note),
        Figure("uplink_bytes_not_sent", saved, "B", note=fewer),
        Figure("uplink_bytes_not_sent_share", 100 * saved / plain.wire, "%"),
        Figure("alarms_sent", wanted.alarms, "events", plain.alarms, note="of as many", required=True),
    ]


def _inbox(by_home: dict[str, list[Envelope]]) -> Figure:
    """What the cloud's router does not forward to the reader that announced what it charts."""
    announced, _ = with_interest(load_contract(), [new_announcement(_READER, CHARTED)])
    router = Router(announced, Place.CLOUD)
    number = spared = spared_bytes = 0
    for event in (each for events in by_home.values() for each in events):
        for route in router.route(event):
            if route.interest is not None:
                number += 1
                if not is_wanted(route.interest, event, _priority(announced, event)):
                    spared += 1
                    spared_bytes += len(event.json.encode())
    note = f"{spared} of {number} events to {_READER}, {spared_bytes} B of text"
    return Figure("inbox_events_not_forwarded_share", 100 * spared / number, "%", note=note)


def _narrow(contract: Contract) -> Contract:
    document = contract_document(contract)
    for route in document["routes"].values():
        if route["to"] == f"{_READER}.inbox":
            route["filter"] = {"any": CHARTED}
    return compile_contract(document, "a plane that takes what is charted")


def _priority(contract: Contract, event: Envelope) -> Priority:
    return contract.priority(event, contract.device.outbox)


def _all(_: Namespace) -> list[Figure]:
    return figures(DATA)


CLOCK = "counted, not timed: batches as a forwarder forms them, by the times in the data"

if __name__ == "__main__":
    sys.exit(Benchmark("interest", {"data": _all}, CLOCK).main())
