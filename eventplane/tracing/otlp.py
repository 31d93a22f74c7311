"""Spans in the JSON of OTLP 1.x (`POST /v1/traces`): ids in hexadecimal digits, numbers of 64 bits as text.

Every receiver of OTLP over HTTP reads it, and it needs no library.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from eventplane.tracing.span import AttributeValue, Span

_ERROR: Final = 2
_SCOPE: Final = "eventplane"


def otlp_json(spans: Iterable[Span], namespace: str) -> str:
    """One export request; `namespace` says whose services the spans are of."""
    by_service: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_service[span.service].append(span)
    document = {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": _attributes({"service.name": service, "service.namespace": namespace})
                },
                "scopeSpans": [{"scope": {"name": _SCOPE}, "spans": [_span(each) for each in of_service]}],
            }
            for service, of_service in by_service.items()
        ]
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _span(span: Span) -> dict[str, Any]:
    document: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": _nanoseconds(span.start_ms),
        "endTimeUnixNano": _nanoseconds(span.end_ms),
        "attributes": _attributes(span.attributes),
    }
    if span.parent_id is not None:
        document["parentSpanId"] = span.parent_id
    if span.state:
        document["traceState"] = span.state
    if span.error is not None:
        document["status"] = {"code": _ERROR, "message": span.error}
    if span.links:
        document["links"] = [{"traceId": trace, "spanId": id} for trace, id in span.links]
    return document


def _attributes(values: Mapping[str, AttributeValue]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: AttributeValue) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def _nanoseconds(milliseconds: int) -> str:
    return str(milliseconds * 1_000_000)
