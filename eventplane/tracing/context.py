"""Which trace an event belongs to, and whether it is drawn: decided alike by everybody who sees the event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eventplane.envelope import Envelope
from eventplane.tracing.ids import trace_id

_SAMPLED: Final = 0x01
_RANDOM_DIGITS: Final = 14
"""Hexadecimal digits at a trace id's end that are random (W3C Trace Context, level 2)."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace, the span before (None: there is none), whether it is drawn, and the vendors' `state`."""

    trace_id: str
    parent_id: str | None
    is_sampled: bool
    state: str = ""


def context_of(event: Envelope, share: float = 1.0) -> TraceContext:
    """Where the way of `event` begins: at the span that its `traceparent` names, or with a trace of its own.

    Who sent a `traceparent` has decided whether the trace is drawn. Of the other events `share` (0 to 1) are,
    chosen by their ids, so that an event is drawn at all hops of one share or at none.
    """
    carried = event.attributes.get("traceparent")
    if carried is None:
        own = trace_id(event)
        return TraceContext(own, None, int(own[-_RANDOM_DIGITS:], 16) < share * 16**_RANDOM_DIGITS)
    # A later version may say more behind these.
    _, trace, parent, flags = str(carried).split("-")[:4]
    state = str(event.attributes.get("tracestate", ""))
    return TraceContext(trace, parent, bool(int(flags, 16) & _SAMPLED), state)


def traceparent(trace: str, span: str, *, is_sampled: bool) -> str:
    """The attribute that names a span, in version 00."""
    return f"00-{trace}-{span}-{_SAMPLED if is_sampled else 0:02x}"
