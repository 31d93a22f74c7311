"""How devices come to their certificates, and lose them. It holds no state."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from stacks.constructs.fleet import FleetProvisioning, certificate_rotation, provisioning_hook
from stacks.environment import Environment
from stacks.plane_stack import PlaneStack


class FleetStack(PlaneStack):
    """Its own stack: what devices connect with shall not change when a route does."""

    def __init__(self, scope: Construct, environment: Environment) -> None:
        super().__init__(scope, environment=environment, name="fleet")
        provisioning = FleetProvisioning(self, "Provisioning", provisioning_hook(self))
        certificate_rotation(self)
        CfnOutput(self, "ProvisioningTemplate", value=provisioning.template_name)
        CfnOutput(self, "ClaimPolicy", value=provisioning.claim_policy_name)
