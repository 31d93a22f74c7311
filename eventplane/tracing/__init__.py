"""The trace of one event: a span for each hop, whose ids every hop computes for itself. docs/tracing.md."""

from eventplane.tracing.context import TraceContext, context_of, traceparent
from eventplane.tracing.ids import Hop, span_id
from eventplane.tracing.span import Kind, Span
from eventplane.tracing.way import Decision, inbox_context, way

__all__ = [
    "Decision",
    "Hop",
    "Kind",
    "Span",
    "TraceContext",
    "context_of",
    "inbox_context",
    "span_id",
    "traceparent",
    "way",
]
