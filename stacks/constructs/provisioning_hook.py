"""The function that AWS IoT asks before it registers a device."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from eventplane.fleet_registry import TABLE
from eventplane.function_settings import RegistrySettings
from stacks.constructs.fleet_registry import allow_registry
from stacks.constructs.function_assets import function_code
from stacks.constructs.python_function import PythonFunction
from stacks.environment import Environment
from stacks.settings import FunctionSize

FOLDER: Final = "fleet"

# AWS IoT waits 5 s for the answer. No queue feeds it: the rest is not used.
_SIZE: Final = FunctionSize(memory_mib=512, timeout_s=5)


class ProvisioningHook(Construct):
    """May read and write the fleet's registry, and nothing else."""

    def __init__(
        self, scope: Construct, id: str, *, environment: Environment, layer: lambda_.ILayerVersion
    ) -> None:
        super().__init__(scope, id)
        self.function = PythonFunction(
            self,
            "Hook",
            environment=environment,
            name="provisioning-hook",
            folder=FOLDER,
            entry="hook",
            code=function_code(FOLDER),
            layer=layer,
            size=_SIZE,
            source=None,
            statements=[allow_registry(self, environment=environment)],
            variables=RegistrySettings(environment.resource_name(TABLE)).variables(),
        ).function
