"""Interest: which events the reader of a channel handles, of all that routes lead there.

A reader that announced nothing gets everything. docs/explanation/interest.md says what is promised.
"""

from __future__ import annotations

from typing import Final

from eventplane.contract import Priority
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import REPORT_PREFIX
from eventplane.envelope import Envelope
from eventplane.filters import Filter
from eventplane.names import REPLY_TYPE

ALWAYS_WANTED: Final = (DEAD_LETTER_TYPE, REPLY_TYPE)
"""The types of events that are forwarded whatever was announced, besides reports of devices."""


def is_wanted(interest: Filter | None, event: Envelope, priority: Priority) -> bool:
    """Return whether to forward an `event` of this `priority` to a reader of this `interest` (None: unknown).

    Urgent events, dead letters, reports of devices and replies are always wanted.
    """
    if interest is None or priority is Priority.URGENT or is_always_wanted(event.type):
        return True
    return interest.matches(event.attributes)


def is_always_wanted(event_type: str) -> bool:
    """Return whether events of the type are forwarded whatever was announced."""
    return event_type in ALWAYS_WANTED or event_type.startswith(REPORT_PREFIX)
