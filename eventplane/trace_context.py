"""The trace of an event, whether it is sampled, and the ids of its spans: every hop computes the same.

Ids are computed from the event, so that a later hop knows its parent span without being told. Nothing is
written into the event, a redelivery makes the same span again instead of a second one, and a hop that exports
nothing costs the other hops nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eventplane.envelope import Envelope
from eventplane.hops import hops_of
from eventplane.names import REPLAYED_TIME

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
"""W3C Trace Context."""

DEFAULT_SHARE: Final = 0.01
"""The sampled share of the events without a trace. Ours: a thousand events a second make ten traces."""

_SAMPLED: Final = 0x01
_RANDOM_DIGITS: Final = 14
"""Hexadecimal digits at a trace id's end that are random (W3C Trace Context, level 2)."""


class TraceHop(StrEnum):
    """The hops that have a span; the consumer makes those after them."""

    DEVICE = "device"
    """From the event's recording to its acceptance by IoT Core."""
    INGEST = "ingest"
    """In the queue before the router: events from a device or from a service's outbox."""
    ROUTER = "router"
    SEND = "send"
    """One route: the decision, and the delivery to the inbox."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace, the parent span (None: there is none), whether it is sampled, and the vendors' `state`."""

    trace_id: str
    parent_id: str | None
    is_sampled: bool
    state: str = ""


def context_of(event: Envelope, share: float = 1.0) -> TraceContext:
    """Return the context of `event`: that of its `traceparent`, or a trace of its own.

    The sender of a `traceparent` decides whether the trace is sampled. Of the other events `share` (0 to 1)
    is sampled, chosen by the ids, so that all hops with the same share sample the same events.
    """
    carried = event.attributes.get("traceparent")
    if carried is None:
        own = trace_id(event)
        return TraceContext(own, None, int(own[-_RANDOM_DIGITS:], 16) < share * 16**_RANDOM_DIGITS)
    # A later version may have more fields after these.
    _, trace, parent, flags = str(carried).split("-")[:4]
    state = str(event.attributes.get("tracestate", ""))
    return TraceContext(trace, parent, bool(int(flags, 16) & _SAMPLED), state)


def traceparent(trace: str, span: str, *, is_sampled: bool) -> str:
    """Return the attribute that names a span, in version 00."""
    return f"00-{trace}-{span}-{_SAMPLED if is_sampled else 0:02x}"


def trace_id(event: Envelope) -> str:
    """Return the trace of an event that carries none: the same for each copy of it."""
    # Of what the event claims: its producer computes the same id before a hop has stamped the sender.
    return _digest(TRACE_ID_BYTES, "\n".join(event.claim))


def span_id(event: Envelope, hop: TraceHop, *place: str) -> str:
    """Return the id of the span of `event` at `hop`; `place` tells several spans apart (the route).

    A copy that was replayed, or sent on by a service, has spans of its own.
    """
    copy = str(event.attributes.get(REPLAYED_TIME, "")), str(hops_of(event))
    words = (*event.claim, *copy, hop, *place)
    # With their lengths, so that no two lists of words have the same text.
    return _digest(SPAN_ID_BYTES, "".join([f"{len(word)}:{word}" for word in words]))


def _digest(size: int, text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
    # An id of zeros only is invalid (W3C Trace Context); no hash is expected to be one.
    return digest if digest.strip("0") else f"{1:0{2 * size}x}"
