"""The whole app: all stacks of one environment, their order, their tags and the rules they are checked by."""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from eventplane.contract import Contract
from eventplane.names import DOWNLINK
from parts import PARTS, has, load
from stacks.audit_stack import AuditStack
from stacks.cost_stack import CostStack
from stacks.environment import PROJECT, Environment
from stacks.monitoring_stack import MonitoringStack
from stacks.plane_stack import PLANE_TAG, PlaneStack
from stacks.routing_stack import RoutingStack
from stacks.state_stacks import (
    ArchiveStack,
    ClientStack,
    ContractStack,
    DownlinkStack,
    MessagingStack,
    StateStack,
)


@dataclass(kw_only=True)
class PlaneStacks:
    """The stacks of `contract` in `environment`, to which parts add what they bring.

    Those that hold `state` are deployed first, the `others` after them, side by side.
    """

    app: cdk.App
    environment: Environment
    contract: Contract
    messaging: MessagingStack
    routing: RoutingStack
    audit: AuditStack
    monitoring: MonitoringStack
    state: list[cdk.Stack]
    others: list[cdk.Stack]

    def add_state(self, name: str) -> StateStack:
        """Return a new stack that holds state."""
        self.state.append(stack := StateStack(self.app, self.environment, name))
        return stack

    def add(self, name: str) -> PlaneStack:
        """Return a new stack without state."""
        self.others.append(stack := PlaneStack(self.app, environment=self.environment, name=name))
        return stack


def build(app: cdk.App, environment: Environment, contract: Contract) -> list[cdk.Stack]:
    """Put the stacks of `environment` into `app`, each after those it needs, without those of parts it lacks.

    Raises `IncompleteEnvironmentError` where the operator has to fill in settings first.
    """
    environment.check_complete()
    archive = ArchiveStack(app, environment)
    messaging = MessagingStack(app, environment, contract)
    published = ContractStack(app, environment)
    clients = ClientStack(app, environment, contract)
    state: list[cdk.Stack] = [archive, messaging, clients]
    if DOWNLINK in contract.participants:
        state.append(DownlinkStack(app, environment))
    routing = RoutingStack(app, environment, contract)
    plane = PlaneStacks(
        app=app,
        environment=environment,
        contract=contract,
        messaging=messaging,
        routing=routing,
        audit=AuditStack(app, environment, contract),
        monitoring=MonitoringStack(app, environment),
        state=state,
        others=[routing],
    )
    for part in PARTS:
        if has(part, "stack") and environment.has(part, contract):
            load(part, "stack").add(plane)
    # They meet by the names of resources, not by exports, so the CDK does not know their order.
    # The one with the contracts owns the account's region, or fails.
    needs: dict[cdk.Stack, list[cdk.Stack]] = {published: [], **{each: [published] for each in state}}
    needs |= {each: [published, *state] for each in plane.others}
    needs[plane.audit] = [archive, messaging]
    watched = list(needs)
    plane.monitoring.watch(contract, watched)
    # The canary publishes to a rule that has to be there.
    needs[plane.monitoring] = [routing]
    for stack, others in needs.items():
        for other in others:
            stack.add_stack_dependency(other)

    if environment.costs is not None:
        CostStack(app, environment, environment.costs)

    cdk.Tags.of(app).add(PLANE_TAG, f"{PROJECT}-{environment.name}")
    cdk.Tags.of(app).add("project", PROJECT)
    cdk.Tags.of(app).add("environment", environment.name)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return [*watched, plane.monitoring]
