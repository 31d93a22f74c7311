"""Ids of traces and spans, computed from the event: who comes later knows its parent without being told.

So nothing is written into the event, a repetition draws the same span again and not a second one, and a hop
that exports nothing costs the others nothing.
"""

from __future__ import annotations

import hashlib
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
