"""The life of a device, as far as people decide on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from eventplane.device_record import FLEET_TABLE, REGISTRY, Device, LifecycleState
from eventplane.errors import EventPlaneError
from eventplane.presence import gone
from eventplane.records import Records
from eventplane.resource_names import resource_name
from operations import system
from operations.cloud import Cloud
from operations.desired import desired_items
from operations.reported import presence_of
from parts.fleet.access import Action, DeviceAccess, Disposal
from parts.fleet.lifecycle import (
    QUARANTINE_POLICY,
    UnknownCertificateError,
    condemned,
    decommissioned,
    grouped,
    made,
    quarantined,
    reactivated,
    recovered,
    released,
    replaceable,
)

_DAY_MS = 86_400_000


class UnknownDeviceError(EventPlaneError):
    """Neither the registry nor AWS IoT knows `thing`."""

    thing: str
    message = "no device is called {thing!r}; check the spelling and the environment"


@dataclass(frozen=True, slots=True)
class FleetRegistry:
    """`store` is the registry, `clock` gives Unix milliseconds, `access` and `disposal` know what AWS IoT
    keeps of a device."""

    store: Records[Device]
    access: DeviceAccess
    disposal: Disposal
    clock: Callable[[], int]

    def register(self, serial: str) -> bool:
        """Put a device that was made on the list; whether it is new there. Raises `DeviceNameError`."""
        new = made(serial, self.clock())
        is_new = False

        def listed(found: Device | None) -> Device:
            nonlocal is_new
            is_new = found is None
            return found or new

        self.store.change(listed, serial)
        return is_new

    def find(self, thing: str) -> Device | None:
        """Return the device, None if only AWS IoT knows it. Raises `UnknownDeviceError`."""
        device = self.store.read(thing)
        if device is None and not self.access.knows(thing):
            raise UnknownDeviceError(thing)
        return device

    def allow_replacement(self, thing: str, days: int) -> Device:
        """Let the claim register it within `days` again. Raises `UnknownDeviceError`, `LifecycleError`."""
        now_ms = self.clock()
        return self._change(thing, lambda found: replaceable(found, now_ms + days * _DAY_MS, now_ms))

    def set_groups(self, thing: str, groups: frozenset[str]) -> Device:
        """Put it into these groups only. Raises `UnknownDeviceError`, `GroupNameError`, `LifecycleError`."""
        now_ms = self.clock()
        return self._change(thing, lambda found: grouped(found, groups, now_ms))

    def quarantine(self, thing: str, reason: str) -> list[Action]:
        """Take the device off until its release, and return what was done.

        The registry comes first: from then on it gets no new certificate, and the certificate keeper locks
        out whatever it connects with. May be repeated. Raises `UnknownDeviceError`, `LifecycleError`,
        botocore's errors.
        """
        now_ms = self.clock()

        def step(found: Device) -> Device:
            active = self.access.active(thing, found.certificates)
            return quarantined(found, active, reason, now_ms)

        return _run(self.access.suspend(self._change_any(thing, step)))

    def release(self, thing: str) -> list[Action]:
        """Let a quarantined device connect again, and return what was done.

        The registry comes first, or the certificate keeper would lock the device out again. May be repeated.
        Raises `UnknownDeviceError`, `LifecycleError`, botocore's errors.
        """
        now_ms = self.clock()
        device = self._change(thing, lambda found: released(found, now_ms))
        # Replaced ones were about to end.
        steps = _run(self.access.resume(device.suspended - device.replaced))
        self.store.change(lambda found: reactivated(found or device, device.suspended), thing)
        return steps

    def condemn(self, thing: str, certificate: str) -> list[Action]:
        """End one certificate of the device for good, and return what was done.

        The registry comes first: from then on it registers nothing, nothing activates it, and the certificate
        keeper ends it wherever it connects. May be repeated. Raises `UnknownDeviceError`,
        `UnknownCertificateError`, `LifecycleError`, botocore's errors.
        """
        now_ms, attached = self.clock(), self.access.attached(thing)

        def step(found: Device) -> Device:
            if certificate not in found.certificates | found.condemned | {*found.former} | attached:
                raise UnknownCertificateError(found, certificate)
            return condemned(found, frozenset({certificate}), now_ms)

        return self._end(self._change_any(thing, step), frozenset({certificate}))

    def recover(self, thing: str, keep: str | None, days: int) -> list[Action]:
        """Give the device back its name after a theft, and return what was done.

        Its certificate `keep` is the only one that remains; without it none does, and the claim may register
        the device within `days`. Raises `UnknownDeviceError`, `UnknownCertificateError`, `LifecycleError`,
        botocore's errors.
        """
        now_ms = self.clock()

        def step(found: Device) -> Device:
            if keep and not self.access.can_activate(keep):
                raise UnknownCertificateError(found, keep)
            active = self.access.active(thing, found.certificates)
            return recovered(found, active, keep, now_ms + days * _DAY_MS, now_ms)

        device = self._change_any(thing, step)
        # The others first: at no moment is it one of two.
        steps = self._end(device, device.replaced)
        steps += _run([*self.access.attach(thing, device.suspended), *self.access.resume(device.suspended)])
        self.store.change(lambda found: reactivated(found or device, device.suspended), thing)
        return steps

    def _end(self, device: Device, certificates: frozenset[str]) -> list[Action]:
        """Revoke `certificates` and what else was condemned and is not ended yet."""
        ended = certificates | device.condemned & device.replaced
        # The certificate keeper does it once more: a registration in flight activates its certificate later.
        return _run([*self.access.revoke(device.thing, ended), self.access.cutting(device.thing)])

    def decommission(self, thing: str, reason: str, *, dry_run: bool) -> list[Action]:
        """Take `thing` out of service for good, and return what was done, or would be.

        The registry comes first: from then on nothing brings the device back, and whatever fails after it is
        done by the next run, for every step may be repeated. Raises `UnknownDeviceError`, botocore's errors.
        """
        known = self.find(thing)
        now_ms = self.clock()
        # A device that somebody registered by hand gets a record now: its name shall not come back.
        new = known or made(thing, now_ms)
        if not dry_run:
            new = self.store.change(lambda found: decommissioned(found or new, reason, now_ms), thing)
        steps = self.disposal.steps(new)
        return steps if dry_run else _run(steps)

    def _change_any(self, thing: str, step: Callable[[Device], Device]) -> Device:
        """Change a device that the registry or only AWS IoT knows. Raises `UnknownDeviceError`, what `step`
        raises."""
        known = self.find(thing)
        # A device that was registered by hand is in service; as a made one the claim could have it.
        new = known or replace(made(thing, self.clock()), state=LifecycleState.PROVISIONED)
        return self.store.change(lambda found: step(found or new), thing)

    def _change(self, thing: str, step: Callable[[Device], Device]) -> Device:
        """Change a device that the registry has. Raises `UnknownDeviceError`, what `step` raises."""

        def known(found: Device | None) -> Device:
            if found is None:
                raise UnknownDeviceError(thing)
            return step(found)

        return self.store.change(known, thing)


def fleet_of(cloud: Cloud, environment: str) -> FleetRegistry:
    """Return the fleet of an environment."""

    def named(suffix: str) -> str:
        return resource_name(environment, suffix)

    iot, data = cloud.client("iot"), cloud.client("iot-data")
    presence = presence_of(cloud, environment)
    access = DeviceAccess(iot, data, named(QUARANTINE_POLICY))
    disposal = Disposal(
        iot,
        data,
        access,
        desired_items(cloud, environment),
        # Over whatever is there: an item that cannot be read must not keep the certificates alive.
        unwatch=lambda thing: presence.force(gone(thing)),
    )
    registry = Records(cloud.tables, named(FLEET_TABLE), REGISTRY)
    return FleetRegistry(registry, access, disposal, system.now_ms)


def _run(steps: list[Action]) -> list[Action]:
    for step in steps:
        step.run()
    return steps
