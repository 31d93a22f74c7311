"""The address of an event for devices: its target, its key, and its version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eventplane.attributes import KNOWN, AttributeValue
from eventplane.contract import Downlink
from eventplane.dead_letter import REASON_ATTRIBUTE
from eventplane.downlink.desired import KeyedEvent
from eventplane.downlink.wire import (
    ALL,
    MAX_VERSION_DIGITS,
    RESERVED,
    SENDER_KEYS,
    DownlinkError,
    is_key,
    is_uid,
    key_of_sender,
    read_version,
)
from eventplane.envelope import Envelope
from eventplane.expiry import expires_at_ms
from eventplane.limits import MAX_DOWNLINK_EVENT_BYTES
from eventplane.names import EPOCH, FOLLOWED_CONTRACT, REPLY_TYPE, SEQUENCE
from eventplane.reasons import Reason
from eventplane.topics import is_device_name, is_group_name
from eventplane.values import timestamp_ms

MAX_AHEAD_MS: Final = 24 * 60 * 60 * 1_000
"""How far a state's version may be ahead of the clock when it is read as Unix milliseconds: a day. Ours."""

ADDRESSING: Final = ("todevice", "togroup", "statekey", "stateversion", "stateuid", "statedelete")
"""The attributes by which a sender says for which devices an event is."""

ATTRIBUTES: Final = KNOWN | {EPOCH, SEQUENCE, FOLLOWED_CONTRACT, REASON_ATTRIBUTE, *RESERVED, *ADDRESSING}
"""Every attribute that means something to the plane."""


@dataclass(frozen=True, slots=True)
class Target:
    """The devices that an event is for: one `thing`, a `group`, or all devices where both are None."""

    thing: str | None = None
    group: str | None = None

    def __str__(self) -> str:
        """Return it in words for an error's detail."""
        if self.thing is not None:
            return f"device {self.thing}"
        return "all devices" if self.group is None else f"group {self.group}"


@dataclass(frozen=True, slots=True)
class Addressed:
    """An event on its way to devices, as the `message` of a `key` (`kind/namespace/name`).

    `accepted_at_ms` (Unix milliseconds) is when the plane accepted it, the same for each copy.
    """

    target: Target
    kind: Downlink
    key: str
    message: KeyedEvent
    accepted_at_ms: int


def addressed(event: Envelope, kind: Downlink, accepted_at_ms: int, expiry_s: int | None = None) -> Addressed:
    """Read the attributes of `event`, which is to be delivered as `kind`.

    `accepted_at_ms` (Unix milliseconds) is when the plane accepted it, the same for each copy: the time of
    sending of the queue, not the clock. `expiry_s` is the inbox's. Raises `DownlinkError`.
    """
    _check(event)
    attributes = event.attributes
    is_deleted = _is_deleted(attributes.get("statedelete", False))
    if is_deleted and kind is Downlink.COMMAND:
        raise DownlinkError(Reason.INVALID_STATE_DELETE, "a command cannot be deleted; let it expire")
    target = _target(attributes.get("todevice"), attributes.get("togroup"))
    key = _key(event, kind)
    message = KeyedEvent(
        uid=_uid(attributes.get("stateuid", "")),
        version=_version(event, kind, accepted_at_ms),
        is_deleted=is_deleted,
        sender=str(event.sender),
        source=event.source,
        id=event.id,
        text=event.json,
        expires_at_ms=_expires_at_ms(event, kind, accepted_at_ms, expiry_s),
    )
    return Addressed(target, kind, key, message, accepted_at_ms)


def _check(event: Envelope) -> None:
    for name in RESERVED:
        if name in event.attributes:
            raise DownlinkError(
                Reason.RESERVED_ATTRIBUTE, f"only the plane sets {name!r}; send the event without it"
            )
    size = len(event.json.encode())
    if size > MAX_DOWNLINK_EVENT_BYTES:
        raise DownlinkError(
            Reason.TOO_LARGE_FOR_DOWNLINK,
            f"{size} bytes; towards a device an event has at most {MAX_DOWNLINK_EVENT_BYTES}",
        )


