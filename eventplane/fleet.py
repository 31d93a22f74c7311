"""A device's life from the factory to its disposal: who may have a certificate, and which has had its time.

The fleet's registry holds one `Device` for each that was made. The functions here decide how a record
changes, for instance by a `RegistrationRequest`; `eventplane.records` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

from eventplane.errors import EventPlaneError
from eventplane.records import Item, RecordKind
from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX, is_device_name, is_group_name

MAX_REGISTRATIONS_A_DAY: Final = 5
"""Certificates that one device may register in a day (UTC): enough for a bad line, too few for a loop."""

QUARANTINE_POLICY: Final = "quarantine"
"""The IoT policy that denies everything, without project and environment: a quarantine attaches it."""

FLEET: Final = "fleet"
"""The archive's folder of snapshots of the registry."""

_DAY_MS: Final = 86_400_000


class LifecycleState(StrEnum):
    """Where a device stands. A quarantined one can be released; a decommissioned one stays so."""

    MADE = "made"
    PROVISIONED = "provisioned"
    QUARANTINED = "quarantined"
    DECOMMISSIONED = "decommissioned"


IN_SERVICE: Final = (LifecycleState.PROVISIONED, LifecycleState.QUARANTINED)
"""States of devices that have been in use and may be again."""


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """One device in service when a snapshot of the registry was taken, in `state` since `since_ms` (Unix
    milliseconds)."""

    thing: str
    state: LifecycleState
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What the registry knows of a device. Times are Unix milliseconds, certificates are their ids.

    Args:
        since_ms: when it came into its `state`.
        certificate: the last that a connection of the device stood with.
        pending: the last that was registered, until a connection has stood with it.
        replaced: those that had their time and still have to be deactivated.
        registrations: how many certificates were ever registered; `registered_today` of them on `day`,
            counted from 1970.
        replacement_until_ms: until then the claim may register it although it is provisioned.
        reason: why it was quarantined or decommissioned.
        groups: those that an event to a group reaches.
        suspended: those that a quarantine deactivated, until a release has activated them again.
        before: the state that a quarantined device returns to.
        revision: how often the record was written: what a writer has to have read.
    """

    thing: str
    state: LifecycleState
    changed_at_ms: int
    since_ms: int
    certificate: str | None = None
    pending: str | None = None
    replaced: frozenset[str] = frozenset()
    registrations: int = 0
    day: int = 0
    registered_today: int = 0
    replacement_until_ms: int = 0
    reason: str = ""
    groups: frozenset[str] = frozenset()
    suspended: frozenset[str] = frozenset()
    before: LifecycleState | None = None
    revision: int = 0

    @property
    def certificates(self) -> frozenset[str]:
        """All that may be active, or become active again."""
        return self.replaced | self.suspended | {each for each in (self.certificate, self.pending) if each}


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """Somebody asks to be `thing` with the new certificate `offered`.

    `client_id` and `asking`, the certificate of the connection, are what IoT Core saw, not what was said.
    """

    thing: str
    client_id: str
    asking: str
    offered: str


class RegistrationRefusal(StrEnum):
    """Why a registration is refused, with the `remedy`."""

    remedy: str

    def __new__(cls, word: str, remedy: str) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.remedy = remedy
        return member

    UNKNOWN = "unknown", "nobody registered this serial number; `fleet register` it if it was made"
    QUARANTINED = "quarantined", "it is quarantined; `fleet release` it when the cause is gone"
    DECOMMISSIONED = "decommissioned", "it was decommissioned; a device that is used again gets a new name"
    WRONG_CLIENT = "wrong_client", "its client id does not end in its name; see what connects there"
    FOREIGN_CERTIFICATE = (
        "foreign_certificate",
        "the certificate that asks is not this device's; see who has it",
    )
    TAKEN = "taken", "it has a certificate already; `fleet allow-replacement` if the device lost it"
    TOO_OFTEN = (
        "too_often",
        f"more than {MAX_REGISTRATIONS_A_DAY} certificates in a day; see the device's log",
    )


class RefusedError(EventPlaneError):
    """`thing` gets no certificate, because of `refusal`."""

    thing: str
    refusal: RegistrationRefusal
    message = "{thing!r} gets no certificate: {refusal.remedy}"


class DeviceNameError(EventPlaneError):
    """`name` cannot be a device's."""

    name: str
    message = (
        "{name!r} cannot be a device's name; use up to 120 letters, digits, '-', '_' and ':', not "
        f"starting with {CLAIM_CLIENT_PREFIX!r} or {RENEWAL_CLIENT_PREFIX!r}"
    )


