"""The durable store in front of everything that leaves the device."""

from edge.spool.backlog import read_backlog
from edge.spool.contents import READ_CHARACTERS
from edge.spool.records import (
    BEFORE_EVERYTHING,
    Arrival,
    Birth,
    Delivery,
    Discard,
    DiscardTally,
    Statement,
    Waiting,
)
from edge.spool.store import Spool

__all__ = [
    "BEFORE_EVERYTHING",
    "READ_CHARACTERS",
    "Arrival",
    "Birth",
    "Delivery",
    "Discard",
    "DiscardTally",
    "Spool",
    "Statement",
    "Waiting",
    "read_backlog",
]
