"""What AWS IoT keeps of a device, and how each of it is removed. Every step may be repeated at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from eventplane.device_record import Device
from eventplane.downlink.desired import Desired
from eventplane.downlink.table import of_device
from eventplane.records import Records
from eventplane.topics import device_topic
from operations.cloud import if_deployed
from parts.fleet.access import DeviceAccess, Step


class Disposal:
    """Through boto3 clients of `iot` and `iot-data`, a device's `access`, and what is `desired` of devices;
    `unwatch` ends what presence says of a device.

    What AWS refuses is raised as botocore raises it.
    """

    def __init__(
        self,
        iot: Any,
        data: Any,
        access: DeviceAccess,
        desired: Records[Desired],
        unwatch: Callable[[str], object],
    ) -> None:
        self._access = access
        self._unwatch = unwatch
        self._desired = desired
        self._iot = iot
        self._data = data
        self._missing = (
            iot.exceptions.ResourceNotFoundException,
            data.exceptions.ResourceNotFoundException,
        )

    def steps(self, device: Device) -> list[Step]:
        """All that is to be removed of `device`, in order: first what lets it speak."""
        thing = device.thing
        # The attached ones, and those of the registry that somebody detached and left active.
        certificates = self._access.attached(thing) | device.certificates | device.condemned
        steps = self._access.revoke(thing, certificates)
        # Before its connection ends: carers would be told that it is away.
        steps.append(Step("say no more of its presence", partial(self._end_watch, thing)))
        # With what was stored for it.
        cut = partial(self._access.cut, thing, with_session=True)
        steps.append(Step("cut its connection, if there is one", cut))
        # What waits in the cloud for a device. A new kind of downlink gets its line here.
        for downlink in (self._retained, self._shadow, self._wanted):
            steps += downlink(thing)
        if self._access.knows(thing):
            steps.append(Step(f"delete the thing {thing}", lambda: self._iot.delete_thing(thingName=thing)))
        return steps

    def _end_watch(self, thing: str) -> None:
        with if_deployed():
            self._unwatch(thing)

    def _retained(self, thing: str) -> Iterator[Step]:
        topic = device_topic(thing, "inbox")
        try:
            self._data.get_retained_message(topic=topic)
        except self._missing:
            return
        yield Step(
            f"clear the retained message on {topic}",
            lambda: self._data.publish(topic=topic, qos=1, retain=True, payload=b""),
        )

    def _shadow(self, thing: str) -> Iterator[Step]:
        try:
            self._data.get_thing_shadow(thingName=thing)
        except self._missing:
            return
        yield Step("delete its shadow", partial(self._forget, thing))

    def _wanted(self, thing: str) -> Iterator[Step]:
        # By their keys: also an item that cannot be read goes.
        with if_deployed():
            for _, sk in chain.from_iterable(self._desired.key_pages(of_device(thing, 100))):
                yield Step(f"delete what was desired as {sk}", partial(self._desired.discard, thing, sk))

    def _forget(self, thing: str) -> None:
        try:
            self._data.delete_thing_shadow(thingName=thing)
        except self._missing:
            return
