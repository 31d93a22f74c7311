"""What tracing costs: `make bench-tracing` writes build/bench/tracing.json. A minute; the peer is: without.

The router runs whole, from queue messages to ledger, with an AWS that says yes at once: so what spans cost is
as large a part of it as it can be. The collector is a process of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.sdk.trace import TracerProvider

from benchmarks.cold_start import aws, environment, installed_here, run, unpack
from benchmarks.results import Figure, together, write
from contract import load_contract
from eventplane.batch import pack
from eventplane.contract.publication import cloud_destinations
from eventplane.envelope import Envelope, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.tracing.context import DEFAULT_SHARE, context_of
from eventplane.tracing.spans import Span
from eventplane_client import Inbox
from eventplane_client.memory import MemoryPlane, MemoryTransport
from eventplane_client.memory_filter import Memory, MemoryFilter
from eventplane_client.memory_subscriptions import MemorySubscriptions
from eventplane_client.otel import OpenTelemetry
from eventplane_client.telemetry import NoTelemetry, Telemetry
from lambdas.common.archive import Archive
from lambdas.common.ledger import Ledger
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sender import TAKEN, Answer, Message
from lambdas.common.span_export import SpanExport
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import build_engine
from lambdas.router.service import RouterService
from lambdas.router.span_recorder import SpanRecorder

EVENTS: Final = 100
FIRST: Final = 200
"""Where the ids begin, so that of the events just the share is drawn."""
REPEATS: Final = 9
NOW_MS: Final = 1_767_225_600_000
_COLLECTOR: Final = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *_): pass
server = HTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
server.serve_forever()
"""

# What a function would load and set up with OpenTelemetry's own SDK, behind the boto3 that it has anyway.
_SDK: Final = """
import boto3, json, time; began = time.process_time()
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(ENDPOINT + "/v1/traces")))
provider.get_tracer("x").start_span("x").end()
print(1000 * (time.process_time() - began))
"""


def main() -> None:
    """Measure, write, print."""
    with collector() as url:
        figures = [*_router(url), *_cold_start(url)]
    write("tracing", [*figures, *_bytes(), *_client()], "make bench-tracing")


