"""What all stacks have in common: their name, where they go, and how assets get there."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from stacks.environment import Environment


class PlaneStack(cdk.Stack):
    """A stack of `environment` called `name`; one that `holds_state` is protected where data is kept."""

    def __init__(
        self, scope: Construct, *, environment: Environment, name: str, holds_state: bool = False
    ) -> None:
        super().__init__(
            scope,
            name.capitalize(),
            stack_name=environment.resource_name(name),
            env=cdk.Environment(account=environment.account, region=environment.region),
            synthesizer=cdk.CliCredentialsStackSynthesizer() if environment.is_emulated else None,
            termination_protection=holds_state and environment.keeps_data,
        )
