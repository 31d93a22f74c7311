"""Device and cloud decide alike which deliveries are promised, whatever is declared and asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.decision import Decider, SequenceNumber
from edge.interest import Interest
from edge.numbering import RecentKeys
from eventplane.contract import Contract, compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import write_event
from eventplane.guarantee import NOT_REPEATED
from eventplane.reasons import Outcome
from lambdas.common.queue import QueueMessage
from lambdas.router.planner import Planner

pytestmark = pytest.mark.source("P4", "C1")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BEST_EFFORT, AT_LEAST_ONCE = "best_effort", "at_least_once"

guarantees = st.sampled_from([BEST_EFFORT, AT_LEAST_ONCE])
declared = st.none() | guarantees
types = st.sampled_from(["org.declared", "org.undeclared", DEAD_LETTER_TYPE])


@st.composite
def planes(draw: st.DrawFn) -> Contract:
    """A sender and two readers on the device, and the same in the cloud, with the same declarations."""
    outbox = {"delivery_guarantee": draw(guarantees)}
    inboxes = {name: draw(guarantees) for name in ("a", "b")}
    participants = {"device": {"kind": "device", "description": "d"}}
    routes = {}
    for place in ("device", "cloud"):
        kind = {"kind": f"{place}_service", "description": "d"}
        participants[f"{place}-sender"] = {**kind, "outbox": outbox}
        for name, inbox in inboxes.items():
            participants[f"{place}-{name}"] = {**kind, "inbox": {"delivery_guarantee": inbox}}
    for name, inbox in inboxes.items():
        route = draw(declared if inbox == AT_LEAST_ONCE else st.none() | st.just(BEST_EFFORT))
        for place in ("device", "cloud"):
            routes[f"{place}-{name}"] = {
                "filter": {"prefix": {"type": "org."}},
                "to": f"{place}-{name}.inbox",
                "delivery_guarantee": route,
            }
    event_types = {"org.declared": {"description": "d", "delivery_guarantee": draw(declared)}}
    return compile_contract(
        {
            "format": 7,
            "name": "alike",
            "participants": participants,
            "event_types": event_types,
            "routes": routes,
        },
        "alike",
    )


@given(plane=planes(), type=types, asks=st.booleans())
def test_device_and_cloud_decide_alike(plane: Contract, type: str, asks: bool) -> None:
    attributes = {"deliveryguarantee": BEST_EFFORT} if asks else {}
    on_device, in_cloud = (
        write_event(
            {"id": "1", "source": "/a", "type": type, **attributes}, {"channel": f"{place}-sender.outbox"}
        ).json
        for place in ("device", "cloud")
    )
    intake = Decider(plane, "home-1", "e", lambda: NOW, RecentKeys(1), Interest())
    verdict = intake.accept(on_device.encode(), plane.channel("device-sender.outbox"), SequenceNumber(1, 0))
    kept = set(verdict.arrival.destinations) if verdict.arrival else set()
    assert verdict.refused is None
    assert kept | {each.destination for each in verdict.volatile} == {"device-a.inbox", "device-b.inbox"}
    assert len(kept) + len(verdict.volatile) == 2

    planner = Planner(plane, "cloud-sender.outbox")
    first = list(planner.plan(QueueMessage("m", in_cloud, 0, 1), 0))
    promised = {step.record.destination for step in first if not step.tried_once}
    assert all(step.event and step.record.outcome is Outcome.DELIVERED for step in first)
    assert {each.replace("cloud", "device") for each in promised if each} == kept

    again = list(planner.plan(QueueMessage("m", in_cloud, 0, 2), 0))
    assert {step.record.destination for step in again if step.event} == promised
    assert {step.record.reason for step in again if not step.event} <= {NOT_REPEATED}
    assert len(again) == len(first) == 2
