"""The deployed plane, as the demo knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contract import load_contract
from eventplane.contract import Contract, ParticipantKind
from eventplane.own_services import OWN_SERVICES
from local.cloud import CloudEndpoint
from local.deploy import deploy
from local.process import Supervisor
from stacks.names import inbox_url_output


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
