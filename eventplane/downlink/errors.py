"""Why an event never comes to a device: named, for its dead letter."""

from __future__ import annotations

from typing import Final

from eventplane.errors import EventPlaneError

NO_DEVICE: Final = "no_device"
TWO_ADDRESSES: Final = "two_addresses"
UNKNOWN_DEVICE: Final = "unknown_device"
UNKNOWN_GROUP: Final = "unknown_group"
NO_STATE_KEY: Final = "no_state_key"
INVALID_STATE_KEY: Final = "invalid_state_key"
INVALID_STATE_VERSION: Final = "invalid_state_version"
INVALID_STATE_UID: Final = "invalid_state_uid"
INVALID_STATE_DELETE: Final = "invalid_state_delete"
TOO_LARGE: Final = "too_large_for_downlink"
TOO_MANY_COMMANDS: Final = "too_many_commands"
RESERVED: Final = "reserved_attribute"
VERSION_JUMP: Final = "version_jump"
ADDRESS_NOT_ALLOWED: Final = "address_not_allowed"
KEY_NOT_ALLOWED: Final = "key_not_allowed"
NOT_FOR_A_DEVICE: Final = "not_for_a_device"
"""What came over a device's inbox has not the attributes that the plane gives."""


class DownlinkError(EventPlaneError):
    """An event cannot go down to a device: `reason` is a dead letter's word, `detail` is for people."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class AcknowledgementError(EventPlaneError):
    """An event is no acknowledgement; `detail` says why."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"{detail}; the device's software writes it, compare its version with the cloud's")
        self.detail = detail
