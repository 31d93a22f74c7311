"""The spans of an event's way through the cloud's router, made of the event and its ledger records.

The device exports nothing: its span is made of the times in the event and of the event's acceptance.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple

from eventplane.envelope import Envelope
from eventplane.ledger import LedgerRecord
from eventplane.reasons import Outcome
from eventplane.trace_context import TraceContext, TraceHop, span_id
from eventplane.values import timestamp_ms

SpanValue = str | int | bool
"""The value of an attribute of a span."""

DEVICE_SERVICE: Final = "device"
"""The service of the spans of devices."""

LONGEST_WAIT_MS: Final = 31 * 86_400_000
"""How long before its acceptance a device may have recorded an event, milliseconds; an earlier time is not
used. Ours: longer than a spool holds events, and short enough that a clock of 1970 makes no span of
decades."""

_FAILURES: Final = frozenset({Outcome.DEAD_LETTERED, Outcome.DROPPED, Outcome.EXPIRED})


class SpanKind(IntEnum):
    """The kind of a span, by OTLP's numbers."""

    INTERNAL = 1
    PRODUCER = 4
    CONSUMER = 5


@dataclass(frozen=True, slots=True)
class Span:
    """The work of `service` from `start_ms` to `end_ms`, Unix milliseconds. `error` says why it failed.

    `links` are (trace id, span id) of other spans that it belongs to.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: SpanKind
    service: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, SpanValue] = field(default_factory=dict)
    state: str = ""
    error: str | None = None
    links: tuple[tuple[str, str], ...] = ()


class RoutingRecord(NamedTuple):
    """A ledger `record`, and the `event` as it left: without a delivery, as it arrived."""

    record: LedgerRecord
    event: Envelope


def router_spans(
    context: TraceContext,
    event: Envelope,
    decisions: Sequence[RoutingRecord],
    *,
    service: str,
    began_ms: int,
    ended_ms: int,
    is_own: bool = False,
    links: tuple[tuple[str, str], ...] = (),
) -> Iterator[Span]:
    """Yield the spans of `event` up to its `decisions`, of which there is at least one.

    The invocation of `service` lasted from `began_ms` to `ended_ms` (Unix milliseconds); `links` name its
    spans. `is_own`: the router wrote the event itself, a dead letter, so that no hop precedes.
    """
    make = _SpanFactory(context, event_attributes(event), service)
    first = decisions[0].record
    ended_ms = max(ended_ms, began_ms)
    # Two clocks: an acceptance after the start of the invocation counts as at its start.
    entered_ms = max(0, min(first.entered_at_ms, began_ms))
    parent = context.parent_id
    if first.client_id is not None and not is_own:
        device = _device_span(make, event, parent, entered_ms, first.client_id)
        yield device
        parent = device.span_id
    if not is_own:
        waiting: dict[str, SpanValue] = {
            "messaging.message.id": first.message_id,
            "messaging.destination.name": first.entered_by,
            "eventplane.attempt": first.attempt,
            # An event that was refused as it arrived has no stamped sender; the record has it.
            "eventplane.sender": first.sender,
        }
        id, name = span_id(event, TraceHop.INGEST), f"{TraceHop.INGEST} {first.entered_by}"
        yield make.span(id, parent, name, SpanKind.CONSUMER, entered_ms, began_ms, waiting)
        parent = id
    id, name = span_id(event, TraceHop.ROUTER), f"{TraceHop.ROUTER} {first.entered_by}"
    contract: dict[str, SpanValue] = {"eventplane.contract": first.contract_version}
    router = make.span(id, parent, name, SpanKind.CONSUMER, began_ms, ended_ms, contract)
    yield replace(router, links=links)
    for record, outgoing in decisions:
        # An event that was refused or unrouted as a whole has no route in its record.
        if record.route is not None or record.outcome is not Outcome.DELIVERED:
            yield _decision_span(make, router, record, outgoing)


def inbox_context(context: TraceContext, event: Envelope, route: str | None) -> TraceContext:
    """Return the context of an inbox's reader: after the delivery over `route`.

    On a device (`route` None) the hops before have no spans, so the reader follows the producer; for an event
    without a trace it follows the device, whose span exists once the event is in the cloud.
    """
    if route is None:
        return context if context.parent_id else replace(context, parent_id=span_id(event, TraceHop.DEVICE))
    return replace(context, parent_id=span_id(event, TraceHop.SEND, route))


def event_attributes(event: Envelope) -> dict[str, SpanValue]:
    """Return the attributes of a span that name its event, in OpenTelemetry's words."""
    sender = str(event.sender)
    return {
        "cloudevents.event_id": event.id,
        "cloudevents.event_source": event.source,
        "cloudevents.event_type": event.type,
        **({"eventplane.sender": sender} if sender else {}),
    }


