"""What to do about a PUBACK that says no (MQTT 5.0, section 3.4.2.1)."""

from __future__ import annotations

from enum import Enum, auto


class Remedy(Enum):
    """What helps against a failed publish."""

    SLOW_DOWN = auto()
    """Send it again, less often: the quota is used up."""

    SPLIT = auto()
    """Never send it again as it is: something in the payload is what the broker cannot take."""

    CONFIGURE = auto()
    """Nothing on this side: the topic is the same for all, so the device's policy or settings are wrong."""

    RECONNECT = auto()
    """Try again on another connection: the broker does not say whether it or the payload is the cause."""


_REMEDIES = {
    "quota exceeded": Remedy.SLOW_DOWN,
    "payload format invalid": Remedy.SPLIT,
    "packet too large": Remedy.SPLIT,
    "not authorized": Remedy.CONFIGURE,
    "topic name invalid": Remedy.CONFIGURE,
}


def remedy(failure: str) -> Remedy:
    """The remedy for a failure by the name that MQTT gives its reason code."""
    text = failure.lower()
    return next((each for name, each in _REMEDIES.items() if name in text), Remedy.RECONNECT)
