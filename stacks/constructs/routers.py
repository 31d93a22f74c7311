"""Functions that route: the same code for every source queue, each in a function of its own (a bulkhead)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Channel, Contract, Priority
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.function_settings import ContractSettings, RouterSettings
from eventplane.interest.table import INTEREST_TABLE
from eventplane.ledger import CONTRACTS, LEDGER, TAP
from stacks.constructs.archive import allow_folders, allow_writing
from stacks.constructs.function_assets import ROUTER
from stacks.constructs.http_sink import allow_read_secret
from stacks.constructs.permissions import allow
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import allow_send
from stacks.constructs.tables import CONTRACTS as CONTRACTS_TABLE
from stacks.constructs.tables import allow_table
from stacks.environment import Environment
from stacks.plane_stack import charge_to, environment_of
from stacks.settings import FunctionSize

URGENT_ROUTER: Final = f"{ROUTER}-urgent"
"""The metrics of the routers behind urgent channels, apart from those of the others."""

REPLAY_FOLDER: Final = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The destinations of routers.

    `inboxes` are queues by the address of their channel. The inboxes `elsewhere` have no queue: a protocol
    that a package adds carries them. Decisions go to the `ledger`, or else to the `archive`.
    """

    inboxes: Mapping[str, sqs.IQueue]
    elsewhere: Sequence[Channel]
    ledger: sqs.IQueue
    archive: s3.IBucket

    def statements(self, scope: Construct) -> list[iam.PolicyStatement]:
        """Return what a function in `scope` may do that routes to them."""
        return [
            allow_send(*self.inboxes.values(), self.ledger),
            *allow_contract(scope),
            *allow_writing(scope, self.archive, [LEDGER, CONTRACTS]),
            *(allow_read_secret(scope, each) for each in self.secrets(scope).values()),
        ]

    def settings(self, scope: Construct, source: Channel, priority: Priority) -> RouterSettings:
        """Return the settings of a function that routes what came over `source` at `priority`."""
        environment = environment_of(scope)
        queues = {address: queue.queue_url for address, queue in self.inboxes.items()}
        queues |= {each.address: environment.channel_url(each) for each in self.elsewhere}
        return RouterSettings(
            **asdict(contract_settings(environment)),
            source=source.address,
            priority=priority,
            queues=queues,
            ledger_queue=self.ledger.queue_url,
            archive_bucket=self.archive.bucket_name,
        )

    def secrets(self, scope: Construct) -> dict[str, str]:
        """Return the names of secrets of the protocols that carry inboxes, by environment variable."""
        used = {str(each.transport) for each in self.elsewhere}
        return {
            f"EVENTPLANE_{each.name.upper()}_SECRET": each.secret
            for each in environment_of(scope).protocols
            if each.name in used and each.secret
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The input of one router: a `queue` of a `channel`, at `priority`.

    A channel that has several queues has a router for each; `id` and `name` tell them apart.
    """

    id: str
    name: str
    channel: Channel
    priority: Priority
    queue: sqs.IQueue
    size: FunctionSize
    deploys_last: bool = False


def router(scope: Construct, source: Source, targets: Targets, contract: Contract) -> None:
    """Make the function that routes what comes over `source`."""
    holder = Construct(scope, f"{source.id}Router")
    is_urgent = source.priority is Priority.URGENT
    PythonFunction(
        holder,
        "Router",
        name=f"{ROUTER}-{source.name}",
        folder=ROUTER,
        contract=contract,
        size=source.size,
        source=source.queue,
        draws_spans=True,
        deploys_last=source.deploys_last,
        # Services that answer each other go through it again and again. Their functions end an endless chain.
        may_recur=True,
        metrics_service=URGENT_ROUTER if is_urgent else None,
        statements=targets.statements(holder),
        settings=targets.settings(holder, source.channel, source.priority),
        variables=targets.secrets(holder),
    )
    charge_to(holder, source.channel.participant)


def replay(scope: Construct, orders: sqs.IQueue, targets: Targets, contract: Contract) -> None:
    """Make the function that routes again what devices sent: it reads the tap's files, as `orders` say."""
    holder = Construct(scope, "Replay")
    outbox = contract.device.outbox
    PythonFunction(
        holder,
        "Replay",
        name=REPLAY_FOLDER,
        folder=REPLAY_FOLDER,
        contract=contract,
        size=environment_of(scope).replay,
        source=orders,
        statements=[
            *targets.statements(holder),
            allow_folders(holder, targets.archive, ["s3:GetObject"], [TAP, CONTRACTS]),
            # Or S3 says of an object that is not there that it may not be read.
            allow(["s3:ListBucket"], [targets.archive.bucket_arn]),
        ],
        settings=targets.settings(holder, outbox, outbox.priority),
        variables=targets.secrets(holder),
    )


def contract_settings(environment: Environment) -> ContractSettings:
    """Return where a function finds what is published, subscribed and announced."""
    return ContractSettings(
        contracts_table=environment.resource_name(CONTRACTS_TABLE),
        subscriptions_table=environment.resource_name(SUBSCRIPTIONS_TABLE),
        interest_table=environment.resource_name(INTEREST_TABLE),
        contract_refresh_s=environment.contract_refresh_s,
    )


def allow_contract(scope: Construct) -> list[iam.PolicyStatement]:
    """Return statements for a function that follows what is published, subscribed and announced."""
    return [
        allow_table(scope, CONTRACTS_TABLE, "GetItem"),
        allow_table(scope, SUBSCRIPTIONS_TABLE, "Scan"),
        allow_table(scope, INTEREST_TABLE, "Scan"),
    ]
