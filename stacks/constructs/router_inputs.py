"""What every function that routes may do and is told: where to, by which contract, into which archive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel, interest, subscription
from eventplane.ledger import CONTRACTS, LEDGER
from stacks.config import Environment
from stacks.constructs.archive import allow_folders
from stacks.constructs.client_tables import allow_interest, allow_subscriptions
from stacks.constructs.contract_table import allow_read, table_name
from stacks.constructs.durable_queue import allow_send


@dataclass(frozen=True, slots=True)
class RouterInputs:
    """`statements` for the function's role and `variables` of its environment."""

    statements: list[iam.PolicyStatement]
    variables: dict[str, str]


def router_inputs(
    scope: Construct,
    *,
    environment: Environment,
    source: Channel,
    destinations: Mapping[str, sqs.IQueue],
    archive: s3.IBucket,
) -> RouterInputs:
    """Of a function in `scope` that routes what came over `source` to inbox queues by their address."""
    queues = {address: queue.queue_url for address, queue in destinations.items()}
    return RouterInputs(
        statements=[
            allow_send(environment=environment, queues=list(destinations.values())),
            allow_read(scope, environment=environment),
            allow_subscriptions(scope, environment=environment),
            allow_interest(scope, environment=environment),
            allow_folders(
                scope,
                environment=environment,
                archive=archive,
                actions=["s3:PutObject"],
                folders=[LEDGER, CONTRACTS],
            ),
        ],
        variables={
            "EVENTPLANE_SOURCE": source.address,
            "EVENTPLANE_QUEUES": json.dumps(queues),
            "EVENTPLANE_ARCHIVE_BUCKET": archive.bucket_name,
            "EVENTPLANE_CONTRACTS_TABLE": table_name(environment),
            "EVENTPLANE_SUBSCRIPTIONS_TABLE": environment.resource_name(subscription.TABLE),
            "EVENTPLANE_INTEREST_TABLE": environment.resource_name(interest.TABLE),
            "EVENTPLANE_CONTRACT_REFRESH_S": str(environment.contract_refresh_s),
        },
    )
