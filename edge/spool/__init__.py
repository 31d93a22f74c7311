"""The durable store in front of everything that leaves the device."""

from edge.spool.contents import READ_CHARACTERS
from edge.spool.database import read_backlog
from edge.spool.records import (
    BEFORE_EVERYTHING,
    Arrival,
    Birth,
    Delivery,
    Discard,
    DiscardTally,
    Holding,
    Size,
    Statement,
    Waiting,
)
from edge.spool.store import Spool
from edge.spool.tables import MOST_KEYS

__all__ = [
    "BEFORE_EVERYTHING",
    "MOST_KEYS",
    "READ_CHARACTERS",
    "Arrival",
    "Birth",
    "Delivery",
    "Discard",
    "DiscardTally",
    "Holding",
    "Size",
    "Spool",
    "Statement",
    "Waiting",
    "read_backlog",
]
