"""Cloud services that are functions or jobs of this plane: nobody else reads their inboxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from eventplane.auditor import AUDITOR
from eventplane.canary import CANARY
from eventplane.presence import MONITOR

if TYPE_CHECKING:
    from eventplane.contract.model import Participant

DOWNLINK: Final = "downlink"
"""The participant that brings events to devices: its inbox takes what they answer, its outbox has the dead
letters of what they rejected. Without it a contract has no way down."""


def leads_down(participants: Mapping[str, Participant]) -> bool:
    """Whether events go down to devices in a contract with these `participants`."""
    downlink = participants.get(DOWNLINK)
    return downlink is not None and not downlink.retired


SUBSCRIBERS: Final = "subscribers"
"""The participant that stands for all HTTPS endpoints: its inbox takes the events of their subscriptions."""

OWN_SERVICES: Final = frozenset({AUDITOR, MONITOR, DOWNLINK, SUBSCRIBERS, CANARY})
