"""How a device with nothing but the fleet's claim becomes a thing: AWS IoT fleet provisioning by claim."""

from __future__ import annotations

import json
from typing import Any, Final

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_iot as iot
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from eventplane.topics import (
    CLAIM_CLIENT_PREFIX,
    CREATE_FROM_REQUEST_TOPIC,
    CREATE_WITH_KEY_TOPIC,
    answer_topics,
    register_topic,
)
from stacks.config import Environment
from stacks.constructs.service_role import allow, service_role
from stacks.findings import accept

HOOK_PAYLOAD_VERSION: Final = "2020-04-01"
"""The form of what the hook is told (AWS IoT developer guide)."""


class FleetProvisioning(Construct):
    """The template that registers a device, and the policy of the fleet's claim, which may ask for that only.

    A thing's name is the serial number that the device tells, so a claim's holder can ask for any name: the
    pre-provisioning hook is what knows which devices were made. `device_policy` is what a device gets.
    """

    def __init__(
        self, scope: Construct, id: str, *, environment: Environment, device_policy: iot.CfnPolicy
    ) -> None:
        super().__init__(scope, id)
        self.template_name = environment.resource_name("fleet")
        self.claim_policy_name = environment.resource_name("claim")
        role = self._role()
        template = iot.CfnProvisioningTemplate(
            self,
            "Template",
            template_name=self.template_name,
            description="A device's first certificate, and every later one",
            enabled=True,
            provisioning_role_arn=role.role_arn,
            template_body=json.dumps(_template_body(str(device_policy.policy_name))),
        )
        template.node.add_dependency(role, device_policy)
        if environment.provisioning_hook:
            self._ask_first(template, environment.provisioning_hook)
        self._claim_policy()

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

    def _ask_first(self, template: iot.CfnProvisioningTemplate, function: str) -> None:
        """Let the Lambda function of this name decide on every registration."""
        stack = Stack.of(self)
        target = stack.format_arn(
            service="lambda",
            resource="function",
            resource_name=function,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        permission = lambda_.CfnPermission(
            self,
            "HookPermission",
            action="lambda:InvokeFunction",
            function_name=function,
            principal="iot.amazonaws.com",
            source_arn=self._arn(f"provisioningtemplate/{self.template_name}"),
        )
        template.pre_provisioning_hook = iot.CfnProvisioningTemplate.ProvisioningHookProperty(
            target_arn=target, payload_version=HOOK_PAYLOAD_VERSION
        )
        template.node.add_dependency(permission)

    def _claim_policy(self) -> None:
        requests = [CREATE_FROM_REQUEST_TOPIC, CREATE_WITH_KEY_TOPIC, register_topic(self.template_name)]
        answers = [answer for request in requests for answer in answer_topics(request)]
        iot.CfnPolicy(
            self,
            "ClaimPolicy",
            policy_name=self.claim_policy_name,
            policy_document={
                "Version": "2012-10-17",
                "Statement": [
                    self._allow("iot:Connect", "client", [f"{CLAIM_CLIENT_PREFIX}*"]),
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


def _template_body(device_policy: str) -> dict[str, Any]:
    """In the template's own language; its references are IoT's, not CloudFormation's."""
    return {
        "Parameters": {"SerialNumber": {"Type": "String"}, "AWS::IoT::Certificate::Id": {"Type": "String"}},
        "Resources": {
            "thing": {"Type": "AWS::IoT::Thing", "Properties": {"ThingName": {"Ref": "SerialNumber"}}},
            "certificate": {
                "Type": "AWS::IoT::Certificate",
                "Properties": {"CertificateId": {"Ref": "AWS::IoT::Certificate::Id"}, "Status": "Active"},
            },
            "policy": {"Type": "AWS::IoT::Policy", "Properties": {"PolicyName": device_policy}},
        },
    }
