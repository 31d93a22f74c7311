"""The attribute `routerhops`: how often the cloud's router took an event from a participant that sent it on.

It stops loops. The router counts it up on what comes over a service's outbox, and on what has it already; who
sends on what it received carries the attribute along; past `MAX_HOPS` the event goes no further. What comes
from a device for the first time has none and stays untouched.
"""

from __future__ import annotations

from typing import Final

from eventplane.envelope import TOO_LARGE, Envelope, EnvelopeError, parse_event
from eventplane.limits import MAX_EVENT_BYTES, MAX_HOPS, MAX_SENT_EVENT_BYTES
from eventplane.members import with_member

ROUTER_HOPS: Final = "routerhops"

HOP_LIMIT: Final = "hop_limit"
"""Why the router refuses an event that goes round in circles."""


def hops_of(event: Envelope) -> int:
    """How often `event` was sent on so far, by its own word."""
    # The envelope has checked that it is an Integer.
    return int(event.attributes.get(ROUTER_HOPS, 0))


def sent_on(event: Envelope) -> Envelope:
    """`event` with one hop more; nothing else of its text changes.

    Raises `EnvelopeError`: `hop_limit`, or `too_large` where there is no room for the attribute.
    """
    hops = hops_of(event) + 1
    if hops > MAX_HOPS:
        raise EnvelopeError(
            HOP_LIMIT,
            f"it was sent on {hops} times, {MAX_HOPS} are allowed; "
            "find the participants that send each other what they receive by the event's rows in the ledger",
        )
    text = with_member(event.json, ROUTER_HOPS, str(hops))
    size = len(text.encode("utf-8"))
    if size > MAX_EVENT_BYTES:
        raise EnvelopeError(
            TOO_LARGE, f"{size} bytes once its hops are counted; send at most {MAX_SENT_EVENT_BYTES}"
        )
    return parse_event(text)
