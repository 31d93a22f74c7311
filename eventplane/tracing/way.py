"""The spans of an event's way through the cloud's router, drawn from the event and the ledger's records.

The device exports nothing: that it had the event stands in the event and in the time of its acceptance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from eventplane.delivery import Outcome
from eventplane.envelope import Envelope
from eventplane.ledger import LedgerRecord
from eventplane.tracing.context import TraceContext
from eventplane.tracing.ids import Hop, span_id
from eventplane.tracing.span import AttributeValue, Kind, Span
from eventplane.values import timestamp_ms

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
