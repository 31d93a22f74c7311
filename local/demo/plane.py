"""The deployed plane, as the demo knows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from contract import load_contract
from eventplane.contract import Contract, ParticipantKind
from eventplane.names import OWN_SERVICES
from local.cloud import CloudEndpoint
from local.deploy import deploy
from local.errors import LocalError
from local.process import Supervisor
from stacks.names import inbox_url_output

_STARTING: Final = 4
"""Functions that are started at a time."""


class FunctionFailedError(LocalError):
    """The function `name` raised an error; the emulated cloud's log tells which."""

    def __init__(self, name: str, answer: str) -> None:
        self.name = name
        super().__init__(f"the function {name} failed: {answer}; see the log of the emulated cloud")


@dataclass(frozen=True, slots=True)
class Plane:
    """The plane in `cloud`, with what its stacks hand out by output name."""

    cloud: CloudEndpoint
    outputs: Mapping[str, str]
    contract: Contract

    @property
    def inbox_outputs(self) -> dict[str, str]:
        """The output with the inbox queue's URL, by cloud service that the plane itself does not read for."""
        services = self.contract.of_kind(ParticipantKind.CLOUD_SERVICE)
        return {each.name: inbox_url_output(each.name) for each in services if each.name not in OWN_SERVICES}

    @property
    def inboxes(self) -> dict[str, str]:
        """The inbox queue's URL, by cloud service."""
        return {service: self.outputs[output] for service, output in self.inbox_outputs.items()}


def deploy_plane(supervisor: Supervisor, cloud: CloudEndpoint) -> Plane:
    """Deploy this checkout's plane to `cloud`. Raises what `local.deploy.deploy` raises."""
    stacks = deploy(supervisor, cloud)
    outputs = {name: value for stack in stacks.values() for name, value in stack.items()}
    return Plane(cloud, outputs, load_contract())


def warm_up(cloud: CloudEndpoint) -> None:
    """Start every function that reads a queue, by an empty batch.

    How long the emulated cloud takes to start one is no latency of the plane. Raises `FunctionFailedError`.
    """
    pages = cloud.client("lambda").get_paginator("list_event_source_mappings").paginate()
    mappings = [each for page in pages for each in page["EventSourceMappings"]]
    names = {each["FunctionArn"] for each in mappings if ":sqs:" in each["EventSourceArn"]}
    with ThreadPoolExecutor(_STARTING) as workers:
        list(workers.map(lambda name: _invoke(cloud, name, {"Records": []}), sorted(names)))


def snapshot_fleet(plane: Plane) -> None:
    """Write the registry's devices in service into the archive, as the plane does every six hours.

    Raises `FunctionFailedError`.
    """
    _invoke(plane.cloud, plane.outputs["FleetSnapshotFunction"], {})


def _invoke(cloud: CloudEndpoint, name: str, event: Mapping[str, Any]) -> None:
    answer = cloud.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
    if "FunctionError" in answer:
        raise FunctionFailedError(name, answer["Payload"].read().decode(errors="replace"))
