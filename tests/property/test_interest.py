"""With interest a router forwards what its filter takes and its reader wants, and never less than it must."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.explain import explain
from eventplane.contract import Contract, Place, Priority, compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import HEARTBEAT, forwarder_source, router_source
from eventplane.envelope import Envelope, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.interest import is_wanted
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.reasons import Outcome
from lambdas.common.queue import QueueMessage
from lambdas.router.planner import Planner
from tests.examples import examples

TYPES = st.sampled_from(
    ["org.example.a.v1", "org.example.b.v1", "org.urgent.v1", DEAD_LETTER_TYPE, HEARTBEAT]
)
FILTERS = st.one_of(
    TYPES.map(lambda type: {"exact": {"type": type}}),
    st.sampled_from(
        [
            {"prefix": {"type": "org.example."}},
            {"not": {"suffix": {"subject": "x"}}},
            {"sql": "EXISTS subject AND subject LIKE 'a%'"},
            {"any": [{"exact": {"subject": "ax"}}, {"exact": {"level": "3"}}]},
            {"prefix": {"source": "/"}},
        ]
    ),
)
SOURCES = {DEAD_LETTER_TYPE: router_source("home-1"), HEARTBEAT: forwarder_source("home-1")}
"""Under which alone a device sends these."""
READERS = ("desk", "porter")
ANNOUNCEMENTS = st.dictionaries(st.sampled_from(READERS), st.lists(FILTERS, max_size=3))
EVENTS = st.builds(
    lambda type, more: write_event({"id": "1", "source": SOURCES.get(type, "/a"), "type": type, **more}),
    TYPES,
    st.fixed_dictionaries(
        {},
        optional={
            "subject": st.sampled_from(["a", "ax", "x"]),
            "level": st.integers(2, 4),
            "severitynumber": st.integers(1, 24),
        },
    ),
)


def contract_of(filters: dict[str, object]) -> Contract:
    participants: dict[str, object] = {
        name: {"kind": "cloud_service", "description": "Somebody."} for name in (*READERS, "bell")
    }
    return compile_contract(
        {
            "format": 5,
            "name": "example",
            "participants": {"device": {"kind": "device", "description": "A house."}, **participants},
            "event_types": {"org.urgent.v1": {"priority": "urgent", "description": "Help."}},
            "routes": {
                f"to-{name}": {"filter": filter, "to": f"{name}.inbox"} for name, filter in filters.items()
            },
        },
        "example",
    )


def outcomes(contract: Contract, event: Envelope) -> dict[str | None, Outcome]:
    frame = IngestFrame(event.json.encode(), "t", "home-1", "p", 0)
    message = QueueMessage(id="m", body=frame_text(frame), sent_at_ms=0, attempt=1)
    steps = Planner(contract, "device.outbox").plan(message, 0)
    return {step.record.route: step.record.outcome for step in steps}


@pytest.mark.source("C8")
@settings(max_examples=examples(400), deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(READERS, FILTERS)), ANNOUNCEMENTS, EVENTS)
def test_a_router_with_interest_forwards_what_the_filter_and_the_interest_take(
    filters: dict[str, object], announced: dict[str, list[object]], event: Envelope
) -> None:
    plain = contract_of(filters)
    announcements = {name: new_announcement(name, wanted) for name, wanted in announced.items()}
    derived, refused = with_interest(plain, announcements.values())
    assert refused == {}
    priority = plain.priority(event, plain.channel("device.outbox"))
    always = priority is Priority.URGENT or event.type in (DEAD_LETTER_TYPE, HEARTBEAT)
    before, after = outcomes(plain, event), outcomes(derived, event)
    assert set(after) == set(before)  # every route that takes it says what became of it
    for route in derived.routes_at(Place.CLOUD):
        if route.name not in before:
            continue
        announcement = announcements.get(route.destination.partition(".")[0])
        wanted = announcement is None or announcement.interest.matches(event.attributes)
        expected = Outcome.DELIVERED if wanted or always else Outcome.NO_INTEREST
        assert after[route.name] is expected
        assert is_wanted(route.interest, event, priority) is (expected is Outcome.DELIVERED)


@settings(max_examples=examples(200), deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(READERS, FILTERS)), ANNOUNCEMENTS, EVENTS)
def test_an_explanation_says_what_the_router_does(
    filters: dict[str, object], announced: dict[str, list[object]], event: Envelope
) -> None:
    derived, _ = with_interest(contract_of(filters), [new_announcement(*each) for each in announced.items()])
    done = outcomes(derived, event)
    for each in explain(derived, event, Place.CLOUD):
        assert each.matched is (each.route.name in done)
        assert each.forwarded is (done.get(each.route.name) is Outcome.DELIVERED)
        assert json.dumps(each.document())
