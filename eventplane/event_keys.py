"""A short digest of an event's identity, for spools, filters and manifests."""

from __future__ import annotations

import hashlib

from eventplane.envelope import EventKey

KEY_BYTES = 16


def key_digest(key: EventKey) -> bytes:
    """Return the KEY_BYTES that represent an event's identity (`Envelope.key`)."""
    # A sender and a source have no line end, so no two keys have the same text.
    return hashlib.blake2b("\n".join(key).encode(), digest_size=KEY_BYTES).digest()
