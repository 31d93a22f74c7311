"""The way into AWS: clients by the same settings as the AWS command line's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 5}, max_pool_connections=16)


@dataclass(frozen=True)
class Cloud:
    """The account and region that `session` leads to. boto3 publishes no types, so clients are `Any`."""

    session: Any

    def client(self, service: str) -> Any:
        """The client of a service, which tries again as all of them do."""
        return self.session.client(service, config=_CONFIG)

    @cached_property
    def sqs(self) -> Any:
        return self.client("sqs")

    @cached_property
    def s3(self) -> Any:
        return self.client("s3")

    @cached_property
    def dynamodb(self) -> Any:
        return self.client("dynamodb")

    @cached_property
    def account(self) -> str:
        return str(self.client("sts").get_caller_identity()["Account"])

    @property
    def region(self) -> str:
        return str(self.sqs.meta.region_name)


def enter() -> Cloud:
    """The cloud of the environment's settings. Raises what `operations.errors.explained` explains."""
    session = boto3.Session()
    if session.get_credentials() is None:
        raise NoCredentialsError
    return Cloud(session)
