"""An HTTP API that nobody enters without a policy that names the path."""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from cdk_nag import AwsSolutionsChecks

from stacks.config import environment
from stacks.constructs.iam_http_api import BURST, RATE_PER_S, IamHttpApi
from stacks.plane_stack import PlaneStack


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    """What a stack has that holds such an API and a policy for one of its things, by type."""
    app = cdk.App()
    stack = PlaneStack(app, environment=environment("dev"), name="things")
    function = lambda_.Function(
        stack,
        "Function",
        runtime=lambda_.Runtime.PYTHON_3_14,
        handler="index.handle",
        code=lambda_.Code.from_inline("def handle(event, context): ..."),
        role=iam.Role.from_role_name(stack, "Role", "functions"),
    )
    api = IamHttpApi(
        stack,
        "Things",
        name="things",
        description="Things.",
        function=function,
        paths=["/things", "/things/{thing}"],
    )
    api.caller_policy("One", name="one", description="One.", paths=["/things/one*"])
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    template = app.synth().get_stack_by_name("eventplane-dev-things").template
    found: dict[str, Any] = {}
    for each in template["Resources"].values():
        found.setdefault(each["Type"].rsplit("::", 1)[-1], []).append(each["Properties"])
    return found


def test_every_route_wants_a_signature(resources: dict[str, Any]) -> None:
    routes = {each["RouteKey"]: each["AuthorizationType"] for each in resources["Route"]}
    assert routes == {"ANY /things": "AWS_IAM", "ANY /things/{thing}": "AWS_IAM"}


def test_its_requests_are_bounded_and_logged(resources: dict[str, Any]) -> None:
    (stage,) = resources["Stage"]
    limits = stage["DefaultRouteSettings"]
    assert (limits["ThrottlingRateLimit"], limits["ThrottlingBurstLimit"]) == (RATE_PER_S, BURST)
    assert {"user", "status", "path"} < json.loads(stage["AccessLogSettings"]["Format"]).keys()
    (group,) = (each for each in resources["LogGroup"] if "vendedlogs" in each["LogGroupName"])
    assert group["RetentionInDays"] == 7


def test_a_policy_names_one_path(resources: dict[str, Any]) -> None:
    (policy,) = resources["ManagedPolicy"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == "execute-api:Invoke"
    assert statement["Resource"]["Fn::Join"][1][-1] == "/$default/*/things/one*"
