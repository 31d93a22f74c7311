"""What its sender says of an event for devices: whom it is for, what it is about, which version it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eventplane.attributes import AttributeValue
from eventplane.contract import Downlink
from eventplane.conversation.attributes import REPLY_TYPE
from eventplane.downlink import errors
from eventplane.downlink.errors import DownlinkError
from eventplane.downlink.wire import (
    MAX_AHEAD_MS,
    MAX_VERSION_DIGITS,
    OF_SENDERS,
    RESERVED,
    is_key,
    is_uid,
    key_of_sender,
    number,
)
from eventplane.envelope import Envelope
from eventplane.limits import MAX_DOWNLINK_EVENT_BYTES
from eventplane.topics import is_device_name, is_group_name
from eventplane.values import timestamp_ms

ALL: Final = "*"
"""`todevice` for every device."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whom an event is for: one `thing`, a `group`, or all devices where both are None."""

    thing: str | None = None
    group: str | None = None

    def __str__(self) -> str:
        """Return it in words for an error's detail."""
        if self.thing is not None:
            return f"device {self.thing}"
        return "all devices" if self.group is None else f"group {self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressed:
    """An event on its way to devices, and what it says of itself.

    Args:
        key: `kind/namespace/name`; commands of one key keep their order.
        uid: the incarnation of the object; '' where the sender tells none apart.
        version: grows with every change of a key, also over its incarnations.
        is_deleted: a tombstone: the object is gone.
        sender: who sent it, by the transport (`Envelope.sender`).
        accepted_at_ms: when the plane accepted it, Unix milliseconds, the same for each copy.
        expires_at_ms: from when on a command is not worth delivering, Unix milliseconds; None: never.
        text: the event as it came.
    """

    target: Target
    kind: Downlink
    key: str
    uid: str
    version: int
    is_deleted: bool
    sender: str
    source: str
    id: str
    text: str
    accepted_at_ms: int
    expires_at_ms: int | None = None


def addressed(event: Envelope, kind: Downlink, accepted_at_ms: int, expiry_s: int | None = None) -> Addressed:
    """What `event` says of itself, to be delivered as `kind`.

    `accepted_at_ms` (Unix milliseconds) is when the plane accepted it, the same for each copy of it: the
    queue's time of sending, not the clock. `expiry_s` is the inbox's. Raises `DownlinkError`.
    """
    _check(event)
    attributes = event.attributes
    is_deleted = _is_deleted(attributes.get("statedelete", False))
    if is_deleted and kind is Downlink.COMMAND:
        raise DownlinkError(errors.INVALID_STATE_DELETE, "a command cannot be deleted; let it expire")
    return Addressed(
        target=_target(attributes.get("todevice"), attributes.get("togroup")),
        kind=kind,
        key=_key(event, kind),
        uid=_uid(attributes.get("stateuid", "")),
        version=_version(event, kind, accepted_at_ms),
        is_deleted=is_deleted,
        sender=str(event.sender),
        source=event.source,
        id=event.id,
        text=event.json,
        accepted_at_ms=accepted_at_ms,
        expires_at_ms=_expiry(event, kind, accepted_at_ms, expiry_s),
    )


def _check(event: Envelope) -> None:
    for name in RESERVED:
        if name in event.attributes:
            raise DownlinkError(
                errors.RESERVED, f"{name!r} is the plane's to give; send the event without it"
            )
    size = len(event.json.encode())
    if size > MAX_DOWNLINK_EVENT_BYTES:
        raise DownlinkError(
            errors.TOO_LARGE,
            f"{size} bytes; towards a device an event has at most {MAX_DOWNLINK_EVENT_BYTES}",
        )


def _target(thing: AttributeValue | None, group: AttributeValue | None) -> Target:
    if thing is not None and group is not None:
        raise DownlinkError(errors.TWO_ADDRESSES, "it has `todevice` and `togroup`; send two events")
    if thing == ALL:
        return Target()
    if thing is not None:
        return Target(thing=_name(thing, is_device_name, errors.UNKNOWN_DEVICE))
    if group is not None:
        return Target(group=_name(group, is_group_name, errors.UNKNOWN_GROUP))
    raise DownlinkError(errors.NO_DEVICE, "it has neither `todevice` (a device's name, or `*`) nor `togroup`")


