"""The reasons for which an event never reaches a device: the words of its dead letter."""

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
"""An event in a device's inbox lacks the attributes that the plane stamps."""


class DownlinkError(EventPlaneError):
    """An event cannot go down to a device: `reason` is the word of its dead letter, `detail` is for
    people."""

    reason: str
    detail: str
    message = "{reason}: {detail}"


class AcknowledgementError(EventPlaneError):
    """An event is not an acknowledgement; `detail` says why."""

    detail: str
    message = "{detail}; the device's software writes it, compare its version with the cloud's"
