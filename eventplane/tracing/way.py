"""The spans of an event's way through the cloud's router, drawn from the event and the ledger's records.

The device exports nothing: that it had the event stands in the event and in the time of its acceptance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from eventplane.delivery import Outcome
from eventplane.envelope import Envelope
from eventplane.expiry import timestamp_ms
from eventplane.ledger import LedgerRecord
from eventplane.tracing.context import TraceContext
from eventplane.tracing.ids import Hop, span_id
from eventplane.tracing.span import AttributeValue, Kind, Span

DEVICE_SERVICE: Final = "device"
"""The service of the spans that are drawn for devices."""

LONGEST_WAIT_MS: Final = 31 * 86_400_000
"""What a device's clock says of an event is believed for so long before its acceptance, milliseconds. Ours:
longer than a spool holds events, and short enough that a clock of 1970 draws no span of decades."""


_NO_ERROR: Final = frozenset({Outcome.DELIVERED, Outcome.UNROUTED})


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
    first = decisions[0].record
    ended_ms = max(ended_ms, began_ms)
    # Two clocks: what was accepted after it was taken was accepted then.
    entered_ms = max(0, min(first.entered_at_ms, began_ms))
    channel, attributes = first.entered_by, about(event)

    def span(hop: Hop, parent: str | None, start_ms: int, end_ms: int) -> Span:
        return Span(
            trace_id=context.trace_id,
            span_id=span_id(event, hop),
            parent_id=parent,
            name=f"{hop} {channel}",
            kind=Kind.CONSUMER,
            service=service,
            start_ms=start_ms,
            end_ms=end_ms,
            attributes=attributes,
            state=context.state,
        )

    parent = context.parent_id
    if first.client_id is not None and not is_own:
        drawn = _device(span(Hop.DEVICE, parent, entered_ms, entered_ms), event, first)
        yield drawn
        parent = drawn.span_id
    if not is_own:
        waited = _waited(span(Hop.INGEST, parent, entered_ms, began_ms), first)
        yield waited
        parent = waited.span_id
    routed = replace(span(Hop.ROUTER, parent, began_ms, ended_ms), links=links)
    yield replace(routed, attributes={**attributes, "eventplane.contract": first.contract_version})
    for record, outgoing in decisions:
        if record.route is not None:
            yield _sent(routed, record, outgoing)
        elif record.outcome is not Outcome.DELIVERED:
            # Refused or unrouted as a whole: there is no route to tell it.
            yield _told(replace(routed, parent_id=routed.span_id, links=()), record, event)


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
    return {
        "cloudevents.event_id": event.id,
        "cloudevents.event_source": event.source,
        "cloudevents.event_type": event.type,
    }


def _device(span: Span, event: Envelope, record: LedgerRecord) -> Span:
    """From when the device says it recorded the event, as far as its clock can be believed."""
    attributes = {**span.attributes, "device.id": str(record.client_id)}
    time = event.attributes.get("recordedtime", event.attributes.get("time"))
    start_ms = span.end_ms
    if time is not None:
        said_ms = timestamp_ms(str(time))
        if span.end_ms - LONGEST_WAIT_MS <= said_ms <= span.end_ms:
            start_ms = said_ms
        else:
            attributes["eventplane.implausible_time"] = str(time)
    return replace(
        span,
        name=Hop.DEVICE.value,
        kind=Kind.PRODUCER,
        service=DEVICE_SERVICE,
        start_ms=start_ms,
        attributes=attributes,
    )


def _waited(span: Span, record: LedgerRecord) -> Span:
    attributes = {
        **span.attributes,
        "messaging.message.id": record.message_id,
        "messaging.destination.name": record.entered_by,
        "eventplane.attempt": record.attempt,
    }
    return replace(span, attributes=attributes)


def _sent(router: Span, record: LedgerRecord, outgoing: Envelope) -> Span:
    told = _told(replace(router, parent_id=router.span_id, links=()), record, outgoing)
    destination = str(record.destination)
    return replace(
        told,
        name=f"{Hop.SEND} {destination}",
        kind=Kind.PRODUCER,
        attributes={
            **told.attributes,
            "eventplane.route": str(record.route),
            "messaging.destination.name": destination,
        },
    )


def _told(span: Span, record: LedgerRecord, event: Envelope) -> Span:
    """The decision: its outcome, and as an error what did not arrive."""
    why = record.reason or record.outcome.value
    return replace(
        span,
        span_id=span_id(event, Hop.SEND, record.route or ""),
        name=f"{Hop.SEND} none",
        kind=Kind.INTERNAL,
        start_ms=max(span.start_ms, min(record.decided_at_ms, span.end_ms)),
        attributes={
            **span.attributes,
            "eventplane.outcome": record.outcome.value,
            "eventplane.priority": record.priority,
        },
        error=None if record.outcome in _NO_ERROR else why,
    )
