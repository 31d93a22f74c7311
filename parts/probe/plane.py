"""The deployed environment, as CloudFormation and the names of its resources tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from eventplane import resource_names
from eventplane.contract import Contract
from eventplane.errors import EventPlaneError
from operations.cloud import Cloud
from operations.errors import NoQueueError, NotDeployedHereError
from operations.queues import PlaneQueues

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
