"""Whatever an event is like: its spans are one trace and a chain, and every hop computes the same ids."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eventplane.attributes import is_traceparent
from eventplane.envelope import Envelope, parse_event, sent_on, write_event
from eventplane.errors import EnvelopeError
from eventplane.reasons import Outcome
from eventplane.tracing.context import Hop, context_of, span_id, traceparent
from eventplane.tracing.spans import RoutingRecord, Span, inbox_context, otlp_json, router_spans
from tests.otlp import decode_traces
from tests.property.strategies import EVENTS
from tests.unit.eventplane.test_tracing import record

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


@given(EVENTS, SHARE, st.text(st.characters(codec="utf-8"), max_size=10))
def test_every_hop_computes_the_same_from_what_it_sees(event: Envelope, share: float, route: str) -> None:
    try:
        here = event.stamped(deviceepoch="e", devicesequence="1", senderservice="voice")
    except EnvelopeError:
        return
    read = parse_event(here.stamped(senderdevice="home-1").json.encode())
    assert context_of(read, share) == context_of(event, share)
    for hop in Hop:
        assert span_id(read, hop, route) == span_id(event, hop, route)
    parent = inbox_context(context_of(read, share), read, route)
    assert parent.parent_id == span_id(event, Hop.SEND, route)


@given(EVENTS, SHARE)
def test_a_share_never_overrules_the_sampling_of_the_sender(event: Envelope, share: float) -> None:
    context = context_of(event, share)
    if carried := event.attributes.get("traceparent"):
        assert context.is_sampled == bool(int(str(carried).split("-")[3], 16) & 1)
    else:
        assert context_of(event, 1.0).is_sampled
        assert not context_of(event, 0.0).is_sampled
        assert not context.is_sampled or context_of(event, min(1.0, share + 0.1)).is_sampled


@given(EVENTS)
def test_the_name_of_a_span_is_a_traceparent_that_leads_to_it(event: Envelope) -> None:
    context = context_of(event)
    router = span_id(event, Hop.ROUTER)
    named = traceparent(context.trace_id, router, is_sampled=True)
    assert is_traceparent(named)
    answer = write_event({"id": "1", "source": "/s", "type": "t", "traceparent": named})
    assert context_of(answer, 0.0) == replace(context, parent_id=router, is_sampled=True, state="")


@given(EVENTS.filter(lambda event: "routerhops" not in event.attributes))
def test_a_copy_that_was_sent_on_has_spans_of_its_own(event: Envelope) -> None:
    again = sent_on(event)
    assert context_of(again) == context_of(event)
    assert {span_id(again, hop) for hop in Hop}.isdisjoint({span_id(event, hop) for hop in Hop})
