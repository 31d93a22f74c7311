"""No device is locked out: each is connected under its own name, and no stolen key is good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from eventplane.device_record import Device, LifecycleState
from lab.histories.oracles.finding import OracleFinding
from parts.fleet.lifecycle import HANDOVER_MS
from parts.simulate.timeline import START_S
from stacks.settings import ROTATION_SIZE

if TYPE_CHECKING:
    from lab.histories.history import History
    from lab.histories.keys import Keys

IN_FLIGHT_S: Final = HANDOVER_MS / 1_000 + 2 * ROTATION_SIZE.batch_window_s + ROTATION_SIZE.timeout_s
"""So long after the recovery, or the device's connection, a certificate may be good whose registration was in
flight, or that the claim registered beyond what may wait, seconds: the keeper ends it `HANDOVER_MS` later, in
batches and within an invocation. What it does not end so comes again, and may be good until then."""


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at each device's certificate in the end, and at what its thief could do."""
    if (keys := history.keys) is None:
        return
    keeper = history.cloud.sqs.readers[history.cloud.connections.rpartition("/")[2]]
    for thing in history.homes:
        device, own = history.cloud.registry.read(thing), keys.at_end.get(thing)
        if device is None or device.state is not LifecycleState.PROVISIONED or own is None:
            yield OracleFinding("a device is locked out", f"{thing}: {device and device.state}, {own}")
        # Until the old one ends a forwarder stays, which reconnected before the new pair was in its file.
        elif keys.filed[thing] != device.certificate or not device.holds(own):
            yield OracleFinding("a device connects with what the registry does not have", f"{thing}: {own}")
        if device is not None:
            yield from _good(keys, device, keeper.late)


def _good(keys: Keys, device: Device, late: Sequence[tuple[float, float]]) -> Iterator[OracleFinding]:
    """Yield keys of the device's thief that are good, and good ones that the registry does not know."""
    iot, thing, thief = keys.cloud.iot, device.thing, keys.thieves[device.thing]
    # While the claim is allowed, it may register until the device connects.
    back_s = device.certificate_since_ms / 1_000 - START_S if device.certificate not in thief.keys else 0.0
    since_s = max(keys.recovered_s.get(thing, 0.0), back_s)
    for kind, those in (
        ("a recovery leaves a thief's key good", thief.left),
        (
            "a thief's key is good afterwards",
            [
                key
                for at_s, key in thief.uses
                if at_s > since_s + IN_FLIGHT_S and not any(first <= at_s <= again for first, again in late)
            ],
        ),
        ("a thief's key is good in the end", filter(iot.accepts, thief.keys)),
        (
            "the registry does not know a good certificate",
            filter(iot.accepts, iot.certificates.attached[thing] - device.certificates),
        ),
    ):
        for key in those:
            yield OracleFinding(kind, f"{thing}: {key}")