def _target(thing: AttributeValue | None, group: AttributeValue | None) -> Target:
    if thing is not None and group is not None:
        raise DownlinkError(Reason.TWO_ADDRESSES, "it has `todevice` and `togroup`; send two events")
    if thing == ALL:
        return Target()
    if thing is not None:
        return Target(thing=_name(thing, is_device_name, Reason.UNKNOWN_DEVICE))
    if group is not None:
        return Target(group=_name(group, is_group_name, Reason.UNKNOWN_GROUP))
    raise DownlinkError(Reason.NO_DEVICE, "it has neither `todevice` (a device's name, or `*`) nor `togroup`")


def _name(value: AttributeValue, is_name: Callable[[str], bool], reason: str) -> str:
    if isinstance(value, str) and is_name(value):
        return value
    raise DownlinkError(reason, f"{value!r:.150} is not a name that the fleet allows; correct the sender")


def _key(event: Envelope, kind: Downlink) -> str:
    key = event.attributes.get("statekey")
    if key is None and kind is Downlink.STATE:
        raise DownlinkError(Reason.NO_STATE_KEY, "a state has a `statekey`: kind/namespace/name")
    if key is None or event.type == REPLY_TYPE:
        # Anyone may reply: with a key of its choice a reply could replace another sender's command.
        return key_of_sender(str(event.sender), event.source)
    if not is_key(key):
        raise DownlinkError(
            Reason.INVALID_STATE_KEY,
            f"`statekey` {key!r:.350} is not kind/namespace/name, "
            "each of 1 to 100 letters, digits, `.`, `_`, `~`, `-`",
        )
    if key.startswith(SENDER_KEYS):
        raise DownlinkError(
            Reason.INVALID_STATE_KEY,
            f"`statekey` {key!r:.350}: only the plane makes keys under {SENDER_KEYS}, for commands "
            "without one; use another key, or send the command without `statekey`",
        )
    return key


def _uid(uid: AttributeValue) -> str:
    if uid == "" or is_uid(uid):
        return str(uid)
    raise DownlinkError(
        Reason.INVALID_STATE_UID,
        f"`stateuid` {uid!r:.150} is not 1 to 100 letters, digits, `.`, `_`, `~`, `-`; a UUID is",
    )


def _version(event: Envelope, kind: Downlink, accepted_at_ms: int) -> int:
    version = _stated_version(event, kind, accepted_at_ms)
    if kind is Downlink.STATE and version > accepted_at_ms + MAX_AHEAD_MS:
        # No sender could express a newer version: the key would be useless.
        raise DownlinkError(
            Reason.VERSION_JUMP,
            f"version {version} is a time more than a day ahead; correct the sender's clock or counter. If "
            "the key has such a version: `eventplane desired reset KEY --device NAME | --all`",
        )
    return version


def _stated_version(event: Envelope, kind: Downlink, accepted_at_ms: int) -> int:
    version, time = event.attributes.get("stateversion"), event.attributes.get("time")
    if version is not None:
        try:
            return read_version(version)
        except ValueError as error:
            raise DownlinkError(
                Reason.INVALID_STATE_VERSION,
                f"`stateversion` {version!r:.50} is not a number of up to {MAX_VERSION_DIGITS} digits",
            ) from error
    if time is not None:
        # An envelope may have a time before 1970; a version is not negative.
        return max(timestamp_ms(str(time)), 0)
    if kind is Downlink.STATE:
        # By the time of its acceptance a late copy of an old state would be the newest.
        raise DownlinkError(
            Reason.INVALID_STATE_VERSION, "a state has a `stateversion`, or at least a `time`"
        )
    return accepted_at_ms


def _is_deleted(value: AttributeValue) -> bool:
    # A binding that carries texts only writes the word.
    if value is True or value == "true":
        return True
    if value is False or value == "false":
        return False
    raise DownlinkError(Reason.INVALID_STATE_DELETE, f"`statedelete` {value!r:.50} is neither true nor false")


def _expires_at_ms(event: Envelope, kind: Downlink, accepted_at_ms: int, expiry_s: int | None) -> int | None:
    # A state is worth delivering until the next one arrives, so only commands expire.
    if kind is Downlink.STATE:
        return None
    ends = [] if expiry_s is None else [accepted_at_ms + 1_000 * expiry_s]
    if (own := expires_at_ms(event, accepted_at_ms)) is not None:
        ends.append(own)
    return min(ends, default=None)
