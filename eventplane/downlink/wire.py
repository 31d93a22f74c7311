"""The attributes that the plane stamps on an event on its way down, and how a device reads them.

`downfence` is a fencing token: the cloud raises it when a device has lost its state, and the device's answer
repeats it, so that an answer from before the loss does not count. `downreset` is the number of the last reset
of the key's versions: a device compares it before the version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, TypeVar

from eventplane.contract import Downlink
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EventPlaneError
from eventplane.names import DOWN_KIND
from eventplane.reasons import Reason
from eventplane.values import whole_number

KIND: Final = DOWN_KIND
KEY: Final = "downkey"
UID: Final = "downuid"
RESET: Final = "downreset"
VERSION: Final = "downversion"
DELETE: Final = "downdelete"
ORDER: Final = "downorder"
FENCE: Final = "downfence"

RESERVED: Final = (KIND, KEY, UID, RESET, VERSION, DELETE, ORDER, FENCE)
"""Only the plane sets these attributes; an event that arrives with one becomes a dead letter."""

MAX_KEY_PART: Final = 100
"""Longest part of a key, characters. Ours: three of them fit a sort key of DynamoDB (1,024 bytes)."""

MAX_VERSION_DIGITS: Final = 18
"""Most digits of a version: such a number is exact in SQLite, in DynamoDB and in 64 bits."""

SENDER_KEYS: Final = "command/source/"
"""Prefix of the keys that the plane makes for commands without one. An event that names such a key is
refused: the key would belong to the first sender that named it instead of the sender that it is made from."""

_PART: Final = rf"[A-Za-z0-9._~-]{{1,{MAX_KEY_PART}}}"
_KEY: Final = re.compile(rf"{_PART}/{_PART}/{_PART}")
_UID: Final = re.compile(_PART)

ALL: Final = "*"
"""The `todevice` of an event for every device."""

_T = TypeVar("_T")


class DownlinkError(EventPlaneError):
    """An event cannot go down to a device: `reason` is a dead letter's word, `detail` is for people."""

    reason: str
    detail: str
    message = "{reason}: {detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """An event as a device receives it.

    `order` is the number of a command within its key, 0 for a state; `sender` is as the transport
    authenticated it.
    """

    kind: Downlink
    key: str
    uid: str
    reset: int
    version: int
    is_deleted: bool
    order: int
    fence: int
    sender: str
    source: str
    id: str
    event: Envelope


def is_key(value: object) -> TypeGuard[str]:
    """Return whether `value` is a key: `kind/namespace/name`."""
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def is_uid(value: object) -> TypeGuard[str]:
    """Return whether `value` can name one incarnation of an object."""
    return isinstance(value, str) and _UID.fullmatch(value) is not None


def read_key(value: object) -> str:
    """Return `value` if it is a key. Raises ValueError."""
    if is_key(value):
        return value
    raise ValueError("not kind/namespace/name")


def read_version(value: object) -> int:
    """Return the version that `value` writes, in decimal digits or as an Integer. Raises ValueError."""
    return whole_number(value, 10**MAX_VERSION_DIGITS - 1)


def key_of_sender(sender: str, source: str) -> str:
    """Return the key of commands without one: those of one `sender` and `source` keep their order."""
    names = f"{sender}\n{source}"
    return f"{SENDER_KEYS}{hashlib.sha256(names.encode()).hexdigest()[:32]}"


def stamped(
    text: str,
    *,
    kind: Downlink,
    key: str,
    uid: str,
    version: int,
    is_deleted: bool,
    order: int,
    fence: int,
    reset: int = 0,
) -> str:
    """Return the event `text` as it goes to the device: with the plane's attributes in front."""
    front = {KIND: kind.value, KEY: key, VERSION: str(version), FENCE: str(fence)}
    if uid:
        front[UID] = uid
    if reset:
        front[RESET] = str(reset)
    if is_deleted:
        front[DELETE] = "true"
    if kind is Downlink.COMMAND:
        front[ORDER] = str(order)
    return parse_event(text).stamped(**front).json


def received(event: Envelope) -> Incoming:
    """Read what the cloud stamped on `event`. Raises `DownlinkError` (`not_for_a_device`)."""
    incoming = Incoming(
        kind=_read(event, KIND, Downlink),
        key=_read(event, KEY, read_key),
        uid=_read(event, UID, _read_uid, ""),
        reset=_read(event, RESET, read_version, 0),
        version=_read(event, VERSION, read_version),
        is_deleted=event.attributes.get(DELETE) in ("true", True),
        order=_read(event, ORDER, read_version, 0),
        fence=_read(event, FENCE, read_version),
        sender=str(event.sender),
        source=event.source,
        id=event.id,
        event=event,
    )
    if (incoming.order > 0) != (incoming.kind is Downlink.COMMAND):
        raise _not_for_a_device(ORDER, event)
    return incoming


def _read(event: Envelope, name: str, read: Callable[[Any], _T], default: object = None) -> _T:
    try:
        return read(event.attributes.get(name, default))
    except ValueError as error:
        raise _not_for_a_device(name, event) from error


def _not_for_a_device(name: str, event: Envelope) -> DownlinkError:
    value = event.attributes.get(name)
    return DownlinkError(
        Reason.NOT_FOR_A_DEVICE,
        f"`{name}` is {value!r:.150}; only the plane's cloud may publish to a device's inbox",
    )


def _read_uid(value: object) -> str:
    if value == "" or is_uid(value):
        return str(value)
    raise ValueError("not the name of an incarnation")
