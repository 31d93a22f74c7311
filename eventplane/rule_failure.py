"""What an IoT rule's error action sends in place of a message that the rule could not hand over.

It has the message as it came, not what the rule's SQL made of it (AWS IoT Developer Guide, error handling).
"""

from __future__ import annotations

import base64
from typing import Any, Final

ORIGINAL: Final = "base64OriginalPayload"
"""The member that no message of our own rules has, and each document of an error action."""


def original_of(members: Any) -> bytes | None:
    """The message that the rule was given; None when `members` are no document of an error action.

    Raises `ValueError` or `TypeError` for one that is damaged.
    """
    if not isinstance(members, dict) or ORIGINAL not in members:
        return None
    return base64.b64decode(members[ORIGINAL], validate=True)
