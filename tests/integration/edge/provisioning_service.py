"""AWS IoT's side of fleet provisioning, played over a broker."""

import json
from datetime import timedelta
from typing import Any

from paho.mqtt.client import Client, MQTTMessage

from lab.things import Authority
from tests.integration.edge.conftest import THING, RecordingCloud
from tests.integration.mqtt import TestClient

TEMPLATE = "fleet"
CREATE = "$aws/certificates/create-from-csr/json"
CREATE_WITH_KEY = "$aws/certificates/create/json"
REGISTER = f"$aws/provisioning-templates/{TEMPLATE}/provision/json"
REFUSAL = {"statusCode": 403, "errorCode": "AccessDenied", "errorMessage": "the hook said no"}


class FakeAws(TestClient):
    """Answers provisioning requests with certificates of `authority`; refuses once what `refuses` names."""

    def __init__(self, cloud: RecordingCloud, authority: Authority) -> None:
        super().__init__("aws", "127.0.0.1", cloud.plain_port)
        self.life = timedelta(days=300)
        self.refuses: list[str] = []
        self.silent = False
        self.created = 0
        self.secrets: list[str] = []
        self.registered: list[dict[str, Any]] = []
        self._authority = authority

    def _on_message(self, client: Client, _data: Any, message: MQTTMessage) -> None:
        if self.silent:
            return
        if message.topic in self.refuses:
            self.refuses.remove(message.topic)
            client.publish(f"{message.topic}/rejected", json.dumps(REFUSAL), qos=1)
            return
        asked = json.loads(message.payload)
        answer = self._registered(asked) if message.topic == REGISTER else self._created(asked)
        client.publish(f"{message.topic}/accepted", json.dumps(answer), qos=1)

    def _created(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.created += 1
        token = f"token-{self.created}"
        if "certificateSigningRequest" not in asked:
            made = self._authority.issue(THING)
            self.secrets = [*made.key.read_text().splitlines()[1:-1], token]
            certificate, key = made.certificate.read_text(), made.key.read_text()
            return {"certificatePem": certificate, "privateKey": key, "certificateOwnershipToken": token}
        certificate = self._authority.sign(asked["certificateSigningRequest"], self.life)
        return {"certificatePem": certificate, "certificateOwnershipToken": token}

    def _registered(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.registered.append(asked)
        return {"thingName": asked["parameters"]["SerialNumber"], "deviceConfiguration": {}}
