"""A device's life in the deployed plane, by template, hook, keeper and policies, and the ways to steal it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from edge.settings import CloudSettings
from eventplane.device_record import REGISTRY, Device, LifecycleState
from eventplane.presence import PRESENCE
from eventplane.topics import CLAIM_CLIENT_PREFIX, basic_ingest_topic, device_topic
from eventplane_mqtt import TlsFiles
from lab.plane import Plane
from lab.process import Supervisor
from lab.things import Thing
from parts.provisioning import RejectedError
from parts.provisioning.conversation import MqttCloud
from parts.provisioning.exchange import Exchange
from parts.provisioning.renewal import Pairs, Renewal, Renewed
from tests.eventually import eventually
from tests.integration.cloud import make_claim, run
from tests.integration.mqtt import TestClient

REFUSAL_SECONDS = 5.0
ANSWER_SECONDS = 10.0
KEEPER_SECONDS = 60.0

NUMBERS = count(1)


@dataclass(frozen=True)
class Fleet:
    """`folder` gets the devices' files; `claim` has the claim's certificate."""

    plane: Plane
    folder: Path
    claim: Thing

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the operator's command."""
        return run(self.plane.cloud, "fleet", *arguments)

    def known(self, name: str) -> Device:
        """The registry's record."""
        device = self.plane.records("FleetTable", REGISTRY).read(name)
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
    max_age_s: float = 0.0

    @property
    def thing(self) -> Thing:
        return replace(self.fleet.claim, name=self.name, certificate=self.pair, key=self.pair)

    def provision(self) -> Renewed:
        """One attempt. Raises `ProvisioningError`."""
        # The emulator does not answer signing requests: the cloud makes the key.
        template = self.fleet.plane.outputs["ProvisioningTemplate"]
        renewal = Renewal(Pairs(self.pair), self._cloud(self.name), template, self.name, self.max_age_s, None)
        return renewal.attempt(time.time())

    def ask_for(self, name: str) -> None:
        """Ask with the own certificate, without one with the claim, to be registered as `name`, and keep the
        answer if there was none. Raises `ProvisioningError`."""
        pair = self.pair if self.pair.exists() else None
        exchange = Exchange(self.fleet.plane.outputs["ProvisioningTemplate"], name, None)

        def keep(certificate: str, private_key: str | None) -> None:
            if pair is None:
                self.pair.write_text(f"{private_key}\n{certificate}")

        self._cloud(name).run(exchange, keep, pair)

    def _cloud(self, name: str) -> MqttCloud:
        claim = self.fleet.claim
        tls = TlsFiles(claim.ca, claim.certificate, claim.key)
        settings = CloudSettings(
            host=claim.host,
            port=claim.port,
            ca=claim.ca,
            certificate=self.pair,
            key=self.pair,
            rule=self.fleet.plane.outputs["IngestRule"],
            connect_timeout_s=ANSWER_SECONDS,
        )
        return MqttCloud(settings, name, tls, ANSWER_SECONDS)


@pytest.fixture
def fleet(plane: Plane, tmp_path: Path) -> Fleet:
    return Fleet(plane, tmp_path, make_claim(plane.cloud, plane.outputs["ClaimPolicy"], tmp_path))


@pytest.fixture
def claim(fleet: Fleet) -> Thing:
    return fleet.claim


@pytest.fixture
def name() -> str:
    """A serial number for each test."""
    return f"flatmate-{next(NUMBERS)}"


@pytest.fixture
def made(fleet: Fleet, name: str) -> HomeDevice:
    """A device that has left the factory."""
    assert fleet.command("register", name).stdout == f"{name}: registered\n"
    return fleet.device(name)


@pytest.fixture
def provisioned(fleet: Fleet, made: HomeDevice) -> HomeDevice:
    """A device in service."""
    assert made.provision() is Renewed.RENEWED
    assert eventually(lambda: fleet.known(made.name).state is LifecycleState.PROVISIONED, KEEPER_SECONDS)
    return made


def certificate_status(fleet: Fleet, certificate: str | None) -> str:
    found = fleet.plane.cloud.client("iot").describe_certificate(certificateId=certificate)
    return str(found["certificateDescription"]["status"])


def attached(fleet: Fleet, name: str) -> set[str]:
    principals = fleet.plane.cloud.client("iot").list_thing_principals(thingName=name)["principals"]
    return {arn.rsplit("/", 1)[-1] for arn in principals}


