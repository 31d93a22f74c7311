"""Findings of cdk-nag that are accepted: each narrowly, each with its reason, where it arises."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, Stack, Token, Validations
from constructs import IConstruct

PLAIN_HTTP: Final = "The emulator speaks plain HTTP on this machine; no other environment accepts it."


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept that `construct`, or something in it, breaks the AwsSolutions `rule` (`S1`, `IAM5[...]`).

    An ARN in `rule` has `<AWS::Region>` and `<AWS::AccountId>`; where the stack is bound to others, the
    finding has those.
    """
    stack = Stack.of(construct)
    bound = rule
    for placeholder, value in (("<AWS::Region>", stack.region), ("<AWS::AccountId>", stack.account)):
        if not Token.is_unresolved(value):
            bound = bound.replace(placeholder, value)
    for each in {rule, bound}:
        Validations.of(construct).acknowledge(
            Acknowledgment(id=f"AwsSolutions::AwsSolutions-{each}", reason=reason)
        )
