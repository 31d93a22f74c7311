"""Manage a device in AWS IoT: certificates, connection, shadow, messages. Every step may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from botocore.exceptions import ClientError

from eventplane.device_record import Device
from eventplane.downlink.desired import Desired
from eventplane.downlink.table import of_device
from eventplane.records import Records
from eventplane.topics import device_topic
from operations.cloud import if_deployed
from operations.command import say


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

    def steps(self, device: Device) -> list[Action]:
        """All that is to be removed of `device`, in order: first what lets it speak."""
        thing = device.thing
        # The attached ones, and those of the registry that somebody detached and left active.
        certificates = self._access.attached(thing) | device.certificates | device.condemned
        steps = self._access.revoke(thing, certificates)
        # Before its connection ends: carers would be told that it is away.
        steps.append(Action("say no more of its presence", partial(self._end_watch, thing)))
        # With what was stored for it.
        cut = partial(self._access.cut, thing, with_session=True)
        steps.append(Action("cut its connection, if there is one", cut))
        # What waits in the cloud for a device. A new kind of downlink gets its line here.
        for downlink in (self._retained, self._shadow, self._wanted):
            steps += downlink(thing)
        if self._access.knows(thing):
            steps.append(Action(f"delete the thing {thing}", lambda: self._iot.delete_thing(thingName=thing)))
        return steps

    def _end_watch(self, thing: str) -> None:
        with if_deployed():
            self._unwatch(thing)

    def _retained(self, thing: str) -> Iterator[Action]:
        topic = device_topic(thing, "inbox")
        try:
            self._data.get_retained_message(topic=topic)
        except self._missing:
            return
        yield Action(
            f"clear the retained message on {topic}",
            lambda: self._data.publish(topic=topic, qos=1, retain=True, payload=b""),
        )

    def _shadow(self, thing: str) -> Iterator[Action]:
        try:
            self._data.get_thing_shadow(thingName=thing)
        except self._missing:
            return
        yield Action("delete its shadow", partial(self._forget, thing))

    def _wanted(self, thing: str) -> Iterator[Action]:
        # By their keys: also an item that cannot be read goes.
        with if_deployed():
            for _, sk in chain.from_iterable(self._desired.key_pages(of_device(thing, 100))):
                yield Action(f"delete what was desired as {sk}", partial(self._desired.discard, thing, sk))

    def _forget(self, thing: str) -> None:
        try:
            self._data.delete_thing_shadow(thingName=thing)
        except self._missing:
            return


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do, in words, and the call that does it."""

    words: str
    run: Callable[[], None]


