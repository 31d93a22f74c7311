"""`python -m benchmarks.interest`: bytes not sent, on real data; writes build/bench/interest.json.

The real readings and alerts of 62 homes (EVENTPLANE_SHARED names the folder), as their forwarders would send
them, and a plane whose analytics charts a part of them: medical readings, temperature and humidity of rooms.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from benchmarks.results import Figure, write
from contract.loader import load_contract
from edge.publishing import wire_size
from eventplane.batch import pack
from eventplane.contract import Contract, Place, Priority, compile_contract, contract_document
from eventplane.contract.model import Route
from eventplane.envelope import Envelope
from eventplane.filters import Filter
from eventplane.interest import is_wanted
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.interest.uplink import uplink_filters
from eventplane.router import Router
from eventplane.topics import basic_ingest_topic, urgent_rule
from local.input import open_input

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
class Sent:
    """What one device published: `wire` bytes with topic, MQTT and TLS; `alarms` among the `events`."""

    events: int = 0
    alarms: int = 0
    publishes: int = 0
    wire: int = 0

    def publish(self, thing: str, events: list[Envelope], *, urgent: bool) -> None:
        """One batch of events that came within the batching delay."""
        topic = basic_ingest_topic(urgent_rule(_RULE) if urgent else _RULE, thing)
        self.events += len(events)
        self.alarms += len(events) if urgent else 0
        self.publishes += 1
        self.wire += wire_size(topic, pack(events))


@dataclass(slots=True)
class Inbox:
    """What the cloud's router put into the reader's queue, or would have: events and bytes of their text."""

    events: int = 0
    bytes: int = 0

    def put(self, event: Envelope) -> None:
        self.events += 1
        self.bytes += len(event.json.encode())


@dataclass(slots=True)
class Totals:
    """Without interest and with it."""

    plain: Sent = field(default_factory=Sent)
    wanted: Sent = field(default_factory=Sent)
    inbox: Inbox = field(default_factory=Inbox)
    spared: Inbox = field(default_factory=Inbox)


def figures(data: Path, homes: int | None = None, events: int | None = None) -> list[Figure]:
    """Of so many homes and events (None: all) of the data sets in the folder `data`. Raises `InputError`."""
    contract = load_contract()
    # Routes by which the cloud takes no more than the analytics charts: so the devices are told.
    narrow = _narrow(contract)
    up = new_announcement("device", uplink_filters(narrow)).interest
    announced, _ = with_interest(contract, [new_announcement(_READER, CHARTED)])
    totals = Totals()
    by_home: defaultdict[str, list[Envelope]] = defaultdict(list)
    for each in open_input(data, homes=homes, events=events):
        by_home[each.home].append(each.event)
    for home, sent in by_home.items():
        _uplink(contract, home, sent, up, totals)
        _inbox(announced, sent, totals)
    if totals.plain.alarms != totals.wanted.alarms:
        raise AssertionError(f"{totals.plain.alarms - totals.wanted.alarms} alarms were not sent")
    return _figures(totals)


def _narrow(contract: Contract) -> Contract:
    document = contract_document(contract)
    for route in document["routes"].values():
        if route["to"] == f"{_READER}.inbox":
            route["filter"] = {"any": CHARTED}
    return compile_contract(document, "a plane that takes what is charted")


def _uplink(contract: Contract, home: str, events: list[Envelope], interest: Filter, totals: Totals) -> None:
    # The batching delay is shorter than the second that the data's times have.
    for _, company in groupby(events, key=lambda each: each.attributes["time"]):
        together = list(company)
        for urgent in (True, False):
            chosen = [each for each in together if (_priority(contract, each) is Priority.URGENT) is urgent]
            wanted = [each for each in chosen if is_wanted(interest, each, _priority(contract, each))]
            for sent, batch in ((totals.plain, chosen), (totals.wanted, wanted)):
                if batch:
                    sent.publish(home, batch, urgent=urgent)


def _inbox(announced: Contract, events: list[Envelope], totals: Totals) -> None:
    router = Router(announced, Place.CLOUD)
    for event in events:
        for route in router.route(event):
            if route.interest is not None:
                totals.inbox.put(event)
                if not _wants(announced, route, event):
                    totals.spared.put(event)


def _wants(contract: Contract, route: Route, event: Envelope) -> bool:
    return is_wanted(route.interest, event, _priority(contract, event))


def _priority(contract: Contract, event: Envelope) -> Priority:
    return contract.priority(event, contract.device.outbox)


def _figures(totals: Totals) -> list[Figure]:
    plain, wanted = totals.plain, totals.wanted
    spared = totals.spared
    return [
        Figure(
            "uplink_bytes_all", plain.wire, "B", note=f"{plain.events} events, {plain.publishes} publishes"
        ),
        Figure(
            "uplink_bytes_not_sent",
            plain.wire - wanted.wire,
            "B",
            note=f"{plain.events - wanted.events} events, {plain.publishes - wanted.publishes} publishes",
        ),
        Figure("uplink_bytes_not_sent_share", 100 * (1 - wanted.wire / plain.wire), "%"),
        Figure("alarms_sent", wanted.alarms, "events", aim=plain.alarms, note="of as many"),
        Figure(
            "inbox_events_not_forwarded_share",
            100 * spared.events / totals.inbox.events,
            "%",
            note=f"{spared.events} of {totals.inbox.events} events to {_READER}, {spared.bytes} B of text",
        ),
    ]


def main() -> None:
    """Count, print and write."""
    how = "counted, not timed: batches as a forwarder forms them, by the times in the data"
    write("interest", figures(DATA), "python -m benchmarks.interest", how)


if __name__ == "__main__":
    main()
