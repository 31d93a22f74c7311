"""What the plane puts in front of an event on its way down, and how a device reads it there.

`downfence` is a fencing token: the cloud raises it when a device has lost its state, the device's answer
repeats it, so that an answer of an earlier life is told from one of the present life. `downreset` is the
number of the last reset of the key's versions: a device compares it before the version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eventplane.contract import Downlink
from eventplane.downlink import errors
from eventplane.downlink.errors import DownlinkError
from eventplane.downlink.keys import is_key, is_uid, number
from eventplane.envelope import Envelope, parse_event

KIND: Final = "downkind"
KEY: Final = "downkey"
UID: Final = "downuid"
RESET: Final = "downreset"
VERSION: Final = "downversion"
DELETE: Final = "downdelete"
ORDER: Final = "downorder"
FENCE: Final = "downfence"

RESERVED: Final = (KIND, KEY, UID, RESET, VERSION, DELETE, ORDER, FENCE)
"""The plane's own attributes; an event that comes with one is a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """An event as a device gets it. `order` is the number of a command within its key, 0 for a state.

    `sender` is who sent it, by the transport.
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
    """The event `text` as it goes to the device: the plane's attributes in front, nothing else changed."""
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
    """What the cloud says of an `event` that it sent. Raises `DownlinkError` (`not_for_a_device`)."""
    attributes = event.attributes
    kind, key, uid = attributes.get(KIND), attributes.get(KEY), attributes.get(UID, "")
    version, fence = number(attributes.get(VERSION)), number(attributes.get(FENCE))
    order, reset = number(attributes.get(ORDER, 0)), number(attributes.get(RESET, 0))
    if kind not in (Downlink.STATE, Downlink.COMMAND):
        raise _foreign(KIND, kind)
    if not isinstance(key, str) or not is_key(key):
        raise _foreign(KEY, key)
    if not isinstance(uid, str) or (uid and not is_uid(uid)):
        raise _foreign(UID, uid)
    if reset is None:
        raise _foreign(RESET, attributes.get(RESET))
    if version is None:
        raise _foreign(VERSION, attributes.get(VERSION))
    if fence is None:
        raise _foreign(FENCE, attributes.get(FENCE))
    if order is None or (order > 0) != (kind == Downlink.COMMAND):
        raise _foreign(ORDER, attributes.get(ORDER))
    return Incoming(
        kind=Downlink(kind),
        key=key,
        uid=uid,
        reset=reset,
        version=version,
        is_deleted=attributes.get(DELETE) in ("true", True),
        order=order,
        fence=fence,
        sender=str(event.sender),
        source=event.source,
        id=event.id,
        event=event,
    )


def _foreign(name: str, value: object) -> DownlinkError:
    return DownlinkError(
        errors.NOT_FOR_A_DEVICE,
        f"`{name}` is {value!r:.150}; only the plane's cloud may publish to a device's inbox",
    )
