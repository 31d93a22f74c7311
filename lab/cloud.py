"""The address and the credentials of a cloud: all that anyone needs to know about it, whichever it is."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import boto3

_LOGS: Final = "/aws/lambda/"


@dataclass(frozen=True)
class CloudEndpoint:
    """An AWS-compatible cloud and the credentials of its owner.

    `url` takes every AWS API call; devices connect to `mqtt_host`:`mqtt_port` with mutual TLS and trust
    `ca_pem`. The credentials may do everything: they are for deployment and for looking at results.
    """

    url: str
    region: str
    account: str
    mqtt_host: str
    mqtt_port: int
    ca_pem: str
    access_key_id: str
    secret_access_key: str

    def environment(self) -> dict[str, str]:
        """Return our environment for a child process whose AWS calls go to this cloud only.

        Profiles, files and instance metadata are disabled.
        """
        return {
            **environment_without_credentials(self.account, self.region),
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
        }

    def client(self, service: str) -> Any:
        """A boto3 client of `service` (`sqs`, `iot`, ...) with the owner's credentials."""
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=self.region,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
        )


def function_logs(cloud: CloudEndpoint, prefix: str = "", pattern: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each event in the logs of functions whose names begin with `prefix`, with the function's name."""
    logs, wanted = cloud.client("logs"), {"filterPattern": pattern} if pattern else {}
    for group in logs.describe_log_groups(logGroupNamePrefix=f"{_LOGS}{prefix}")["logGroups"]:
        name = group["logGroupName"]
        for page in logs.get_paginator("filter_log_events").paginate(logGroupName=name, **wanted):
            for event in page["events"]:
                yield name.removeprefix(_LOGS), event


def environment_without_credentials(account: str, region: str) -> dict[str, str]:
    """Return our environment for a child process that names an account and a region, and cannot enter it."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CDK_DEFAULT_ACCOUNT": account,
        "CDK_DEFAULT_REGION": region,
    }
