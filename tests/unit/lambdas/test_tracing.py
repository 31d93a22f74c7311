"""The router's spans, as a real receiver of OTLP gets them; and that nothing there touches a delivery."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from eventplane.batch import pack
from eventplane.contract import Contract
from eventplane.function_settings import TracingSettings
from eventplane.tracing.context import Hop, context_of, span_id
from eventplane.tracing.spans import inbox_context
from lambdas.common import span_export
from lambdas.common.aws import QUICK
from lambdas.common.span_export import MAX_SPANS, REST_S, SpanExport, invocation_links
from lambdas.common.sqs import SqsSender
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import build_engine
from lambdas.router.service import RouterService
from lambdas.router.span_recorder import SpanRecorder, span_recorder
from tests.otlp import Receiver, otlp_receiver
from tests.unit.lambdas.support import (
    ALARM,
    NOW_MS,
    READING,
    Cloud,
    event,
    frame,
    invocation,
    ledger_of,
    message,
)

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
Route = Callable[..., frozenset[str]]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no fault of the collector's."""
    monkeypatch.setattr(span_export, "PATIENCE_S", 60.0)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with otlp_receiver() as it:
        yield it


@pytest.fixture
def route(contract: Contract, cloud: Cloud) -> Route:
    """Routes messages and tells the collector at `url` of a `share` of them; the ids that come again."""

    def route(
        url: str, *messages: Any, share: float = 1.0, source: str = "device.outbox", sqs: Any = None
    ) -> Any:
        engine = build_engine(contract, source, cloud.queues)
        service = RouterService(
            engine=lambda: engine,
            dispatch=Dispatch(SqsSender(sqs or cloud.sqs), cloud.queues),
            ledger=ledger_of(cloud),
            clock=lambda: NOW_MS,
            spans=SpanRecorder(SpanExport(urlsplit(url)), "router-ingest", share),
        )
        return service.process(messages, invocation())

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
    assert spans["device"].service == "device"
    assert spans["router device.outbox"].service == "router-ingest"

    others = {each.trace_id for each in receiver.spans} - {TRACE}
    assert others == {context_of(event("2")).trace_id}


def test_who_says_that_a_trace_is_not_drawn_is_obeyed_and_a_share_is_of_the_rest(
    route: Route, receiver: Receiver
) -> None:
    quiet = event("1", ALARM, traceparent=f"00-{TRACE}-{PARENT}-00")
    loud = event("2", ALARM, traceparent=f"00-{TRACE}-{PARENT}-01")
    route(receiver.url, message("m1", frame(pack([quiet, loud, event("3")]))), share=0.0)
    assert {each.attributes["cloudevents.event_id"] for each in receiver.spans} == {"2"}


def test_a_dead_letter_goes_on_in_the_trace_of_its_event(route: Route, receiver: Receiver) -> None:
    too_often = event("1", ALARM, routerhops=8, traceparent=f"00-{TRACE}-{PARENT}-01")
    route(receiver.url, message("m1", too_often.json), source="family-app.outbox")
    assert {each.trace_id for each in receiver.spans} == {TRACE}
    errors = {each.name: each.error for each in receiver.spans if each.error}
    assert errors == {"send none": "hop_limit"}
    assert "send operations.inbox" in {each.name for each in receiver.spans}


