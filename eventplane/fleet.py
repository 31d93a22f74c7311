"""A device's life from the factory to its disposal: who may have a certificate, and which has had its time.

The fleet's registry holds one `Device` for each that was made. IoT Core says who asks (`Application`), the
functions here say what becomes of the record; `eventplane.fleet_registry` stores it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from eventplane.errors import EventPlaneError
from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX, is_device_name, is_group_name

MAX_REGISTRATIONS_A_DAY: Final = 5
"""Certificates that one device may register in a day (UTC): enough for a bad line, too few for a loop."""

QUARANTINE_POLICY: Final = "quarantine"
"""The IoT policy that denies everything, without project and environment: a quarantine attaches it."""

FLEET: Final = "fleet"
"""The archive's folder of snapshots of the registry."""

_DAY_MS: Final = 86_400_000


class State(StrEnum):
    """Where a device stands. A quarantined one can be released; a decommissioned one stays so."""

    MADE = "made"
    PROVISIONED = "provisioned"
    QUARANTINED = "quarantined"
    DECOMMISSIONED = "decommissioned"


IN_SERVICE: Final = (State.PROVISIONED, State.QUARANTINED)
"""States of devices that have been in use and may be again."""


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """One device in service when a snapshot of the registry was taken, in `state` since `since_ms` (Unix
    milliseconds)."""

    thing: str
    state: State
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
    state: State
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
    before: State | None = None
    revision: int = 0

    @property
    def certificates(self) -> frozenset[str]:
        """All that may be active, or become active again."""
        return self.replaced | self.suspended | {each for each in (self.certificate, self.pending) if each}


@dataclass(frozen=True, slots=True)
class Application:
    """Somebody asks to be `thing` with the new certificate `offered`.

    `client_id` and `asking`, the certificate of the connection, are what IoT Core saw, not what was said.
    """

    thing: str
    client_id: str
    asking: str
    offered: str


class Refusal(StrEnum):
    """Why a registration is refused, with what to do about it."""

    UNKNOWN = "unknown"
    QUARANTINED = "quarantined"
    DECOMMISSIONED = "decommissioned"
    WRONG_CLIENT = "wrong_client"
    FOREIGN_CERTIFICATE = "foreign_certificate"
    TAKEN = "taken"
    TOO_OFTEN = "too_often"


_REMEDIES: Final = {
    Refusal.UNKNOWN: "nobody registered this serial number; `fleet register` it if it was made",
    Refusal.QUARANTINED: "it is quarantined; `fleet release` it when the cause is gone",
    Refusal.DECOMMISSIONED: "it was decommissioned; a device that is used again gets a new name",
    Refusal.WRONG_CLIENT: "its client id does not end in its name; see what connects there",
    Refusal.FOREIGN_CERTIFICATE: "the certificate that asks is not this device's; see who has it",
    Refusal.TAKEN: "it has a certificate already; `fleet allow-replacement` if the device lost it",
    Refusal.TOO_OFTEN: f"more than {MAX_REGISTRATIONS_A_DAY} certificates in a day; see the device's log",
}


class RefusedError(EventPlaneError):
    """`thing` gets no certificate, because of `refusal`."""

    def __init__(self, thing: str, refusal: Refusal) -> None:
        super().__init__(f"{thing!r} gets no certificate: {_REMEDIES[refusal]}")
        self.thing = thing
        self.refusal = refusal


class DeviceNameError(EventPlaneError):
    """`name` cannot be a device's."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} cannot be a device's name; use up to 120 letters, digits, '-', '_' and ':', not "
            f"starting with {CLAIM_CLIENT_PREFIX!r} or {RENEWAL_CLIENT_PREFIX!r}"
        )
        self.name = name


class GroupNameError(EventPlaneError):
    """`name` cannot be a group's."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} cannot be a group's name; use up to 100 letters, digits and '._~-'")
        self.name = name


class LifeError(EventPlaneError):
    """The device's `state` does not allow what was asked for."""

    def __init__(self, device: Device, problem: str) -> None:
        super().__init__(f"{device.thing!r} is {device.state}: {problem}")
        self.thing = device.thing
        self.state = device.state


