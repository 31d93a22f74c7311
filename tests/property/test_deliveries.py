"""Device and cloud decide alike which deliveries are promised, wanted and numbered."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.explain import explain
from edge.decision import SequenceNumber
from eventplane.contract import Contract, Place, Priority
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import HEARTBEAT, forwarder_source, router_source
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.guarantee import NOT_REPEATED
from eventplane.interest import is_wanted
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.ordering import position_in
from eventplane.reasons import Outcome
from tests.examples import examples
from tests.routing import THING, decider, framed, routed
from tests.small_contract import small_contract

READERS = ("desk", "porter")
ORDINARY = ("org.example.a.v1", "org.example.b.v1", "org.urgent.v1")
FILTERS = st.one_of(
    st.sampled_from(ORDINARY).map(lambda type: {"exact": {"type": type}}),
    st.sampled_from(
        [
            {"prefix": {"type": "org.example."}},
            {"not": {"suffix": {"subject": "x"}}},
            {"sql": "EXISTS subject AND subject LIKE 'a%'"},
            {"any": [{"exact": {"subject": "ax"}}, {"exact": {"level": "3"}}]},
        ]
    ),
)
ATTRIBUTES: dict[str, st.SearchStrategy[Any]] = {
    "subject": st.sampled_from(["a", "ax", "x"]),
    "level": st.integers(2, 4),
    "severitynumber": st.integers(1, 24),
}


def contract_of(routes: dict[str, list[object]], inbox: dict[str, Any]) -> Contract:
    """A bell in a house whose events go up, and readers in the cloud with these filters and inboxes."""
    return small_contract(
        {
            "device": "device",
            "bell": "device_service",
            **{name: {"kind": "cloud_service", "inbox": inbox} for name in READERS},
        },
        {
            "up": ({"prefix": {"type": "org."}}, "device.outbox"),
            **{
                f"to-{name}-{at}": (filter, f"{name}.inbox")
                for name, filters in routes.items()
                for at, filter in enumerate(filters)
            },
        },
        {"org.urgent.v1": {"priority": "urgent"}},
    )


OWN_SOURCES = {DEAD_LETTER_TYPE: router_source(THING), HEARTBEAT: forwarder_source(THING)}
"""Under which alone a device sends these types."""


def outcomes(contract: Contract, event: Envelope) -> dict[str | None, Outcome]:
    return {
        step.record.route: step.record.outcome for step in routed(contract, "device.outbox", framed(event))
    }


@pytest.mark.source("C8")
@settings(max_examples=examples(400))
@given(
    st.fixed_dictionaries(dict.fromkeys(READERS, FILTERS | st.just({"prefix": {"source": "/"}}))),
    st.dictionaries(st.sampled_from(READERS), st.lists(FILTERS, max_size=3)),
    st.sampled_from([*ORDINARY, *OWN_SOURCES]),
    st.fixed_dictionaries({}, optional=ATTRIBUTES),
)
def test_explain_agrees_with_routers(
    filters: dict[str, object], announced: dict[str, list[object]], type: str, attributes: dict[str, Any]
) -> None:
    event = write_event({"id": "1", "source": OWN_SOURCES.get(type, "/a"), "type": type, **attributes})
    plain = contract_of({name: [filter] for name, filter in filters.items()}, {})
    announcements = {name: new_announcement(name, wanted) for name, wanted in announced.items()}
    derived, refused = with_interest(plain, announcements.values())
    assert refused == {}
    priority = plain.priority(event, plain.channel("device.outbox"))
    # These are never left out.
    always = priority is Priority.URGENT or type in OWN_SOURCES
    before, after = outcomes(plain, event), outcomes(derived, event)
    assert set(after) == set(before)  # every route that takes it says what became of it
    for each in explain(derived, event, Place.CLOUD):
        assert each.matched is (each.route.name in before)
        assert each.forwarded is (after.get(each.route.name) is Outcome.DELIVERED)
        assert json.dumps(each.document())
        if each.matched:
            announcement = announcements.get(each.route.destination.partition(".")[0])
            wanted = announcement is None or announcement.interest.matches(event.attributes)
            assert after[each.route.name] is (Outcome.DELIVERED if wanted or always else Outcome.NO_INTEREST)
            assert is_wanted(each.route.interest, event, priority) is (wanted or always)


OF_SENDERS = st.sampled_from(
    [
        {"exact": {"senderdevice": THING}},
        {"exact": {"senderservice": "other"}},
        {"suffix": {"devicesequence": "3"}},
    ]
)
ROUTES = st.fixed_dictionaries(dict.fromkeys(READERS, st.lists(FILTERS | OF_SENDERS, min_size=1, max_size=2)))
SENT = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(ORDINARY)},
        optional=ATTRIBUTES | {"deliveryguarantee": st.just("best_effort")},
    ),
    max_size=12,
)


def delivered(contract: Contract, event: Envelope) -> dict[str, Envelope]:
    """By reader, what the cloud's router promises to put into its inbox."""
    return {
        str(step.record.destination).partition(".")[0]: step.event
        for step in routed(contract, "device.outbox", framed(event))
        if step.event and step.record.outcome is Outcome.DELIVERED and not step.tried_once
    }