@contextmanager
def collector() -> Iterator[str]:
    """The base URL of a collector that takes everything."""
    with subprocess.Popen([sys.executable, "-c", _COLLECTOR], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def readings(*, traced: bool) -> list[Envelope]:
    """A batch as devices send it, each event with or without a trace of its own."""
    return [
        write_event(
            {
                "id": f"8d3f7a1e-55f1-4b7c-9d55-{FIRST + number:012x}",
                "source": "/homes/00000/health-service",
                "type": "org.eventplane.health.reading.v1",
                "time": f"2025-12-31T23:59:{number % 60:02}Z",
                **({"traceparent": f"00-{_random(32, number)}-{_random(16, number)}-01"} if traced else {}),
            },
            {"quantity": "heart-rate", "value": 60 + number % 30, "unit": "/min"},
        )
        for number in range(EVENTS)
    ]


def _random(digits: int, number: int) -> str:
    """Hexadecimal digits without a pattern, as ids have none."""
    return f"{(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 16**digits:0{digits}x}"


class _Yes:
    """Queues that take everything at once."""

    def send(self, queue_url: str, batch: Sequence[Message]) -> list[Answer]:  # noqa: ARG002
        return [TAKEN] * len(batch)


def _route(events: list[Envelope], drawing: SpanRecorder | None) -> Callable[[], object]:
    """Routes a message with `events`."""
    contract, yes = load_contract(), _Yes()
    queues = {each.address: each.address for each in cloud_destinations(contract)}
    engine = build_engine(contract, contract.device.outbox.address, queues)
    router = RouterService(
        engine=lambda: engine,
        dispatch=Dispatch(yes, queues),
        ledger=Ledger(sender=yes, queue_url="ledger", archive=Archive(None, "")),
        clock=lambda: NOW_MS,
        spans=drawing,
    )
    body = frame_text(IngestFrame(pack(events), "devices/a/outbox", "a", "", NOW_MS - 1_000))
    message = QueueMessage("m", body, NOW_MS - 500, 1)

    def route() -> None:
        if router.process([message], Invocation("i", lambda: 30_000)):
            raise SystemExit("a message came back, so less than all was measured")

    return route


def _router(url: str) -> list[Figure]:
    def drawing(share: float) -> SpanRecorder:
        return SpanRecorder(SpanExport(urlsplit(url)), "bench", share)

    plain, traced = readings(traced=False), readings(traced=True)
    drawn = sum(context_of(each, DEFAULT_SHARE).is_sampled for each in plain)
    if drawn != round(EVENTS * DEFAULT_SHARE):
        raise SystemExit(f"{drawn} events of {EVENTS} are drawn; choose another FIRST")
    routes = [_route(plain, None), _route(plain, drawing(DEFAULT_SHARE)), _route(traced, drawing(0.0))]
    without, by_share, all_of_them = (EVENTS / each for each in together(routes))
    peer: dict[str, Any] = {"peer": "without", "peer_value": without}
    return [
        Figure(
            "router_default_share",
            by_share,
            "events/s",
            note=f"{DEFAULT_SHARE:.0%} of the events drawn and exported, {EVENTS} in a message",
            **peer,
        ),
        Figure("router_all_drawn", all_of_them, "events/s", note="each with 4 spans", **peer),
    ]


def _cold_start(url: str) -> list[Figure]:
    """Of the router, in turn; the SDK in the place of ours is its import on top of the router without."""
    found: dict[str, list[float]] = {"without": [], "with": [], "sdk": []}
    on = {"EVENTPLANE_OTLP_ENDPOINT": url, "EVENTPLANE_TRACE_SHARE": "1"}
    with tempfile.TemporaryDirectory() as directory, aws() as cloud:
        code = unpack("router", Path(directory))
        variables = environment(code, installed_here(), cloud)
        for _ in range(REPEATS):
            found["without"].append(run("router", variables)[-2])
            found["with"].append(run("router", {**variables, **on})[-2])
            found["sdk"].append(_sdk_ms(url))
    without, ours, sdk = (statistics.median(each) for each in found.values())
    return [
        Figure(
            "cold_start",
            ours,
            "ms",
            higher_is_better=False,
            peer="without",
            peer_value=without,
            note="to the answer to the first event, exported; CPU time",
        ),
        Figure(
            "sdk_start",
            sdk,
            "ms",
            higher_is_better=False,
            note="what OpenTelemetry's SDK would add behind boto3, to the first span exported",
        ),
    ]


def _sdk_ms(url: str) -> float:
    code = _SDK.replace("ENDPOINT", repr(url))
    done = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ), check=True, capture_output=True, text=True
    )
    return float(done.stdout)


class _Count:
    """An export that counts bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def send(self, spans: Sequence[Span], remaining_ms: Callable[[], int]) -> None:  # noqa: ARG002
        self.bytes += len(SpanExport.body(spans))


def _bytes() -> list[Figure]:
    plain, traced = readings(traced=False), readings(traced=True)
    count = _Count()
    _route(traced, SpanRecorder(count, "bench", 0.0))()
    return [
        Figure(
            "uplink_bytes",
            len(pack(plain)) / EVENTS,
            "B/event",
            higher_is_better=False,
            peer="a traceparent in each event",
            peer_value=len(pack(traced)) / EVENTS,
            note=f"compressed, {EVENTS} in a batch; computed ids add nothing",
        ),
        Figure("span_bytes", count.bytes / EVENTS, "B/event", note="to the collector, of each event drawn"),
    ]


def _client() -> list[Figure]:
    def handle(telemetry: Telemetry) -> Callable[[], object]:
        plane = MemoryPlane()
        MemorySubscriptions(plane, "reader").subscribe("inbox", {"suffix": {"type": ".v1"}})
        sender, events = MemoryTransport(plane, "sender"), readings(traced=True)

        def all_of_them() -> None:
            # A new filter each time: the same events are new again.
            with Inbox(
                "reader",
                MemoryTransport(plane, "reader"),
                MemoryFilter(Memory(), EVENTS),
                telemetry=telemetry,
            ) as inbox:
                for each in events:
                    sender.put(each, 1, durable=True)
                inbox.handle(lambda _: None, idle_s=0)

        return all_of_them

    told = OpenTelemetry(1.0, tracers=TracerProvider())
    without, traced = (EVENTS / each for each in together([handle(NoTelemetry()), handle(told)]))
    return [
        Figure(
            "client_handled",
            traced,
            "events/s",
            peer="without",
            peer_value=without,
            note="in memory, every event drawn by the SDK, not exported",
        )
    ]


if __name__ == "__main__":
    main()
