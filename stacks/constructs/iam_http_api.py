"""An HTTP API of one function, open to AWS principals whose own policies name its paths."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, cast

from aws_cdk import CfnElement, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.constructs.log_group import log_group
from stacks.constructs.permissions import accept_wildcard, allow
from stacks.plane_stack import environment_of

RATE_PER_S: Final = 50
BURST: Final = 100
"""Requests of all callers together, lasting and at once. Ours: people and starting programs call."""

STAGE: Final = "$default"
"""The only stage, so that the URL has no more than the paths."""

_LOGGED: Final = {
    "request": "$context.requestId",
    "time": "$context.requestTimeEpoch",
    "caller": "$context.identity.caller",
    "user": "$context.identity.userArn",
    "method": "$context.httpMethod",
    "path": "$context.path",
    "status": "$context.status",
    "latency_ms": "$context.responseLatency",
    "error": "$context.error.message",
    "integration_error": "$context.integrationErrorMessage",
}


class IamHttpApi(Construct):
    """`function` answers every method of `paths` (`/things/{thing}`), for callers that sign with SigV4.

    An HTTP API has no policy of its own: principals of its account come in, each by a `caller_policy`.
    Every request is in the log `/aws/vendedlogs/<name>`.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        description: str,
        function: lambda_.IFunction,
        paths: Sequence[str],
    ) -> None:
        super().__init__(scope, id)
        environment = environment_of(self)
        api_name = environment.resource_name(name)
        self.api = apigateway.HttpApi(
            self,
            "Api",
            api_name=api_name,
            description=description,
            create_default_stage=False,
            default_authorizer=authorizers.HttpIamAuthorizer(),
        )
        log = log_group(self, "AccessLog", f"/aws/vendedlogs/{api_name}")
        apigateway.CfnStage(
            self,
            "Stage",
            api_id=self.api.api_id,
            stage_name=STAGE,
            auto_deploy=True,
            access_log_settings=apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=log.log_group_arn, format=json.dumps(_LOGGED)
            ),
            default_route_settings=apigateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=RATE_PER_S, throttling_burst_limit=BURST, detailed_metrics_enabled=True
            ),
        )
        integration = integrations.HttpLambdaIntegration(
            "Function", function, scope_permission_to_route=False
        )
        for path in paths:
            # Any method: the function says which it has, and answers 405 to the others.
            self.api.add_routes(path=path, methods=[apigateway.HttpMethod.ANY], integration=integration)

    @property
    def url(self) -> str:
        """The URL before the paths, without a slash at its end."""
        return self.api.api_endpoint

    def caller_policy(
        self, id: str, *, name: str, description: str, paths: Sequence[str]
    ) -> iam.ManagedPolicy:
        """A policy to attach to who may call `paths`, by any method; `*` in one stands for anything."""
        arns = [self.api.arn_for_execute_api(path=path, stage=STAGE) for path in paths]
        policy = iam.ManagedPolicy(
            self,
            id,
            managed_policy_name=environment_of(self).resource_name(name),
            description=description,
            statements=[allow(["execute-api:Invoke"], arns)],
        )
        stack = Stack.of(self)
        api = stack.resolve(stack.get_logical_id(cast(CfnElement, self.api.node.default_child)))
        for path in paths:
            reason = "The function says which methods a path has; the path is the limit."
            accept_wildcard(policy, "execute-api", f"<{api}>/{STAGE}/*{path}", reason)  # as cdk-nag has it
        return policy
