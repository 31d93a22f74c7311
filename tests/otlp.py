"""A receiver of OTLP over HTTP, which reads what comes by OpenTelemetry's own protobuf definitions."""

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from lab.background import BackgroundServer
from tests.eventually import eventually

_IDS = ("traceId", "spanId", "parentSpanId")


@dataclass(frozen=True)
class ReceivedSpan:
    """One span as a backend has it; ids in hexadecimal digits, times in Unix milliseconds."""

    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start_ms: int
    end_ms: int
    attributes: dict[str, Any]
    error: str | None
    state: str
    links: tuple[tuple[str, str], ...]


@dataclass
class Receiver:
    """What came in, and how it is answered: `status` for each request."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: set[str] = field(default_factory=set)
    headers: dict[str, str] = field(default_factory=dict)
    requests: int = 0
    status: int = 200

    def wait(self, is_there: Callable[[list[ReceivedSpan]], bool], seconds: float = 30) -> bool:
        """Whether what came becomes as `is_there` wants it."""
        return eventually(lambda: is_there(list(self.spans)), seconds)


def decode_traces(body: bytes, content_type: str) -> list[ReceivedSpan]:
    """The spans of an export request. Raises what protobuf raises of one that is none."""
    request = ExportTraceServiceRequest()
    if content_type == "application/json":
        # Unknown members are an error: protobuf's definition decides what OTLP has.
        json_format.ParseDict(_with_bytes(json.loads(body)), request)
    else:
        request.ParseFromString(body)
    return list(_spans(request))


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    """A running receiver on a free port of this machine."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.requests += 1
            if receiver.status == 200 and self.path == "/v1/traces":
                receiver.spans += decode_traces(body, self.headers["Content-Type"])
            elif receiver.status == 200 and self.path == "/v1/metrics":
                receiver.metrics |= _metric_names(body, self.headers["Content-Type"])
                receiver.headers = dict(self.headers)
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with BackgroundServer("receiver", ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        receiver.url = server.url
        yield receiver


def decode_metrics(document: dict[str, Any]) -> ExportMetricsServiceRequest:
    """The export request of OTLP's JSON. Raises what protobuf raises of one that is none."""
    return json_format.ParseDict(document, ExportMetricsServiceRequest())


def _metric_names(body: bytes, content_type: str) -> set[str]:
    is_json = content_type == "application/json"
    request = decode_metrics(json.loads(body)) if is_json else ExportMetricsServiceRequest.FromString(body)
    return {
        metric.name
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def _with_bytes(value: Any) -> Any:
    """OTLP's JSON has ids in hexadecimal digits, where protobuf's own has base64."""
    if isinstance(value, list):
        return [_with_bytes(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64encode(bytes.fromhex(each)).decode() if name in _IDS else _with_bytes(each)
        for name, each in value.items()
    }


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        of = _values(resource.resource.attributes)
        for scope in resource.scope_spans:
            for each in scope.spans:
                yield ReceivedSpan(
                    service=of["service.name"],
                    name=each.name,
                    kind=each.kind,
                    trace_id=each.trace_id.hex(),
                    span_id=each.span_id.hex(),
                    parent_id=each.parent_span_id.hex(),
                    start_ms=each.start_time_unix_nano // 1_000_000,
                    end_ms=each.end_time_unix_nano // 1_000_000,
                    attributes=_values(each.attributes),
                    error=each.status.message if each.status.code == each.status.STATUS_CODE_ERROR else None,
                    state=each.trace_state,
                    links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in each.links),
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None
