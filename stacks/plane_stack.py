"""The base of all stacks: environment, name, account and region, how assets get there."""

from __future__ import annotations

from typing import Final, Self, cast

import aws_cdk as cdk
from constructs import Construct, IConstruct

from stacks.environment import Environment

PLANE_TAG: Final = "plane"
"""The tag of everything that an environment has: its project and name, by which its costs are told apart."""

_PARTICIPANT_TAG: Final = "participant"


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
        self.plane = environment


class OneOfStack(Construct):
    """A construct that a stack has at most once, called like its class."""

    @classmethod
    def of(cls, scope: Construct) -> Self:
        """Return the one of the stack that `scope` is in."""
        stack, id = cdk.Stack.of(scope), cls.__name__
        found = stack.node.try_find_child(id)
        return found if isinstance(found, cls) else cls(stack, id)


def environment_of(construct: IConstruct) -> Environment:
    """Return the environment that `construct` is deployed in: that of its `PlaneStack`."""
    return cast("PlaneStack", cdk.Stack.of(construct)).plane


def charge_to(construct: Construct, participant: str) -> None:
    """Tag what is in `construct` with the participant that it is there for: costs can be split by it."""
    cdk.Tags.of(construct).add(_PARTICIPANT_TAG, participant)