def test_the_invocation_is_linked_to_once_an_event(
    route: Route, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = "Root=1-67891233-abcdef012345678912345678;Parent=53995c3f42cd8ad8;Sampled=1;Lineage=1:a:0"
    monkeypatch.setenv("_X_AMZN_TRACE_ID", header)
    route(receiver.url, message("m1", frame(pack([event("1"), event("2")]))))
    linked = [each for each in receiver.spans if each.links]
    assert [each.name for each in linked] == ["router device.outbox"] * 2
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
def test_an_invocation_that_x_ray_does_not_draw_is_not_linked_to(header: str) -> None:
    assert invocation_links({"_X_AMZN_TRACE_ID": header}) == ()


def test_what_is_no_event_is_not_drawn_and_its_letter_is(route: Route, receiver: Receiver) -> None:
    assert route(receiver.url, message("m1", frame(b"{"))) == frozenset()
    assert {each.name for each in receiver.spans} == {"router device.outbox", "send operations.inbox"}


def test_a_collector_that_refuses_costs_no_event_and_is_left_alone_for_a_while(
    cloud: Cloud, route: Route, receiver: Receiver
) -> None:
    receiver.status = 503
    assert route(receiver.url, message("m1", frame(event("1").json.encode()))) == frozenset()
    assert len(cloud.received("care-analytics.inbox")) == 1

    now = 0.0
    export = SpanExport(urlsplit(receiver.url), lambda: now)
    export.send(spans_of(1), lambda: 30_000)
    export.send(spans_of(1), lambda: 30_000)
    assert (receiver.requests, receiver.spans) == (2, [])
    receiver.status, now = 200, REST_S
    export.send(spans_of(1), lambda: 30_000)
    assert len(receiver.spans) == 1


def test_a_collector_that_is_away_costs_no_event(cloud: Cloud, route: Route) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert route(url, message("m1", frame(event("1").json.encode()))) == frozenset()
    assert len(cloud.received("care-analytics.inbox")) == 1


def test_a_collector_that_drips_costs_the_patience_of_one_invocation(
    cloud: Cloud, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_export, "PATIENCE_S", 0.1)
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                # Each byte comes within the socket's own timeout: only a bound on the whole ends this.
                while not is_over.wait(0.02):
                    try:
                        connection.sendall(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            assert route(url, message("m1", frame(event("1").json.encode()))) == frozenset()
            assert len(cloud.received("care-analytics.inbox")) == 1
        finally:
            is_over.set()
            thread.join()


def test_no_export_is_begun_without_time_for_it(receiver: Receiver) -> None:
    export = SpanExport(urlsplit(receiver.url))
    export.send(spans_of(1), lambda: export.reserve_ms - 1)
    assert receiver.requests == 0


def test_the_urgent_router_has_time_for_an_export(receiver: Receiver) -> None:
    # It has 12 s in all (stacks/config.py).
    SpanExport(urlsplit(receiver.url), patience=QUICK).send(spans_of(1), lambda: 10_000)
    assert len(receiver.spans) == 1


def test_a_request_has_a_bound_and_what_is_beyond_is_not_sent(receiver: Receiver) -> None:
    SpanExport(urlsplit(f"{receiver.url}/")).send(spans_of(MAX_SPANS + 5), lambda: 30_000)
    assert len(receiver.spans) == MAX_SPANS


def test_a_defect_of_the_span_recorder_brings_no_message_back(
    route: Route, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lambdas.router.span_recorder.router_spans", lambda *_, **__: 1 / 0)
    assert route(receiver.url, message("m1", frame(event("1").json.encode()))) == frozenset()
    assert receiver.requests == 0


def spans_of(number: int) -> list[Any]:
    from eventplane.tracing.spans import Span, SpanKind

    span = Span(TRACE, PARENT, None, "a", SpanKind.CONSUMER, "s", 1, 2)
    return [replace(span, span_id=f"{each + 1:016x}") for each in range(number)]


SETTINGS = {
    "EVENTPLANE_OTLP_ENDPOINT": "http://localhost:4318",
    "EVENTPLANE_TRACE_SHARE": "0.25",
    "POWERTOOLS_SERVICE_NAME": "eventplane-dev-router-ingest",
}


def test_spans_go_to_the_collector_that_the_settings_name() -> None:
    found = TracingSettings.read(SETTINGS)
    assert (found.otlp_endpoint, found.trace_share) == ("http://localhost:4318", 0.25)
    assert span_recorder(None, QUICK) is None


def test_two_copies_in_one_batch_are_drawn_each(route: Route, receiver: Receiver) -> None:
    one = event("1", READING)
    route(receiver.url, message("m1", frame(pack([one, one]))))
    routers = [each for each in receiver.spans if each.name.startswith(Hop.ROUTER)]
    assert [each.span_id for each in routers] == [span_id(one, Hop.ROUTER)] * 2
