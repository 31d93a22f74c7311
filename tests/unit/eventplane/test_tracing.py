"""The spans of one event, as somebody reads them who looks for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventplane.attributes import AttributeValue
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, write_event
from eventplane.ledger import LedgerRecord
from eventplane.reasons import Outcome
from eventplane.tracing.context import context_of
from eventplane.tracing.spans import LONGEST_WAIT_MS, RoutingRecord, Span, router_spans

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


def test_the_router_s_own_letter_comes_from_no_device_and_stays_in_the_trace() -> None:
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


def test_clocks_that_disagree_draw_no_span_that_ends_before_it_begins() -> None:
    of = event()
    found = spans(of, replace(record(of), entered_at_ms=ENDED_MS + 60_000))
    assert all(each.start_ms <= each.end_ms <= ENDED_MS for each in found.values())
