"""The types that the plane itself sends: the reports of a forwarder, under a source of its own, the states
that configure it, and which service sends each other type.
"""

from __future__ import annotations

import hashlib
from typing import Final

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import EventKey, parse_event
from eventplane.errors import EnvelopeError
from eventplane.names import (
    AUDITOR,
    CONNECTED,
    DISCONNECTED,
    DOWN_KIND,
    FLOODING,
    MONITOR,
    NOTICE,
    NOTICE_OF_MANY,
    QUIET,
    RECOVERED,
    SUSPECTED,
    VERDICT,
)

REPORT_PREFIX = "org.eventplane.device."

STARTED = REPORT_PREFIX + "started.v1"
DISCARDED = REPORT_PREFIX + "discarded.v1"
MANIFEST = REPORT_PREFIX + "manifest.v1"
HEARTBEAT = REPORT_PREFIX + "heartbeat.v1"
DISK_FAILED = REPORT_PREFIX + "diskfailed.v1"
ACKNOWLEDGED = REPORT_PREFIX + "acknowledged.v1"

DEVICE_CONTRACT = REPORT_PREFIX + "contract.v1"
"""The state that gives a forwarder another contract. It goes down; no device sends it."""

CONTRACT_KEYS = "contract/device/"
"""Prefix of the keys of that state."""

UPLINK_INTEREST_TYPE = REPORT_PREFIX + "interest.v1"
"""The state that tells a forwarder which events the cloud wants. It goes down as well."""

UPLINK_KEY = "interest/plane/uplink"
"""The key of that state."""

DEVICE_REPORTS: Final = frozenset({STARTED, DISCARDED, MANIFEST, HEARTBEAT, DISK_FAILED, ACKNOWLEDGED})
"""What only a device's forwarder sends, about its own device."""

DEVICE_STATES: Final = frozenset({DEVICE_CONTRACT, UPLINK_INTEREST_TYPE})
"""What steers forwarders: only cloud services send it, those that name it in `sends`."""

OWNERS: Final = {
    **dict.fromkeys(
        (CONNECTED, DISCONNECTED, QUIET, RECOVERED, FLOODING, SUSPECTED, NOTICE, NOTICE_OF_MANY), MONITOR
    ),
    VERDICT: AUDITOR,
}
"""The types of the plane's own services, and the service that alone sends each."""

PLANE_TYPES: Final = frozenset({*DEVICE_REPORTS, *DEVICE_STATES, *OWNERS, DEAD_LETTER_TYPE})
"""The types of what the plane reports of itself; each of its reports is delivered at least once."""

SHA256 = "sha256"
"""The `key_digest` of a manifest whose digests are sums of `key_digest` of the events: up to version 0.3.0.
Forwarders before made them otherwise, and do not state it."""

SHA256_EVENT = "sha256-event"
"""The `key_digest` of a manifest whose digests are sums of `event_digest` of the events."""


STATED_PENDING = 1_000
"""Most pending numbers that a manifest states: of each destination an equal part, the lowest ones."""


def forwarder_source(thing: str) -> str:
    """Return the `source` of the reports of the device `thing`."""
    return f"/devices/{thing}/forwarder"


def router_source(thing: str) -> str:
    """Return the `source` of the dead letters that the forwarder of `thing` writes."""
    return f"/devices/{thing}/router"


def thing_of(source: str) -> str | None:
    """Return the device whose forwarder writes under `source`; None when no forwarder does."""
    match source.split("/"):
        case ["", "devices", thing, "forwarder"] if thing:
            return thing
        case _:
            return None


def is_irreplaceable(json: str) -> bool:
    """Return whether a stored event cannot come again: a report about other events, or what the cloud sent.

    The cloud forgets what a device has stored.
    """
    # Parsing every event for this would cost more than it gives.
    if REPORT_PREFIX not in json and DOWN_KIND not in json:
        return False
    try:
        event = parse_event(json)
    except EnvelopeError:
        return False
    return event.type in (STARTED, DISCARDED, MANIFEST) or DOWN_KIND in event.attributes


KEY_BYTES = 16
"""Ours: of 10^9 events no two have the same key."""

_SHORT_BYTES = 8
"""What the archive keeps of an event's digest: its low half, which a column of 64 bits holds."""


def key_digest(key: EventKey) -> bytes:
    """Return the KEY_BYTES that represent an event's identity (`Envelope.key`)."""
    # A sender and a source have no line end, so no two keys have the same text. SHA-256, because the audit
    # computes it in Spark as well.
    return hashlib.sha256("\n".join(key).encode()).digest()[:KEY_BYTES]


def event_digest(text: bytes) -> bytes:
    """Return the KEY_BYTES that represent all of an event: its JSON `text`, without whitespace around it."""
    # A batch has events without the whitespace around them, a single publish as they were stored.
    return hashlib.sha256(text.strip(b" \t\n\r")).digest()[:KEY_BYTES]


def short_digest(text: bytes) -> str:
    """Return the low half of `event_digest`, as ledger and tap have it: 16 hexadecimal digits."""
    return event_digest(text)[-_SHORT_BYTES:].hex()
