"""Devices of the cloud: an IoT thing for every home, with its own key and certificate."""

import os
from dataclasses import dataclass
from pathlib import Path

from lab.cloud import CloudEndpoint


@dataclass(frozen=True)
class Thing:
    """A provisioned device: its name (also its MQTT client id) and the files that let it connect.

    `host` and `port` are the cloud's own; a home behind a `lab.network.NetworkLink` dials the link instead.
    """

    name: str
    certificate: Path
    key: Path
    ca: Path
    host: str
    port: int


def provision(cloud: CloudEndpoint, name: str, *, policy: str, directory: Path) -> Thing:
    """Register thing `name` with a fresh certificate that carries the IoT policy called `policy`.

    Its files go to `directory`, the key readable by us only. Raises botocore's `ClientError` if the cloud
    refuses, for instance because there is no such policy.
    """
    iot = cloud.client("iot")
    iot.create_thing(thingName=name)
    identity = iot.create_keys_and_certificate(setAsActive=True)
    iot.attach_policy(policyName=policy, target=identity["certificateArn"])
    iot.attach_thing_principal(thingName=name, principal=identity["certificateArn"])

    directory.mkdir(parents=True, exist_ok=True)
    thing = Thing(
        name=name,
        certificate=directory / "cert.pem",
        key=directory / "key.pem",
        ca=directory / "ca.pem",
        host=cloud.mqtt_host,
        port=cloud.mqtt_port,
    )
    thing.certificate.write_text(identity["certificatePem"])
    thing.ca.write_text(cloud.ca_pem)
    _write_secret(thing.key, identity["keyPair"]["PrivateKey"])
    return thing


def _write_secret(path: Path, text: str) -> None:
    """Write a file that is never readable by others."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
