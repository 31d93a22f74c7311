"""Measure tracing: `make bench-tracing` writes build/bench/tracing.json. A minute; the peer is `without`.

The router runs whole, from queue messages to ledger, with an AWS that says yes at once: so what spans cost is
as large a part of it as it can be. The collector is a process of its own.
"""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from os import urandom
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.sdk.trace import TracerProvider

from contract import load_contract
from eventplane.batch import pack
from eventplane.contract.publication import cloud_destinations
from eventplane.envelope import Envelope, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.trace_context import DEFAULT_SHARE, context_of
from eventplane_client import Inbox
from eventplane_client.delivery import NoTelemetry, Telemetry
from eventplane_client.memory import MemoryPlane, MemorySubscriptions, MemoryTransport
from eventplane_client.memory_duplicates import Memory, MemoryFilter
from lab.benchmarks.processes import Channel, Worker
from lab.benchmarks.results import Benchmark, Figure, together
from lab.benchmarks.router_process import deployed, run
from lambdas.common import system
from lambdas.common.archive import Archiver
from lambdas.common.ledger import Ledger
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sender import TAKEN, Answer, OutgoingMessage
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import build_engine
from lambdas.router.service import RouterService
from parts.tracing.client import OpenTelemetry
from parts.tracing.export import SpanExport
from parts.tracing.recorder import OtlpRecorder
from parts.tracing.spans import Span

EVENTS: Final = 100
FIRST: Final = 200
"""Where the ids begin, so that just the share of the events is sampled."""
REPEATS: Final = 9
NOW_MS: Final = 1_767_225_600_000


class _Collector(BaseHTTPRequestHandler):
    """Takes everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: it would be measured."""


def collect(channel: Channel) -> None:
    """Be a collector, and send its base URL."""
    server = HTTPServer(("127.0.0.1", 0), _Collector)
    channel.send(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()


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

    def send(self, queue_url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:  # noqa: ARG002
        return [TAKEN] * len(batch)


def _route(events: list[Envelope], spans: OtlpRecorder | None) -> Callable[[], object]:
    """Routes a message with `events`."""
    contract, yes = load_contract(), _Yes()
    queues = {each.address: each.address for each in cloud_destinations(contract)}
    engine = build_engine(contract, [contract.device.outbox.address], queues, cpu_time=system.cpu_time)
    router = RouterService(
        engine=lambda: engine,
        dispatch=Dispatch(yes, queues, system.threads),
        ledger=Ledger(sender=yes, queue_url="ledger", archive=Archiver(None, "", urandom)),
        clock=lambda: NOW_MS,
        spans=spans,
    )
    body = frame_text(IngestFrame(pack(events), "devices/a/outbox", "a", "", NOW_MS - 1_000))
    message = QueueMessage("m", body, NOW_MS - 500, 1)

    def route() -> None:
        if router.process([message], Invocation("i", lambda: 30_000)):
            raise SystemExit("a message came back, so less than all was measured")

    return route


def router(_: Namespace) -> Iterator[Figure]:
    """Events a second with spans, and the cold start, beside the router without."""
    with Worker(collect) as collector:
        url = collector.receive(str)
        yield from _rates(url)
        yield _cold_start(url)


def _rates(url: str) -> Iterator[Figure]:
    def recorder(share: float) -> OtlpRecorder:
        return OtlpRecorder(SpanExport(urlsplit(url), system.threads, system.monotonic), "bench", share)

    plain, traced = readings(traced=False), readings(traced=True)
    sampled = sum(context_of(each, DEFAULT_SHARE).is_sampled for each in plain)
    if sampled != round(EVENTS * DEFAULT_SHARE):
        raise SystemExit(f"{sampled} events of {EVENTS} are sampled; choose another FIRST")
    routes = [_route(plain, None), _route(plain, recorder(DEFAULT_SHARE)), _route(traced, recorder(0.0))]
    without, by_share, all_of_them = (EVENTS / each for each in together(routes))
    note = f"{DEFAULT_SHARE:.0%} of the events sampled and exported, {EVENTS} in a message"
    peer: dict[str, Any] = {"peer": "without", "peer_value": without}
    yield Figure("router_default_share", by_share, "events/s", note=note, **peer)
    yield Figure("router_all_drawn", all_of_them, "events/s", note="each with 4 spans", **peer)


def _cold_start(url: str) -> Figure:
    """The CPU time of a new process, with and without in turn."""
    on = {"EVENTPLANE_OTLP_ENDPOINT": url, "EVENTPLANE_TRACE_SHARE": "1"}
    with tempfile.TemporaryDirectory() as folder, deployed(Path(folder)) as variables:
        pairs = [(run(variables | on), run(variables)) for _ in range(REPEATS)]
    ours, without = (median(each.cpu_ms for each in runs) for runs in zip(*pairs, strict=True))
    note = "to the answer to the first event, exported; CPU time"
    return Figure("cold_start", ours, "ms", None, False, "without", without, note)


class _Count:
    """An export that counts bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def send(self, spans: Sequence[Span], remaining_ms: Callable[[], int]) -> None:  # noqa: ARG002
        self.bytes += len(SpanExport.body(spans))


def sizes(_: Namespace) -> Iterator[Figure]:
    """Bytes on the uplink and to the collector."""
    plain, traced = readings(traced=False), readings(traced=True)
    count = _Count()
    _route(traced, OtlpRecorder(count, "bench", 0.0))()
    ours, theirs = (len(pack(each)) / EVENTS for each in (plain, traced))
    note = f"compressed, {EVENTS} in a batch; computed ids add nothing"
    yield Figure(
        "uplink_bytes", ours, "B/event", None, False, "a traceparent in each event", theirs, note=note
    )
    yield Figure(
        "span_bytes", count.bytes / EVENTS, "B/event", note="to the collector, of each event sampled"
    )


def client(_: Namespace) -> Iterator[Figure]:
    """Events that the client library handles a second."""

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

    spans = OpenTelemetry(1.0, tracers=TracerProvider())
    without, traced = (EVENTS / each for each in together([handle(NoTelemetry()), handle(spans)]))
    note = "in memory, every event sampled by the SDK, not exported"
    yield Figure("client_handled", traced, "events/s", peer="without", peer_value=without, note=note)


if __name__ == "__main__":
    sys.exit(Benchmark("tracing", {"router": router, "sizes": sizes, "client": client}).main())
