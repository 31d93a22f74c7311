"""The Discovery API: what the plane consists of, for those who have a policy that lets them read it."""

from __future__ import annotations

from typing import Final

from aws_cdk import CfnOutput
from constructs import Construct

from eventplane.contract import Contract
from stacks.constructs.contract_inputs import contract_inputs
from stacks.constructs.function_assets import DependenciesLayer, function_code
from stacks.constructs.iam_http_api import IamHttpApi
from stacks.constructs.python_function import PythonFunction
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack
from stacks.settings import FunctionSize

API: Final = "api"
"""The folder of the code of the HTTP APIs."""

NAME: Final = "discovery-api"

# Nobody waits in a queue for it; the timeout is below the 30 s that API Gateway waits.
_SIZE: Final = FunctionSize(memory_mib=512, timeout_s=20)


class DiscoveryStack(PlaneStack):
    """The API over the contract in force; it holds no state."""

    def __init__(self, scope: Construct, *, environment: Environment, contract: Contract) -> None:
        super().__init__(scope, environment=environment, name="discovery")
        inputs = contract_inputs(self, environment=environment)
        function = PythonFunction(
            self,
            "Function",
            environment=environment,
            name=NAME,
            folder=API,
            entry="discovery",
            # Which contract is in force it finds out as the routers do.
            code=function_code(API, contract, also=["http_sink", "router"]),
            layer=DependenciesLayer(self, "Dependencies", environment=environment).version,
            size=_SIZE,
            source=None,
            statements=inputs.statements,
            variables=inputs.variables,
        ).function
        api = IamHttpApi(
            self,
            "Api",
            environment=environment,
            name=NAME,
            description="What participants, event types, schemas, channels and routes the event plane has.",
            function=function,
            paths=["/", "/{proxy+}"],
        )
        api.caller_policy(
            "Reader",
            environment=environment,
            name="discovery-reader",
            description="Lets read the Discovery API of the event plane.",
            paths=["/*"],
        )
        CfnOutput(self, "DiscoveryApiUrl", value=api.url)
