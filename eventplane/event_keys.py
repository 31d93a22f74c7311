"""What stands for an event where its source and id would be too long: in spools, filters and manifests."""

from __future__ import annotations

import hashlib

KEY_BYTES = 16


def key_digest(key: tuple[str, str]) -> bytes:
    """The KEY_BYTES that stand for an event's source and id (`Envelope.key`)."""
    source, id = key
    # A source is a URI-reference and has no line end, so no two keys have the same text.
    return hashlib.blake2b(f"{source}\n{id}".encode(), digest_size=KEY_BYTES).digest()
