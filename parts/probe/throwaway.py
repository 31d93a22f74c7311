"""The throw-away device: registered, given a claim, provisioned by its own program, and removed again."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import botocore

from eventplane.device_record import FLEET_TABLE, REGISTRY, LifecycleState
from eventplane.errors import EventPlaneError
from eventplane.records import Records
from operations import system
from operations.cloud import Cloud
from operations.desired import desired_items
from parts.fleet.service import fleet_of
from parts.probe.connection import MQTT_PORT
from parts.probe.control import Removals
from parts.probe.plane import DeployedPlane

_CHECKOUT: Final = Path(__file__).parents[2]
_TRUSTED: Final = Path(botocore.__file__).with_name("cacert.pem")
"""Whom the AWS SDK trusts, Amazon's own authorities among them."""

_LOG_LINES: Final = 3
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_LOOK_S: Final = 0.2
"""Between two looks, seconds: a staged pair is tried for longer before another is asked for."""


class ProvisioningFailedError(EventPlaneError):
    """The device's provisioning ended with `status`, or not in time (None); `log` has its last lines."""

    status: int | None
    log: str
    message = (
        "the device's provisioning {ended}: {lines}; see the log of the function provisioning-hook, and "
        "parts/fleet/how-to.md for each refusal"
    )

    @property
    def ended(self) -> str:
        return "did not end in time" if self.status is None else f"ended with status {self.status}"

    @property
    def lines(self) -> str:
        return self.log or "it logged nothing"


@dataclass(frozen=True, slots=True)
class DeviceEndpoint:
    """The address for devices: IoT Core's endpoint, or the domain that the account gives to its devices."""

    host: str
    port: int
    ca: Path


def device_endpoint(cloud: Cloud, named: str | None, ca: Path | None) -> DeviceEndpoint:
    """Return the endpoint `named` HOST or HOST:PORT, by default the account's. Raises botocore's errors."""
    address = named or cloud.client("iot").describe_endpoint(endpointType="iot:Data-ATS")["endpointAddress"]
    host, _, port = str(address).partition(":")
    return DeviceEndpoint(host, int(port or MQTT_PORT), ca or _TRUSTED)


def provision(
    plane: DeployedPlane,
    endpoint: DeviceEndpoint,
    thing: str,
    folder: Path,
    timeout_s: float,
    created: set[str],
) -> Path:
    """Run the command `provision` with the claim in `folder`, and return the device's certificate file.

    `created` gets the ids of the certificates that came on the way: it asks for another one where a
    registration was not answered, and nothing else names the first.
    Raises `ProvisioningFailedError`, `OutputMissingError`.
    """
    pair = folder / "device.pem"
    settings: dict[str, dict[str, Any]] = {
        "": {"thing": thing, "contract": "contract.json", "spool": "spool.db"},
        "cloud": {
            "host": endpoint.host,
            "port": endpoint.port,
            "rule": plane.output("IngestRule"),
            "ca": str(endpoint.ca.resolve()),
            "certificate": str(pair),
            "key": str(pair),
        },
        "provisioning": {
            "template": plane.output("ProvisioningTemplate"),
            "claim_certificate": "claim.crt",
            "claim_key": "claim.key",
            # Needs no program besides Python; the device's image decides for itself.
            "keys": "cloud",
            "retry_min_s": 1,
            "retry_max_s": 5,
        },
    }
    staged = pair.with_name(pair.name + ".next")
    file, log = folder / "device.toml", folder / "provisioning.log"
    file.write_text("".join(_table(name, values) for name, values in settings.items()), encoding="utf-8")
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "edge.__main__", "provision", "--settings", str(file)],
            cwd=_CHECKOUT, stdout=output, stderr=output,
        )  # fmt: skip
        try:
            status = _watch(child, staged, timeout_s, created)
        finally:
            child.kill()
            child.wait()
            created |= _certificates(staged)
    if status != os.EX_OK:
        raise ProvisioningFailedError(status, " | ".join(log.read_text().splitlines()[-_LOG_LINES:]))
    return pair


def _watch(child: subprocess.Popen[bytes], staged: Path, timeout_s: float, created: set[str]) -> int | None:
    """Wait for the end of `child`, and note what it has `staged` meanwhile."""
    deadline = system.monotonic() + timeout_s
    while system.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(_LOOK_S)
        created |= _certificates(staged)
    return None


def _certificates(staged: Path) -> set[str]:
    """The id of the certificate that waits for its registration, if one does."""
    try:
        text = staged.read_text("ascii")
        der = ssl.PEM_cert_to_DER_cert(text[text.index(_CERTIFICATE) :])
    except (FileNotFoundError, ValueError):
        return set()
    # AWS IoT calls a certificate by its fingerprint.
    return {hashlib.sha256(der).hexdigest()}


def _table(name: str, values: dict[str, Any]) -> str:
    """A table of TOML, whose texts and numbers are written as those of JSON."""
    head = f"[{name}]\n" if name else ""
    return head + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


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
        """Return whether the plane has seen the device with its own certificate. Raises botocore's errors."""
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
