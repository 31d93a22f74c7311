"""The deployed plane, as the demo knows it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from contract import load_contract
from eventplane.contract import Contract, ParticipantKind
from eventplane.fleet import BUCKETS
from eventplane.names import OWN_SERVICES
from eventplane.resource_names import resource_name
from local.background import Background
from local.cloud import CloudEndpoint
from local.deploy import deploy
from local.errors import LocalError
from local.process import Child, Supervisor
from stacks.names import inbox_url_output

ROUTERS: Final = ("router-device", "router-device-urgent")
"""The functions, without their prefix, that route what devices send."""

_log = logging.getLogger(__name__)

_LOCAL: Final = "local"
"""The environment that is deployed."""

_LOOK_S: Final = 10.0
"""How often the downlink is reconciled; deployed it is once a minute."""

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


def deploy_plane(
    supervisor: Supervisor,
    cloud: CloudEndpoint,
    synthesis: Child | None = None,
    contract: Contract | None = None,
) -> Plane:
    """Deploy this checkout's plane to `cloud`, or what `synthesis` makes with `contract`.

    Raises what `local.deploy.deploy` raises.
    """
    stacks = deploy(supervisor, cloud, synthesis=synthesis)
    outputs = {name: value for stack in stacks.values() for name, value in stack.items()}
    return Plane(cloud, outputs, contract or load_contract())


def warm_up(cloud: CloudEndpoint) -> None:
    """Start every function that reads a queue, by an empty batch; of routers both processes.

    How long the emulated cloud takes to start one is no latency of the plane; it starts another for each
    batch that comes while one is handled, up to the maximum concurrency, and the batch waits for it. Raises
    `FunctionFailedError`.
    """
    pages = cloud.client("lambda").get_paginator("list_event_source_mappings").paginate()
    mappings = [each for page in pages for each in page["EventSourceMappings"]]
    names = {each["FunctionArn"] for each in mappings if ":sqs:" in each["EventSourceArn"]}
    routers = [name for name in sorted(names) if any(f"-{router}:" in f"{name}:" for router in ROUTERS)]
    # Twice at the same time, so that neither call gets the process of the other.
    twice = [name for name in routers for _ in range(2)]
    with ThreadPoolExecutor(_STARTING) as workers:
        list(
            workers.map(
                lambda name: _invoke(cloud, name, {"Records": []}), [*twice, *sorted(names - {*routers})]
            )
        )


class DownlinkSchedule(Background):
    """Look for what devices were not sent while the `with` block runs: no schedule does in the local cloud.

    An event for a device that connects in the same moment waits for this look, as it does when deployed.
    """

    def __init__(self, cloud: CloudEndpoint) -> None:
        super().__init__("downlink schedule")
        self._cloud = cloud

    def _run(self) -> None:
        name = resource_name(_LOCAL, "downlink-reconciler")
        while not self._ending.wait(_LOOK_S):
            try:
                _invoke(self._cloud, name, {"buckets": list(range(BUCKETS))})
            except (BotoCoreError, ClientError, FunctionFailedError):
                _log.exception("the downlink was not reconciled")


def snapshot_fleet(plane: Plane) -> None:
    """Write the registry's devices in service into the archive, as the plane does every six hours.

    Raises `FunctionFailedError`.
    """
    _invoke(plane.cloud, plane.outputs["FleetSnapshotFunction"], {})


def _invoke(cloud: CloudEndpoint, name: str, event: Mapping[str, Any]) -> None:
    answer = cloud.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
    if "FunctionError" in answer:
        raise FunctionFailedError(name, answer["Payload"].read().decode(errors="replace"))
