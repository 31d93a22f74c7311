"""What the plane puts in front of an event on its way down, and how a device reads it there.

`downfence` is a fencing token: the cloud raises it when a device has lost its state, the device's answer
repeats it, so that an answer of an earlier life is told from one of the present life. `downreset` is the
number of the last reset of the key's versions: a device compares it before the version.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from eventplane.contract import Downlink
from eventplane.downlink import errors
from eventplane.downlink.errors import DownlinkError
from eventplane.envelope import Envelope, parse_event
from eventplane.values import whole_number

MAX_KEY_PART: Final = 100
"""Longest part of a key, characters. Ours: three of them fit a sort key of DynamoDB (1,024 bytes)."""

MAX_VERSION_DIGITS: Final = 18
"""Most digits of a version: such a number is exact in SQLite, in DynamoDB and in 64 bits."""

MAX_AHEAD_MS: Final = 24 * 60 * 60 * 1_000
"""How far a state's version may be ahead of the clock when it is read as Unix milliseconds: a day. Ours."""

COUNTERS_END: Final = 10**9
"""From here on a version is no counter but a time, in seconds or milliseconds. Ours."""

MAX_COUNTER_STEP: Final = 1_000_000
"""How much a version below `COUNTERS_END` may grow at once. Ours."""

OF_SENDERS: Final = "command/source/"
"""What the keys start with that the plane makes for commands without one. Nobody names such a key: it would
belong to the first who did, and not to the sender that it is made from."""

_PART: Final = rf"[A-Za-z0-9._~-]{{1,{MAX_KEY_PART}}}"
_KEY: Final = re.compile(rf"{_PART}/{_PART}/{_PART}")
_UID: Final = re.compile(_PART)


def is_key(text: str) -> bool:
    """Whether `text` is a key: `kind/namespace/name`."""
    return _KEY.fullmatch(text) is not None


def is_uid(text: str) -> bool:
    """Whether `text` can name one incarnation of an object."""
    return _UID.fullmatch(text) is not None


def number(value: object) -> int | None:
    """The version that `value` writes, in decimal digits or as an Integer; None where it writes none."""
    try:
        return whole_number(value, 10**MAX_VERSION_DIGITS - 1)
    except ValueError:
        return None


def key_of_sender(sender: str, source: str) -> str:
    """Return the key of commands without one: those of one `sender` and `source` keep their order."""
    names = f"{sender}\n{source}"
    return f"{OF_SENDERS}{hashlib.sha256(names.encode()).hexdigest()[:32]}"


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
