"""The attributes by which senders number events: devices for the audit, all for the order of inboxes."""

from __future__ import annotations

EPOCH = "deviceepoch"
"""Names one life of the spool: it changes only when the device's state was lost."""

SEQUENCE = "devicesequence"
"""The event's number within the epoch, from 1 without gaps, zero-padded so that text sorts like numbers."""

SEQUENCE_DIGITS = 12

ORDER = "orderin"
"""The event's positions in inboxes that keep the order of senders (`eventplane.ordering`)."""

ORDER_EPOCH = "orderepoch"
"""The epoch in which a cloud service counts positions: one life of its client. A device has `deviceepoch`."""
