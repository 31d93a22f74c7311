"""The attributes by which a device numbers what it stores, so that the audit can count it."""

from __future__ import annotations

EPOCH = "deviceepoch"
"""Names one life of the spool: it changes only when the device's state was lost."""

SEQUENCE = "devicesequence"
"""The event's number within the epoch, from 1 without gaps, zero-padded so that text sorts like numbers."""

SEQUENCE_DIGITS = 12
