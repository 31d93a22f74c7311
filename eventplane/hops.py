"""Count how often participants have sent an event on, so that loops of them end."""

from __future__ import annotations

from typing import Final

from eventplane.envelope import Envelope
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_EVENT_BYTES, MAX_HOPS, MAX_SENT_EVENT_BYTES
from eventplane.reasons import Reason

ROUTER_HOPS: Final = "routerhops"
"""How often the cloud's router took the event from a participant that sent it on. It stops loops: the router
counts what comes from a service's outbox and what was counted before, and refuses it past `MAX_HOPS`."""


def hops_of(event: Envelope) -> int:
    """Return how often `event` was sent on so far, as it claims."""
    return int(event.attributes.get(ROUTER_HOPS, 0))


def sent_on(event: Envelope) -> Envelope:
    """Return `event` with one hop more, the rest of its text unchanged.

    Raises `EnvelopeError`: `hop_limit`, or `too_large` if there is no room for the attribute.
    """
    hops = hops_of(event) + 1
    if hops > MAX_HOPS:
        raise EnvelopeError(
            Reason.HOP_LIMIT,
            f"it was sent on {hops} times, {MAX_HOPS} are allowed; "
            "find the participants that send each other what they receive by the event's rows in the ledger",
        )
    counted = event.with_attributes({ROUTER_HOPS: hops})
    if (size := counted.bytes) > MAX_EVENT_BYTES:
        raise EnvelopeError(
            Reason.TOO_LARGE, f"{size} bytes once its hops are counted; send at most {MAX_SENT_EVENT_BYTES}"
        )
    return counted
