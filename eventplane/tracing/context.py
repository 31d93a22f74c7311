"""Which trace an event belongs to, and whether it is drawn: decided alike by everybody who sees the event."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eventplane.envelope import Envelope, hops_of
from eventplane.replay import REPLAYED_TIME

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
"""W3C Trace Context."""


class Hop(StrEnum):
    """Where an event is on its way; what comes after these, its consumer draws."""

    DEVICE = "device"
    """From its recording to its acceptance by IoT Core."""
    INGEST = "ingest"
    """In the queue before the router, of what comes from a device or over a service's outbox."""
    ROUTER = "router"
    SEND = "send"
    """One route: the decision, and the delivery to the inbox."""


def trace_id(event: Envelope) -> str:
    """The trace of an event that carries none: the same for each copy of it, wherever it is computed."""
    # By what the event claims: its producer computes the same id before a hop has stamped the sender.
    return _digest(TRACE_ID_BYTES, "\n".join(event.claim))


def span_id(event: Envelope, hop: Hop, *place: str) -> str:
    """The id of the span of `event` at `hop`; `place` tells apart several there are (the route).

    A copy that was replayed, or sent on by a service, goes its own way and has spans of its own.
    """
    copy = str(event.attributes.get(REPLAYED_TIME, "")), str(hops_of(event))
    words = (*event.claim, *copy, hop, *place)
    # With their lengths, so that no two lists of words have the same text.
    return _digest(SPAN_ID_BYTES, "".join([f"{len(word)}:{word}" for word in words]))


def _digest(size: int, text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
    # Ids of zeros alone are none (W3C Trace Context); no hash is expected to be one.
    return digest if digest.strip("0") else f"{1:0{2 * size}x}"


DEFAULT_SHARE: Final = 0.01
"""Of the events that carry no trace, so many are drawn. Ours: a thousand events a second make ten traces."""

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