def _name(value: AttributeValue, is_name: Callable[[str], bool], reason: str) -> str:
    if isinstance(value, str) and is_name(value):
        return value
    raise DownlinkError(reason, f"{value!r:.150} is no name that the fleet allows; correct the sender")


def _key(event: Envelope, kind: Downlink) -> str:
    key = event.attributes.get("statekey")
    if key is None and kind is Downlink.STATE:
        raise DownlinkError(errors.NO_STATE_KEY, "a state has a `statekey`: kind/namespace/name")
    if key is None or event.type == REPLY_TYPE:
        # Everybody may reply: by its own word a reply could take another's key.
        return key_of_sender(str(event.sender), event.source)
    if isinstance(key, str) and key.startswith(OF_SENDERS):
        raise DownlinkError(
            errors.INVALID_STATE_KEY,
            f"`statekey` {key!r:.350}: keys under {OF_SENDERS} are the plane's to give, to commands "
            "without one; use another key, or send the command without `statekey`",
        )
    if isinstance(key, str) and is_key(key):
        return key
    raise DownlinkError(
        errors.INVALID_STATE_KEY,
        f"`statekey` {key!r:.350} is not kind/namespace/name, "
        "each of 1 to 100 letters, digits, `.`, `_`, `~`, `-`",
    )


def _uid(uid: AttributeValue) -> str:
    if uid == "" and isinstance(uid, str):
        return ""
    if isinstance(uid, str) and is_uid(uid):
        return uid
    raise DownlinkError(
        errors.INVALID_STATE_UID,
        f"`stateuid` {uid!r:.150} has not 1 to 100 letters, digits, `.`, `_`, `~`, `-`; a UUID has",
    )


def _version(event: Envelope, kind: Downlink, accepted_at_ms: int) -> int:
    version = _named_version(event, kind, accepted_at_ms)
    if kind is Downlink.STATE and version > accepted_at_ms + MAX_AHEAD_MS:
        # Nothing newer could be expressed: the key would be lost to everybody.
        raise DownlinkError(
            errors.VERSION_JUMP,
            f"version {version} is a time more than a day ahead; correct the sender's clock or counter. If "
            "the key has such a version: `python -m eventplane desired reset KEY --device NAME | --all`",
        )
    return version


def _named_version(event: Envelope, kind: Downlink, accepted_at_ms: int) -> int:
    version, time = event.attributes.get("stateversion"), event.attributes.get("time")
    if version is not None:
        if (read := number(version)) is not None:
            return read
        raise DownlinkError(
            errors.INVALID_STATE_VERSION,
            f"`stateversion` {version!r:.50} is no number of up to {MAX_VERSION_DIGITS} decimal digits",
        )
    if time is not None:
        # Before 1970 no version is newer than another: the envelope takes such a time, a version cannot.
        return max(timestamp_ms(str(time)), 0)
    if kind is Downlink.STATE:
        # By its acceptance a late copy of an old state would be the newest.
        raise DownlinkError(
            errors.INVALID_STATE_VERSION, "a state has a `stateversion`, or at least a `time`"
        )
    return accepted_at_ms


def _is_deleted(value: AttributeValue) -> bool:
    # A binding that carries texts only has the word.
    if value is True or value == "true":
        return True
    if value is False or value == "false":
        return False
    raise DownlinkError(errors.INVALID_STATE_DELETE, f"`statedelete` {value!r:.50} is neither true nor false")


def _expiry(event: Envelope, kind: Downlink, accepted_at_ms: int, expiry_s: int | None) -> int | None:
    """A state is worth delivering until the next one comes, so only commands expire."""
    if kind is Downlink.STATE:
        return None
    ends = [] if expiry_s is None else [accepted_at_ms + 1_000 * expiry_s]
    if "expirytime" in event.attributes:
        ends.append(timestamp_ms(str(event.attributes["expirytime"])))
    return min(ends, default=None)
