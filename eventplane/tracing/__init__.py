"""The trace of one event: a span for each hop, whose ids every hop computes for itself. docs/tracing.md."""
