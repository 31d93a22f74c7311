"""The throw-away device in the fleet: registered, given a claim, and removed again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from eventplane.device_record import FLEET_TABLE, REGISTRY, LifecycleState
from eventplane.records import Records
from operations.desired import desired_items
from parts.fleet.service import fleet_of
from parts.probe.control import Removals
from parts.probe.plane import DeployedPlane


class ThrowAwayDevice:
    """The device `thing` of a plane. `held` is a block that nothing interrupts."""

    def __init__(
        self,
        plane: DeployedPlane,
        thing: str,
        removals: Removals,
        held: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._plane = plane
        self._thing = thing
        self._removals = removals
        self._held = held
        self._iot = plane.cloud.client("iot")
        self._registry = Records(plane.cloud.tables, plane.name(FLEET_TABLE), REGISTRY)
        self.created: set[str] = set()
        """Ids of certificates that the device got; the registry may not know all of them."""
        self.desired = desired_items(plane.cloud, plane.environment)

    def register(self) -> None:
        """Put the device into the fleet's registry. Raises botocore's errors."""
        self._removals.add(f"device {self._thing}", self.remove)
        fleet_of(self._plane.cloud, self._plane.environment).register(self._thing)

    def make_claim(self, folder: Path) -> None:
        """Make a claim certificate for this run: `claim.crt` and `claim.key` in `folder`.

        Raises `OutputMissingError`, botocore's errors.
        """
        policy = self._plane.output("ClaimPolicy")
        with self._held():
            # Where the first answer is lost, the repeat makes another one: the first must be of no use.
            made = self._iot.create_keys_and_certificate(setAsActive=False)
            self._removals.add("claim certificate", lambda: self._remove_claim(made, policy))
        self._iot.attach_policy(policyName=policy, target=made["certificateArn"])
        self._iot.update_certificate(certificateId=made["certificateId"], newStatus="ACTIVE")
        for name, text in (
            ("claim.crt", made["certificatePem"]),
            ("claim.key", made["keyPair"]["PrivateKey"]),
        ):
            (folder / name).touch(0o600)
            (folder / name).write_text(text, encoding="ascii")

    def is_in_service(self) -> bool:
        """Whether the plane has seen the device with its own certificate. Raises botocore's errors."""
        device = self._registry.read(self._thing)
        return device is not None and device.state is LifecycleState.PROVISIONED

    def remove(self) -> None:
        """Decommission the device, and delete what that leaves; nothing where it is gone.

        Its presence ends before its connection, so that no carer is notified. Raises botocore's errors.
        """
        device = self._registry.read(self._thing)
        if device is None:
            return
        fleet = fleet_of(self._plane.cloud, self._plane.environment)
        certificates = device.certificates | self.created | fleet.access.attached(self._thing)
        fleet.decommission(self._thing, "smoke test", dry_run=False)
        for each in sorted(certificates):
            self._delete_certificate(each)
        self._registry.discard(self._thing)

    def _remove_claim(self, made: Any, policy: str) -> None:
        certificate = made["certificateId"]
        self._iot.update_certificate(certificateId=certificate, newStatus="INACTIVE")
        with suppress(self._iot.exceptions.ResourceNotFoundException):  # by a request whose answer was lost
            self._iot.detach_policy(policyName=policy, target=made["certificateArn"])
        self._delete_certificate(certificate)

    def _delete_certificate(self, certificate: str) -> None:
        with suppress(self._iot.exceptions.ResourceNotFoundException):
            self._iot.delete_certificate(certificateId=certificate)
