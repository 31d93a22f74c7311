"""The canary as a device: a certificate of its own in a secret, and a connection by the device policy."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import botocore

from eventplane.names import CANARY_CLIENT
from eventplane_mqtt import TlsFiles
from eventplane_mqtt.probe import MQTT_PORT, DeviceProbe
from lambdas.common.log import logger

_TIMEOUT_S: Final = 5.0
"""Longest for one step of the connection to IoT Core, seconds."""

_TRUSTED: Final = Path(botocore.__file__).with_name("cacert.pem")
"""Whom the AWS SDK trusts, Amazon's own authorities among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryDevice:
    """Publishes as the thing `CANARY_CLIENT`, by boto3 clients of AWS IoT and Secrets Manager.

    Key and certificate are in `secret`; where they are not, it gets others with the policy `policy`. `rule`
    is the ingest rule. `endpoint` is HOST or HOST:PORT, None for the account's; `ca` a file of authorities,
    None for those of the AWS SDK. `folder` gets the file with key and certificate.
    """

    iot: Any
    secrets: Any
    secret: str
    policy: str
    rule: str
    folder: Path
    endpoint: str | None = None
    ca: str | None = None

    def publish(self, payload: bytes) -> None:
        """Publish to the urgent rule over a connection of its own, so that each exercises the whole way in.

        Raises `MqttError`, botocore's errors.
        """
        account = {"endpointType": "iot:Data-ATS"}
        address = self.endpoint or self.iot.describe_endpoint(**account)["endpointAddress"]
        host, _, port = str(address).partition(":")
        pair = self._pair()
        tls = TlsFiles(Path(self.ca) if self.ca else _TRUSTED, pair, pair)
        to = host, int(port or MQTT_PORT), CANARY_CLIENT, tls, self.rule, _TIMEOUT_S
        with closing(DeviceProbe(*to, reads_inbox=False)) as probe:
            probe.wait_connected()
            probe.report(payload, is_urgent=True)

    def _pair(self) -> Path:
        """The file with key and certificate, which only this function may read."""
        file = self.folder / "canary.pem"
        text = self._stored() or self._made()
        file.touch(0o600)
        file.write_text(text, encoding="ascii")
        return file

    def _stored(self) -> str | None:
        """What is in the secret; None before the first certificate, and where somebody wants another."""
        text = self.secrets.get_secret_value(SecretId=self.secret)["SecretString"]
        return str(text) if text.startswith("-----BEGIN ") else None

    def _made(self) -> str:
        """Make a certificate, the only one of the thing.

        Where an answer is lost, what the first request made is inactive, and of no use.
        """
        self.iot.create_thing(thingName=CANARY_CLIENT)
        for each in self.iot.list_thing_principals(thingName=CANARY_CLIENT)["principals"]:
            # A request whose answer was lost may have detached it.
            with suppress(self.iot.exceptions.ResourceNotFoundException):
                self.iot.detach_thing_principal(thingName=CANARY_CLIENT, principal=each)
        made = self.iot.create_keys_and_certificate(setAsActive=False)
        arn = made["certificateArn"]
        self.iot.update_certificate(certificateId=made["certificateId"], newStatus="ACTIVE")
        self.iot.attach_policy(policyName=self.policy, target=arn)
        self.iot.attach_thing_principal(thingName=CANARY_CLIENT, principal=arn)
        text = made["keyPair"]["PrivateKey"] + made["certificatePem"]
        self.secrets.put_secret_value(SecretId=self.secret, SecretString=text)
        logger.info("the canary has another certificate", certificate=made["certificateId"])
        return str(text)
