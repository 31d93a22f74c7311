"""What the client tells OpenTelemetry: by its SDK, and as a real receiver of OTLP gets it."""

import asyncio
from collections.abc import Callable
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
from eventplane.trace_context import TraceHop, context_of, span_id
from eventplane_client import Client, Mode
from eventplane_client.aio import AsyncClient
from eventplane_client.errors import ClosedError, NothingThereError
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.ports import Message
from parts.tracing.client import OpenTelemetry
from tests.otlp import otlp_receiver
from tests.unit.client.worlds import memory_client

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SOON = 20.0
ALARMS = {"exact": {"type": "alarm"}}


class Told:
    """A plane in memory whose clients tell an SDK."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.plane = MemoryPlane()
        self.plane.subscribe("everything", "all", None)  # what nobody takes is refused
        self.exporter = InMemorySpanExporter()
        provider = provider or TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("a program")
        self.metrics = InMemoryMetricReader()
        self.telemetry = OpenTelemetry(1.0, tracers=provider, meters=MeterProvider([self.metrics]))

    def client(self, name: str, **options: Any) -> Client:
        client = memory_client(self.plane, name, **options)
        client.telemetry = self.telemetry
        return client

    def put(self, *events: Envelope) -> None:
        with self.client("sender") as sender:
            for each in events:
                sender.put(each)

    def handled(self, sent: Envelope, handler: Callable[[Envelope], object] = lambda _: None) -> Envelope:
        """Put `sent`, handle it, and return it as it came."""
        came: list[Envelope] = []

        def handle(got: Envelope) -> object:
            came.append(got)
            return handler(got)

        with self.client("reader") as client, client.subscribe(ALARMS) as inbox:
            self.put(sent)
            inbox.handle(handle, idle_s=0)
        return came[0]

    def counted(self, name: str) -> Any:
        """The only value of the counter of this name."""
        data: Any = self.metrics.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        (point,) = next(each.data.data_points for each in metrics if each.name == name)
        return point

    @property
    def finished(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def span(self, name: str) -> Any:
        """The last span of this name."""
        return {each.name: each for each in self.finished}[name]

    def parent(self, name: str) -> str:
        return f"{self.span(name).parent.span_id:016x}"

    def id(self, name: str) -> str:
        return f"{self.span(name).context.span_id:016x}"

    def traces(self) -> set[str]:
        return {f"{each.context.trace_id:032x}" for each in self.finished if each.context}


@pytest.fixture
def told() -> Told:
    return Told()


def event(id: str = "1", data: object = None, **attributes: str) -> Envelope:
    return write_event({"id": id, "source": "/homes/1", "type": "alarm"} | attributes, data)


PUT, PROCESS, ANSWER = "send sender.outbox", "process reader.inbox", "send reader.outbox"


def test_one_trace_from_put_to_put(told: Told) -> None:
    with told.client("reader") as answers:
        got = told.handled(event(), lambda _: answers.put(event("2", type="answer")))
    assert len(told.traces()) == 1
    assert told.parent(PROCESS) == told.id(PUT)
    assert told.parent(ANSWER) == told.id(PROCESS)
    # The event names the span that put it, and nothing else changes.
    name = str(got.attributes["traceparent"])
    assert name.split("-")[2] == told.id(PUT)
    assert without_stamp(got).json == f'{{"traceparent":"{name}",' + event().json[1:]
    assert told.span(PROCESS).attributes["eventplane.sender"] == "sender"
    assert "eventplane.sender" not in told.span(PUT).attributes


def test_the_trace_that_an_event_has_is_never_replaced(told: Told) -> None:
    sent = event(traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="a=1")
    with told.tracer.start_as_current_span("something else"):
        assert without_stamp(told.handled(sent)).json == sent.json
    for name in (PUT, PROCESS):
        context = told.span(name).context
        assert (f"{context.trace_id:032x}", told.parent(name)) == (TRACE, PARENT)
        assert context.trace_state.to_header() == "a=1"


def test_an_event_with_no_room_for_a_name_goes_as_it_is(told: Told) -> None:
    largest = event(data="x" * (MAX_SENT_EVENT_BYTES - len(event(data="").json)))
    assert without_stamp(told.handled(largest)).json == largest.json
    assert told.span(PROCESS)


def test_a_span_shows_the_wait_in_the_queue(told: Told) -> None:
    got = event()
    message = Message(got.json.encode(), 3, None, sent_at_ms=1_767_225_600_000, route="alarms")
    told.telemetry.begin("reader", got, message).end(None)
    waited = "inbox reader.inbox"
    assert told.parent(waited) == span_id(got, TraceHop.SEND, "alarms")
    assert told.traces() == {context_of(got).trace_id}
    assert told.span(waited).start_time == 1_767_225_600_000 * 1_000_000
    assert told.parent(PROCESS) == told.id(waited)
    assert told.span(PROCESS).attributes["eventplane.attempt"] == 3


def test_untraced_events_follow_the_device(told: Told) -> None:
    got = event()
    told.telemetry.begin("reader", got, Message(got.json.encode(), 1, None)).end(None)
    assert told.parent(PROCESS) == span_id(got, TraceHop.DEVICE)


def test_a_share_of_none_draws_only_what_asks_for_it(told: Told) -> None:
    told.telemetry._share = 0.0
    for each in (event(), event("2", traceparent=f"00-{TRACE}-{PARENT}-01")):
        told.telemetry.begin("reader", each, Message(each.json.encode(), 1, None)).end(None)
    assert told.traces() == {TRACE}


def test_a_failure_is_an_error_in_its_span(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Envelope) -> None:
        raise KeyError("room")

    told.handled(event(), fail)
    failed = told.counted("eventplane.client.failed")
    assert (failed.value, failed.attributes["error.type"]) == (1, "KeyError")
    (raised,) = told.span(PROCESS).events
    assert "in fail" in raised.attributes["exception.stacktrace"]
    assert not told.span(PROCESS).status.is_ok
    assert told.span(PROCESS).attributes["error.type"] == "KeyError"

    def refuse(*_: object, **__: object) -> None:
        raise ClosedError("sender")

    monkeypatch.setattr(MemoryTransport, "put", refuse)
    with pytest.raises(ClosedError):
        told.put(event())
    assert not told.span(PUT).status.is_ok


@pytest.mark.parametrize("mode", list(Mode))
def test_each_way_of_reading_ends_the_span_of_what_it_read_once(told: Told, mode: Mode) -> None:
    with told.client("reader", mode=mode) as client, client.subscribe(ALARMS) as inbox:
        told.put(*(event(id) for id in "abcd"))
        inbox.get(SOON)
        inbox.get_batch(1, SOON)
        inbox.receive(SOON).ack()
        received = inbox.receive(SOON)
        with received.traced():
            client.put(event("2", type="answer"))
        received.nack("busy")
    processed = [each for each in told.finished if each.name == PROCESS]
    ids = {f"{each.context.span_id:016x}": each.status.is_ok for each in processed if each.context}
    assert len(processed) == len(ids) == 4
    # What is put by hand within the trace of the one that failed belongs to it.
    assert [id for id, is_ok in ids.items() if not is_ok] == [told.parent(ANSWER)]


def test_on_asyncio_a_put_belongs_to_the_task_s_own_span(told: Told) -> None:
    async def run() -> None:
        async with AsyncClient(told.client("sender")) as sender:
            with told.tracer.start_as_current_span("mine"):
                await sender.put(event())

    asyncio.run(run())
    assert told.parent(PUT) == told.id("mine")


@pytest.mark.source("C4")
def test_what_expired_is_counted_and_has_no_span(told: Told) -> None:
    told.plane.subscribe("reader", "all", None)
    told.plane.deliver("reader", event(expirytime="2001-01-01T00:00:00Z"))
    with told.client("reader") as client, client.subscribe() as inbox, pytest.raises(NothingThereError):
        inbox.get(0)
    expired = told.counted("eventplane.client.expired")
    assert (expired.value, told.finished) == (1, ())
    assert expired.attributes["messaging.destination.name"] == "reader.inbox"


@pytest.mark.source("P18")
def test_traces_and_metrics_reach_a_receiver_of_otlp() -> None:
    with otlp_receiver() as receiver:
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
        meters = MeterProvider(
            [PeriodicExportingMetricReader(OTLPMetricExporter(f"{receiver.url}/v1/metrics"))]
        )
        told = Told(tracers)
        told.telemetry = OpenTelemetry(1.0, tracers=tracers, meters=meters)
        told.handled(event())
        tracers.shutdown()
        meters.shutdown()
    assert {each.name for each in receiver.spans} == {PUT, PROCESS}
    assert receiver.metrics == {
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "messaging.process.duration",
    }


def test_without_an_sdk_nothing_is_told_and_no_event_changes(told: Told) -> None:
    told.telemetry = OpenTelemetry(tracers=trace.NoOpTracerProvider())
    assert without_stamp(told.handled(event())).json == event().json
