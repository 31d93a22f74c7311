"""The devices that an event can be for, and which of them are connected."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from eventplane.fleet import REGISTRY, Device, LifecycleState
from eventplane.presence import DeviceState, Line
from eventplane.records import Records, Selection
from lambdas.common.log import log_foreign

_READ: Final = 100
"""Devices that one call looks at; of a group it may find none among them."""


@dataclass(frozen=True, slots=True)
class Devices:
    """`things` of the fleet, and behind which to read on; None at the end."""

    things: tuple[str, ...]
    after: str | None


class Fleet:
    """The devices in the `registry` that are not decommissioned. Raises botocore's errors."""

    def __init__(self, registry: Records[Device]) -> None:
        self._registry = registry

    def has(self, thing: str) -> bool:
        """Whether the device was made, and is not gone."""
        return self.groups(thing) is not None

    def groups(self, thing: str) -> frozenset[str] | None:
        """The groups of a device; None where `has` is false."""
        device = self._registry.read(thing)
        return None if device is None or device.state is LifecycleState.DECOMMISSIONED else device.groups

    def page(self, group: str | None, after: str | None) -> Devices:
        """The next devices, of `group` or of all."""
        start = None if after is None else REGISTRY.key_of(after)
        found, end = self._registry.page(
            Selection(limit=_READ, after=start, is_consistent=False), log_foreign
        )
        things = tuple(
            each.thing
            for each in found
            if each.state is not LifecycleState.DECOMMISSIONED and (group is None or group in each.groups)
        )
        return Devices(things, REGISTRY.values_in(end)[0] if end else None)


class Presence:
    """Reads what the presence monitor keeps in `records`."""

    def __init__(self, records: Records[DeviceState]) -> None:
        self._records = records

    def present(self, things: Collection[str]) -> frozenset[str]:
        """Return those of up to 100 `things` whose connection stands. Raises botocore's errors.

        Whoever cannot be read counts as absent: the reconciler comes back to it.
        """
        found = self._records.read_many(things, log_foreign, is_consistent=False)
        return frozenset(
            thing
            for thing, state in found.items()
            if state and state.sighting and state.sighting.line is Line.CONNECTED
        )