def test_a_device_with_a_claim_becomes_a_thing_and_fills_its_outbox(
    supervisor: Supervisor, outputs: Mapping[str, str], claim: Thing, made: HomeDevice, tmp_path: Path
) -> None:
    settings = tmp_path / "device.toml"
    # The emulator does not answer signing requests; tests/integration/edge/test_provisioning.py does.
    settings.write_text(
        f'thing = "{made.name}"\ncontract = "contract.json"\nspool = "spool.db"\n'
        f'[cloud]\nhost = "{claim.host}"\n'
        f'port = {claim.port}\nrule = "{outputs["IngestRule"]}"\nca = "ca.pem"\n'
        f'certificate = "{made.pair}"\nkey = "{made.pair}"\n[provisioning]\nkeys = "cloud"\n'
        f'template = "{outputs["ProvisioningTemplate"]}"\nclaim_certificate = "claim.crt"\n'
        'claim_key = "claim.key"\nretry_min_s = 0.1\nretry_max_s = 0.1\n'
    )
    command = [sys.executable, "-m", "edge", "provision", "--settings", str(settings)]
    child = supervisor.start("provisioning", command)
    assert eventually(lambda: not child.running, KEEPER_SECONDS), child.log.read_text()
    assert child.wait() == 0

    with TestClient.of_thing(made.thing) as device:
        assert device.publish(basic_ingest_topic(outputs["IngestRule"], made.name), b"{}")


def test_a_device_renews(fleet: Fleet, provisioned: HomeDevice) -> None:
    name, before = provisioned.name, fleet.known(provisioned.name).certificate
    old = provisioned.pair.read_text()
    assert provisioned.provision() is Renewed.RENEWED
    assert eventually(lambda: attached(fleet, name) == {fleet.known(name).certificate}, KEEPER_SECONDS)
    assert certificate_status(fleet, before) == "INACTIVE"
    assert eventually(lambda: not fleet.known(name).replaced, KEEPER_SECONDS)
    assert not TestClient.of_thing(provisioned.thing).is_refused()
    provisioned.pair.write_text(old)
    assert TestClient.of_thing(provisioned.thing).is_refused()


def test_a_serial_number_that_nobody_made_is_refused(fleet: Fleet, name: str) -> None:
    with pytest.raises(RejectedError) as caught:
        fleet.device(name).provision()
    assert (caught.value.step, caught.value.status) == ("register", 403)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        fleet.plane.cloud.client("iot").describe_thing(thingName=name)


def test_a_claim_takes_nothing_over(fleet: Fleet, provisioned: HomeDevice) -> None:
    name, before = provisioned.name, fleet.known(provisioned.name).certificate
    other = fleet.device(name, "-2")
    with pytest.raises(RejectedError):
        other.provision()
    assert fleet.command("allow-replacement", name).returncode == 0
    assert other.provision() is Renewed.RENEWED
    assert eventually(lambda: certificate_status(fleet, before) == "INACTIVE", KEEPER_SECONDS)
    with pytest.raises(RejectedError):
        fleet.device(name, "-3").provision()


def test_a_device_cannot_ask_for_another_one(fleet: Fleet, provisioned: HomeDevice, name: str) -> None:
    other = f"{name}-other"
    fleet.command("register", other)
    with pytest.raises(RejectedError) as caught:
        provisioned.ask_for(other)
    assert caught.value.status == 403
    stranger = TestClient(CLAIM_CLIENT_PREFIX + other, fleet.claim.host, fleet.claim.port, provisioned.thing)
    assert stranger.is_refused()


def test_decommissioned_is_gone(fleet: Fleet, outputs: Mapping[str, str], provisioned: HomeDevice) -> None:
    name, certificate = provisioned.name, fleet.known(provisioned.name).certificate
    data = fleet.plane.cloud.client("iot-data")
    inbox = device_topic(name, "inbox")
    data.publish(topic=inbox, qos=1, retain=True, payload=b"wait for me")
    data.update_thing_shadow(thingName=name, payload=b'{"state":{"desired":{"a":1}}}')

    tried = fleet.command("decommission", name, "--dry-run")
    assert tried.returncode == 0
    assert "would be decommissioned" in tried.stdout
    assert fleet.known(name).state is LifecycleState.PROVISIONED
    assert certificate_status(fleet, certificate) == "ACTIVE"

    with TestClient.of_thing(provisioned.thing) as device:
        done = fleet.command("decommission", name, "--reason", "returned")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[1:] == tried.stdout.splitlines()[1:]
        assert not device.publish(basic_ingest_topic(outputs["IngestRule"], name), b"{}", REFUSAL_SECONDS)
    assert certificate_status(fleet, certificate) == "REVOKED"
    for gone in (
        lambda: fleet.plane.cloud.client("iot").describe_thing(thingName=name),
        lambda: data.get_thing_shadow(thingName=name),
        lambda: data.get_retained_message(topic=inbox),
    ):
        with pytest.raises(ClientError, match="ResourceNotFoundException"):
            gone()
    assert "returned" in fleet.command("show", name).stdout
    watched = fleet.plane.records("PresenceTable", PRESENCE).read(name)
    assert watched.is_gone, "carers would be told that it is away"
    assert watched.due_ms is None

    assert TestClient.of_thing(provisioned.thing).is_refused()
    with pytest.raises(RejectedError):
        provisioned.provision()
    assert fleet.command("decommission", name).returncode == 0
    assert fleet.command("allow-replacement", name).returncode == 1
    assert fleet.command("register", name).stdout == f"{name}: was registered before\n"
    assert fleet.known(name).state is LifecycleState.DECOMMISSIONED
