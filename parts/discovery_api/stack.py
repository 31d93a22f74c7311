"""The stack of the Discovery API. It holds no state."""

from __future__ import annotations

from typing import Final

from aws_cdk import CfnOutput

from stacks.application import PlaneStacks
from stacks.constructs.iam_http_api import IamHttpApi
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.routers import allow_contract, contract_settings
from stacks.names import API
from stacks.settings import FunctionSize

# No queue waits for it; the timeout is below the 30 s that API Gateway waits.
_SIZE: Final = FunctionSize(memory_mib=512, timeout_s=20)


def add(plane: PlaneStacks) -> None:
    """Add the stack of the API, for those who have a policy that lets them read it."""
    stack = plane.add("discovery")
    name = "discovery-api"
    function = PythonFunction(
        stack,
        "Function",
        name=name,
        module="parts.discovery_api.handler",
        metrics_service=API,
        contract=plane.contract,
        size=_SIZE,
        statements=allow_contract(stack),
        settings=contract_settings(plane.environment),
    ).function
    api = IamHttpApi(
        stack,
        "Api",
        name=name,
        description="What participants, event types, schemas, channels and routes the event plane has.",
        function=function,
        paths=["/", "/{proxy+}"],
    )
    api.caller_policy(
        "Reader",
        name="discovery-reader",
        description="Lets read the Discovery API of the event plane.",
        paths=["/*"],
    )
    CfnOutput(stack, "DiscoveryApiUrl", value=api.url)
