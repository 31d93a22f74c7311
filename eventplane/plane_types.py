"""The types of the events that the plane itself sends, and which of its parts sends each."""

from __future__ import annotations

from typing import Final

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import (
    ACKNOWLEDGED,
    DEVICE_CONTRACT,
    DISCARDED,
    DISK_FAILED,
    HEARTBEAT,
    MANIFEST,
    STARTED,
    UPLINK_INTEREST_TYPE,
)
from eventplane.names import (
    AUDITOR,
    CONNECTED,
    DISCONNECTED,
    FLOODING,
    MONITOR,
    NOTICE,
    NOTICE_OF_MANY,
    QUIET,
    RECOVERED,
    SUSPECTED,
    VERDICT,
)

DEVICE_REPORTS: Final = frozenset({STARTED, DISCARDED, MANIFEST, HEARTBEAT, DISK_FAILED, ACKNOWLEDGED})
"""What only a device's forwarder sends, about its own device."""

DEVICE_STATES: Final = frozenset({DEVICE_CONTRACT, UPLINK_INTEREST_TYPE})
"""What steers forwarders: only cloud services send it, those that name it in `sends`."""

OWNERS: Final = {
    **dict.fromkeys(
        (CONNECTED, DISCONNECTED, QUIET, RECOVERED, FLOODING, SUSPECTED, NOTICE, NOTICE_OF_MANY), MONITOR
    ),
    VERDICT: AUDITOR,
}
"""The types of the plane's own services, and the service that alone sends each."""

PLANE_TYPES: Final = frozenset({*DEVICE_REPORTS, *DEVICE_STATES, *OWNERS, DEAD_LETTER_TYPE})
"""The types of what the plane reports of itself; each of its reports is delivered at least once."""
