"""Verify a request to a webhook's receiver. Standard library only."""

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping

TOLERANCE_S = 300


def is_genuine(keys: list[str], headers: Mapping[str, str], body: bytes, now_s: float | None = None) -> bool:
    """Return whether a request was signed with one of `keys`, not long ago.

    `keys` are as the plane's operators hand them over; during a rotation the old one and the new one.
    `headers` have their names in lower case; `body` is as it came, not parsed and written again.
    """
    id, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    now = time.time() if now_s is None else now_s
    if not sent_at.isdigit() or abs(now - int(sent_at)) > TOLERANCE_S:
        return False
    if "ce-id" in headers and id != attributes_digest(headers):
        return False
    content = f"{id}.{sent_at}.".encode() + body
    genuine = [
        "v1," + base64.b64encode(hmac.digest(base64.b64decode(key), content, "sha256")).decode()
        for key in keys
    ]
    claimed = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(one, other) for one in genuine for other in claimed)


def attributes_digest(headers: Mapping[str, str]) -> str:
    """Return the `webhook-id` of binary mode: through it the signature covers the event's attributes, too."""
    names = sorted(name for name in headers if name.startswith("ce-") or name == "content-type")
    return hashlib.sha256("\n".join(f"{name}:{headers[name]}" for name in names).encode()).hexdigest()
