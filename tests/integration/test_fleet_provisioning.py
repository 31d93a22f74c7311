"""A device comes from the fleet's claim to its own certificate, by the deployed template and policies."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from eventplane.topics import CLAIM_CLIENT_PREFIX, basic_ingest_topic
from local.cloud import CloudEndpoint
from local.demo.plane import deploy_plane
from local.process import Supervisor
from local.things import Thing
from tests.eventually import eventually
from tests.integration.mqtt import TestClient

NAME = "flatmate-1"
REFUSAL_SECONDS = 5.0
PROVISIONING_SECONDS = 60.0


@pytest.fixture(scope="module")
def outputs(emulator: CloudEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The plane's own stacks, deployed."""
    with Supervisor(tmp_path_factory.mktemp("plane")) as supervisor:
        return deploy_plane(supervisor, emulator).outputs


@pytest.fixture
def claim(emulator: CloudEndpoint, outputs: Mapping[str, str], tmp_path: Path) -> Thing:
    """The fleet's claim: a certificate with the claim's policy, and no thing."""
    iot = emulator.client("iot")
    made = iot.create_keys_and_certificate(setAsActive=True)
    iot.attach_policy(policyName=outputs["ClaimPolicy"], target=made["certificateArn"])
    files = {
        "claim.crt": made["certificatePem"],
        "claim.key": made["keyPair"]["PrivateKey"],
        "ca.pem": emulator.ca_pem,
    }
    for name, text in files.items():
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(text)
    return Thing(
        name=CLAIM_CLIENT_PREFIX + NAME,
        certificate=tmp_path / "claim.crt",
        key=tmp_path / "claim.key",
        ca=tmp_path / "ca.pem",
        host=emulator.mqtt_host,
        port=emulator.mqtt_port,
    )


def test_a_device_with_a_claim_becomes_a_thing_and_fills_its_outbox(
    supervisor: Supervisor, outputs: Mapping[str, str], claim: Thing, tmp_path: Path
) -> None:
    pair = tmp_path / "identity.pem"
    settings = tmp_path / "device.toml"
    # The emulator does not answer signing requests; tests/integration/edge/test_provisioning.py does.
    settings.write_text(
        f'thing = "{NAME}"\ncontract = "contract.json"\nspool = "spool.db"\n[cloud]\nhost = "{claim.host}"\n'
        f'port = {claim.port}\nrule = "{outputs["IngestRule"]}"\nca = "ca.pem"\n'
        f'certificate = "{pair}"\nkey = "{pair}"\n[provisioning]\nkeys = "cloud"\n'
        f'template = "{outputs["ProvisioningTemplate"]}"\nclaim_certificate = "claim.crt"\n'
        'claim_key = "claim.key"\nretry_min_s = 0.1\nretry_max_s = 0.1\n'
    )
    command = [sys.executable, "-m", "edge.provisioning", "--settings", str(settings)]
    child = supervisor.start("provisioning", command)
    assert eventually(lambda: not child.running, PROVISIONING_SECONDS), child.log.read_text()
    assert child.wait() == 0

    thing = replace(claim, name=NAME, certificate=pair, key=pair)
    with TestClient.of_thing(thing) as device:
        assert device.publish(basic_ingest_topic(outputs["IngestRule"], NAME), b"{}")


@pytest.mark.parametrize("topic", ["devices/{0}/outbox", "$aws/rules/{rule}/devices/{0}/outbox", "anything"])
def test_a_claim_cannot_speak_for_a_device(outputs: Mapping[str, str], claim: Thing, topic: str) -> None:
    with TestClient.of_thing(claim) as stranger:
        assert not stranger.publish(topic.format(NAME, rule=outputs["IngestRule"]), b"{}", REFUSAL_SECONDS)
        assert stranger.disconnected.is_set()


def test_a_claim_cannot_take_a_devices_place(claim: Thing) -> None:
    assert TestClient(NAME, claim.host, claim.port, claim).is_refused()
