"""What every function that routes may do and is told: where to, by which contract, into which archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel, Priority
from eventplane.function_settings import RouterSettings
from eventplane.ledger import CONTRACTS, LEDGER
from stacks.constructs.archive import allow_folders
from stacks.constructs.contract_inputs import Inputs, contract_inputs, contract_settings
from stacks.constructs.durable_queue import allow_send
from stacks.constructs.webhook_secret import allow_read_named_secret
from stacks.environment import Environment


def router_inputs(
    scope: Construct,
    *,
    environment: Environment,
    source: Channel,
    priority: Priority,
    destinations: Mapping[str, sqs.IQueue],
    elsewhere: Sequence[Channel],
    ledger: sqs.IQueue,
    archive: s3.IBucket,
) -> Inputs:
    """Of a function in `scope` that routes what came over `source` at `priority` to inbox queues by address.

    The inboxes `elsewhere` have no queue: a protocol that a package adds carries them.
    """
    queues = {address: queue.queue_url for address, queue in destinations.items()}
    queues |= {channel.address: environment.channel_url(channel) for channel in elsewhere}
    protocols = {str(channel.transport) for channel in elsewhere}
    secrets = {
        each.name: each.secret for each in environment.protocols if each.name in protocols and each.secret
    }
    of_contract = contract_inputs(scope, environment=environment)
    settings = RouterSettings(
        **asdict(contract_settings(environment)),
        source=source.address,
        priority=priority,
        queues=queues,
        ledger_queue=ledger.queue_url,
        archive_bucket=archive.bucket_name,
    )
    return Inputs(
        statements=[
            allow_send(environment=environment, queues=[*destinations.values(), ledger]),
            *of_contract.statements,
            allow_folders(
                scope,
                environment=environment,
                archive=archive,
                actions=["s3:PutObject"],
                folders=[LEDGER, CONTRACTS],
            ),
            *(allow_read_named_secret(scope, each) for each in secrets.values()),
        ],
        variables={
            **{f"EVENTPLANE_{name.upper()}_SECRET": secret for name, secret in secrets.items()},
            **settings.variables(),
        },
    )
