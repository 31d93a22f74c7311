"""The key that one subscription's requests are signed with, drawn from the plane's own."""

from __future__ import annotations

import hashlib
import hmac


def subscription_key(master: bytes, route: str) -> bytes:
    """The key of the subscription behind `route`: who has it can forge nothing for another."""
    return hmac.new(master, route.encode(), hashlib.sha256).digest()
