"""How devices come to their certificates, and lose them: template, hook, keeper. It holds no state."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from stacks.constructs.certificate_keeper import CertificateKeeper
from stacks.constructs.fleet_provisioning import FleetProvisioning
from stacks.constructs.function_assets import DependenciesLayer
from stacks.constructs.provisioning_hook import ProvisioningHook
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack


class FleetStack(PlaneStack):
    """Its own stack: what devices connect with shall not change when a route does."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="fleet")
        layer = DependenciesLayer(self, "Dependencies", environment=environment).version
        hook = ProvisioningHook(self, "Hook", environment=environment, layer=layer)
        CertificateKeeper(self, "Keeper", environment=environment, layer=layer)
        provisioning = FleetProvisioning(self, "Provisioning", environment=environment, hook=hook.function)
        CfnOutput(self, "ProvisioningTemplate", value=provisioning.template_name)
        CfnOutput(self, "ClaimPolicy", value=provisioning.claim_policy_name)
