"""Nobody is locked out: each device is connected under its own name, and no key of a thief is good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from eventplane.fleet import LifecycleState
from local.histories.oracles.finding import Finding

if TYPE_CHECKING:
    from local.histories.history import History

IN_FLIGHT_S: Final = 60.0
"""So long after a recovery a registration that was in flight may be good: until it or the device connects."""


def judged(history: History) -> Iterator[Finding]:
    """Look at each device's certificate in the end, and at what its thief could do."""
    if (keys := history.keys) is None:
        return
    iot = history.cloud.iot
    active = {each for each, status in iot.certificates.statuses.items() if status == "ACTIVE"} - {keys.claim}
    for thing in history.homes:
        device, own = history.cloud.registry.read(thing), keys.at_end.get(thing)
        if device is None or device.state is not LifecycleState.PROVISIONED or own is None:
            yield Finding("a device is locked out", f"{thing}: {device and device.state}, {own}")
        elif own != device.certificate:
            yield Finding("a device connects with what the registry does not have", f"{thing}: {own}")
        thief, since_s = keys.thieves[thing], history.operator.managed.get((thing, "recover"), 0.0)
        for key in active.intersection(thief.keys):
            yield Finding("a thief's key is good in the end", f"{thing}: {key}")
        for at_s, key in thief.uses:
            if since_s and at_s > since_s + IN_FLIGHT_S:
                yield Finding("a thief's key is good after the recovery", f"{thing}: {key} at {at_s}")
        if device is not None and (
            unknown := active & iot.certificates.attached[thing] - device.certificates
        ):
            yield Finding("the registry does not know a good certificate", f"{thing}: {unknown}")
