"""A device's life from the factory to its disposal: who may have a certificate, and which has had its time.

The fleet's registry holds one `Device` for each that was made. The functions here decide how a record
changes, for instance by a `RegistrationRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

from eventplane.device_record import CLAIM, Candidate, Device, FleetRecord, LifecycleState
from eventplane.errors import EventPlaneError
from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX, is_device_name, is_group_name

MAX_REGISTRATIONS_A_DAY: Final = 5
"""Certificates that one certificate of a device, or the claim for it, may register in a day (UTC): enough for
a bad line, too few for a loop. No holder uses up another's. While an operator lets the claim register a
device, nothing is counted: the day would be that of whoever asks most."""

MAX_HOLDERS_A_DAY: Final = 5
"""Certificates of one device that may register others in a day (UTC), the claim included."""

MAX_CANDIDATES: Final = 5
"""Certificates of one device that wait for their first connection: the first one and the newest."""

MAX_SURPLUS: Final = 600
"""Certificates of one device that the claim registered beyond `MAX_CANDIDATES` while it may, and that end
`HANDOVER_MS` later: as many as AWS IoT registers for an account meanwhile, ten a second (AWS IoT Core quotas,
"Fleet provisioning")."""

MAX_FORMER: Final = 10
"""Retired certificates of one device that a recovery can activate again, the newest."""

MAX_CONDEMNED: Final = 500
"""Condemned certificates of one device: none is ever forgotten, so that more need another name."""

HANDOVER_MS: Final = 60_000
"""Milliseconds after a certificate's first connection in which a connection with the one before is no second
holder: a forwarder that the first connection interrupted may reconnect before the new pair is in its file."""

TAKEOVER_WINDOW_MS: Final = 600_000
"""Milliseconds in which takeovers of a device's connection are counted."""

MOST_TAKEOVERS: Final = 10
"""Takeovers of a device's connection in a window that show two holders of its name. Ours: a bad line causes
about one in a keepalive, two clients that push each other out cause one at each reconnection."""

QUARANTINE_POLICY: Final = "quarantine"
"""The IoT policy that denies everything, without project and environment: a quarantine attaches it."""

_DAY_MS: Final = 86_400_000


IN_SERVICE: Final = (LifecycleState.PROVISIONED, LifecycleState.QUARANTINED)
"""States of devices that have been in use and may be again."""


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
    CONDEMNED = "condemned", "the certificate that asks was condemned; find who has it"
    TOO_OFTEN = (
        "too_often",
        f"more than {MAX_REGISTRATIONS_A_DAY} certificates in a day; see the device's log",
    )


class DeniedError(EventPlaneError):
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


class UnknownCertificateError(EventPlaneError):
    """`device` has no such `certificate`, or it cannot be active any more."""

    device: Device
    certificate: str
    message = (
        "{certificate!r} is no certificate of {device.thing!r}, or was condemned or revoked; take another "
        "that `fleet show` names"
    )


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
    """The device after the registration. Raises `DeniedError`.

    With the claim a device is registered until it was seen with a certificate of its own, so that an answer
    that was lost can be asked for again; later only while a replacement is allowed. With its own certificate
    it may renew at any time. Nothing that was registered before is lost by it within `HANDOVER_MS`.
    """
    thing = application.thing
    if device is None:
        raise DeniedError(thing, RegistrationRefusal.UNKNOWN)
    if device.state is LifecycleState.DECOMMISSIONED:
        raise DeniedError(thing, RegistrationRefusal.DECOMMISSIONED)
    if device.state is LifecycleState.QUARANTINED:
        raise DeniedError(thing, RegistrationRefusal.QUARANTINED)
    if {application.asking, application.offered} & device.condemned:
        raise DeniedError(thing, RegistrationRefusal.CONDEMNED)
    holder = _holder(device, application, now_ms)
    device = seen(device, holder, now_ms)
    if application.offered in device.pending:
        return device  # asked twice with one certificate: the first answer was lost
    is_open = holder == CLAIM and now_ms < device.replacement_until_ms
    day = now_ms // _DAY_MS
    asked = (*(device.asked if device.day == day else ()), *(() if is_open else (holder,)))
    is_over = asked.count(holder) > MAX_REGISTRATIONS_A_DAY or len({*asked}) > MAX_HOLDERS_A_DAY
    if len(device.surplus) == MAX_SURPLUS if is_open else is_over:
        raise DeniedError(thing, RegistrationRefusal.TOO_OFTEN)
    candidates = (*device.candidates, Candidate(application.offered, now_ms, holder))
    # The first one stays: whoever registers more cannot push out who was there before, nor in an open
    # replacement who comes after and connects at once.
    waiting = [each.certificate for each in candidates if each.certificate not in device.replaced]
    ended = waiting[1 : 1 - MAX_CANDIDATES]
    return replace(
        device,
        candidates=tuple(each for each in candidates if is_open or each.certificate not in ended),
        replaced=device.replaced | {*ended},
        registrations=device.registrations + 1,
        day=day,
        asked=asked,
        changed_at_ms=now_ms,
    )


