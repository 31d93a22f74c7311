"""The durable store in front of everything that leaves the device."""

from edge.spool.database import read_backlog
from edge.spool.records import (
    BEFORE_EVERYTHING,
    Delivery,
    DeviceState,
    Discard,
    LossReport,
    Manifest,
    PendingDelivery,
    Size,
    SpoolOrigin,
    StoredEvent,
)
from edge.spool.store import READ_CHARACTERS, Spool
from edge.spool.tables import RECENT_EVENTS

__all__ = [
    "BEFORE_EVERYTHING",
    "READ_CHARACTERS",
    "RECENT_EVENTS",
    "Delivery",
    "DeviceState",
    "Discard",
    "LossReport",
    "Manifest",
    "PendingDelivery",
    "Size",
    "Spool",
    "SpoolOrigin",
    "StoredEvent",
    "read_backlog",
]
