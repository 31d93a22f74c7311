"""The canary: a function that sends an alarm as a device does, and waits for it in an inbox of its own."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from eventplane.names import CANARY, CANARY_CLIENT
from parts.probe.settings import CanarySettings
from stacks.application import PlaneStacks
from stacks.constructs.permissions import (
    accept,
    accept_wildcard,
    allow,
    allow_read_secret,
    arn,
    find_key,
)
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import find_channel_queue
from stacks.constructs.schedule import Schedule
from stacks.names import ingest_rule_name
from stacks.settings import FunctionSize

# It mostly waits. The next alarm begins a minute later.
_SIZE: Final = FunctionSize(memory_mib=256, timeout_s=58)


def add(plane: PlaneStacks) -> None:
    """Add the canary to what watches the plane.

    It makes a certificate of its own, with which it may do what a device may, and reads its inbox. It counts
    the messages of all queues of the environment, and reads none of theirs.
    """
    participant, environment = plane.contract.participants[CANARY], plane.environment
    if participant.retired:
        return
    holder = Construct(plane.monitoring, "Canary")
    inbox = find_channel_queue(holder, "Inbox", participant.inbox)
    identity = environment.resource_name("canary-identity")
    _identity(holder, identity)
    thing, certificates = arn(holder, "iot", f"thing/{CANARY_CLIENT}"), arn(holder, "iot", "cert/*")
    prefix = environment.resource_name("")
    function = PythonFunction(
        holder,
        "Function",
        name=CANARY,
        module="parts.probe.handler",
        metrics_service=CANARY,
        size=_SIZE,
        statements=[
            allow(["iot:CreateKeysAndCertificate", "iot:DescribeEndpoint", "sqs:ListQueues"], ["*"]),
            allow(["iot:CreateThing", "iot:ListThingPrincipals"], [thing]),
            allow(["iot:UpdateCertificate"], [certificates]),
            allow(["iot:AttachThingPrincipal", "iot:DetachThingPrincipal"], [thing, certificates]),
            # The emulator does not know what AWS asks for here.
            allow(["iot:AttachPolicy"], ["*" if environment.is_emulated else certificates]),
            allow_read_secret(holder, identity, "PutSecretValue"),
            allow(["sqs:GetQueueAttributes"], [arn(holder, "sqs", f"{prefix}*")]),
            allow(["sqs:ReceiveMessage", "sqs:DeleteMessage"], [inbox.queue_arn]),
        ],
        settings=CanarySettings(
            ingest_rule=ingest_rule_name(environment.name),
            device_policy=environment.resource_name("device"),
            identity_secret=identity,
            inbox_queue=inbox.queue_url,
            queue_prefix=prefix,
            device_endpoint=environment.device_domain.name if environment.device_domain else None,
            late_ms=1_000 * environment.alarms.canary_late_s,
        ),
    )
    accept_wildcard(holder, "sqs", f"{prefix}*", "It counts what lies in every queue, also in later ones.")
    accept(holder, "IAM5[Resource::*]", "These three actions have no resources to name.")
    accept_wildcard(holder, "iot", "cert/*", "Its certificate does not exist yet.")
    settings = environment.alarms
    Schedule(
        holder,
        "Schedule",
        name=CANARY,
        function=function,
        inputs=[{"do": "alarm"}, {"do": "queues"}],
        rates=[settings.canary_every_min, settings.queues_every_min],
        is_enabled=settings.is_canary_scheduled,
    )


def _identity(scope: Construct, name: str) -> None:
    """Make the secret `name`, in which the function keeps its key and certificate."""
    secret = secretsmanager.Secret(
        scope,
        "Identity",
        secret_name=name,
        encryption_key=find_key(scope),
        description="Key and certificate of the canary, which writes them; any other text has it make others",
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    accept(secret, "SMG4", "The canary makes another certificate when somebody writes another text.")