class GroupNameError(EventPlaneError):
    """`name` cannot be a group's."""

    name: str
    message = "{name!r} cannot be a group's name; use up to 100 letters, digits and '._~-'"


class LifecycleError(EventPlaneError):
    """The state of `device` does not allow what was asked for."""

    device: Device
    problem: str
    message = "{device.thing!r} is {device.state}: {problem}"


def made(name: str, now_ms: int) -> Device:
    """A device that leaves the factory. Raises `DeviceNameError`."""
    if not is_device_name(name):
        raise DeviceNameError(name)
    return Device(thing=name, state=LifecycleState.MADE, changed_at_ms=now_ms, since_ms=now_ms)


def registered(device: Device | None, application: RegistrationRequest, now_ms: int) -> Device:
    """The device after the registration. Raises `RefusedError`.

    With the claim a device is registered until it was seen with a certificate of its own, so that an answer
    that was lost can be asked for again; later only while a replacement is allowed. With its own certificate
    it may renew at any time.
    """
    thing = application.thing
    if device is None:
        raise RefusedError(thing, RegistrationRefusal.UNKNOWN)
    if device.state is LifecycleState.DECOMMISSIONED:
        raise RefusedError(thing, RegistrationRefusal.DECOMMISSIONED)
    if device.state is LifecycleState.QUARANTINED:
        raise RefusedError(thing, RegistrationRefusal.QUARANTINED)
    if application.client_id == RENEWAL_CLIENT_PREFIX + thing:
        if application.asking not in (device.certificate, device.pending):
            raise RefusedError(thing, RegistrationRefusal.FOREIGN_CERTIFICATE)
        device = seen(device, application.asking, now_ms)
    elif application.client_id != CLAIM_CLIENT_PREFIX + thing:
        raise RefusedError(thing, RegistrationRefusal.WRONG_CLIENT)
    elif device.state is LifecycleState.PROVISIONED and now_ms >= device.replacement_until_ms:
        raise RefusedError(thing, RegistrationRefusal.TAKEN)
    if application.offered == device.pending:
        return device  # asked twice with one certificate: the first answer was lost
    day = now_ms // _DAY_MS
    today = device.registered_today if device.day == day else 0
    if today >= MAX_REGISTRATIONS_A_DAY:
        raise RefusedError(thing, RegistrationRefusal.TOO_OFTEN)
    return replace(
        device,
        pending=application.offered,
        replaced=(device.replaced | {each for each in (device.pending,) if each}) - {application.offered},
        registrations=device.registrations + 1,
        day=day,
        registered_today=today + 1,
        changed_at_ms=now_ms,
    )


def seen(device: Device, certificate: str, now_ms: int) -> Device:
    """The device after a connection that stood with `certificate`: one that was pending is its own now."""
    is_out = device.state in (LifecycleState.QUARANTINED, LifecycleState.DECOMMISSIONED)
    if is_out or certificate != device.pending:
        return device
    return replace(
        device,
        state=LifecycleState.PROVISIONED,
        since_ms=device.since_ms if device.state is LifecycleState.PROVISIONED else now_ms,
        certificate=certificate,
        pending=None,
        replaced=device.replaced | {each for each in (device.certificate,) if each},
        replacement_until_ms=0,
        changed_at_ms=now_ms,
    )


def retired(device: Device, certificates: frozenset[str]) -> Device:
    """The device after `certificates` were deactivated permanently."""
    return replace(device, replaced=device.replaced - certificates, suspended=device.suspended - certificates)


