"""The signature of a request, as Standard Webhooks 1.0.0 has it: HMAC-SHA256 over id, time and body.

Receivers find libraries for it in every language; docs/examples/verify_webhook.py is one without any.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable


def signature_headers(keys: Iterable[bytes], id: str, time_s: int, body: bytes) -> dict[str, str]:
    """The headers that sign `body`, with one signature for each of `keys`; `time_s` in Unix seconds.

    The time of the attempt is signed as well, so that a receiver can refuse what is replayed later.
    """
    content = f"{id}.{time_s}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, content, "sha256")).decode() for key in keys)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(time_s),
        "webhook-signature": " ".join(f"v1,{each}" for each in signatures),
    }
