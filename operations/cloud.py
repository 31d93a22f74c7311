"""The way into AWS: clients by the same settings as the AWS command line's, and its errors with remedies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, NoCredentialsError, NoRegionError, ProfileNotFound

from eventplane.contract.publication import CONTRACTS_TABLE
from eventplane.resource_names import OWNER, OtherPlaneError, resource_name
from eventplane.sinks import url_problem
from eventplane_aws.tables import DynamoDbTables
from operations import system
from operations.errors import ELSEWHERE, CloudRefusedError

_CONFIG = Config(
    read_timeout=4, retries={"mode": "standard", "total_max_attempts": 5}, max_pool_connections=16
)

_LONGER: Final = {
    "lambda": _CONFIG.merge(Config(read_timeout=60)),
    "s3": _CONFIG.merge(Config(read_timeout=20)),
}
"""For functions that run, and objects that are large."""

_NO_ENTRY: Final = frozenset({"403", "AccessDenied", "AccessDeniedException", "AllAccessDisabled"})
_STALE: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "SignatureDoesNotMatch"}
)
_NOT_THERE: Final = frozenset(
    {
        "EntityNotFoundException",
        "ResourceNotFoundException",
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
        "NoSuchBucket",
    }
)


@dataclass(frozen=True)
class Cloud:
    """The account and region that `session` leads to. boto3 publishes no types, so clients are `Any`."""

    session: Any

    def client(self, service: str) -> Any:
        """The client of a service, which tries again as all of them do."""
        return self.session.client(service, config=_LONGER.get(service, _CONFIG))

    @cached_property
    def sqs(self) -> Any:
        return self.client("sqs")

    @cached_property
    def s3(self) -> Any:
        return self.client("s3")

    @cached_property
    def dynamodb(self) -> Any:
        return self.client("dynamodb")

    @property
    def tables(self) -> DynamoDbTables:
        return DynamoDbTables(self.dynamodb, system.random_bytes)

    @cached_property
    def account(self) -> str:
        return str(self.client("sts").get_caller_identity()["Account"])

    def keeps_data(self, environment: str) -> bool:
        """Return whether the environment is for real: its published contracts cannot be deleted."""
        table = self.dynamodb.describe_table(TableName=resource_name(environment, CONTRACTS_TABLE))["Table"]
        return bool(table.get("DeletionProtectionEnabled"))

    @property
    def region(self) -> str:
        return str(self.sqs.meta.region_name)


@contextmanager
def if_deployed() -> Iterator[None]:
    """Pass over a table that is not there: a plane has those of its parts."""
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise


def was_repeated(answer: Any) -> bool:
    """Return whether botocore repeated the request: the first may have been done, its answer lost."""
    return bool(answer.get("ResponseMetadata", {}).get("RetryAttempts"))


def enter(environment: str) -> Cloud:
    """Return the cloud of the command line's settings. Raises what `explained` explains, and
    `OtherPlaneError` where another environment than `environment` owns its devices."""
    session = boto3.Session()
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    # The SDK's own complaint is a ValueError, of which a wrong port comes with the first request.
    if endpoint and (problem := url_problem(endpoint, is_emulated=True)):
        remedy = "write https://HOST:PORT in --endpoint-url (AWS_ENDPOINT_URL)"
        raise CloudRefusedError("InvalidEndpoint", f"the endpoint of AWS {problem}", remedy)
    if session.get_credentials() is None:
        raise NoCredentialsError
    if session.region_name is None:
        raise NoRegionError
    cloud = Cloud(session)
    try:
        owner = cloud.client("ssm").get_parameter(Name=OWNER)["Parameter"]["Value"]
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "ParameterNotFound":
            raise
        return cloud  # nothing is deployed, or a version before 0.4.0
    if owner != environment:
        raise OtherPlaneError(owner, environment)
    return cloud


def explained(error: Exception) -> CloudRefusedError:
    """The `error` of the AWS SDK with a remedy."""
    if isinstance(error, ClientError):
        return _refused(error)
    if isinstance(error, NoCredentialsError):
        remedy = "log in as for the AWS command line (aws sso login), or name a --profile (AWS_PROFILE)"
        return CloudRefusedError("NoCredentials", "there are no credentials for AWS", remedy)
    if isinstance(error, NoRegionError):
        return CloudRefusedError("NoRegion", "no AWS region is chosen", "add --region, or set AWS_REGION")
    if isinstance(error, ProfileNotFound):
        return CloudRefusedError("ProfileNotFound", str(error), "correct --profile (AWS_PROFILE)")
    remedy = "check the network, --region, --profile and --endpoint-url"
    return CloudRefusedError(type(error).__name__, str(error), remedy)


def _refused(error: ClientError) -> CloudRefusedError:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    if code in _NO_ENTRY:
        remedy = "ask for a role that may do that; docs/how-to/runbook.md lists what the commands need"
    elif code in _STALE:
        remedy = "log in again, or choose other credentials with --profile (AWS_PROFILE)"
    elif code in _NOT_THERE:
        remedy = f"if no such thing was deployed here, {ELSEWHERE}"
    else:
        remedy = "what was done before stays done, and the command can be repeated"
    return CloudRefusedError(code, str(error), remedy)