def replaceable(device: Device, until_ms: int, now_ms: int) -> Device:
    """The device, which the claim may register once more until `until_ms`. Raises `LifecycleError`."""
    if device.state is LifecycleState.DECOMMISSIONED:
        raise LifecycleError(device, "a device that is used again gets a new name")
    if device.state is LifecycleState.QUARANTINED:
        raise LifecycleError(device, "release it first")
    if device.state is LifecycleState.MADE:
        raise LifecycleError(device, "the claim registers it as it is")
    return replace(device, replacement_until_ms=until_ms, changed_at_ms=now_ms)


def grouped(device: Device, groups: frozenset[str], now_ms: int) -> Device:
    """The device in exactly these `groups`. Raises `GroupNameError`, `LifecycleError`."""
    if wrong := sorted(each for each in groups if not is_group_name(each)):
        raise GroupNameError(wrong[0])
    if device.state is LifecycleState.DECOMMISSIONED:
        raise LifecycleError(device, "nothing is sent to it any more")
    return device if device.groups == groups else replace(device, groups=groups, changed_at_ms=now_ms)


def quarantined(device: Device, active: frozenset[str], reason: str, now_ms: int) -> Device:
    """Return the device as quarantined, with the `active` certificates to deactivate among its `suspended`.

    The first reason and time stay, so that it may be repeated. Raises `LifecycleError`.
    """
    if device.state is LifecycleState.DECOMMISSIONED:
        raise LifecycleError(device, "it has no certificate that works")
    if device.state is LifecycleState.QUARANTINED:
        return replace(device, suspended=device.suspended | active)
    return replace(
        device,
        state=LifecycleState.QUARANTINED,
        before=device.state,
        suspended=device.suspended | active,
        reason=reason,
        changed_at_ms=now_ms,
        since_ms=now_ms,
    )


def locked_out(device: Device, certificate: str) -> Device:
    """Return the device after a connection with `certificate`, which is deactivated while it is quarantined.

    Only a certificate that the registry knows is activated again by the release: a late message may be about
    one that was retired long ago.
    """
    if device.state is not LifecycleState.QUARANTINED or certificate not in device.certificates:
        return device
    return replace(device, suspended=device.suspended | {certificate})


def released(device: Device, now_ms: int) -> Device:
    """Return the device in the state that it had before its quarantine; its `suspended` still has to be
    activated. Raises `LifecycleError`."""
    if device.state is LifecycleState.DECOMMISSIONED:
        raise LifecycleError(device, "a device that is used again gets a new name")
    if device.state is not LifecycleState.QUARANTINED:
        return device
    return replace(
        device,
        state=device.before or LifecycleState.PROVISIONED,
        before=None,
        reason="",
        changed_at_ms=now_ms,
        since_ms=now_ms,
    )


def reactivated(device: Device, certificates: frozenset[str]) -> Device:
    """Return the device after `certificates` of its `suspended` were dealt with."""
    return replace(device, suspended=device.suspended - certificates)


def decommissioned(device: Device, reason: str, now_ms: int) -> Device:
    """The device at the end of its life; the first reason and time stay."""
    if device.state is LifecycleState.DECOMMISSIONED:
        return device
    return replace(
        device,
        state=LifecycleState.DECOMMISSIONED,
        reason=reason,
        replacement_until_ms=0,
        changed_at_ms=now_ms,
        since_ms=now_ms,
    )


# The registry.

FLEET_TABLE: Final = "fleet"
"""What the table is called, without project and environment."""


def _with_since(item: Item) -> Item:
    # Items of early versions have no `since_ms`.
    return {"since_ms": item["changed_at_ms"], **item}


REGISTRY: Final = RecordKind(type=Device, key=("thing",), upgrade=_with_since)
"""How the registry keeps its devices."""


def in_service(devices: Iterable[Device]) -> Iterator[FleetRecord]:
    """Yield those of `devices` that are in service."""
    return (
        FleetRecord(each.thing, each.state, each.since_ms) for each in devices if each.state in IN_SERVICE
    )
