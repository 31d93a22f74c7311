"""AWS in memory: its clients, errors, identities and secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.fakes.client import ACCOUNT, REGION, FakeClient
from tests.fakes.clock import FakeClock
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.iot import FakeIot
from tests.fakes.s3 import FakeS3
from tests.fakes.sqs import FakeSqs


class FakeAws:
    """What the clients of one account share; `clock` is everybody's.

    `others` are clients of services that are not faked, by the services' names.
    """

    def __init__(self, **others: Any) -> None:
        self.clock = FakeClock()
        self.sqs = FakeSqs(self.clock)
        self.dynamodb = FakeDynamoDb()
        self.s3 = FakeS3(self.clock)
        self.secrets = FakeSecrets()
        self.iot = FakeIot()
        self.sts = FakeSts()
        self.parameters = FakeParameters()
        self.others = others

    def client(self, service: str, *_: Any, **__: Any) -> Any:
        """The client of `service`: what `boto3.client` and a session of botocore make."""
        known: Iterable[FakeClient] = (
            *(self.sqs, self.dynamodb, self.s3, self.secrets),
            *(self.iot, self.sts, self.parameters),
        )
        found = {each.service: each for each in known} | self.others
        return found[service]

    create_client = client

    # As a session of boto3.

    region_name = REGION

    def get_credentials(self) -> Any:
        """Credentials that nothing checks."""
        return Credentials("testing", "testing")


class FakeSts(FakeClient):
    """A boto3 client of STS."""

    service = "sts"

    def get_caller_identity(self) -> Any:
        return {
            "Account": ACCOUNT,
            "UserId": "AIDA",
            "Arn": f"arn:aws:sts::{ACCOUNT}:user/tests",
        }


class FakeParameters(FakeClient):
    """A boto3 client of Systems Manager; `values` by the names of parameters."""

    service = "ssm"

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}

    def get_parameter(self, *, Name: str) -> Any:
        if Name not in self.values:
            raise self.refusal("ParameterNotFound", "", "GetParameter")
        return {"Parameter": {"Name": Name, "Type": "String", "Value": self.values[Name]}}


_CURRENT, _PREVIOUS = "AWSCURRENT", "AWSPREVIOUS"


class FakeSecrets(FakeClient):
    """A boto3 client of Secrets Manager."""

    service = "secretsmanager"

    def __init__(self) -> None:
        super().__init__()
        self._secrets: dict[str, dict[str, dict[str, Any]]] = {}

    def create_secret(self, *, Name: str, **value: Any) -> Any:
        stages = self._secrets.setdefault(Name, {})
        if value:
            stages[_CURRENT] = value
        return {"Name": Name}

    def put_secret_value(self, *, SecretId: str, **value: Any) -> Any:
        stages = self._stages(SecretId, "PutSecretValue")
        if _CURRENT in stages:
            stages[_PREVIOUS] = stages[_CURRENT]
        stages[_CURRENT] = value
        return {"Name": SecretId}

    def get_secret_value(self, *, SecretId: str, VersionStage: str = _CURRENT, **_: Any) -> Any:
        stages = self._stages(SecretId, "GetSecretValue")
        if VersionStage not in stages:
            raise self._missing("the specified secret value for staging label", "GetSecretValue")
        return {"Name": SecretId, "VersionStages": [VersionStage], **stages[VersionStage]}

    def _stages(self, secret: str, operation: str) -> dict[str, dict[str, Any]]:
        if secret not in self._secrets:
            raise self._missing("the specified secret", operation)
        return self._secrets[secret]

    def _missing(self, what: str, operation: str) -> ClientError:
        problem = f"Secrets Manager can't find {what}."
        return self.refusal("ResourceNotFoundException", problem, operation)