def _holder(device: Device, application: RegistrationRequest, now_ms: int) -> str:
    """Return who asks: the id of a certificate of the device, or `CLAIM`. Raises `DeniedError`."""
    if application.client_id == RENEWAL_CLIENT_PREFIX + device.thing:
        if application.asking not in (device.certificate, *device.pending):
            raise DeniedError(device.thing, RegistrationRefusal.FOREIGN_CERTIFICATE)
        return application.asking
    if application.client_id != CLAIM_CLIENT_PREFIX + device.thing:
        raise DeniedError(device.thing, RegistrationRefusal.WRONG_CLIENT)
    if device.state is LifecycleState.PROVISIONED and now_ms >= device.replacement_until_ms:
        raise DeniedError(device.thing, RegistrationRefusal.TAKEN)
    return CLAIM


def seen(device: Device, certificate: str, now_ms: int) -> Device:
    """The device after a connection that stood with `certificate`: a candidate is the one in use now.

    One that was registered with the claim ends all other candidates at once, or another holder of the claim
    could take the device over later. Candidates of a renewal remain until the grace period has passed: the
    device may not know yet with which of them its connection stood.
    """
    found = next((each for each in device.candidates if each.certificate == certificate), None)
    is_out = device.state in (LifecycleState.QUARANTINED, LifecycleState.DECOMMISSIONED)
    if is_out or found is None:
        return device
    others = tuple(each for each in device.candidates if each is not found)
    is_claimed = found.holder == CLAIM
    # A replacement that was allowed is open until the claim was used.
    ended = {each.certificate for each in others if is_claimed or each.holder != CLAIM}
    return replace(
        device,
        state=LifecycleState.PROVISIONED,
        since_ms=device.since_ms if device.state is LifecycleState.PROVISIONED else now_ms,
        certificate=certificate,
        certificate_since_ms=now_ms,
        candidates=() if is_claimed else others,
        replaced=(device.replaced | ended | ({device.certificate} if device.certificate else set()))
        - {certificate},
        condemned=device.condemned | ended - {*device.surplus} if is_claimed else device.condemned,
        replacement_until_ms=0 if is_claimed else device.replacement_until_ms,
        changed_at_ms=now_ms,
    )


def is_early(device: Device, application: RegistrationRequest, now_ms: int, due_ms: int) -> bool:
    """Return whether the registration that led to `device` is a renewal long before it is due: in the first
    half of the `due_ms` that a certificate is used for."""
    since_ms = device.certificate_since_ms
    is_renewal = application.client_id == RENEWAL_CLIENT_PREFIX + device.thing
    return is_renewal and since_ms > 0 and now_ms - since_ms < due_ms // 2


def has_two_holders(device: Device, certificate: str, now_ms: int) -> bool:
    """Return whether a connection with `certificate` shows that another than the device has its successor."""
    is_before = certificate in device.replaced and certificate not in device.pending
    return is_before and now_ms - device.certificate_since_ms > HANDOVER_MS


