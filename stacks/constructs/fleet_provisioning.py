"""How a device comes to its certificate, by the fleet's claim at first, later with the one that it has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_iot as iot
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from eventplane.fleet import QUARANTINE_POLICY
from eventplane.topics import (
    CLAIM_CLIENT_PREFIX,
    CREATE_FROM_REQUEST_TOPIC,
    CREATE_WITH_KEY_TOPIC,
    RENEWAL_CLIENT_PREFIX,
    answer_topics,
    register_topic,
)
from stacks.constructs.service_role import allow, service_role
from stacks.environment import Environment
from stacks.findings import accept

HOOK_PAYLOAD_VERSION: Final = "2020-04-01"
"""The form of what the hook is told (AWS IoT developer guide)."""


class FleetProvisioning(Construct):
    """The template that registers a device, and two policies that allow to ask for it and nothing else.

    The claim carries the one, each device's certificate the other beside the device policy. They differ in
    the client ids that they allow, so that `hook` knows who asks. A thing is called what it says its serial
    number is: only `hook` knows whose that is.
    """

    def __init__(
        self, scope: Construct, id: str, *, environment: Environment, hook: lambda_.IFunction
    ) -> None:
        super().__init__(scope, id)
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
            source_arn=self._arn(f"provisioningtemplate/{self.template_name}"),
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
        iot.CfnPolicy(
            self,
            "QuarantinePolicy",
            policy_name=environment.resource_name(QUARANTINE_POLICY),
            policy_document={
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Deny", "Action": "iot:*", "Resource": "*"}],
            },
        )

    def _role(self) -> iam.Role:
        """What the template works with."""
        things, certificates = self._arn("thing/*"), self._arn("cert/*")
        role = service_role(
            self,
            "Role",
            service="iot",
            statements=[
                allow(["iot:CreateThing", "iot:DescribeThing", "iot:UpdateThing"], [things]),
                allow(
                    ["iot:DescribeCertificate", "iot:UpdateCertificate", "iot:AttachPolicy"], [certificates]
                ),
                allow(["iot:AttachThingPrincipal"], [things, certificates]),
            ],
            trust_conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
        )
        for kind in ("thing", "cert"):
            arn = f"arn:<AWS::Partition>:iot:<AWS::Region>:<AWS::AccountId>:{kind}/*"
            accept(
                role,
                f"IAM5[Resource::{arn}]",
                "They do not exist yet; the template says what becomes of them.",
            )
        return role

    def _policy(self, id: str, name: str, client_prefix: str) -> iot.CfnPolicy:
        """A policy for clients whose ids start with `client_prefix`."""
        requests = [CREATE_FROM_REQUEST_TOPIC, CREATE_WITH_KEY_TOPIC, register_topic(self.template_name)]
        answers = [answer for request in requests for answer in answer_topics(request)]
        return iot.CfnPolicy(
            self,
            id,
            policy_name=name,
            policy_document={
                "Version": "2012-10-17",
                "Statement": [
                    self._allow("iot:Connect", "client", [f"{client_prefix}*"]),
                    self._allow("iot:Publish", "topic", requests),
                    self._allow("iot:Subscribe", "topicfilter", answers),
                    self._allow("iot:Receive", "topic", answers),
                ],
            },
        )

    def _allow(self, action: str, kind: str, names: list[str]) -> dict[str, Any]:
        resources = [self._arn(f"{kind}/{name}") for name in names]
        return {"Effect": "Allow", "Action": action, "Resource": resources}

    def _arn(self, resource: str) -> str:
        return Stack.of(self).format_arn(service="iot", resource=resource)


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
