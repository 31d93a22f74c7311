"""The compiled form of a contract: canonical JSON with a content hash."""

from __future__ import annotations

import hashlib
import json

FORMAT = 9
"""The newest version of the document's own format, compiled or written by people."""

VERSION_LENGTH = 16
"""Hexadecimal digits of the content hash that name a contract: 64 bits."""


def canonical_bytes(document: object) -> bytes:
    """Return `document` as JSON that depends on its content only. Raises ValueError for lone surrogates."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def version_of(canonical: bytes) -> str:
    """Return the contract version of a canonical form."""
    return hashlib.sha256(canonical).hexdigest()[:VERSION_LENGTH]