def taken_over(device: Device, now_ms: int) -> Device:
    """The device after a connection of its was ended by another in its name; more than `MOST_TAKEOVERS` in a
    window are not counted."""
    window = now_ms // TAKEOVER_WINDOW_MS
    takeovers = device.takeovers if device.takeover_window == window else 0
    if takeovers == MOST_TAKEOVERS:
        return device
    return replace(device, takeover_window=window, takeovers=takeovers + 1)


def ending(device: Device, certificates: frozenset[str]) -> Device:
    """The device, of whose `certificates` those that are replaced cannot come into use any more."""
    ends = certificates & device.replaced
    candidates = tuple(each for each in device.candidates if each.certificate not in ends)
    return replace(device, candidates=candidates)


def retired(device: Device, certificates: frozenset[str]) -> Device:
    """The device after `certificates` were deactivated permanently."""
    former = (*device.former, *sorted(certificates & device.replaced - device.condemned))
    return replace(
        ending(device, certificates),
        replaced=device.replaced - certificates,
        former=former[-MAX_FORMER:],
        suspended=device.suspended - certificates,
    )


def condemned(device: Device, certificates: frozenset[str], now_ms: int) -> Device:
    """The device whose `certificates` are never active again; they still have to be deactivated.

    Only `replaceable` and `recovered` let a device back that has no other. May be repeated. Raises
    `LifecycleError`.
    """
    if device.state is LifecycleState.DECOMMISSIONED:
        raise LifecycleError(device, "it has no certificate that works")
    if len(device.condemned | certificates) > MAX_CONDEMNED:
        raise LifecycleError(device, f"{MAX_CONDEMNED} certificates are condemned; give it another name")
    if certificates <= device.condemned:
        return device
    return replace(
        device,
        certificate=None if device.certificate in certificates else device.certificate,
        candidates=tuple(each for each in device.candidates if each.certificate not in certificates),
        replaced=device.replaced | certificates - device.condemned,
        former=tuple(each for each in device.former if each not in certificates),
        suspended=device.suspended - certificates,
        condemned=device.condemned | certificates,
        changed_at_ms=now_ms,
    )


def recovered(device: Device, active: frozenset[str], keep: str | None, until_ms: int, now_ms: int) -> Device:
    """The device in service with the certificate `keep`; without it, the claim may register it until
    `until_ms`.

    All others that are known, and the `active` ones, are condemned, the surplus is replaced. `keep`, the one
    of its `suspended`, still has to be activated. Raises `UnknownCertificateError`, `LifecycleError`.
    """
    back = released(device, now_ms)
    known = device.certificates | {*device.former} | active - device.condemned
    if keep is not None and keep not in known:
        raise UnknownCertificateError(device, keep)
    # A flood of registrations would fill up the memory of what was condemned.
    left = condemned(back, known - {keep or "", *device.surplus}, now_ms)
    return replace(
        left,
        state=LifecycleState.PROVISIONED if keep else left.state,
        certificate=keep,
        # It is unknown since when it uses another; an unknown time makes no renewal early.
        certificate_since_ms=device.certificate_since_ms if keep == device.certificate else 0,
        candidates=(),
        replaced=left.replaced - {keep or ""},
        former=(),
        suspended=frozenset({keep} if keep else ()),
        asked=(),
        takeovers=0,
        replacement_until_ms=0 if keep else until_ms,
        changed_at_ms=now_ms,
    )


def replaceable(device: Device, until_ms: int, now_ms: int) -> Device:
    """The device, which the claim may register once more until `until_ms`, a quarantined one after its
    release; the day's registrations are counted anew. Raises `LifecycleError`."""
    if device.state is LifecycleState.DECOMMISSIONED:
        raise LifecycleError(device, "a device that is used again gets a new name")
    if LifecycleState.MADE in (device.state, device.before):
        raise LifecycleError(device, "the claim registers it as it is")
    return replace(device, replacement_until_ms=until_ms, asked=(), changed_at_ms=now_ms)


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
    active -= device.condemned
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


def in_service(devices: Iterable[Device]) -> Iterator[FleetRecord]:
    """Yield those of `devices` that are in service."""
    return (
        FleetRecord(each.thing, each.state, each.since_ms) for each in devices if each.state in IN_SERVICE
    )
