"""The devices that an event can be for, and which of them are connected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from eventplane.device_record import REGISTRY, Device, LifecycleState
from eventplane.errors import EventPlaneError
from eventplane.presence import Line, PresenceItem
from eventplane.records import Item, RecordError, Records, Selection
from lambdas.common.log import log_foreign

_READ: Final = 100
"""Devices that one call looks at; of a group it may find none among them. A part that is handed out has up to
twice as many. Ours: a function has time for a batch of ten parts."""

_FEW: Final = _READ // 10
"""So many records are read one by one for the price of a page: a read unit for each, or for 4 KB."""


@dataclass(frozen=True, slots=True)
class DevicePage:
    """`things` of the fleet, and behind which to read on; None at the end."""

    things: tuple[str, ...]
    after: str | None


class UnreadDevicesError(EventPlaneError):
    """DynamoDB did not get to some devices of the registry."""

    number: int
    message = "DynamoDB did not return {number} devices of the registry; the message is redelivered"


class FleetReader:
    """The devices in the `registry` that are not decommissioned. Raises botocore's errors."""

    def __init__(self, registry: Records[Device]) -> None:
        self._registry = registry

    def has(self, thing: str) -> bool:
        """Return whether the device was made, and is not gone."""
        return self.groups(thing) is not None

    def groups(self, thing: str) -> frozenset[str] | None:
        """The groups of a device; None where `has` is false."""
        device = self._registry.read(thing)
        return None if device is None or device.state is LifecycleState.DECOMMISSIONED else device.groups

    def pages(
        self, group: str | None, after: str | None, has_time: Callable[[], bool]
    ) -> Iterator[DevicePage]:
        """Yield the devices of `group`, or all, behind `after`, while the function `has_time`.

        It is a page at least. The last one may have none; it has an `after` where others follow.
        """
        things: tuple[str, ...] = ()
        while True:
            found, after = self._scan(after)
            things += tuple(each.thing for each in found if _is_in(group, each))
            is_over = after is None or not has_time()
            if is_over or len(things) > _READ - _FEW:
                yield DevicePage(things, after)
                things = ()
            if is_over:
                return

    def members(self, things: Collection[str], group: str | None, after: str | None) -> tuple[str, ...]:
        """Return those of `things` that are in `group`, or all. Raises `UnreadDevicesError`.

        Most are expected behind `after`: a page of the registry costs less than each of its records.
        """
        left, known = {*things}, list[Device]()
        while len(left) > _FEW:
            found, after = self._scan(after)
            here = [each for each in found if each.thing in left]
            known += here
            left -= {each.thing for each in here}
            if after is None or len(here) <= _FEW:
                break
        foreign: list[Item] = []

        def note(item: Item, error: RecordError) -> None:
            foreign.append(item)
            log_foreign(item, error)

        rest = self._registry.read_many(left, note, is_consistent=False)
        if unread := len(left) - len(rest) - len(foreign):
            raise UnreadDevicesError(unread)
        return tuple(each.thing for each in (*known, *rest.values()) if each and _is_in(group, each))

    def _scan(self, after: str | None) -> tuple[list[Device], str | None]:
        start = None if after is None else REGISTRY.key_of(after)
        selection = Selection(limit=_READ, after=start, is_consistent=False)
        found, end = self._registry.page(selection, log_foreign)
        return found, REGISTRY.values_in(end)[0] if end else None


def _is_in(group: str | None, device: Device) -> bool:
    is_gone = device.state is LifecycleState.DECOMMISSIONED
    return not is_gone and (group is None or group in device.groups)


class Presence:
    """Reads what the presence monitor keeps in `records`."""

    def __init__(self, records: Records[PresenceItem]) -> None:
        self._records = records

    def present(self, things: Collection[str]) -> frozenset[str]:
        """Return those of `things` whose connection stands. Raises botocore's errors.

        Whoever cannot be read counts as absent: the reconciler comes back to it.
        """
        found = self._records.read_many(things, log_foreign, is_consistent=False)
        return frozenset(
            thing
            for thing, state in found.items()
            if state and state.sighting and state.sighting.line is Line.CONNECTED
        )
