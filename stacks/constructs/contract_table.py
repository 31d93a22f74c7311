"""The table of published contracts: what is in force between two deployments."""

from __future__ import annotations

from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from eventplane.contract.publication import KEY
from stacks.config import Environment
from stacks.constructs.service_role import allow

_NAME: Final = "contracts"


class ContractTable(Construct):
    """A few items of some kilobytes, read once in a while by each router and written by people."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment) -> None:
        super().__init__(scope, id)
        self.table = dynamodb.Table(
            self,
            "Table",
            table_name=table_name(environment),
            partition_key=dynamodb.Attribute(name=KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.DEFAULT,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=environment.keeps_data,
            removal_policy=environment.removal_policy,
        )


def table_name(environment: Environment) -> str:
    """What the table is called, by which other stacks find it."""
    return environment.resource_name(_NAME)


def allow_read(scope: Construct, *, environment: Environment) -> iam.PolicyStatement:
    """A statement for a role in `scope` that may read the table."""
    arn = Stack.of(scope).format_arn(
        service="dynamodb", resource="table", resource_name=table_name(environment)
    )
    return allow(["dynamodb:GetItem"], [arn])
