"""Spans and metrics of a client by OpenTelemetry's API: where they go is the program's SDK to say.

Names are those of OpenTelemetry's semantic conventions for messaging and for CloudEvents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from eventplane.conversation.messages import Failure
from eventplane.envelope import Envelope
from eventplane.limits import MAX_SENT_EVENT_BYTES
from eventplane.trace_context import DEFAULT_SHARE, TraceContext, context_of, traceparent
from eventplane_client.errors import extras
from eventplane_client.ports import Message
from eventplane_client.system import SYSTEM, System
from parts.tracing.spans import event_attributes, inbox_context

with extras():
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
    )
    from opentelemetry.trace.span import TraceState

_NAME: Final = "eventplane_client"
_NANOSECONDS: Final = 1_000_000

Attributes = Mapping[str, str | int]


class OpenTelemetry:
    """Traces and metrics of a client. A `share` (0 to 1) of events without a trace is sampled."""

    def __init__(
        self,
        share: float = DEFAULT_SHARE,
        *,
        tracers: trace.TracerProvider | None = None,
        meters: metrics.MeterProvider | None = None,
        system: System = SYSTEM,
    ) -> None:
        self._system = system
        self._share = share
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracers)
        meter = metrics.get_meter(_NAME, meter_provider=meters)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Events put.")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Events handed out."
        )
        self._failed = meter.create_counter(
            "eventplane.client.failed", "{message}", "Attempts at events that failed, or were given back."
        )
        self._expired = meter.create_counter(
            "eventplane.client.expired", "{message}", "Events that expired in the inbox, not handed out."
        )
        self._took = meter.create_histogram(
            "messaging.process.duration", "s", "From handing out an event to the end of its handling."
        )

    @contextmanager
    def putting(self, participant: str, event: Envelope) -> Iterator[Envelope]:
        outbox = f"{participant}.outbox"
        # Who has a trace goes on in it, and its first span stays the event's.
        parent = _context(context_of(event)) if "traceparent" in event.attributes else None
        attributes = {**event_attributes(event), **_place(outbox, "send")}
        error: BaseException | None = None
        with self._tracer.start_as_current_span(
            f"send {outbox}", context=parent, kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            try:
                yield _named(event, span.get_span_context())
            except BaseException as raised:
                error = raised
                raise
            finally:
                self._sent.add(1, {**_place(outbox, "send"), **_error(error)})

    def begin(self, participant: str, event: Envelope, message: Message) -> TracedHandling:
        inbox = f"{participant}.inbox"
        attributes = {**event_attributes(event), "eventplane.attempt": message.attempt}
        parent = _context(inbox_context(context_of(event, self._share), event, message.route))
        if message.sent_at_ms is not None:
            waited = self._tracer.start_span(
                f"inbox {inbox}",
                context=parent,
                kind=SpanKind.CONSUMER,
                attributes={**attributes, **_place(inbox, "receive")},
                start_time=message.sent_at_ms * _NANOSECONDS,
            )
            waited.end(max(self._system.time_ns(), message.sent_at_ms * _NANOSECONDS))
            parent = trace.set_span_in_context(waited, Context())
        span = self._tracer.start_span(
            f"process {inbox}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes={**attributes, **_place(inbox, "process")},
        )
        self._consumed.add(1, _place(inbox, "receive"))
        return TracedHandling(span, self._took, _place(inbox, "process"), self._system.monotonic)

    def failed(self, participant: str, error: BaseException | str, *, is_last: bool) -> None:
        place = _place(f"{participant}.inbox", "process")
        self._failed.add(1, {**place, **_error(error), "eventplane.given_up": is_last})

    def expired(self, participant: str, event: Envelope) -> None:  # noqa: ARG002 (a metric names no event)
        self._expired.add(1, _place(f"{participant}.inbox", "receive"))


class TracedHandling:
    """The span of one event's handling."""

    def __init__(
        self, span: Span, took: metrics.Histogram, place: Attributes, monotonic: Callable[[], float]
    ) -> None:
        self._span = span
        self._took = took
        self._place = place
        self._monotonic = monotonic
        self._began_s = monotonic()

    @contextmanager
    def active(self) -> Iterator[None]:
        with trace.use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield

    def end(self, error: BaseException | str | None) -> None:
        if error is not None:
            if isinstance(error, BaseException):
                with suppress(Exception):  # its text may not be to be had
                    self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, Failure.of(error).text))
            self._span.set_attributes(_error(error))
        self._span.end()
        self._took.record(self._monotonic() - self._began_s, {**self._place, **_error(error)})


def _context(of: TraceContext) -> Context:
    """`of` as what the SDK takes for a parent in another process."""
    flags = TraceFlags(TraceFlags.SAMPLED if of.is_sampled else TraceFlags.DEFAULT)
    span = SpanContext(
        int(of.trace_id, 16),
        int(of.parent_id or "0", 16),
        is_remote=True,
        trace_flags=flags,
        trace_state=TraceState.from_header([of.state]) if of.state else None,
    )
    return trace.set_span_in_context(NonRecordingSpan(span), Context())


def _named(event: Envelope, span: SpanContext) -> Envelope:
    """`event` as a part of the trace of `span`, unless it has one, or no room for it."""
    if "traceparent" in event.attributes or not span.is_valid:
        return event
    name = traceparent(f"{span.trace_id:032x}", f"{span.span_id:016x}", is_sampled=span.trace_flags.sampled)
    named = event.stamped(traceparent=name)
    return named if len(named.json.encode()) <= MAX_SENT_EVENT_BYTES else event


def _place(channel: str, operation: str) -> Attributes:
    return {
        "messaging.system": "eventplane",
        "messaging.destination.name": channel,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


def _error(error: BaseException | str | None) -> Attributes:
    if error is None:
        return {}
    return {"error.type": error if isinstance(error, str) else type(error).__name__}
