"""The spans of one event, as somebody reads them who looks for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.attributes import AttributeValue, is_traceparent
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.hops import sent_on
from eventplane.ledger import LedgerRecord
from eventplane.reasons import Outcome
from eventplane.trace_context import TraceHop, context_of, span_id, traceparent
from parts.tracing.spans import LONGEST_WAIT_MS, RoutingRecord, Span, inbox_context, otlp_json, router_spans
from tests.otlp import decode_traces
from tests.property.strategies import EVENTS

SHARE = st.floats(0, 1)
MS = st.integers(-1_000, 2**43)
ROUTES = st.lists(st.sampled_from(["a", "b", "care", "x-y"]), unique=True, max_size=4)
OUTCOMES = st.sampled_from(list(Outcome))


@st.composite
def traced(draw: st.DrawFn) -> tuple[Envelope, list[Span]]:
    event = draw(EVENTS)
    routes = draw(ROUTES) or [None]
    outcomes = [draw(OUTCOMES) if route else Outcome.UNROUTED for route in routes]
    entered, decided = draw(MS), draw(MS)
    decisions = [
        RoutingRecord(
            replace(record(event, outcome, route), entered_at_ms=entered, decided_at_ms=decided), event
        )
        for route, outcome in zip(routes, outcomes, strict=True)
    ]
    began, took = draw(st.integers(0, 2**43)), draw(st.integers(-10, 10_000))
    spans = router_spans(
        context_of(event), event, decisions, service="router", began_ms=began, ended_ms=began + took
    )
    return event, list(spans)


@pytest.mark.long
@given(traced())
def test_the_spans_are_a_chain_in_the_event_s_trace(case: tuple[Envelope, list[Span]]) -> None:
    event, spans = case
    context = context_of(event)
    assert {span.trace_id for span in spans} == {context.trace_id}
    assert len({span.span_id for span in spans}) == len(spans)
    device, ingest, router, *sent = spans
    parents = [span.parent_id for span in (device, ingest, router)]
    assert parents == [context.parent_id, device.span_id, ingest.span_id]
    assert {span.parent_id for span in sent} == {router.span_id}
    if carried := event.attributes.get("traceparent"):
        assert str(carried).split("-")[1:3] == [device.trace_id, device.parent_id]
    for span in spans:
        assert 0 <= span.start_ms <= span.end_ms


@pytest.mark.long
@given(traced())
def test_opentelemetry_reads_the_spans_as_they_are(case: tuple[Envelope, list[Span]]) -> None:
    _, spans = case
    received = decode_traces(otlp_json(spans, "eventplane").encode(), "application/json")
    by_id = {each.span_id: each for each in received}
    assert len(received) == len(spans)
    for span in spans:
        found = by_id[span.span_id]
        assert (found.trace_id, found.parent_id or None) == (span.trace_id, span.parent_id)
        assert (found.name, found.service, found.start_ms) == (span.name, span.service, span.start_ms)
        assert (found.kind, found.end_ms, found.state) == (span.kind, span.end_ms, span.state)
        assert (found.error, found.attributes) == (span.error, dict(span.attributes))


@pytest.mark.long
@given(EVENTS, SHARE, st.text(st.characters(codec="utf-8"), max_size=10))
def test_every_hop_computes_the_same_from_what_it_sees(event: Envelope, share: float, route: str) -> None:
    try:
        here = event.stamped(deviceepoch="e", devicesequence="1", senderservice="voice")
    except EnvelopeError:
        return
    read = parse_event(here.stamped(senderdevice="home-1").json.encode())
    assert context_of(read, share) == context_of(event, share)
    for hop in TraceHop:
        assert span_id(read, hop, route) == span_id(event, hop, route)
    parent = inbox_context(context_of(read, share), read, route)
    assert parent.parent_id == span_id(event, TraceHop.SEND, route)


@pytest.mark.long
@given(EVENTS, SHARE)
def test_a_share_never_overrules_the_sampling_of_the_sender(event: Envelope, share: float) -> None:
    context = context_of(event, share)
    if carried := event.attributes.get("traceparent"):
        assert context.is_sampled == bool(int(str(carried).split("-")[3], 16) & 1)
    else:
        assert context_of(event, 1.0).is_sampled
        assert not context_of(event, 0.0).is_sampled
        assert not context.is_sampled or context_of(event, min(1.0, share + 0.1)).is_sampled


@pytest.mark.long
@given(EVENTS)
def test_the_name_of_a_span_is_a_traceparent_that_leads_to_it(event: Envelope) -> None:
    context = context_of(event)
    router = span_id(event, TraceHop.ROUTER)
    named = traceparent(context.trace_id, router, is_sampled=True)
    assert is_traceparent(named)
    answer = write_event({"id": "1", "source": "/s", "type": "t", "traceparent": named})
    assert context_of(answer, 0.0) == replace(context, parent_id=router, is_sampled=True, state="")


@pytest.mark.long
@given(EVENTS.filter(lambda event: "routerhops" not in event.attributes))
def test_a_copy_that_was_sent_on_has_spans_of_its_own(event: Envelope) -> None:
    again = sent_on(event)
    assert context_of(again) == context_of(event)
    assert {span_id(again, hop) for hop in TraceHop}.isdisjoint({span_id(event, hop) for hop in TraceHop})


ACCEPTED_MS = 1_767_225_600_000
BEGAN_MS, DECIDED_MS, ENDED_MS = ACCEPTED_MS + 200, ACCEPTED_MS + 210, ACCEPTED_MS + 250
RECORDED = "2025-12-31T23:59:58.500Z"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def event(**attributes: AttributeValue) -> Envelope:
    return write_event({"id": "1", "source": "/homes/1", "type": "alarm", **attributes})


def record(of: Envelope, outcome: Outcome = Outcome.DELIVERED, route: str | None = "alarms") -> LedgerRecord:
    return LedgerRecord(
        decided_at_ms=DECIDED_MS,
        entered_at_ms=ACCEPTED_MS,
        entered_by="device.outbox",
        contract_version="v1",
        source=of.source,
        id=of.id,
        type=of.type,
        priority="urgent",
        client_id="home-1",
        route=route,
        destination="alarm-centre.inbox" if route else None,
        outcome=outcome,
        reason=None if outcome is Outcome.DELIVERED else "why",
        attempt=2,
        message_id="m1",
        sender=str(of.sender),
    )


def spans(of: Envelope, *records: LedgerRecord, is_own: bool = False) -> dict[str, Span]:
    decisions = [RoutingRecord(each, of) for each in records or (record(of),)]
    made = router_spans(
        context_of(of),
        of,
        decisions,
        service="router",
        began_ms=BEGAN_MS,
        ended_ms=ENDED_MS,
        is_own=is_own,
        links=(("1" * 32, "2" * 16),),
    )
    return {each.name: each for each in made}


def test_each_hop_is_a_span_with_its_time_and_service() -> None:
    of = event(
        time=RECORDED, traceparent=f"00-{TRACE}-{PARENT}-01", senderdevice="h1", senderservice="voice-service"
    )
    found = spans(of)
    assert [
        (name, each.service, each.start_ms - ACCEPTED_MS, each.end_ms - ACCEPTED_MS)
        for name, each in found.items()
    ] == [
        ("device", "device", -1_500, 0),
        ("ingest device.outbox", "router", 0, 200),
        ("router device.outbox", "router", 200, 250),
        ("send alarm-centre.inbox", "router", 210, 250),
    ]
    assert found["device"].parent_id == PARENT
    assert found["device"].attributes["device.id"] == "home-1"
    assert found["ingest device.outbox"].attributes["eventplane.attempt"] == 2
    assert found["send alarm-centre.inbox"].attributes["eventplane.route"] == "alarms"
    assert {each.attributes["cloudevents.event_id"] for each in found.values()} == {"1"}
    assert {each.attributes["eventplane.sender"] for each in found.values()} == {"h1/voice-service"}
    # The invocation in which it was, once.
    assert [name for name, each in found.items() if each.links] == ["router device.outbox"]


def test_the_recorded_time_precedes_the_producer_s_time() -> None:
    found = spans(event(time=RECORDED, recordedtime="2026-01-01T00:00:00Z"))
    assert found["device"].start_ms == ACCEPTED_MS


@pytest.mark.parametrize(
    "time",
    ["1970-01-01T00:00:09Z", "2026-01-01T00:00:00.001Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"],
)
def test_a_device_s_clock_that_is_off_draws_no_span_of_decades(time: str) -> None:
    device = spans(event(time=time))["device"]
    assert (device.start_ms, device.end_ms) == (ACCEPTED_MS, ACCEPTED_MS)
    assert device.attributes["eventplane.implausible_time"] == time


def test_an_event_that_waited_a_month_on_its_device_is_believed() -> None:
    device = spans(event(time="2025-12-01T00:00:00Z"))["device"]
    assert device.end_ms - device.start_ms == LONGEST_WAIT_MS


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Outcome.DELIVERED, None),
        (Outcome.UNROUTED, None),
        (Outcome.EXPIRED, "why"),
        (Outcome.DEAD_LETTERED, "why"),
        (Outcome.DROPPED, "why"),
    ],
)
def test_a_delivery_that_failed_is_an_error_with_its_reason(outcome: Outcome, error: str | None) -> None:
    of = event()
    routed = spans(of, record(of, outcome))["send alarm-centre.inbox"]
    assert (routed.attributes["eventplane.outcome"], routed.error) == (outcome.value, error)
    if outcome is not Outcome.DELIVERED:
        whole = spans(of, record(of, outcome, route=None))["send none"]
        assert (whole.attributes["eventplane.outcome"], whole.error) == (outcome.value, error)


def test_the_routers_letter_stays_in_the_trace() -> None:
    letter = event(type=DEAD_LETTER_TYPE, traceparent=f"00-{TRACE}-{PARENT}-01")
    found = spans(letter, is_own=True)
    assert list(found) == ["router device.outbox", "send alarm-centre.inbox"]
    assert (found["router device.outbox"].trace_id, found["router device.outbox"].parent_id) == (
        TRACE,
        PARENT,
    )


def test_a_service_s_event_begins_in_its_outbox() -> None:
    of = event()
    found = spans(of, replace(record(of), client_id=None, entered_by="family-app.outbox"))
    assert list(found)[:2] == ["ingest family-app.outbox", "router family-app.outbox"]


def test_no_span_ends_before_it_begins() -> None:
    of = event()
    found = spans(of, replace(record(of), entered_at_ms=ENDED_MS + 60_000))
    assert all(each.start_ms <= each.end_ms <= ENDED_MS for each in found.values())