def made(name: str, now_ms: int) -> Device:
    """A device that leaves the factory. Raises `DeviceNameError`."""
    if not is_device_name(name):
        raise DeviceNameError(name)
    return Device(thing=name, state=State.MADE, changed_at_ms=now_ms, since_ms=now_ms)


def registered(device: Device | None, application: Application, now_ms: int) -> Device:
    """The device after the registration. Raises `RefusedError`.

    With the claim a device is registered until it was seen with a certificate of its own, so that an answer
    that was lost can be asked for again; later only while a replacement is allowed. With its own certificate
    it may renew at any time.
    """
    thing = application.thing
    if device is None:
        raise RefusedError(thing, Refusal.UNKNOWN)
    if device.state is State.DECOMMISSIONED:
        raise RefusedError(thing, Refusal.DECOMMISSIONED)
    if device.state is State.QUARANTINED:
        raise RefusedError(thing, Refusal.QUARANTINED)
    if application.client_id == RENEWAL_CLIENT_PREFIX + thing:
        if application.asking not in (device.certificate, device.pending):
            raise RefusedError(thing, Refusal.FOREIGN_CERTIFICATE)
        device = seen(device, application.asking, now_ms)
    elif application.client_id != CLAIM_CLIENT_PREFIX + thing:
        raise RefusedError(thing, Refusal.WRONG_CLIENT)
    elif device.state is State.PROVISIONED and now_ms >= device.replacement_until_ms:
        raise RefusedError(thing, Refusal.TAKEN)
    if application.offered == device.pending:
        return device  # asked twice with one certificate: the first answer was lost
    day = now_ms // _DAY_MS
    today = device.registered_today if device.day == day else 0
    if today >= MAX_REGISTRATIONS_A_DAY:
        raise RefusedError(thing, Refusal.TOO_OFTEN)
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
    is_out = device.state in (State.QUARANTINED, State.DECOMMISSIONED)
    if is_out or certificate != device.pending:
        return device
    return replace(
        device,
        state=State.PROVISIONED,
        since_ms=device.since_ms if device.state is State.PROVISIONED else now_ms,
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
    """The device, which the claim may register once more until `until_ms`. Raises `LifeError`."""
    if device.state is State.DECOMMISSIONED:
        raise LifeError(device, "a device that is used again gets a new name")
    if device.state is State.QUARANTINED:
        raise LifeError(device, "release it first")
    if device.state is State.MADE:
        raise LifeError(device, "the claim registers it as it is")
    return replace(device, replacement_until_ms=until_ms, changed_at_ms=now_ms)


def grouped(device: Device, groups: frozenset[str], now_ms: int) -> Device:
    """The device in exactly these `groups`. Raises `GroupNameError`, `LifeError`."""
    if wrong := sorted(each for each in groups if not is_group_name(each)):
        raise GroupNameError(wrong[0])
    if device.state is State.DECOMMISSIONED:
        raise LifeError(device, "nothing is sent to it any more")
    return device if device.groups == groups else replace(device, groups=groups, changed_at_ms=now_ms)


def quarantined(device: Device, active: frozenset[str], reason: str, now_ms: int) -> Device:
    """Return the device as quarantined, with the `active` certificates to deactivate among its `suspended`.

    The first reason and time stay, so that it may be repeated. Raises `LifeError`.
    """
    if device.state is State.DECOMMISSIONED:
        raise LifeError(device, "it has no certificate that works")
    if device.state is State.QUARANTINED:
        return replace(device, suspended=device.suspended | active)
    return replace(
        device,
        state=State.QUARANTINED,
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
    if device.state is not State.QUARANTINED or certificate not in device.certificates:
        return device
    return replace(device, suspended=device.suspended | {certificate})


def released(device: Device, now_ms: int) -> Device:
    """Return the device in the state that it had before its quarantine; its `suspended` still has to be
    activated. Raises `LifeError`."""
    if device.state is State.DECOMMISSIONED:
        raise LifeError(device, "a device that is used again gets a new name")
    if device.state is not State.QUARANTINED:
        return device
    return replace(
        device,
        state=device.before or State.PROVISIONED,
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
    if device.state is State.DECOMMISSIONED:
        return device
    return replace(
        device,
        state=State.DECOMMISSIONED,
        reason=reason,
        replacement_until_ms=0,
        changed_at_ms=now_ms,
        since_ms=now_ms,
    )
