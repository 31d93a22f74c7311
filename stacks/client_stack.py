"""What the programs of cloud services need: tables of the client library, and a policy for each of them."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from eventplane.contract import Contract, ParticipantKind
from eventplane.own_services import OWN_SERVICES
from stacks.constructs.client_tables import ClientTables
from stacks.constructs.participant_policy import ParticipantPolicy
from stacks.environment import Environment
from stacks.names import pascal
from stacks.plane_stack import PlaneStack


class ClientStack(PlaneStack):
    """The tables hold state: without the filters' items events may come again."""

    def __init__(self, scope: Construct, *, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="client", holds_state=True)
        tables = ClientTables(self, "Tables", environment=environment)
        CfnOutput(self, "FilterTable", value=tables.filter.table_name)
        CfnOutput(self, "SubscriptionsTable", value=tables.subscriptions.table_name)
        CfnOutput(self, "InterestTable", value=tables.interest.table_name)
        for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
            if service.name not in OWN_SERVICES:
                ParticipantPolicy(self, pascal(service.name), environment=environment, participant=service)