@pytest.mark.source("P17", "C2")
@given(ROUTES, ROUTES, SENT)
def test_ordered_inboxes_have_no_gaps(
    routes: dict[str, list[object]], newer: dict[str, list[object]], sent: list[dict[str, Any]]
) -> None:
    contract, cloud = (contract_of(each, {"ordering": "source"}) for each in (routes, newer))
    device, outbox = decider(contract), contract.channel("bell.outbox")
    counted: dict[str, int] = {}
    found: dict[tuple[str, str], list[int]] = {}
    for at, attributes in enumerate(sent):
        event = write_event({"id": str(at), "source": "/a", **attributes})
        arrival = device.accept(event.json.encode(), outbox, SequenceNumber(at + 1, 0, counted)).arrival
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


BEST_EFFORT, AT_LEAST_ONCE = "best_effort", "at_least_once"
GUARANTEES = st.sampled_from([BEST_EFFORT, AT_LEAST_ONCE])


@st.composite
def planes(draw: st.DrawFn) -> Contract:
    """A sender and two readers on the device, and the same in the cloud, with the same declarations."""
    outbox = {"delivery_guarantee": draw(GUARANTEES)}
    participants: dict[str, Any] = {"device": "device"}
    routes = {}
    inboxes = {name: draw(GUARANTEES) for name in ("a", "b")}
    of_routes = {
        name: draw(st.none() | (GUARANTEES if inbox == AT_LEAST_ONCE else st.just(BEST_EFFORT)))
        for name, inbox in inboxes.items()
    }
    for place in ("device", "cloud"):
        kind = {"kind": f"{place}_service"}
        participants[f"{place}-sender"] = {**kind, "outbox": outbox}
        for name, inbox in inboxes.items():
            participants[f"{place}-{name}"] = {**kind, "inbox": {"delivery_guarantee": inbox}}
            routes[f"{place}-{name}"] = {
                "filter": {"prefix": {"type": "org."}},
                "to": f"{place}-{name}.inbox",
                "delivery_guarantee": of_routes[name],
            }
    guarantee = draw(st.none() | GUARANTEES)
    return small_contract(participants, routes, {"org.declared": {"delivery_guarantee": guarantee}})


@pytest.mark.source("P4", "C1")
@given(planes(), st.sampled_from(["org.declared", "org.undeclared", DEAD_LETTER_TYPE]), st.booleans())
def test_device_and_cloud_promise_the_same_deliveries(plane: Contract, type: str, asks: bool) -> None:
    attributes = {"deliveryguarantee": BEST_EFFORT} if asks else {}
    on_device, in_cloud = (
        write_event(
            {"id": "1", "source": "/a", "type": type, **attributes}, {"channel": f"{place}-sender.outbox"}
        ).json
        for place in ("device", "cloud")
    )
    outbox = plane.channel("device-sender.outbox")
    decision = decider(plane).accept(on_device.encode(), outbox, SequenceNumber(1, 0))
    stored = set(decision.arrival.destinations) if decision.arrival else set()
    assert decision.refused is None
    assert stored | {each.destination for each in decision.volatile} == {"device-a.inbox", "device-b.inbox"}
    assert len(stored) + len(decision.volatile) == 2

    first, again = (routed(plane, "cloud-sender.outbox", in_cloud, attempt) for attempt in (1, 2))
    promised = {step.record.destination for step in first if not step.tried_once}
    assert all(step.event and step.record.outcome is Outcome.DELIVERED for step in first)
    assert {each.replace("cloud", "device") for each in promised if each} == stored
    assert {step.record.destination for step in again if step.event} == promised
    assert {step.record.reason for step in again if not step.event} <= {NOT_REPEATED}
    assert len(again) == len(first) == 2