class DeviceAccess:
    """Works through boto3 clients of `iot` and `iot-data`. Errors of AWS are raised as botocore does.

    `denying` is the name of the policy that a quarantine attaches.
    """

    def __init__(self, iot: Any, data: Any, denying: str) -> None:
        self._denying = denying
        self._iot = iot
        self._data = data
        self._missing = (
            iot.exceptions.ResourceNotFoundException,
            data.exceptions.ResourceNotFoundException,
        )

    def knows(self, thing: str) -> bool:
        """Return whether AWS IoT has a thing of this name."""
        try:
            self._iot.describe_thing(thingName=thing)
        except self._missing:
            return False
        return True

    def attached(self, thing: str) -> frozenset[str]:
        """Return the ids of the certificates that are attached to the thing."""
        try:
            pages = self._iot.get_paginator("list_thing_principals").paginate(thingName=thing)
            return frozenset(arn.rsplit("/", 1)[-1] for page in pages for arn in page["principals"])
        except self._missing:
            return frozenset()

    def active(self, thing: str, known: frozenset[str]) -> frozenset[str]:
        """Return those of the `known` certificates, and of the attached ones, that open a connection."""
        return frozenset(each for each in known | self.attached(thing) if self._status(each) == "ACTIVE")

    def can_activate(self, certificate: str) -> bool:
        """Return whether `certificate` exists and nobody revoked it."""
        return self._status(certificate) in ("ACTIVE", "INACTIVE")

    def suspend(self, device: Device) -> list[Action]:
        """Return the steps that take the device off: its certificates first, so that it cannot come back."""
        certificates = sorted(device.suspended)
        steps = [
            Action(f"deactivate certificate {each}", partial(self._set, each, "ACTIVE", "INACTIVE"))
            for each in certificates
        ]
        steps.append(self.cutting(device.thing))
        # Where the cut fails, this ends the connection with the device's next word.
        steps += [
            Action(f"deny everything to certificate {each}", partial(self._deny, each))
            for each in certificates
        ]
        return steps

    def revoke(self, thing: str, certificates: frozenset[str]) -> list[Action]:
        """Return the steps that take `certificates` from the device permanently."""
        attached = self.attached(thing)
        return [
            Action(
                f"revoke and detach certificate {each}",
                partial(self._revoke, thing, each, is_attached=each in attached),
            )
            for each in sorted(certificates)
        ]

    def attach(self, thing: str, certificates: frozenset[str]) -> list[Action]:
        """Return the steps that make `certificates` the device's again."""
        return [
            Action(f"attach certificate {each}", partial(self._attach, thing, each))
            for each in sorted(certificates)
        ]

    def resume(self, certificates: frozenset[str]) -> list[Action]:
        """Return the steps that let the device connect with `certificates` again."""
        return [
            step
            for each in sorted(certificates)
            for step in (
                Action(f"deny certificate {each} no more", partial(self._deny_no_more, each)),
                Action(f"activate certificate {each}", partial(self._set, each, "INACTIVE", "ACTIVE")),
            )
        ]

    def cutting(self, thing: str) -> Action:
        """Return the step that ends the device's connection. Its session stays, and with it what the cloud
        has queued for it."""
        return Action("cut its connection, if there is one", partial(self.cut, thing, with_session=False))

    def cut(self, thing: str, *, with_session: bool) -> None:
        """End the device's connection now: AWS IoT needs minutes to do so after a certificate's end."""
        try:
            self._data.delete_connection(clientId=thing, cleanSession=with_session, preventWillMessage=True)
        except self._missing:
            return
        except ClientError as error:
            say(f"the connection was not cut ({error}); AWS IoT does so within minutes")

    def _revoke(self, thing: str, certificate: str, *, is_attached: bool) -> None:
        if not (found := self._found(certificate)):
            return
        self._iot.update_certificate(certificateId=certificate, newStatus="REVOKED")
        arn = found["certificateArn"]
        pages = self._iot.get_paginator("list_attached_policies").paginate(target=arn)
        for policy in [policy["policyName"] for page in pages for policy in page["policies"]]:
            with suppress(*self._missing):  # detached by a request whose answer was lost
                self._iot.detach_policy(policyName=policy, target=arn)
        if is_attached:
            with suppress(*self._missing):
                self._iot.detach_thing_principal(thingName=thing, principal=arn)

    def _attach(self, thing: str, certificate: str) -> None:
        if found := self._found(certificate):
            self._iot.attach_thing_principal(thingName=thing, principal=found["certificateArn"])

    def _found(self, certificate: str) -> dict[str, Any]:
        """Return what AWS IoT says of the certificate; nothing of one that is gone."""
        try:
            found: dict[str, Any] = self._iot.describe_certificate(certificateId=certificate)
        except self._missing:
            return {}
        description: dict[str, Any] = found["certificateDescription"]
        return description

    def _status(self, certificate: str) -> str | None:
        return self._found(certificate).get("status")

    def _deny(self, certificate: str) -> None:
        if found := self._found(certificate):
            self._iot.attach_policy(policyName=self._denying, target=found["certificateArn"])

    def _deny_no_more(self, certificate: str) -> None:
        if found := self._found(certificate):
            try:
                self._iot.detach_policy(policyName=self._denying, target=found["certificateArn"])
            except self._missing:
                return

    def _set(self, certificate: str, old: str, new: str) -> None:
        # One that somebody revoked meanwhile stays revoked.
        if self._status(certificate) == old:
            self._iot.update_certificate(certificateId=certificate, newStatus=new)
