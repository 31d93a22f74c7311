"""What the cloud wants of this device: a state that comes down, checked before it is stored.

It lies in the spool like every state, so it is there with its answer or not at all, also after a restart. A
broken one is refused, and the one before stays; without any everything goes up.
"""

from __future__ import annotations

import logging
from typing import Final

from edge.spool import Spool
from eventplane.contract import Downlink
from eventplane.delivery import Refusal
from eventplane.downlink.wire import Incoming
from eventplane.envelope import parse_event
from eventplane.filters import Filter
from eventplane.uplink_interest import UPLINK_KEY, UplinkInterestError, read_uplink_interest

_log = logging.getLogger(__name__)

INTEREST_REFUSED: Final = "interest_refused"


def is_uplink_interest(incoming: Incoming) -> bool:
    """Whether `incoming` says what the cloud wants."""
    return incoming.kind is Downlink.STATE and incoming.key == UPLINK_KEY


def why_interest_refused(incoming: Incoming) -> Refusal | None:
    """Why what `incoming` says cannot be used; None when it can."""
    if incoming.is_deleted:
        return None
    try:
        read_uplink_interest(incoming.event)
    except UplinkInterestError as error:
        return Refusal(INTEREST_REFUSED, str(error))
    return None


def uplink_interest(spool: Spool) -> Filter | None:
    """What the cloud wants by the state in `spool`; None where it is unknown. Raises `SpoolError`."""
    holding = spool.holding(Downlink.STATE, UPLINK_KEY)
    if holding is None or holding.held.is_deleted:
        return None
    try:
        return read_uplink_interest(parse_event(holding.json))
    except UplinkInterestError as error:
        # An older program after a newer one.
        _log.error("what the cloud wants cannot be read, everything goes up: %s", error)
        return None
