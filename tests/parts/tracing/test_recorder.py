"""The router's spans as an OTLP receiver gets them; failures there do not affect deliveries."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from eventplane.batch import pack
from eventplane.trace_context import TraceHop, context_of, span_id
from lab.network import free_port
from lambdas.common import system
from lambdas.common.aws import QUICK
from parts.tracing import export
from parts.tracing.export import MAX_SPANS, REST_S, SpanExport, invocation_links
from parts.tracing.recorder import OtlpRecorder
from parts.tracing.spans import Span, SpanKind, inbox_context
from tests.endpoint import EndpointServer, drips
from tests.otlp import Receiver, otlp_receiver
from tests.unit.lambdas.support import ALARM, Cloud, event, frame, message

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ONE = message("m1", frame(event("1")))
Route = Callable[..., frozenset[str]]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no fault of the collector's."""
    monkeypatch.setattr(export, "PATIENCE_S", 60.0)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with otlp_receiver() as it:
        yield it


@pytest.fixture
def route(cloud: Cloud) -> Route:
    """Routes a message and tells the collector at `url` of a `share` of its events."""

    def route(url: str, sent: Any = ONE, *, share: float = 1.0, source: str = "device.outbox") -> Any:
        recorder = OtlpRecorder(
            SpanExport(urlsplit(url), system.threads, system.monotonic), "router-ingest", share
        )
        return cloud.route(sent, source=source, spans=recorder)

    return route


def test_one_trace_leads_from_the_producer_s_span_to_every_inbox(route: Route, receiver: Receiver) -> None:
    alarm = event("1", ALARM, traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="a=1")
    assert route(receiver.url, message("m1", frame(pack([alarm, event("2")])))) == frozenset()

    spans = {each.name: each for each in receiver.spans if each.trace_id == TRACE}
    chain = ["device", "ingest device.outbox", "router device.outbox"]
    assert [spans[name].parent_id for name in chain] == [PARENT, *(spans[name].span_id for name in chain[:2])]
    for inbox in ("alarm-centre.inbox", "family-app.inbox"):
        sent = spans[f"send {inbox}"]
        assert sent.parent_id == spans["router device.outbox"].span_id
        # The reader of the inbox finds the same id, from what it has of the event.
        reads = inbox_context(context_of(alarm), alarm, sent.attributes["eventplane.route"])
        assert (reads.trace_id, reads.parent_id) == (TRACE, sent.span_id)
    assert {each.state for each in spans.values()} == {"a=1"}
    assert [spans[name].service for name in chain[::2]] == ["device", "router-ingest"]
    others = {each.trace_id for each in receiver.spans} - {TRACE}
    assert others == {context_of(event("2")).trace_id}


def test_an_unsampled_trace_is_left_alone(route: Route, receiver: Receiver) -> None:
    quiet, loud = (event(str(flag), ALARM, traceparent=f"00-{TRACE}-{PARENT}-0{flag}") for flag in range(2))
    route(receiver.url, message("m1", frame(pack([quiet, loud, event("3")]))), share=0.0)
    assert {each.attributes["cloudevents.event_id"] for each in receiver.spans} == {"1"}


def test_a_dead_letter_continues_the_trace_of_its_event(route: Route, receiver: Receiver) -> None:
    too_often = event("1", ALARM, routerhops=8, traceparent=f"00-{TRACE}-{PARENT}-01")
    route(receiver.url, message("m1", too_often.json), source="family-app.outbox")
    assert {each.trace_id for each in receiver.spans} == {TRACE}
    assert {each.name: each.error for each in receiver.spans if each.error} == {"send none": "hop_limit"}
    assert "send operations.inbox" in {each.name for each in receiver.spans}


def test_a_malformed_event_has_no_span_but_its_dead_letter_has(route: Route, receiver: Receiver) -> None:
    assert route(receiver.url, message("m1", frame(b"{"))) == frozenset()
    assert {each.name for each in receiver.spans} == {"router device.outbox", "send operations.inbox"}


def test_every_copy_has_a_span(route: Route, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "Root=1-67891233-abcdef012345678912345678;Parent=53995c3f42cd8ad8;Sampled=1;Lineage=1:a:0"
    monkeypatch.setenv("_X_AMZN_TRACE_ID", header)
    route(receiver.url, message("m1", frame(pack([event("1"), event("1")]))))
    linked = [each for each in receiver.spans if each.links]
    assert [(each.name, each.span_id) for each in linked] == [
        ("router device.outbox", span_id(event("1"), TraceHop.ROUTER))
    ] * 2
    assert {each.links for each in linked} == {(("67891233abcdef012345678912345678", "53995c3f42cd8ad8"),)}


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        "Root=1-67891233-abcdef012345678912345678;Parent=53995c3f42cd8ad8;Sampled=0",
        "Root=1-a-b;Sampled=1",
    ],
)
def test_an_unsampled_invocation_is_not_linked(header: str) -> None:
    assert invocation_links({"_X_AMZN_TRACE_ID": header}) == ()


@pytest.mark.parametrize(
    ("collector", "patience_s"), [("closed port", 60.0), ("slow", 0.1), ("refusing", 60.0)]
)
def test_a_failing_collector_loses_no_event(
    cloud: Cloud,
    route: Route,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    collector: str,
    patience_s: float,
) -> None:
    monkeypatch.setattr(export, "PATIENCE_S", patience_s)
    receiver.status = 503
    # Each byte of the slow one comes within the socket's own timeout: only a limit on the whole ends that.
    with EndpointServer(drips) as slow:
        ports = {"closed port": free_port(), "slow": slow.port, "refusing": urlsplit(receiver.url).port}
        assert route(f"http://127.0.0.1:{ports[collector]}") == frozenset()
    assert cloud.copies() == {"care-analytics.inbox": 1}


def test_a_defect_costs_nothing(route: Route, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parts.tracing.recorder.router_spans", lambda *_, **__: 1 / 0)
    assert (route(receiver.url), receiver.requests) == (frozenset(), 0)


def spans_of(number: int) -> list[Span]:
    span = Span(TRACE, PARENT, None, "a", SpanKind.CONSUMER, "s", 1, 2)
    return [replace(span, span_id=f"{each + 1:016x}") for each in range(number)]


def test_a_failing_collector_is_not_called_for_a_while(receiver: Receiver) -> None:
    receiver.status, now = 503, 0.0
    export = SpanExport(urlsplit(receiver.url), system.threads, lambda: now)
    for _ in range(2):
        export.send(spans_of(1), lambda: 30_000)
    assert (receiver.requests, receiver.spans) == (1, [])
    receiver.status, now = 200, REST_S
    export.send(spans_of(1), lambda: 30_000)
    assert len(receiver.spans) == 1


def test_no_export_begins_without_time(receiver: Receiver) -> None:
    export = SpanExport(urlsplit(receiver.url), system.threads, system.monotonic)
    export.send(spans_of(1), lambda: export.reserve_ms - 1)
    assert receiver.requests == 0
    # The urgent one has 12 s in all (stacks/environments.toml).
    urgent = SpanExport(urlsplit(receiver.url), system.threads, system.monotonic, QUICK)
    urgent.send(spans_of(1), lambda: 10_000)
    assert len(receiver.spans) == 1


def test_a_request_has_a_limited_number_of_spans(receiver: Receiver) -> None:
    export = SpanExport(urlsplit(f"{receiver.url}/"), system.threads, system.monotonic)
    export.send(spans_of(MAX_SPANS + 5), lambda: 30_000)
    assert len(receiver.spans) == MAX_SPANS
