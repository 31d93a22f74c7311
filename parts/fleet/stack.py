"""The stack of devices' certificates: registry, hook, template and policies, rotation.

Beside it is what writes the fleet into the archive.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import Aws, CfnOutput
from aws_cdk import aws_iam as iam
from aws_cdk import aws_iot as iot
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct

from eventplane.device_record import FLEET, FLEET_TABLE, REGISTRY
from eventplane.names import MONITOR
from eventplane.topics import (
    CLAIM_CLIENT_PREFIX,
    CREATE_FROM_REQUEST_TOPIC,
    CREATE_WITH_KEY_TOPIC,
    RENEWAL_CLIENT_PREFIX,
    answer_topics,
    register_topic,
)
from parts.fleet.lifecycle import QUARANTINE_POLICY
from parts.fleet.settings import CertificateSettings, HookSettings, SnapshotSettings
from stacks.application import PlaneStacks
from stacks.constructs.archive import allow_writing, find_archive
from stacks.constructs.permissions import accept_wildcard, allow, arn, service_role
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import DurableQueue, allow_send, find_channel_queue, find_queue
from stacks.constructs.rules import allow_iot, iot_policy, topic_rule
from stacks.constructs.schedule import Schedule
from stacks.constructs.tables import allow_table, durable_table
from stacks.names import CONNECTIONS, rule_name
from stacks.plane_stack import environment_of
from stacks.settings import ROTATION_SIZE, FunctionSize

HOOK_PAYLOAD_VERSION: Final = "2020-04-01"
"""The form of what the hook is told (AWS IoT developer guide)."""

# AWS IoT waits 5 s for the answer.
_HOOK_SIZE: Final = FunctionSize(memory_mib=512, timeout_s=5)

_SNAPSHOT: Final = "fleet-snapshot"

_SNAPSHOT_EVERY_MIN: Final = 6 * 60
"""Minutes. An audit needs one a day; one that fails is not repeated."""

# A page of DynamoDB's takes less than a second and holds some 3,000 devices.
_SNAPSHOT_SIZE: Final = FunctionSize(memory_mib=512, timeout_s=600)

# Claims and renewals come along, a few times in a device's life: the registry knows nobody of their names.
_CONNECTED: Final = (
    "SELECT clientId AS thing, principalIdentifier AS certificate FROM '$aws/events/presence/connected/+'"
)

# A rule of its own: with an operand that an event lacks, the whole of a condition is undefined, and the rule
# does nothing (AWS IoT developer guide, "Operators").
_TAKEN_OVER: Final = (
    "SELECT clientId AS thing, disconnectReason AS cause, principalIdentifier AS certificate "
    "FROM '$aws/events/presence/disconnected/+' WHERE disconnectReason = 'DUPLICATE_CLIENTID'"
)


def add(plane: PlaneStacks) -> None:
    """Add the stack of the registry, and one of functions and policies.

    A stack of its own: what devices connect with should not change with a route.
    """
    state = plane.add_state("registry")
    # One item for each device that was ever made; a fleet asks a few times a year and device.
    table = durable_table(Construct(state, "Fleet"), "Table", FLEET_TABLE, *REGISTRY.key)
    state.output("FleetTable", table.table_name)
    DurableQueue(state, "Connections", CONNECTIONS, visibility=ROTATION_SIZE.visibility)
    stack = plane.add("fleet")
    monitor = plane.contract.participants.get(MONITOR)
    # By the monitor's outbox operations are told whose key may be stolen.
    outbox = find_channel_queue(stack, "Outbox", monitor.outbox) if monitor else None
    provisioning = _FleetProvisioning(stack, "Provisioning", _provisioning_hook(stack, outbox))
    _certificate_rotation(stack, outbox)
    _fleet_snapshot(stack)
    CfnOutput(stack, "ProvisioningTemplate", value=provisioning.template_name)
    CfnOutput(stack, "ClaimPolicy", value=provisioning.claim_policy_name)
    CfnOutput(stack, "FleetSnapshotFunction", value=plane.environment.resource_name(_SNAPSHOT))


def _provisioning_hook(scope: Construct, outbox: sqs.IQueue | None) -> lambda_.IFunction:
    """Return the function that AWS IoT asks before it registers a device. It may use the registry, report to
    `outbox`, and have certificates ended."""
    holder = Construct(scope, "Hook")
    environment = environment_of(scope)
    queue = find_queue(holder, "Queue", CONNECTIONS)
    return PythonFunction(
        holder,
        "Hook",
        name="provisioning-hook",
        module="parts.fleet.hook",
        size=_HOOK_SIZE,
        statements=[
            allow_table(holder, FLEET_TABLE, "GetItem", "PutItem"),
            allow_send(queue),
            *_sending(outbox),
        ],
        settings=HookSettings(
            fleet_table=environment.resource_name(FLEET_TABLE),
            certificate_max_age_days=environment.certificate_max_age_days,
            connections_queue=queue.queue_url,
            outbox_queue=outbox.queue_url if outbox else None,
        ),
    ).function


def _sending(outbox: sqs.IQueue | None) -> list[iam.PolicyStatement]:
    return [allow_send(outbox)] if outbox else []


def _certificate_rotation(scope: Construct, outbox: sqs.IQueue | None) -> None:
    """Make what ends certificates that were replaced: rule on connections, queue, function.

    It confirms the certificate that a device was seen with, and deactivates those before it.
    """
    holder = Construct(scope, "Keeper")
    environment = environment_of(holder)
    queue = find_queue(holder, "Queue", CONNECTIONS)
    things, certificates = arn(holder, "iot", "thing/*"), arn(holder, "iot", "cert/*")
    PythonFunction(
        holder,
        "Keeper",
        name="certificate-keeper",
        module="parts.fleet.rotation",
        size=ROTATION_SIZE,
        sources=[queue],
        statements=[
            allow_table(holder, FLEET_TABLE, "GetItem", "PutItem"),
            allow_send(queue),
            *_sending(outbox),
            allow(["iot:DescribeCertificate", "iot:UpdateCertificate"], [certificates]),
            allow(["iot:DetachThingPrincipal"], [things, certificates]),
        ],
        settings=CertificateSettings(
            fleet_table=environment.resource_name(FLEET_TABLE),
            certificate_arns=arn(holder, "iot", "cert/"),
            certificate_grace_s=environment.certificate_grace_s,
            outbox_queue=outbox.queue_url if outbox else None,
        ),
    )
    _accept_any_device(holder, "Any device may be the one that replaced its certificate.")
    errors = find_queue(holder, "DeadLetters", f"{CONNECTIONS}-dlq")
    for within, name, sql, description in (
        (holder, "connections", _CONNECTED, "Which certificate each device connects with"),
        (Construct(holder, "Takeovers"), "takeovers", _TAKEN_OVER, "Whose connection another one ends"),
    ):
        topic_rule(
            within,
            name=rule_name(environment.name, name),
            description=description,
            sql=sql,
            queues={"Connection": queue},
            errors=errors,
        )


def _fleet_snapshot(scope: Construct) -> None:
    """Make the function that writes the devices in service into the archive, several times a day."""
    holder = Construct(scope, "Snapshot")
    environment = environment_of(holder)
    archive = find_archive(holder)
    function = PythonFunction(
        holder,
        "Snapshot",
        name=_SNAPSHOT,
        module="parts.fleet.snapshot",
        size=_SNAPSHOT_SIZE,
        statements=[
            allow_table(holder, FLEET_TABLE, "Scan"),
            *allow_writing(holder, archive, [FLEET]),
        ],
        settings=SnapshotSettings(
            fleet_table=environment.resource_name(FLEET_TABLE), archive_bucket=archive.bucket_name
        ),
    )
    Schedule(
        holder,
        "Schedule",
        name=_SNAPSHOT,
        function=function,
        inputs=[{}],
        # On one machine somebody calls it who wants to audit.
        is_enabled=not environment.is_emulated,
        rates=[_SNAPSHOT_EVERY_MIN],
    )


class _FleetProvisioning(Construct):
    """The template that registers a device, and two policies that allow to ask for it and nothing else.

    The claim carries the one, each device's certificate the other beside the device policy. They differ in
    the client ids that they allow, so that `hook` knows who asks. A thing is called what it says its serial
    number is: only `hook` knows whose that is.
    """

    def __init__(self, scope: Construct, id: str, hook: lambda_.IFunction) -> None:
        super().__init__(scope, id)
        environment = environment_of(self)
        self.template_name = environment.resource_name("fleet")
        self.claim_policy_name = environment.resource_name("claim")
        self._policy("ClaimPolicy", self.claim_policy_name, CLAIM_CLIENT_PREFIX)
        renewal = self._policy("RenewalPolicy", environment.resource_name("renewal"), RENEWAL_CLIENT_PREFIX)
        role = self._role()
        permission = lambda_.CfnPermission(
            self,
            "HookPermission",
            action="lambda:InvokeFunction",
            function_name=hook.function_name,
            principal="iot.amazonaws.com",
            source_account=Aws.ACCOUNT_ID,
            source_arn=arn(self, "iot", f"provisioningtemplate/{self.template_name}"),
        )
        template = iot.CfnProvisioningTemplate(
            self,
            "Template",
            template_name=self.template_name,
            description="A device's first certificate, and every later one",
            enabled=True,
            provisioning_role_arn=role.role_arn,
            template_body=json.dumps(
                _template_body([environment.resource_name("device"), str(renewal.policy_name)])
            ),
            pre_provisioning_hook=iot.CfnProvisioningTemplate.ProvisioningHookProperty(
                target_arn=hook.function_arn, payload_version=HOOK_PAYLOAD_VERSION
            ),
        )
        template.node.add_dependency(role, renewal, permission)
        # Attached to the certificates of a quarantined device, by the operator's command.
        nothing = {"Effect": "Deny", "Action": "iot:*", "Resource": "*"}
        iot_policy(self, "QuarantinePolicy", environment.resource_name(QUARANTINE_POLICY), nothing)

    def _role(self) -> iam.Role:
        """Return the role of the template."""
        things, certificates = arn(self, "iot", "thing/*"), arn(self, "iot", "cert/*")
        of_certificates = ["iot:DescribeCertificate", "iot:UpdateCertificate", "iot:AttachPolicy"]
        role = service_role(
            self,
            "Role",
            service="iot",
            statements=[
                allow(["iot:CreateThing", "iot:DescribeThing", "iot:UpdateThing"], [things]),
                allow(of_certificates, [certificates]),
                allow(["iot:AttachThingPrincipal"], [things, certificates]),
            ],
            trust_conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
        )
        _accept_any_device(role, "They do not exist yet; the template says what becomes of them.")
        return role

    def _policy(self, id: str, name: str, client_prefix: str) -> iot.CfnPolicy:
        """A policy for clients whose ids start with `client_prefix`."""
        requests = [CREATE_FROM_REQUEST_TOPIC, CREATE_WITH_KEY_TOPIC, register_topic(self.template_name)]
        answers = [answer for request in requests for answer in answer_topics(request)]
        return iot_policy(
            self,
            id,
            name,
            allow_iot(self, "Connect", f"client/{client_prefix}*"),
            allow_iot(self, "Publish", *(f"topic/{each}" for each in requests)),
            allow_iot(self, "Subscribe", *(f"topicfilter/{each}" for each in answers)),
            allow_iot(self, "Receive", *(f"topic/{each}" for each in answers)),
        )


def _accept_any_device(construct: IConstruct, reason: str) -> None:
    for resource in ("thing/*", "cert/*"):
        accept_wildcard(construct, "iot", resource, reason)


def _template_body(policies: Sequence[str]) -> dict[str, Any]:
    """In the template's own language; its references are IoT's, not CloudFormation's."""
    return {
        "Parameters": {"SerialNumber": {"Type": "String"}, "AWS::IoT::Certificate::Id": {"Type": "String"}},
        "Resources": {
            "thing": {"Type": "AWS::IoT::Thing", "Properties": {"ThingName": {"Ref": "SerialNumber"}}},
            "certificate": {
                "Type": "AWS::IoT::Certificate",
                "Properties": {"CertificateId": {"Ref": "AWS::IoT::Certificate::Id"}, "Status": "Active"},
            },
            **{
                f"policy{number}": {"Type": "AWS::IoT::Policy", "Properties": {"PolicyName": policy}}
                for number, policy in enumerate(policies, start=1)
            },
        },
    }
