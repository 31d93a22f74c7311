"""The deployed environment, as CloudFormation and the names of its resources tell it, and its archive."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from eventplane import resource_names
from eventplane.contract import Contract
from eventplane.errors import EventPlaneError
from eventplane.ledger import LEDGER, TAP
from operations import system
from operations.archive import Record
from operations.cloud import Cloud
from operations.errors import NoQueueError, NotDeployedHereError
from operations.queues import PlaneQueues

_PARALLEL: Final = 8

_CLOCKS: Final = timedelta(minutes=5)
"""How far the clock of this machine may be off."""


class Evidence:
    """Reads what was written to `bucket` since `since`, each object once, and keeps the lines with `run`."""

    def __init__(self, s3: Any, bucket: str, run: str, since: datetime) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._run = run.encode()
        self._since = since - _CLOCKS
        self._seen: set[str] = set()
        self._rows: dict[str, list[Record]] = {TAP: [], LEDGER: []}

    def ledger(self) -> list[Record]:
        """Return the routers' decisions by now. Raises botocore's errors."""
        return self._read(LEDGER)

    def tap(self) -> list[Record]:
        """Return what IoT Core accepted and the archive has by now. Raises botocore's errors."""
        return self._read(TAP)

    def _read(self, folder: str) -> list[Record]:
        new = [key for key in self._written(folder) if key not in self._seen]
        with system.pool(_PARALLEL) as workers:
            for key, rows in zip(new, workers.map(self._rows_of, new), strict=True):
                self._seen.add(key)
                self._rows[folder] += rows
        return self._rows[folder]

    def _written(self, folder: str) -> Iterator[str]:
        """Yield the objects of the hours since then: an hour's folder is that of writing."""
        hour = self._since.replace(minute=0, second=0, microsecond=0)
        pages = self._s3.get_paginator("list_objects_v2")
        while hour <= system.now() + _CLOCKS:
            prefix = f"{folder}/date={hour:%Y-%m-%d}/hour={hour:%H}/"
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for each in page.get("Contents", []):
                    if each["LastModified"] >= self._since:
                        yield each["Key"]
            hour += timedelta(hours=1)

    def _rows_of(self, key: str) -> list[Record]:
        packed = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        try:
            lines = gzip.decompress(packed).splitlines()
        except (EOFError, OSError, zlib.error):
            return []  # damaged: the audit reports it, and what is missed here is reported as not seen
        return [json.loads(line) for line in lines if self._run in line]


_DEPLOYED: Final = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"})
"""What a deployment leaves (AWS CloudFormation, stack status codes); a rolled back one has other words."""


class OutputMissingError(EventPlaneError):
    """No stack of the environment has the output `name`."""

    name: str
    message = "no stack has the output {name}; deploy all stacks of this environment again"


class StackStatusError(EventPlaneError):
    """The `stack` is not in a state that a finished deployment leaves; `status` is CloudFormation's word."""

    stack: str
    status: str
    message = "stack {stack} is {status}; wait for its deployment, or deploy it again"


@dataclass(frozen=True)
class DeployedPlane:
    """`environment` of the account, deployed from `contract`; `outputs` are those of all its stacks.

    `keeps_data` says whether it is for real: its published contracts cannot be deleted.
    """

    cloud: Cloud
    environment: str
    contract: Contract
    outputs: Mapping[str, str]
    stacks: int
    queues: PlaneQueues
    keeps_data: bool

    def output(self, name: str) -> str:
        """Return a stack's output. Raises `OutputMissingError`."""
        if name not in self.outputs:
            raise OutputMissingError(name)
        return self.outputs[name]

    def name(self, suffix: str) -> str:
        """Return what a resource is called in this environment."""
        return resource_names.resource_name(self.environment, suffix)

    def channel_url(self, address: str) -> str:
        """Return the URL of the queue that carries a channel. Raises `NoQueueError`."""
        try:
            return self.queues.channel_urls[address]
        except KeyError:
            raise NoQueueError(address, self.environment) from None


def find_plane(cloud: Cloud, environment: str, contract: Contract) -> DeployedPlane:
    """Find the environment's stacks. Raises `NotDeployedHereError`, `StackStatusError`, botocore's errors."""
    prefix = resource_names.resource_name(environment, "")
    pages = cloud.client("cloudformation").get_paginator("describe_stacks").paginate()
    stacks = [each for page in pages for each in page["Stacks"] if each["StackName"].startswith(prefix)]
    if not stacks:
        raise NotDeployedHereError(environment, cloud.account, cloud.region)
    for each in stacks:
        if each["StackStatus"] not in _DEPLOYED:
            raise StackStatusError(each["StackName"], each["StackStatus"])
    found = [output for each in stacks for output in each.get("Outputs", [])]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in found}
    return DeployedPlane(
        cloud=cloud,
        environment=environment,
        contract=contract,
        outputs=outputs,
        stacks=len(stacks),
        queues=PlaneQueues(cloud, environment, contract),
        keeps_data=cloud.keeps_data(environment),
    )
