"""The downlink: three functions that read queues, one that is called every minute, one code.

Beside it is what tells devices which of their events the cloud wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract
from eventplane.contract.publication import CONTRACTS_TABLE
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.device_record import FLEET_TABLE
from eventplane.downlink.table import INDEX, PENDING_INDEX, TABLE
from eventplane.function_settings import DownlinkFunctionSettings, UplinkInterestSettings
from eventplane.presence import BUCKETS, PRESENCE_TABLE
from eventplane.topics import device_topic
from stacks.constructs.permissions import accept_wildcard, allow, arn
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import allow_send, find_channel_dead_letters, find_queue
from stacks.constructs.rules import topic_rule
from stacks.constructs.schedule import Schedule
from stacks.constructs.tables import allow_table
from stacks.names import WORK, rule_name
from stacks.plane_stack import environment_of
from stacks.settings import FunctionSize

_INTEREST: Final = "uplink-interest"

_INBOXES: Final = device_topic("*", "inbox")

# Not the connection: what is published between the two reaches nobody.
_SUBSCRIBED: Final = "SELECT clientId AS subscribed FROM '$aws/events/subscriptions/subscribed/+'"


class DownlinkFunctions(Construct):
    """Brings what is in the devices' `inbox` to them; `answers` is its own inbox, `outbox` for letters."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        contract: Contract,
        inbox: sqs.IQueue,
        answers: sqs.IQueue,
        outbox: sqs.IQueue,
    ) -> None:
        super().__init__(scope, id)
        environment = environment_of(self)
        self._contract = contract
        self._work = find_queue(self, "WorkQueue", WORK)
        self._outbox = outbox
        self._last_resort = find_channel_dead_letters(self, "LastResort", contract.device.inbox)
        settings = environment.downlink
        fleet = [allow_table(self, FLEET_TABLE, "BatchGetItem", "GetItem", "Scan")]
        due = allow_table(self, TABLE, "Query", index=INDEX)
        self._function("Desired", settings.reader, [inbox], [*fleet, allow_send(inbox)])
        self._function("Answers", settings.reader, [answers])
        self._function("Due", settings.reader, [self._work], fleet)
        reconciler = self._function(
            "Reconciler",
            settings.reconciler,
            [],
            [allow_table(self, FLEET_TABLE, "GetItem"), due],
        )
        Schedule(
            self,
            "Reconcile",
            name="downlink-reconcile",
            function=reconciler,
            inputs=[{"buckets": list(range(BUCKETS))}],
            is_enabled=settings.is_scheduled,
        )
        accept_wildcard(self, "iot", f"topic/{_INBOXES}", "Any device may be the one that is written to.")
        # A device that subscribes gets at once what waits for it.
        topic_rule(
            self,
            name=rule_name(environment.name, "downlink"),
            description="Devices that subscribe to the downlink",
            sql=_SUBSCRIBED,
            queues={"Subscribed": self._work},
            errors=find_queue(self, "WorkDlq", f"{WORK}-dlq"),
        )

    def _function(
        self,
        id: str,
        size: FunctionSize,
        sources: Sequence[sqs.IQueue],
        statements: Sequence[iam.PolicyStatement] = (),
    ) -> PythonFunction:
        environment = environment_of(self)
        return PythonFunction(
            self,
            id,
            name=f"downlink-{id.lower()}",
            module=f"lambdas.downlink.{id.lower()}",
            contract=self._contract,
            size=size,
            sources=sources,
            statements=[
                allow_table(self, TABLE, "GetItem", "PutItem", "DeleteItem", "Query"),
                allow_table(self, TABLE, "Query", index=PENDING_INDEX),
                allow_table(self, PRESENCE_TABLE, "BatchGetItem"),
                allow(["iot:Publish"], [arn(self, "iot", f"topic/{_INBOXES}")]),
                allow_send(self._work, self._outbox, self._last_resort),
                *statements,
            ],
            settings=DownlinkFunctionSettings(
                desired_table=environment.resource_name(TABLE),
                presence_table=environment.resource_name(PRESENCE_TABLE),
                fleet_table=environment.resource_name(FLEET_TABLE),
                work_queue=self._work.queue_url,
                outbox_queue=self._outbox.queue_url,
                dead_letter_queue=self._last_resort.queue_url,
            ),
        )


def uplink_interest(scope: Construct, outbox: sqs.IQueue, contract: Contract) -> None:
    """Make the function that looks once a minute, and tells devices what the cloud wants of them.

    It sends through the `outbox` of a participant that may send what goes down to devices.
    """
    holder = Construct(scope, "UplinkInterest")
    environment = environment_of(holder)
    function = PythonFunction(
        holder,
        "Function",
        name=_INTEREST,
        module="lambdas.downlink.interest",
        contract=contract,
        size=environment.downlink.reconciler,
        statements=[
            allow_table(holder, CONTRACTS_TABLE, "GetItem"),
            allow_table(holder, SUBSCRIPTIONS_TABLE, "Scan"),
            allow_table(holder, TABLE, "GetItem", "PutItem"),
            allow_send(outbox),
        ],
        settings=UplinkInterestSettings(
            contracts_table=environment.resource_name(CONTRACTS_TABLE),
            subscriptions_table=environment.resource_name(SUBSCRIPTIONS_TABLE),
            desired_table=environment.resource_name(TABLE),
            outbox_queue=outbox.queue_url,
        ),
    )
    Schedule(
        holder,
        "Look",
        name=_INTEREST,
        function=function,
        inputs=[{}],
        is_enabled=environment.downlink.is_scheduled,
    )
