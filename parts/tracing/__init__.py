"""The trace of one event: a span for each hop, with ids that every hop computes (parts/tracing/how-to.md)."""
