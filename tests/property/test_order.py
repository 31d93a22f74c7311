"""What a device numbers for an ordered inbox is what the cloud's router leads there, and no other."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.decision import Decider, SequenceNumber
from edge.interest import Interest
from edge.numbering import RecentKeys
from eventplane.contract import Contract, compile_contract
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.ordering import position_in
from eventplane.reasons import Outcome
from lambdas.common.queue import QueueMessage
from lambdas.router.planner import Planner
from tests.examples import examples

pytestmark = pytest.mark.source("P17", "C2")

READERS = ("desk", "porter")
TYPES = ("org.example.a.v1", "org.example.b.v1", "org.urgent.v1")
FILTERS = st.one_of(
    st.sampled_from(TYPES).map(lambda type: {"exact": {"type": type}}),
    st.sampled_from(
        [
            {"prefix": {"type": "org.example."}},
            {"not": {"suffix": {"subject": "x"}}},
            {"sql": "EXISTS subject AND subject LIKE 'a%'"},
            {"exact": {"senderdevice": "home-1"}},
            {"exact": {"senderservice": "other"}},
            {"suffix": {"devicesequence": "3"}},
        ]
    ),
)
ROUTES = st.fixed_dictionaries({name: st.lists(FILTERS, min_size=1, max_size=2) for name in READERS})
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(TYPES)},
        optional={
            "subject": st.sampled_from(["a", "ax", "x"]),
            "severitynumber": st.integers(1, 24),
            "deliveryguarantee": st.just("best_effort"),
        },
    ),
    max_size=12,
)


def contract_of(routes: dict[str, list[object]]) -> Contract:
    readers = {
        name: {"kind": "cloud_service", "description": "Reads.", "inbox": {"ordering": "source"}}
        for name in READERS
    }
    return compile_contract(
        {
            "format": 7,
            "name": "example",
            "participants": {
                "device": {"kind": "device", "description": "A house."},
                "bell": {"kind": "device_service", "description": "Rings."},
                **readers,
            },
            "event_types": {"org.urgent.v1": {"priority": "urgent", "description": "Help."}},
            "routes": {
                "up": {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"},
                **{
                    f"to-{name}-{at}": {"filter": filter, "to": f"{name}.inbox"}
                    for name, filters in routes.items()
                    for at, filter in enumerate(filters)
                },
            },
        },
        "example",
    )


def delivered(contract: Contract, event: Envelope) -> dict[str, Envelope]:
    """By reader, what the cloud's router puts into its inbox, promised or not."""
    frame = IngestFrame(event.json.encode(), "t", "home-1", "p", 0)
    steps = Planner(contract, "device.outbox").plan(QueueMessage("m", frame_text(frame), 0, 1), 0)
    return {
        str(step.record.destination).partition(".")[0]: step.event
        for step in steps
        if step.event and step.record.outcome is Outcome.DELIVERED and not step.tried_once
    }


@settings(max_examples=examples(100), deadline=None)
@given(ROUTES, ROUTES, EVENTS)
def test_each_inbox_gets_its_numbers_without_gaps(
    routes: dict[str, list[object]], newer: dict[str, list[object]], sent: list[dict[str, str]]
) -> None:
    contract, cloud = contract_of(routes), contract_of(newer)
    intake = Decider(contract, "home-1", "e", lambda: datetime.now(UTC), RecentKeys(100), Interest())
    counted: dict[str, int] = {}
    found: dict[tuple[str, str], list[int]] = {}
    for at, attributes in enumerate(sent):
        event = write_event({"id": str(at), "source": "/a", **attributes})
        channel = contract.channel("bell.outbox")
        arrival = intake.accept(event.json.encode(), channel, SequenceNumber(at + 1, 0, counted)).arrival
        if arrival is None:
            continue
        counted.update(arrival.positions)
        stored = parse_event(arrival.json)
        for reader, got in delivered(contract, stored).items():
            position = position_in(got, reader)
            assert position is not None
            stream, number = position
            found.setdefault((reader, stream.counter), []).append(number)
        for reader, got in delivered(cloud, stored).items():
            # By other routes the numbers would have gaps: the router takes them away.
            if position_in(got, reader) is not None:
                assert reader in delivered(contract, stored)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in found.values())
    assert sum(map(len, found.values())) == sum(counted.values())
