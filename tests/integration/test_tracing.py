"""One trace, from a service on a device over forwarder, IoT Core, rule, queue and router to its consumer."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from eventplane.envelope import Envelope, write_event
from eventplane.names import REPLY_TYPE
from eventplane.trace_context import context_of
from eventplane_client import ClientSettings, connect
from lab.plane import Plane, with_variables
from lab.process import Supervisor
from parts.tracing.client import OpenTelemetry
from parts.tracing.export import REST_S
from tests.integration import downlink
from tests.integration.cloud import enter_as, program_of
from tests.otlp import ReceivedSpan, Receiver, otlp_receiver

SECONDS = 120.0
ATTEMPTS = 5
ROUTERS = "eventplane-local-router-"


@pytest.fixture
def receiver(plane: Plane) -> Iterator[Receiver]:
    """A collector that the routers on the way tell of everything."""
    names = [f"{ROUTERS}{each}" for each in ("device", "device-urgent", "services")]
    with otlp_receiver() as it:
        more = {"EVENTPLANE_OTLP_ENDPOINT": it.url, "EVENTPLANE_TRACE_SHARE": "1"}
        with with_variables(plane.cloud, names, more):
            yield it


@contextmanager
def told_by(receiver: Receiver, service: str) -> Iterator[OpenTelemetry]:
    """What a program called `service` sets up: an SDK that exports to the receiver."""
    provider = TracerProvider(resource=Resource({"service.name": service}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
    try:
        yield OpenTelemetry(1.0, tracers=provider)
    finally:
        provider.shutdown()


def alarm(source: str, type: str, data: Any) -> Envelope:
    attributes = {"id": uuid4().hex, "source": source, "time": datetime.now(UTC).isoformat()}
    return write_event({**attributes, "type": type}, data)


def answer(to: Envelope) -> Envelope:
    """A reply: all that the contract lets the alarm centre send."""
    data = {
        "participant": "alarm-centre",
        "thing": None,
        "status": "handled",
        "answer": None,
        "failure": None,
    }
    return write_event({"id": f"answer-{to.id}", "source": "/alarm-centre", "type": REPLY_TYPE}, data)


def handle_in_the_cloud(sent: Envelope, told: OpenTelemetry) -> None:
    """Read the alarm centre's inbox until `sent` is handled, and answer it."""
    settings = ClientSettings("sqs:local", "alarm-centre")
    with connect(settings, telemetry=told) as centre, centre.subscribe() as inbox:

        def handle(event: Envelope) -> None:
            # The inbox is shared: others' alarms may lie in it.
            if event.claim == sent.claim:
                centre.put(answer(sent))
                inbox.stop()

        inbox.handle(handle, idle_s=SECONDS)


def chain(spans: list[ReceivedSpan], last: ReceivedSpan) -> list[str]:
    """The names of the spans that lead to `last`, the first of all first."""
    by_id = {each.span_id: each for each in spans if each.trace_id == last.trace_id}
    names = [last.name]
    while last.parent_id in by_id:
        last = by_id[last.parent_id]
        names.append(last.name)
    return names[::-1]


def find(spans: list[ReceivedSpan], name: str, id: str) -> ReceivedSpan | None:
    """The span of this name about the event with this id."""
    return next(
        (each for each in spans if each.name == name and each.attributes.get("cloudevents.event_id") == id),
        None,
    )


WAY = [
    "device",
    "ingest device.outbox",
    "router device.outbox",
    "send alarm-centre.inbox",
    "inbox alarm-centre.inbox",
    "process alarm-centre.inbox",
]
ANSWER = ["send alarm-centre.outbox", "ingest alarm-centre.outbox", "router alarm-centre.outbox"]


class Way:
    """A home whose voice-service tells of traces and whose health-service does not, and the alarm centre."""

    def __init__(self, home: downlink.Home, receiver: Receiver, state: Path) -> None:
        self._home = home
        self._receiver = receiver
        address = f"mqtt://127.0.0.1:{home.broker.port}"
        self._voice = ClientSettings(address, "voice-service", state=f"sqlite:{state}")

    def spans(self, of_voice: OpenTelemetry, of_centre: OpenTelemetry) -> tuple[Envelope, Envelope] | None:
        """Two alarms, handled and answered; None where not all spans of them came.

        A router waits for its collector for a second, which a busy machine may need for itself.
        """
        traced = alarm("/homes/traced/voice", "org.eventplane.alarm.keyword.v1", {"keyword": "help"})
        plain = alarm("/homes/traced/health", "org.eventplane.alarm.clinical.v1", {"alert": "no pulse"})
        with connect(self._voice, telemetry=of_voice) as voice:
            voice.put(traced, SECONDS)
        handle_in_the_cloud(traced, of_centre)
        self._home.services["health-service"].put(plain, SECONDS)
        handle_in_the_cloud(plain, of_centre)
        wanted = [(name, each.id) for name in (WAY[0], WAY[-1]) for each in (traced, plain)]
        wanted += [(ANSWER[-1], answer(each).id) for each in (traced, plain)]

        def came(spans: list[ReceivedSpan]) -> bool:
            return all(find(spans, *each) for each in wanted)

        return (traced, plain) if self._receiver.wait(came, REST_S) else None


@pytest.mark.source("P18")
def test_one_trace_leads_from_a_service_on_a_device_to_what_its_consumer_answers(
    plane: Plane,
    receiver: Receiver,
    supervisor: Supervisor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        downlink.running_home(plane, supervisor, tmp_path, f"traced-{uuid4().hex[:8]}") as home,
        told_by(receiver, "voice-service") as of_voice,
        told_by(receiver, "alarm-centre") as of_centre,
    ):
        enter_as(program_of(plane, "alarm-centre"), monkeypatch)
        home.services.pop("voice-service").close()
        way = Way(home, receiver, tmp_path / "state.db")
        told = next((found for _ in range(ATTEMPTS) if (found := way.spans(of_voice, of_centre))), None)
    assert told is not None
    traced, plain = told

    for sent, first in ((traced, ["send voice-service.outbox"]), (plain, [])):
        last = find(receiver.spans, ANSWER[-1], answer(sent).id)
        assert last is not None
        assert chain(receiver.spans, last) == [*first, *WAY, *ANSWER]

    # Of an event that has no trace, all computed the same one.
    handled = find(receiver.spans, WAY[-1], plain.id)
    assert handled.trace_id == context_of(plain).trace_id

    # Each hop says whose it is, and none begins before its cause.
    hops = [found for name in WAY if (found := find(receiver.spans, name, plain.id))]
    assert [each.service for each in hops if each.name in (WAY[0], WAY[-1])] == ["device", "alarm-centre"]
    assert {each.service.startswith(ROUTERS) for each in hops[1:4]} == {True}
    for before, after in pairwise(hops):
        assert before.start_ms <= after.start_ms <= after.end_ms
