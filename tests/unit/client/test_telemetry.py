"""What the client tells OpenTelemetry: by its SDK, and as a real receiver of OTLP gets it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from eventplane.envelope import Envelope, write_event
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.sending import without_stamp
from eventplane.tracing.context import Hop, context_of, span_id
from eventplane_client import Client, ClientSettings, Inbox, Mode, connect
from eventplane_client.aio import AsyncClient
from eventplane_client.errors import ClientSettingsError, ClosedError, NothingThereError
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_filter import Memory, MemoryFilter
from eventplane_client.memory_subscriptions import MemorySubscriptions
from eventplane_client.otel import OpenTelemetry
from eventplane_client.ports import Message
from tests.otlp import otlp_receiver
from tests.unit.client.worlds import memory_client

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SOON = 20.0


class Told:
    """A plane in memory whose clients tell an SDK."""

    def __init__(self) -> None:
        self.plane = MemoryPlane()
        self.plane.subscribe("everything", "all", None)  # what nobody takes is refused
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("a program")
        self.telemetry = OpenTelemetry(1.0, tracers=provider)

    def client(self, name: str, **options: Any) -> Client:
        client = memory_client(self.plane, name, **options)
        client.telemetry = self.telemetry
        return client

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """By name; of several the last."""
        return {each.name: each for each in self.exporter.get_finished_spans()}


@pytest.fixture
def told() -> Told:
    return Told()


def event(id: str = "1", **attributes: str) -> Envelope:
    return write_event({"id": id, "source": "/homes/1", "type": "alarm"} | attributes)


def unstamped(got: Envelope) -> str:
    """The event as its sender put it."""
    return without_stamp(got).json


ALARMS = {"exact": {"type": "alarm"}}


def handle(told: Told, handler: Any, sent: Envelope | None = None) -> None:
    with told.client("reader") as client, client.subscribe(ALARMS) as inbox:
        with told.client("sender") as sender:
            sender.put(sent or event())
        inbox.handle(handler, idle_s=0)


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def traces(told: Told) -> set[int]:
    return {each.context.trace_id for each in told.exporter.get_finished_spans() if each.context}


def test_one_trace_from_who_puts_over_who_handles_to_what_is_put_then(told: Told) -> None:
    with told.client("reader") as answers:

        def answer(got: Envelope) -> None:
            answers.put(event("2", type="answer"))

        handle(told, answer)
    spans = told.spans
    assert len(traces(told)) == 1
    assert parent_of(spans["process reader.inbox"]) == id_of(spans["send sender.outbox"])
    assert parent_of(spans["send reader.outbox"]) == id_of(spans["process reader.inbox"])


def test_the_event_names_the_span_that_put_it_and_nothing_else_changes(told: Told) -> None:
    got: list[Envelope] = []
    handle(told, got.append)
    (name,) = [str(each.attributes["traceparent"]) for each in got]
    assert int(name.split("-")[2], 16) == id_of(told.spans["send sender.outbox"])
    assert unstamped(got[0]) == f'{{"traceparent":"{name}",' + event().json[1:]
    senders = {name: (span.attributes or {}).get("eventplane.sender") for name, span in told.spans.items()}
    assert senders == {"send sender.outbox": None, "process reader.inbox": "sender"}


def test_the_trace_that_an_event_has_is_never_replaced(told: Told) -> None:
    got: list[Envelope] = []
    sent = event(traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="a=1")
    with told.tracer.start_as_current_span("something else"):
        handle(told, got.append, sent)
    assert [unstamped(each) for each in got] == [sent.json]
    for name in ("send sender.outbox", "process reader.inbox"):
        span = told.spans[name]
        assert span.context is not None
        assert (f"{span.context.trace_id:032x}", f"{parent_of(span):016x}") == (TRACE, PARENT)
        assert span.context.trace_state.to_header() == "a=1"


def test_an_event_with_no_room_for_a_name_goes_as_it_is(told: Told) -> None:
    largest = write_event({"id": "1", "source": "/homes/1", "type": "alarm"}, "")
    largest = write_event(
        {"id": "1", "source": "/homes/1", "type": "alarm"}, "x" * (MAX_SENT_EVENT_BYTES - len(largest.json))
    )
    got: list[Envelope] = []
    handle(told, got.append, largest)
    assert [unstamped(each) for each in got] == [largest.json]
    assert "process reader.inbox" in told.spans


def test_what_came_over_a_queue_goes_on_from_the_router_and_shows_how_long_it_waited(told: Told) -> None:
    got = event()
    message = Message(got.json.encode(), 3, None, sent_at_ms=1_767_225_600_000, route="alarms")
    told.telemetry.begin("reader", got, message).end(None)
    waited, processed = told.spans["inbox reader.inbox"], told.spans["process reader.inbox"]
    assert f"{parent_of(waited):016x}" == span_id(got, Hop.SEND, "alarms")
    assert waited.context is not None
    assert f"{waited.context.trace_id:032x}" == context_of(got).trace_id
    assert waited.start_time == 1_767_225_600_000 * 1_000_000
    assert parent_of(processed) == id_of(waited)
    assert processed.attributes is not None
    assert processed.attributes["eventplane.attempt"] == 3


def test_on_a_device_an_event_without_a_trace_follows_the_device_s_span(told: Told) -> None:
    got = event()
    told.telemetry.begin("reader", got, Message(got.json.encode(), 1, None)).end(None)
    assert f"{parent_of(told.spans['process reader.inbox']):016x}" == span_id(got, Hop.DEVICE)


def test_a_share_of_none_draws_only_what_asks_for_it() -> None:
    told = Told()
    told.telemetry._share = 0.0
    plain, asked = event(), event("2", traceparent=f"00-{TRACE}-{PARENT}-01")
    for each in (plain, asked):
        told.telemetry.begin("reader", each, Message(each.json.encode(), 1, None)).end(None)
    assert [f"{each:032x}" for each in traces(told)] == [TRACE]


def test_a_handler_that_fails_is_an_error_with_its_name(told: Told) -> None:
    def fail(_: Envelope) -> None:
        raise KeyError("room")

    handle(told, fail)
    span = told.spans["process reader.inbox"]
    assert not span.status.is_ok
    assert span.attributes is not None
    assert span.attributes["error.type"] == "KeyError"


def test_a_put_that_fails_is_an_error_and_still_raises(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ClosedError("sender")

    monkeypatch.setattr(MemoryTransport, "put", refuse)
    with told.client("sender") as sender, pytest.raises(ClosedError):
        sender.put(event())
    assert not told.spans["send sender.outbox"].status.is_ok


@pytest.mark.parametrize("mode", list(Mode))
def test_each_way_of_reading_ends_the_span_of_what_it_read_once(told: Told, mode: Mode) -> None:
    with told.client("reader", mode=mode) as client, client.subscribe(ALARMS) as inbox:
        with told.client("sender") as sender:
            for id in "abcd":
                sender.put(event(id))
        inbox.get(SOON)
        inbox.get_batch(1, SOON)
        inbox.receive(SOON).ack()
        inbox.receive(SOON).nack("busy")
    processed = [each for each in told.exporter.get_finished_spans() if each.name == "process reader.inbox"]
    assert [each.status.is_ok for each in processed].count(False) == 1
    assert len({id_of(each) for each in processed}) == len(processed) == 4


def test_what_is_put_by_hand_within_the_event_s_trace_belongs_to_it(told: Told) -> None:
    with told.client("reader") as client, client.subscribe(ALARMS) as inbox:
        with told.client("sender") as sender:
            sender.put(event())
        received = inbox.receive(SOON)
        with received.traced():
            client.put(event("2", type="answer"))
        received.ack()
    assert parent_of(told.spans["send reader.outbox"]) == id_of(told.spans["process reader.inbox"])


def test_on_asyncio_a_put_belongs_to_the_task_s_own_span(told: Told) -> None:
    async def run() -> None:
        async with AsyncClient(told.client("sender")) as sender:
            with told.tracer.start_as_current_span("mine"):
                await sender.put(event())

    asyncio.run(run())
    assert parent_of(told.spans["send sender.outbox"]) == id_of(told.spans["mine"])


@pytest.mark.source("C4")
def test_what_expired_is_counted_and_has_no_span(told: Told) -> None:
    reader = InMemoryMetricReader()
    told.telemetry = OpenTelemetry(1.0, meters=MeterProvider([reader]))
    told.plane.subscribe("reader", "all", None)
    told.plane.deliver("reader", event(expirytime="2001-01-01T00:00:00Z"))
    with told.client("reader") as client, client.subscribe() as inbox, pytest.raises(NothingThereError):
        inbox.get(0)
    data: Any = reader.get_metrics_data()
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == "eventplane.client.expired"
    (point,) = metric.data.data_points
    assert point.value == 1
    assert point.attributes["messaging.destination.name"] == "reader.inbox"


@pytest.mark.source("P18")
def test_traces_and_metrics_reach_a_receiver_of_otlp() -> None:
    with otlp_receiver() as receiver:
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{receiver.url}/v1/metrics"))
        meters = MeterProvider([reader])
        told = Told()
        told.telemetry = OpenTelemetry(1.0, tracers=tracers, meters=meters)
        handle(told, lambda _: None)
        tracers.shutdown()
        meters.shutdown()
    assert {each.name for each in receiver.spans} == {"send sender.outbox", "process reader.inbox"}
    assert receiver.metrics == {
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "messaging.process.duration",
    }


def test_without_an_sdk_nothing_is_told_and_no_event_changes() -> None:
    plane = MemoryPlane()
    got: list[Envelope] = []
    filter, name = MemoryFilter(Memory(), 100), "reader"
    transport = MemoryTransport(plane, name)
    MemorySubscriptions(plane, name).subscribe("inbox", {"exact": {"type": "alarm"}})
    provider = trace.NoOpTracerProvider()
    telemetry = OpenTelemetry(tracers=provider)
    with telemetry.putting("sender", event()) as sent:
        MemoryTransport(plane, "sender").put(sent, 1, durable=True)
    with Inbox(name, transport, filter, telemetry=telemetry) as inbox:
        inbox.handle(got.append, idle_s=0)
    assert [unstamped(each) for each in got] == [event().json]


@pytest.fixture
def _no_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "eventplane_client.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    return


@pytest.mark.usefixtures("_no_opentelemetry")
def test_who_asks_for_it_without_having_it_is_told_what_to_install() -> None:
    connect(ClientSettings("reader", "memory:no-otel")).close()
    with pytest.raises(ClientSettingsError, match="install opentelemetry-api"):
        connect(ClientSettings("reader", "memory:no-otel", telemetry="opentelemetry"))


def test_the_environment_asks_for_it() -> None:
    settings = ClientSettings.read(
        {
            "EVENTPLANE_CLIENT_PARTICIPANT": "reader",
            "EVENTPLANE_CLIENT_TRANSPORT": "memory:otel",
            "EVENTPLANE_CLIENT_TELEMETRY": "opentelemetry",
            "EVENTPLANE_CLIENT_TRACE_SHARE": "0.5",
        }
    )
    assert (settings.telemetry, settings.trace_share) == ("opentelemetry", 0.5)
    connect(settings).close()
    with pytest.raises(ClientSettingsError, match="use one of: none, opentelemetry"):
        connect(ClientSettings("reader", "memory:otel", telemetry="yes"))
    with pytest.raises(ClientSettingsError, match="0 to 1"):
        ClientSettings.read(
            {
                "EVENTPLANE_CLIENT_PARTICIPANT": "reader",
                "EVENTPLANE_CLIENT_TRANSPORT": "memory:otel",
                "EVENTPLANE_CLIENT_TRACE_SHARE": "2",
            }
        )
