"""The whole app: all stacks of one environment, their order, their tags and the rules they are checked by."""

from __future__ import annotations

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from eventplane.contract import Contract
from stacks.archive_stack import ArchiveStack
from stacks.audit_stack import AuditStack
from stacks.client_stack import ClientStack
from stacks.contract_stack import ContractStack
from stacks.cost_stack import CostStack
from stacks.discovery_stack import DiscoveryStack
from stacks.downlink_stack import DownlinkStack
from stacks.environment import PROJECT, Environment
from stacks.fleet_stack import FleetStack
from stacks.messaging_stack import MessagingStack
from stacks.monitoring_stack import MonitoringStack
from stacks.plane_stack import PLANE_TAG
from stacks.presence_stack import PresenceStack
from stacks.registry_stack import RegistryStack
from stacks.routing_stack import RoutingStack
from stacks.subscriptions_stack import SubscriptionsStack


def build(app: cdk.App, environment: Environment, contract: Contract) -> list[cdk.Stack]:
    """Put the stacks of `environment` into `app`, each after those it needs.

    Raises `IncompleteEnvironmentError` where the operator has to fill in settings first.
    """
    environment.check_complete()
    archive = ArchiveStack(app, environment=environment)
    messaging = MessagingStack(app, environment=environment, contract=contract)
    published = ContractStack(app, environment=environment)
    clients = ClientStack(app, environment=environment, contract=contract)
    presence = PresenceStack(app, environment=environment)
    registry = RegistryStack(app, environment=environment)
    downlink = DownlinkStack(app, environment=environment)
    discovery = DiscoveryStack(app, environment=environment, contract=contract)
    routing = RoutingStack(app, environment=environment, contract=contract)
    fleet = FleetStack(app, environment=environment)
    subscriptions = SubscriptionsStack(app, environment=environment, contract=contract)
    audit = AuditStack(app, environment=environment, contract=contract)
    watched = [archive, messaging, published, clients, presence, routing, registry, downlink, fleet, audit]
    watched += [discovery, subscriptions]
    monitoring = MonitoringStack(app, environment=environment, contract=contract, watched=watched)
    # The canary publishes to a rule that has to be there.
    monitoring.add_stack_dependency(routing)
    # They meet by the names of resources, not by exports, so the CDK does not know their order.
    routing.add_stack_dependency(archive)
    routing.add_stack_dependency(messaging)
    routing.add_stack_dependency(published)
    routing.add_stack_dependency(clients)
    routing.add_stack_dependency(presence)
    routing.add_stack_dependency(registry)
    routing.add_stack_dependency(downlink)
    discovery.add_stack_dependency(published)
    discovery.add_stack_dependency(clients)
    fleet.add_stack_dependency(registry)
    fleet.add_stack_dependency(routing)
    subscriptions.add_stack_dependency(archive)
    subscriptions.add_stack_dependency(clients)
    subscriptions.add_stack_dependency(messaging)
    audit.add_stack_dependency(archive)
    audit.add_stack_dependency(messaging)

    if environment.costs is not None:
        CostStack(app, environment=environment, costs=environment.costs)

    cdk.Tags.of(app).add(PLANE_TAG, f"{PROJECT}-{environment.name}")
    cdk.Tags.of(app).add("project", PROJECT)
    cdk.Tags.of(app).add("environment", environment.name)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return [*watched, monitoring]
