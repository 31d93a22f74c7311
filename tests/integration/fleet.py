"""A fleet of devices that provision themselves in the emulated cloud, and the operator beside it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edge.provisioning.conversation import MqttCloud
from edge.provisioning.exchange import Exchange
from edge.provisioning.renewal import Identity, Outcome, Renewal
from edge.settings import CloudSettings
from eventplane.fleet import Device, FleetTable
from eventplane.topics import CLAIM_CLIENT_PREFIX
from eventplane_mqtt import TlsFiles
from local.cloud import CloudEndpoint
from local.things import Thing
from tests.integration.commands import run

ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class Fleet:
    """`folder` gets the devices' files; `claim` has the claim's certificate."""

    emulator: CloudEndpoint
    outputs: Mapping[str, str]
    folder: Path
    claim: Thing

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the operator's command."""
        return run(self.emulator, "fleet", *arguments)

    def known(self, name: str) -> Device:
        """The registry's record."""
        device = FleetTable(self.emulator.client("dynamodb"), self.outputs["FleetTable"]).read(name)
        assert device is not None
        return device

    def device(self, name: str, copy: str = "") -> HomeDevice:
        """A device that calls itself `name`, or another, `copy`, that does."""
        return HomeDevice(self, name, self.folder / f"{name}{copy}.pem")


@dataclass(frozen=True)
class HomeDevice:
    """A device with its own files. In this process, so that it finds its certificate too old at any time."""

    fleet: Fleet
    name: str
    pair: Path

    @property
    def thing(self) -> Thing:
        return replace(self.fleet.claim, name=self.name, certificate=self.pair, key=self.pair)

    def provision(self) -> Outcome:
        """One attempt. Raises `ProvisioningError`."""
        # The emulator does not answer signing requests: the cloud makes the key.
        template = self.fleet.outputs["ProvisioningTemplate"]
        renewal = Renewal(Identity(self.pair), self._cloud(self.name), template, self.name, 0, None)
        return renewal.attempt(time.time())

    def ask_for(self, name: str) -> None:
        """Ask with the own certificate to be registered as `name`. Raises `ProvisioningError`."""
        exchange = Exchange(self.fleet.outputs["ProvisioningTemplate"], name, None)
        self._cloud(name).run(exchange, lambda _: None, self.pair)

    def _cloud(self, name: str) -> MqttCloud:
        claim = self.fleet.claim
        tls = TlsFiles(claim.ca, claim.certificate, claim.key)
        settings = CloudSettings(
            host=claim.host,
            port=claim.port,
            ca=claim.ca,
            certificate=self.pair,
            key=self.pair,
            rule=self.fleet.outputs["IngestRule"],
            connect_timeout_s=ANSWER_SECONDS,
        )
        return MqttCloud(settings, name, tls, ANSWER_SECONDS)


def make_claim(emulator: CloudEndpoint, policy: str, folder: Path) -> Thing:
    """The fleet's claim: a certificate with the claim's policy, and no thing."""
    iot = emulator.client("iot")
    made = iot.create_keys_and_certificate(setAsActive=True)
    iot.attach_policy(policyName=policy, target=made["certificateArn"])
    files = {
        "claim.crt": made["certificatePem"],
        "claim.key": made["keyPair"]["PrivateKey"],
        "ca.pem": emulator.ca_pem,
    }
    for name, text in files.items():
        (folder / name).touch(0o600)
        (folder / name).write_text(text)
    return Thing(
        name=f"{CLAIM_CLIENT_PREFIX}somebody",
        certificate=folder / "claim.crt",
        key=folder / "claim.key",
        ca=folder / "ca.pem",
        host=emulator.mqtt_host,
        port=emulator.mqtt_port,
    )
