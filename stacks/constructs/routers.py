"""Functions that route: one for each lane of devices and each urgent outbox, one for all other services.

Each mapping of the last has a concurrency of its own: a service that floods does not delay another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract, Priority
from eventplane.contract.publication import CONTRACTS_TABLE, written_channels
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.function_settings import ContractSettings, RouterSettings
from eventplane.interest.table import INTEREST_TABLE
from eventplane.ledger import CONTRACTS, LEDGER
from eventplane.resource_names import ANY, channel_url, has_queue, is_fifo
from stacks.constructs.archive import allow_writing
from stacks.constructs.permissions import accept_wildcard, allow_read_secret
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import allow_send, find_queue
from stacks.constructs.tables import allow_table
from stacks.environment import Environment
from stacks.names import ROUTER
from stacks.plane_stack import charge_to, environment_of
from stacks.settings import FunctionSize

URGENT_ROUTER: Final = f"{ROUTER}-urgent"
"""The metrics of the routers behind urgent channels, apart from those of the others."""


class Targets(Construct):
    """The destinations of routers: the channels that the `contract` has them write to.

    Queues are found by the patterns of their names: there may be more than a policy, or the variables of a
    function, have room for. Those without a queue are carried by a protocol that a package adds. Decisions go
    to the `ledger`, or else to the `archive`.
    """

    def __init__(self, scope: Construct, contract: Contract, ledger: sqs.IQueue, archive: s3.IBucket) -> None:
        super().__init__(scope, "Targets")
        self._written = list(written_channels(contract))
        self._elsewhere = [each for each in self._written if not has_queue(each)]
        kinds = {(each.box, is_fifo(each)) for each in self._written if has_queue(each)}
        self._queues = [
            find_queue(self, f"{box.capitalize()}{'Fifo' * fifo}", f"*-{box}", is_fifo=fifo)
            for box, fifo in sorted(kinds)
        ]
        self._all = find_queue(self, "All", ANY)
        self._ledger = ledger
        self.archive = archive

    def statements(self, scope: Construct) -> list[iam.PolicyStatement]:
        """Return what a function in `scope` may do that routes to them."""
        for each in self._queues:
            reason = "All queues of the kind are the plane's, and its routers write to each."
            accept_wildcard(scope, "sqs", each.queue_name, reason)
        return [
            allow_send(*self._queues, self._ledger),
            *allow_contract(scope),
            *allow_writing(scope, self.archive, [LEDGER, CONTRACTS]),
            *(allow_read_secret(scope, each) for each in self.secrets().values()),
        ]

    def settings(self, source: str, priority: Priority) -> RouterSettings:
        """Return the settings of a function that routes what came over `source` at `priority`."""
        return RouterSettings(
            **asdict(contract_settings(environment_of(self))),
            source=source,
            priority=priority,
            queues={ANY: self._all.queue_url, **self._urls_elsewhere()},
            ledger_queue=self._ledger.queue_url,
            archive_bucket=self.archive.bucket_name,
        )

    def urls(self) -> dict[str, str]:
        """Return where routers write, by the address of the channel."""
        queues = {each.address: channel_url(self._all.queue_url, each) for each in self._written}
        return queues | self._urls_elsewhere()

    def _urls_elsewhere(self) -> dict[str, str]:
        environment = environment_of(self)
        return {each.address: environment.channel_url(each) for each in self._elsewhere}

    def secrets(self) -> dict[str, str]:
        """Return the names of secrets of the protocols that carry inboxes, by environment variable."""
        used = {str(each.transport) for each in self._elsewhere}
        return {
            f"EVENTPLANE_{each.name.upper()}_SECRET": each.secret
            for each in environment_of(self).protocols
            if each.name in used and each.secret
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The input of one router: `queues` of the channel at `address`, at `priority`; `*`: each of its own.

    A channel that has several queues has a router for each; `id` and `name` tell them apart.
    """

    id: str
    name: str
    address: str
    priority: Priority
    queues: Sequence[sqs.IQueue]
    size: FunctionSize
    participant: str | None = None
    deploys_last: bool = False


def router(scope: Construct, source: Source, targets: Targets, contract: Contract) -> None:
    """Make the function that routes what comes over `source`."""
    holder = Construct(scope, f"{source.id}Router")
    is_urgent = source.priority is Priority.URGENT
    PythonFunction(
        holder,
        "Router",
        name=f"{ROUTER}-{source.name}",
        module="lambdas.router.handler",
        contract=contract,
        size=source.size,
        sources=source.queues,
        draws_spans=True,
        deploys_last=source.deploys_last,
        # Services that answer each other go through it again and again. Their functions end an endless chain.
        may_recur=True,
        metrics_service=URGENT_ROUTER if is_urgent else None,
        statements=targets.statements(holder),
        settings=targets.settings(source.address, source.priority),
        variables=targets.secrets(),
    )
    if source.participant is not None:
        charge_to(holder, source.participant)


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
