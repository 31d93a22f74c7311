"""Secrets Manager in memory: the versions of a secret by their stages."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from tests.fakes.client import FakeClient

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
