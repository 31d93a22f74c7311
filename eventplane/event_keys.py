"""A short digest of an event's identity, for spools, filters and manifests."""

from __future__ import annotations

import hashlib

from eventplane.envelope import EventKey

KEY_BYTES = 16
"""Ours: of 10^9 events no two have the same key."""


def key_digest(key: EventKey) -> bytes:
    """Return the KEY_BYTES that represent an event's identity (`Envelope.key`)."""
    # A sender and a source have no line end, so no two keys have the same text. SHA-256, because the audit
    # computes it in Spark as well.
    return hashlib.sha256("\n".join(key).encode()).digest()[:KEY_BYTES]
