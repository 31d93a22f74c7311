"""Interest: what the reader of a channel handles, of all that the routes lead there.

Where nobody announced any, everything is forwarded. What must not be missed is forwarded whatever was
announced. docs/interest.md says what that promises.
"""

from __future__ import annotations

from typing import Final

from eventplane.contract.model import Priority
from eventplane.conversation.attributes import REPLY_TYPE
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import REPORT_PREFIX
from eventplane.envelope import Envelope
from eventplane.filters import Filter

NO_INTEREST: Final = "no_interest"
"""Why an event was not forwarded on a route that takes it: nobody at its end handles such events."""


def is_wanted(interest: Filter | None, event: Envelope, priority: Priority) -> bool:
    """Whether to forward an `event` of this `priority` to a reader with this `interest` (None: unknown).

    Urgent events, dead letters, what devices report of themselves and replies are always wanted.
    """
    if interest is None or priority is Priority.URGENT or is_always_wanted(event.type):
        return True
    return interest.matches(event.attributes)


def is_always_wanted(event_type: str) -> bool:
    """Whether events of a type are forwarded for what they are: somebody waits for them or looks after us."""
    return event_type in (DEAD_LETTER_TYPE, REPLY_TYPE) or event_type.startswith(REPORT_PREFIX)
