"""AWS IoT's control plane in memory, and what the error action of one of its rules sends."""

from __future__ import annotations

import base64
import json
from itertools import count
from typing import Any

from tests.fakes.client import ACCOUNT, REGION, FakeClient


class FakeIot(FakeClient):
    """A boto3 client of AWS IoT. `attached` are certificates by thing, `statuses` all by id, `policies`
    the ids of certificates by the policy that is attached to them."""

    service = "iot"

    def __init__(self) -> None:
        super().__init__()
        self.attached: dict[str, set[str]] = {}
        self.statuses: dict[str, str] = {}
        self.policies: dict[str, set[str]] = {}
        self.arns = f"arn:aws:iot:{REGION}:{ACCOUNT}:"
        self._numbers = count(1)

    def describe_endpoint(self, *, endpointType: str) -> Any:
        assert endpointType == "iot:Data-ATS"
        return {"endpointAddress": "127.0.0.1:1"}  # where nothing listens

    def create_thing(self, *, thingName: str, **_: Any) -> Any:
        self.attached.setdefault(thingName, set())
        return {"thingName": thingName, "thingArn": f"{self.arns}thing/{thingName}"}

    def create_keys_and_certificate(self, *, setAsActive: bool = False) -> Any:
        id = f"{next(self._numbers):064x}"
        self.statuses[id] = "ACTIVE" if setAsActive else "INACTIVE"
        pem = {each: f"-----BEGIN {each}-----\n{id}\n" for each in ("CERTIFICATE", "PRIVATE KEY")}
        keys = {"PrivateKey": pem["PRIVATE KEY"]}
        return {
            "certificateId": id,
            "certificateArn": f"{self.arns}cert/{id}",
            "certificatePem": pem["CERTIFICATE"],
            "keyPair": keys,
        }

    def attach_thing_principal(self, *, thingName: str, principal: str, **_: Any) -> Any:
        self._of(thingName).add(self._known(principal))
        return {}

    def detach_thing_principal(self, *, thingName: str, principal: str) -> Any:
        self._remove(self._of(thingName), principal)
        return {}

    def list_thing_principals(self, *, thingName: str, **_: Any) -> Any:
        return {"principals": [f"{self.arns}cert/{id}" for id in sorted(self._of(thingName))]}

    def update_certificate(self, *, certificateId: str, newStatus: str) -> Any:
        self.statuses[self._known(certificateId)] = newStatus
        return {}

    def describe_certificate(self, *, certificateId: str) -> Any:
        id = self._known(certificateId)
        described = {"certificateId": id, "certificateArn": f"{self.arns}cert/{id}"}
        return {"certificateDescription": {**described, "status": self.statuses[id]}}

    def create_policy(self, *, policyName: str, policyDocument: str, **_: Any) -> Any:
        self.policies.setdefault(policyName, set())
        return {"policyName": policyName, "policyDocument": policyDocument}

    def attach_policy(self, *, policyName: str, target: str) -> Any:
        self._policy(policyName).add(self._known(target))
        return {}

    def detach_policy(self, *, policyName: str, target: str) -> Any:
        self._remove(self._policy(policyName), target)
        return {}

    def list_attached_policies(self, *, target: str, **_: Any) -> Any:
        id = self._known(target)
        return {"policies": [{"policyName": each} for each, ids in self.policies.items() if id in ids]}

    def list_policies(self, **_: Any) -> Any:
        return {"policies": [{"policyName": each} for each in sorted(self.policies)]}

    def list_targets_for_policy(self, *, policyName: str, **_: Any) -> Any:
        return {"targets": [f"{self.arns}cert/{id}" for id in sorted(self._policy(policyName))]}

    def describe_thing(self, *, thingName: str) -> Any:
        self._of(thingName)
        return {"thingName": thingName, "thingArn": f"{self.arns}thing/{thingName}"}

    def delete_thing(self, *, thingName: str, **_: Any) -> Any:
        self.attached.pop(thingName, None)
        return {}

    def _remove(self, attached: set[str], certificate: str) -> None:
        if (id := self._known(certificate)) not in attached:
            raise self.refusal("ResourceNotFoundException", f"{id} is not attached", "Detach")
        attached.remove(id)

    def _policy(self, name: str) -> set[str]:
        if name not in self.policies:
            raise self.refusal("ResourceNotFoundException", f"no policy {name}", "Policy")
        return self.policies[name]

    def _of(self, thing: str) -> set[str]:
        if thing not in self.attached:
            raise self.refusal("ResourceNotFoundException", f"no thing {thing}", "Thing")
        return self.attached[thing]

    def _known(self, certificate: str) -> str:
        """The id of a certificate that is named by its id or its ARN."""
        id = certificate.rpartition("/")[2]
        if id not in self.statuses:
            raise self.refusal("ResourceNotFoundException", f"no certificate {id}", "Certificate")
        return id


def rule_failure(original: bytes, *resources: str, **members: Any) -> str:
    """Return what is sent about `original`, which `resources` did not take; `members` are put over its own.

    Source: AWS IoT Core Developer Guide, error handling.
    """
    failures = [
        {"failedAction": "SqsAction", "failedResource": each, "errorMessage": "no"} for each in resources
    ]
    document = {
        "ruleName": "eventplane_dev_ingest",
        "topic": "devices/home-1/outbox",
        "cloudwatchTraceId": "7e146a2c-95b5-6caf-98b9-50e3969734c7",
        "clientId": "home-1",
        "base64OriginalPayload": base64.b64encode(original).decode(),
        "failures": failures,
    }
    return json.dumps(document | members)
