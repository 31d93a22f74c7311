"""Cloud services that are functions or jobs of this plane: nobody else reads their inboxes."""

from __future__ import annotations

from typing import Final

from eventplane.auditor import AUDITOR
from eventplane.presence import MONITOR

DOWNLINK: Final = "downlink"
"""The participant that brings events to devices: its inbox takes what they answer, its outbox has the dead
letters of what they rejected. Without it a contract has no way down."""

SUBSCRIBERS: Final = "subscribers"
"""The participant that stands for all HTTPS endpoints: its inbox takes the events of their subscriptions."""

OWN_SERVICES: Final = frozenset({AUDITOR, MONITOR, DOWNLINK, SUBSCRIBERS})
