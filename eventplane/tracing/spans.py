"""A span, as plain values."""

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
from eventplane.tracing.context import Hop, TraceContext, span_id
from eventplane.values import timestamp_ms

AttributeValue = str | int | bool


class Kind(IntEnum):
    """What a span is, by OTLP's numbers."""

    INTERNAL = 1
    PRODUCER = 4
    CONSUMER = 5


@dataclass(frozen=True, slots=True)
class Span:
    """What `service` did from `start_ms` to `end_ms`, Unix milliseconds. `error` says why it failed.

    `links` are (trace id, span id) of what it belongs to besides.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: Kind
    service: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    state: str = ""
    error: str | None = None
    links: tuple[tuple[str, str], ...] = ()


DEVICE_SERVICE: Final = "device"
"""The service of the spans that are drawn for devices."""

LONGEST_WAIT_MS: Final = 31 * 86_400_000
"""What a device's clock says of an event is believed for so long before its acceptance, milliseconds. Ours:
longer than a spool holds events, and short enough that a clock of 1970 draws no span of decades."""


_ERRORS: Final = frozenset({Outcome.DEAD_LETTERED, Outcome.DROPPED, Outcome.EXPIRED})


class Decision(NamedTuple):
    """The ledger's `record`, and the `event` as it left: without a delivery, as it came."""

    record: LedgerRecord
    event: Envelope


def way(
    context: TraceContext,
    event: Envelope,
    decisions: Sequence[Decision],
    *,
    service: str,
    began_ms: int,
    ended_ms: int,
    is_own: bool = False,
    links: tuple[tuple[str, str], ...] = (),
) -> Iterator[Span]:
    """The spans of `event` up to its `decisions`, of which there is at least one.

    It was worked on from `began_ms` to `ended_ms` (Unix milliseconds) in `service`; `links` name the
    invocation, in which many events were. An event that the router wrote itself, a dead letter, `is_own`: it
    came from nowhere.
    """
    draw = _Draw(context, event, about(event), service)
    first = decisions[0].record
    ended_ms = max(ended_ms, began_ms)
    # Two clocks: what was accepted after it was taken was accepted then.
    entered_ms = max(0, min(first.entered_at_ms, began_ms))
    parent = context.parent_id
    if first.client_id is not None and not is_own:
        device = draw.device(parent, entered_ms, first.client_id)
        yield device
        parent = device.span_id
    if not is_own:
        waited = draw.ingest(parent, entered_ms, began_ms, first)
        yield waited
        parent = waited.span_id
    router = draw.router(parent, began_ms, ended_ms, first, links)
    yield router
    for record, outgoing in decisions:
        # What was refused or unrouted as a whole has no route to tell it.
        if record.route is not None or record.outcome is not Outcome.DELIVERED:
            yield draw.decision(router, record, outgoing)


def inbox_context(context: TraceContext, event: Envelope, route: str | None) -> TraceContext:
    """Where the reader of an inbox goes on: after the delivery over `route`.

    On a device (`route` None) nobody draws what was before, so it follows its producer, and of an event
    without a trace the device, whose span there is once the event is in the cloud.
    """
    if route is None:
        return context if context.parent_id else replace(context, parent_id=span_id(event, Hop.DEVICE))
    return replace(context, parent_id=span_id(event, Hop.SEND, route))


def about(event: Envelope) -> dict[str, AttributeValue]:
    """What a span says of its event, in OpenTelemetry's words."""
    sender = str(event.sender)
    return {
        "cloudevents.event_id": event.id,
        "cloudevents.event_source": event.source,
        "cloudevents.event_type": event.type,
        **({"eventplane.sender": sender} if sender else {}),
    }


@dataclass(frozen=True, slots=True)
class _Draw:
    """Makes the spans of one `event`: `own` is what each of them says of it."""

    context: TraceContext
    event: Envelope
    own: Mapping[str, AttributeValue]
    service: str

    def device(self, parent: str | None, accepted_ms: int, client_id: str) -> Span:
        """From when the device says it recorded the event, as far as its clock can be believed."""
        told: dict[str, AttributeValue] = {"device.id": client_id}
        time = self.event.attributes.get("recordedtime", self.event.attributes.get("time"))
        start_ms = accepted_ms
        if time is not None:
            said_ms = timestamp_ms(str(time))
            if accepted_ms - LONGEST_WAIT_MS <= said_ms <= accepted_ms:
                start_ms = said_ms
            else:
                told["eventplane.implausible_time"] = str(time)
        id = span_id(self.event, Hop.DEVICE)
        return self._span(
            id, parent, Hop.DEVICE.value, Kind.PRODUCER, start_ms, accepted_ms, told, service=DEVICE_SERVICE
        )

    def ingest(self, parent: str | None, entered_ms: int, began_ms: int, record: LedgerRecord) -> Span:
        """In the queue before the router."""
        told: dict[str, AttributeValue] = {
            "messaging.message.id": record.message_id,
            "messaging.destination.name": record.entered_by,
            "eventplane.attempt": record.attempt,
            # Of an event that was refused as it came, only the record knows who sent it.
            "eventplane.sender": record.sender,
        }
        id, name = span_id(self.event, Hop.INGEST), f"{Hop.INGEST} {record.entered_by}"
        return self._span(id, parent, name, Kind.CONSUMER, entered_ms, began_ms, told)

    def router(
        self,
        parent: str | None,
        began_ms: int,
        ended_ms: int,
        record: LedgerRecord,
        links: tuple[tuple[str, str], ...],
    ) -> Span:
        """The router's work on the invocation in which the event was."""
        id, name = span_id(self.event, Hop.ROUTER), f"{Hop.ROUTER} {record.entered_by}"
        told = {"eventplane.contract": record.contract_version}
        return self._span(id, parent, name, Kind.CONSUMER, began_ms, ended_ms, told, links=links)

    def decision(self, router: Span, record: LedgerRecord, outgoing: Envelope) -> Span:
        """What became of the event on one route; an error where it did not arrive."""
        told: dict[str, AttributeValue] = {
            "eventplane.outcome": record.outcome.value,
            "eventplane.priority": record.priority,
        }
        if record.route is not None:
            told |= {
                "eventplane.route": record.route,
                "messaging.destination.name": str(record.destination),
            }
        return self._span(
            span_id(outgoing, Hop.SEND, record.route or ""),
            router.span_id,
            f"{Hop.SEND} {record.destination or 'none'}",
            Kind.INTERNAL if record.route is None else Kind.PRODUCER,
            max(router.start_ms, min(record.decided_at_ms, router.end_ms)),
            router.end_ms,
            told,
            error=(record.reason or record.outcome.value) if record.outcome in _ERRORS else None,
        )

    def _span(
        self,
        id: str,
        parent: str | None,
        name: str,
        kind: Kind,
        start_ms: int,
        end_ms: int,
        told: Mapping[str, AttributeValue],
        *,
        service: str | None = None,
        error: str | None = None,
        links: tuple[tuple[str, str], ...] = (),
    ) -> Span:
        return Span(
            trace_id=self.context.trace_id,
            span_id=id,
            parent_id=parent,
            name=name,
            kind=kind,
            service=service or self.service,
            start_ms=start_ms,
            end_ms=end_ms,
            attributes={**self.own, **told},
            state=self.context.state,
            error=error,
            links=links,
        )


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