@dataclass(frozen=True, slots=True)
class _SpanFactory:
    """Makes the spans of one event: `common` are attributes of each of them."""

    context: TraceContext
    common: Mapping[str, SpanValue]
    service: str

    def span(
        self,
        id: str,
        parent: str | None,
        name: str,
        kind: SpanKind,
        start_ms: int,
        end_ms: int,
        attributes: Mapping[str, SpanValue],
    ) -> Span:
        return Span(
            trace_id=self.context.trace_id,
            span_id=id,
            parent_id=parent,
            name=name,
            kind=kind,
            service=self.service,
            start_ms=start_ms,
            end_ms=end_ms,
            attributes={**self.common, **attributes},
            state=self.context.state,
        )


def _device_span(
    make: _SpanFactory, event: Envelope, parent: str | None, accepted_ms: int, client_id: str
) -> Span:
    """Return the span from the recording of `event`, if its time is plausible, to its acceptance."""
    attributes: dict[str, SpanValue] = {"device.id": client_id}
    time = event.attributes.get("recordedtime", event.attributes.get("time"))
    start_ms = accepted_ms
    if time is not None:
        recorded_ms = timestamp_ms(str(time))
        if accepted_ms - LONGEST_WAIT_MS <= recorded_ms <= accepted_ms:
            start_ms = recorded_ms
        else:
            attributes["eventplane.implausible_time"] = str(time)
    id = span_id(event, TraceHop.DEVICE)
    span = make.span(id, parent, TraceHop.DEVICE.value, SpanKind.PRODUCER, start_ms, accepted_ms, attributes)
    return replace(span, service=DEVICE_SERVICE)


def _decision_span(make: _SpanFactory, router: Span, record: LedgerRecord, outgoing: Envelope) -> Span:
    """Return the span of the outcome on one route; an error where the event did not arrive."""
    attributes: dict[str, SpanValue] = {
        "eventplane.outcome": record.outcome.value,
        "eventplane.priority": record.priority,
    }
    if record.route is not None:
        attributes |= {
            "eventplane.route": record.route,
            "messaging.destination.name": str(record.destination),
        }
    span = make.span(
        span_id(outgoing, TraceHop.SEND, record.route or ""),
        router.span_id,
        f"{TraceHop.SEND} {record.destination or 'none'}",
        SpanKind.INTERNAL if record.route is None else SpanKind.PRODUCER,
        max(router.start_ms, min(record.decided_at_ms, router.end_ms)),
        router.end_ms,
        attributes,
    )
    if record.outcome in _FAILURES:
        return replace(span, error=record.reason or record.outcome.value)
    return span


_OTLP_ERROR: Final = 2
_SCOPE: Final = "eventplane"


def otlp_json(spans: Iterable[Span], namespace: str) -> str:
    """Return the JSON of one OTLP 1.x export request (`POST /v1/traces`).

    Ids are in hexadecimal, 64-bit numbers are texts; `namespace` is the one of the services.
    """
    by_service: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_service[span.service].append(span)
    document = {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": _otlp_attributes({"service.name": service, "service.namespace": namespace})
                },
                "scopeSpans": [
                    {"scope": {"name": _SCOPE}, "spans": [_otlp_span(each) for each in of_service]}
                ],
            }
            for service, of_service in by_service.items()
        ]
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _otlp_span(span: Span) -> dict[str, Any]:
    document: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": _nanoseconds(span.start_ms),
        "endTimeUnixNano": _nanoseconds(span.end_ms),
        "attributes": _otlp_attributes(span.attributes),
    }
    if span.parent_id is not None:
        document["parentSpanId"] = span.parent_id
    if span.state:
        document["traceState"] = span.state
    if span.error is not None:
        document["status"] = {"code": _OTLP_ERROR, "message": span.error}
    if span.links:
        document["links"] = [{"traceId": trace, "spanId": id} for trace, id in span.links]
    return document


def _otlp_attributes(values: Mapping[str, SpanValue]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: SpanValue) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def _nanoseconds(milliseconds: int) -> str:
    return str(milliseconds * 1_000_000)
