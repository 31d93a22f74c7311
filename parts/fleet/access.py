"""A device's access to AWS IoT: its certificates and its connection. Every step may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from eventplane.device_record import Device
from operations.command import say


@dataclass(frozen=True, slots=True)
class Step:
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

    def suspend(self, device: Device) -> list[Step]:
        """Return the steps that take the device off: its certificates first, so that it cannot come back."""
        certificates = sorted(device.suspended)
        steps = [
            Step(f"deactivate certificate {each}", partial(self._set, each, "ACTIVE", "INACTIVE"))
            for each in certificates
        ]
        steps.append(self.cutting(device.thing))
        # Where the cut fails, this ends the connection with the device's next word.
        steps += [
            Step(f"deny everything to certificate {each}", partial(self._deny, each)) for each in certificates
        ]
        return steps

    def revoke(self, thing: str, certificates: frozenset[str]) -> list[Step]:
        """Return the steps that take `certificates` from the device permanently."""
        attached = self.attached(thing)
        return [
            Step(
                f"revoke and detach certificate {each}",
                partial(self._revoke, thing, each, is_attached=each in attached),
            )
            for each in sorted(certificates)
        ]

    def attach(self, thing: str, certificates: frozenset[str]) -> list[Step]:
        """Return the steps that make `certificates` the device's again."""
        return [
            Step(f"attach certificate {each}", partial(self._attach, thing, each))
            for each in sorted(certificates)
        ]

    def resume(self, certificates: frozenset[str]) -> list[Step]:
        """Return the steps that let the device connect with `certificates` again."""
        return [
            step
            for each in sorted(certificates)
            for step in (
                Step(f"deny certificate {each} no more", partial(self._deny_no_more, each)),
                Step(f"activate certificate {each}", partial(self._set, each, "INACTIVE", "ACTIVE")),
            )
        ]

    def cutting(self, thing: str) -> Step:
        """Return the step that ends the device's connection. Its session stays, and with it what the cloud
        has queued for it."""
        return Step("cut its connection, if there is one", partial(self.cut, thing, with_session=False))

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
