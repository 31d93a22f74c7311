"""AWS IoT's control plane in memory: things, and the certificates that are attached to them."""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.fakes.client import ACCOUNT, REGION, FakeClient


class FakeIot(FakeClient):
    """A boto3 client of AWS IoT. `attached` are certificates by thing, `statuses` all by id."""

    service = "iot"

    def __init__(self) -> None:
        super().__init__()
        self.attached: dict[str, set[str]] = {}
        self.statuses: dict[str, str] = {}
        self.arns = f"arn:aws:iot:{REGION}:{ACCOUNT}:"
        self._numbers = count(1)

    def create_thing(self, *, thingName: str, **_: Any) -> Any:
        self.attached.setdefault(thingName, set())
        return {"thingName": thingName, "thingArn": f"{self.arns}thing/{thingName}"}

    def create_keys_and_certificate(self, *, setAsActive: bool = False) -> Any:
        id = f"{next(self._numbers):064x}"
        self.statuses[id] = "ACTIVE" if setAsActive else "INACTIVE"
        return {"certificateId": id, "certificateArn": f"{self.arns}cert/{id}"}

    def attach_thing_principal(self, *, thingName: str, principal: str, **_: Any) -> Any:
        self._of(thingName).add(self._known(principal))
        return {}

    def detach_thing_principal(self, *, thingName: str, principal: str) -> Any:
        self._of(thingName).discard(self._known(principal))
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
